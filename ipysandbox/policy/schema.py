"""Every key a policy may hold: how its value is read, which way is tighter, what this version can't do yet."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipysandbox.errors import PolicyError

from .model import GUARANTEES, Policy
from .names import CHECK_RULES
from .profiles import nearest, unknown
from .source import Document, KeyPath
from .units import BadValue, format_duration, format_size, parse_duration, parse_size, quoted, type_name

#: Sandboxes that wait ready, of one policy: each holds some 20 MB.
MOST_POOLED = 8

# Which of two values is tighter; see merge.py.
SMALLER, INNER_PATHS, INNER_PATH, FEWER, MORE, MORE_HIDDEN, LATER = range(7)


@dataclass(frozen=True, slots=True)
class Field:
    """One key. ``choices`` go from loose to tight. ``built``, where given, are the only values that work yet."""

    read: Callable[[object], Any]
    tighter: int
    choices: tuple[Any, ...] = ()
    built: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy, where, and what to write instead."""

    key: str
    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return str(self.error())

    def error(self) -> PolicyError:
        text = f"{self.key}: {self.message}" if self.key else self.message
        return PolicyError(text, file=self.file, line=self.line, hint=self.hint)


class _BadElement(BadValue):
    def __init__(self, index: int, error: BadValue) -> None:
        super().__init__(error.message, error.hint)
        self.index = index


def _quantity(
    parse: Callable[[object], Any], show: Callable[[Any], str], low: float, high: float
) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        return _bounded(parse(value), low, high, show)

    return read


def _bounded(number: Any, low: float, high: float, show: Callable[[Any], str]) -> Any:
    if not low <= number <= high:
        raise BadValue(f"{show(number)} is out of range", f"write a value from {show(low)} to {show(high)}")
    return number


def _number(low: float, high: float, *, whole: bool) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            shown = quoted(value) if isinstance(value, str) else type_name(value)
            raise BadValue(f"must be a {'whole ' * whole}number without unit, not {shown}", f"for example {low:g}")
        number = _bounded(value, low, high, lambda n: f"{n:.12g}" if abs(n) < 10**20 else "the number")
        return number if whole else float(number)

    return read


def _choice(*choices: Any) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if type(value) is type(choices[0]) and value in choices:
            return value
        if isinstance(value, str) and isinstance(choices[0], str):
            raise BadValue(*unknown("value", value, list(choices)))
        known = " or ".join(quoted(c) if isinstance(c, str) else str(c).lower() for c in choices)
        raise BadValue(f"must be {known}, not {type_name(value)}", f"write {known}")

    return read


def _texts(check: Callable[[str], None]) -> Callable[[object], tuple[str, ...]]:
    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            raise BadValue("must be a list, not a text", f"write [{quoted(value)}]")
        if not isinstance(value, (list, tuple)):
            raise BadValue(f"must be a list of texts, not {type_name(value)}", 'for example ["name"]')
        if len(value) > 1000:
            raise BadValue(f"has {len(value)} entries; at most 1000 are read", "name folders or patterns instead")
        for index, entry in enumerate(value):
            try:
                if not isinstance(entry, str):
                    raise BadValue(f"entries are texts, not {type_name(entry)}", 'for example ["name"]')
                check(entry)
            except BadValue as error:
                raise _BadElement(index, error) from None
        return tuple(dict.fromkeys(value))

    return read


def _path(text: str) -> None:
    if not text:
        raise BadValue("is an empty path", 'write "." for the project folder')
    if not text.isprintable() or len(text) > 4096:
        raise BadValue(f"{quoted(text)} is no usable path: control characters, or too long", "rename the folder")
    if text.startswith("~") and not (text == "~" or text.startswith("~/")):
        raise BadValue(f"{quoted(text)} names another user's home", "write the whole path")


def _one_path(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue(f"must be a path in quotes, not {type_name(value)}", 'for example "/data/study"')
    _path(value)
    return value


def _pattern(text: str) -> None:
    bare = text.removeprefix("!").strip("/")
    parts = bare.split("/")
    if not bare or any(part in ("", ".", "..") for part in parts) or not text.isprintable() or len(text) > 200:
        raise BadValue(f"{quoted(text)} is no name pattern", 'write for example "*.pem", ".env" or ".git/config"')
    if "**" in bare:
        raise BadValue(f'"**" in {quoted(text)} means nothing here', "a pattern without / already holds at any depth")


def _variable(text: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", text, re.ASCII):
        raise BadValue(f"{quoted(text)} is no name of a variable", "name variables one by one, without patterns")


def _rule(text: str) -> None:
    # A rule's id ("call.os-system") or a dotted name of Python ("os.system").
    if not re.fullmatch(r"[A-Za-z_][\w.*-]{0,199}", text):
        raise BadValue(f"{quoted(text)} is no rule or name", 'write for example "call.os-system" or "os.system"')
    if text in CHECK_RULES:
        return
    # No name of Python has a hyphen or begins with a keyword; a module named "call" or "dunder" is nobody's either. One
    # named "magic" there is, so that there only what is nearly a rule is taken for one.
    family = text.partition(".")[0]
    like_one = family == "magic" and "." in text and nearest(text, [*CHECK_RULES], cutoff=0.75)
    if "-" in text or (family in ("call", "dunder", "import") and "." in text) or like_one:
        raise BadValue(*unknown("rule", text, [*CHECK_RULES]))


def _card(text: str) -> None:
    if not re.fullmatch(r"[0-9]{1,3}|GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text, re.ASCII):
        hint = 'write its number, as "0", or its identifier "GPU-…"; nvidia-smi -L lists both'
        raise BadValue(f"{quoted(text)} is no graphics card", hint)


def _host(text: str) -> None:
    if not re.fullmatch(r"(?:\*\.)?[A-Za-z0-9_.-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?", text):
        raise BadValue(f"{quoted(text)} is no host", 'write for example "api.example.org:443", without https://')


def _module(text: str) -> None:
    if not (text.isascii() and all(part.isidentifier() for part in text.split(".")) and len(text) < 200):
        raise BadValue(f"{quoted(text)} is no module's name", 'write for example "numpy" or "scipy.stats"')


def _guarantee(text: str) -> None:
    if text not in GUARANTEES:
        raise BadValue(*unknown("guarantee", text, list(GUARANTEES)))


_duration = _quantity(parse_duration, format_duration, 0.05, 30 * 86400.0)
# What a bound on data counts of a kernel with its threads is about 170 MiB, before any code of the user's.
_memory = _quantity(parse_size, format_size, 256 * 2**20, 64 * 2**40)
_disk = _quantity(parse_size, format_size, 2**20, 64 * 2**40)
_output = _quantity(parse_size, format_size, 2**10, 16 * 2**30)


def _choices(tighter: int, *choices: Any, built: tuple[Any, ...] | None = None) -> Field:
    return Field(_choice(*choices), tighter, choices, built)


FIELDS: Mapping[str, Field] = {
    "limits.cpu": Field(_duration, SMALLER),
    "limits.wall": Field(_duration, SMALLER),
    "limits.memory": Field(_memory, SMALLER),
    "limits.disk": Field(_disk, SMALLER),
    # A kernel by itself has eleven threads while it starts, which count.
    "limits.processes": Field(_number(16, 1_000_000, whole=True), SMALLER),
    "limits.cpus": Field(_number(0.1, 4096, whole=False), SMALLER),
    "limits.output": Field(_output, SMALLER),
    # A kernel by itself has up to seventy open while it starts.
    "limits.open_files": Field(_number(96, 1_048_576, whole=True), SMALLER),
    "limits.gpu.devices": Field(_texts(_card), FEWER),
    "limits.gpu.memory_fraction": Field(_number(0.01, 1, whole=False), SMALLER),
    "files.read": Field(_texts(_path), INNER_PATHS),
    "files.write": Field(_texts(_path), INNER_PATHS),
    "files.hide": Field(_texts(_pattern), MORE_HIDDEN),
    "files.workspace": _choices(LATER, "overlay", "readonly"),
    "files.review": _choices(LATER, "rest", "all", built=("rest",)),
    "network.allow": Field(_texts(_host), FEWER, built=((),)),
    "code.profile": _choices(LATER, "off", "default"),
    "code.deny": Field(_texts(_rule), MORE),
    "code.allow": Field(_texts(_rule), FEWER),
    "output.html": _choices(LATER, "isolate", "sanitize", "text"),
    "output.stdin": _choices(LATER, "visible", "off"),
    "output.widgets": _choices(LATER, True, False),
    "environment.allow": Field(_texts(_variable), FEWER),
    "data.source_path": Field(_one_path, INNER_PATH),
    "start.mode": _choices(LATER, "fork", "exec"),
    "start.preload": Field(_texts(_module), FEWER),
    "start.pool": Field(_number(0, MOST_POOLED, whole=True), SMALLER),
    "backend": _choices(LATER, "linux", "docker", built=("linux",)),
    "require": Field(_texts(_guarantee), MORE),
}
_BASE_UNITS = {
    **dict.fromkeys(("limits.cpu", "limits.wall"), "s"),
    **dict.fromkeys(("limits.memory", "limits.disk", "limits.output"), "B"),
}
TABLES = ("limits", "files", "network", "credentials", "code", "output", "environment", "data", "start", "limits.gpu")
_CREDENTIAL_KEYS = ("source", "hosts", "inject")
_NOT_BUILT = "not available in this version"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one layer asks for, by dotted key, and where it stands."""

    values: Mapping[str, Any]
    label: str
    document: Document | None = None

    def problem(self, key: str, message: str, hint: str | None = None, entry: str | None = None) -> Problem:
        """A problem with this layer's key, or with one entry of its list."""
        path: KeyPath = tuple(key.split("."))
        value = self.values.get(key)
        if entry is not None and isinstance(value, tuple) and entry in value and self.document is not None:
            raw: Any = self.document.table
            for name in path:
                raw = raw.get(name, {}) if isinstance(raw, Mapping) else {}
            path += (raw.index(entry),) if isinstance(raw, list) and entry in raw else ()
        return _problem(self.document, self.label, path, message, hint)


def _problem(document: Document | None, label: str, path: KeyPath, message: str, hint: str | None = None) -> Problem:
    key = ".".join(name if re.fullmatch(r"[\w-]+", name) else quoted(name) for name in path if isinstance(name, str))
    if document is None:
        return Problem(key, message, hint, file=label)
    return Problem(key, message, hint, str(document.path), document.line(path))


def read_table(
    table: Mapping[str, Any], label: str, document: Document | None = None, *, credentials_ok: bool = True
) -> tuple[Wishes, list[Problem]]:
    """What a TOML table asks for, and everything that is wrong with it; the wishes hold only what was right."""
    reader = _Reader(label, document, credentials_ok)
    reader.table((), table)
    return Wishes(reader.values, label, document), reader.problems


def read_options(options: Mapping[str, object], label: str) -> tuple[Wishes, list[Problem]]:
    """The same for dotted keys, as the options of a cell or command give them."""
    reader = _Reader(label, None, True)
    for key, value in options.items():
        reader.entry(tuple(key.split(".")), value)
    return Wishes(reader.values, label), reader.problems


def read_object(policy: Policy, label: str) -> tuple[Policy, list[Problem]]:
    """The same for a ``Policy`` that somebody put together; texts with units are read there as well."""
    plain = Policy()
    sections = [f.name for f in dataclasses.fields(Policy) if dataclasses.is_dataclass(plain.get(f.name))]
    for name in (*sections, "limits.gpu"):
        kind = type(plain.get(name))
        if type(policy.get(name)) is not kind:
            hint = f"write {kind.__name__}(...), or give the whole policy as a mapping shaped like the file"
            message = f"must be {kind.__name__}, not {type_name(policy.get(name))}"
            return policy, [Problem(name, message, hint, label)]
    options = {}
    for key in FIELDS:
        value = policy.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = f"{value!r}{_BASE_UNITS[key]}" if key in _BASE_UNITS else value
        if key != "data.source_path" or value is not None:
            options[key] = value
    wishes, problems = read_options(options, label)
    if policy.credentials:
        problems.append(Problem("credentials", _NOT_BUILT, "leave them out", label))
    for key, value in wishes.values.items():
        policy = policy.with_value(key, value)
    return policy, problems


class _Reader:
    def __init__(self, label: str, document: Document | None, credentials_ok: bool) -> None:
        self.label, self.document, self.credentials_ok = label, document, credentials_ok
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []

    def table(self, path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        for name, value in ((str(name), value) for name, value in table.items()):
            if path == ("credentials",):
                self._credential((*path, name), value)
            elif "." in name:
                # In quotes a dot is a letter of the name.
                self._add((*path, name), f"unknown key {quoted(name)}", "write dotted names without quotes, as tables")
            else:
                self.entry((*path, name), value)

    def entry(self, path: tuple[str, ...], value: object) -> None:
        key = ".".join(path)
        field = FIELDS.get(key)
        if key in TABLES:
            if isinstance(value, Mapping):
                self.table(path, value)
            else:
                self._add(path, f"must be a table, not {type_name(value)}", f"write [{key}] and its keys below")
        elif field is None:
            self._add(path, *_unknown_key(path, self.document))
        else:
            self._value(path, field, value)

    def _value(self, path: tuple[str, ...], field: Field, value: object) -> None:
        try:
            read = field.read(value)
        except _BadElement as error:
            self._add((*path, error.index), error.message, error.hint)
        except BadValue as error:
            self._add(path, error.message, error.hint)
        else:
            if field.built is None or read in field.built:
                self.values[".".join(path)] = read
            else:
                shown = " or ".join(json.dumps(value) for value in field.built)
                self._add(path, _NOT_BUILT, f"only {shown} works so far; remove the key")

    def _credential(self, path: tuple[str, ...], value: object) -> None:
        if not isinstance(value, Mapping):
            self._add(path, f"must be a table, not {type_name(value)}", f"write [{'.'.join(path)}] and its keys below")
            return
        wrong = [name for name in value if name not in _CREDENTIAL_KEYS]
        for name in wrong:
            self._add((*path, str(name)), *unknown("key", str(name), list(_CREDENTIAL_KEYS)))
        if not self.credentials_ok:
            self._add(
                path, "a project can't name sources of credentials", "name them in your own or the administrator's file"
            )
        elif not wrong:
            self._add(path, f"credentials are {_NOT_BUILT}", "remove the table")

    def _add(self, path: KeyPath, message: str, hint: str | None) -> None:
        self.problems.append(_problem(self.document, self.label, path, message, hint))


def _unknown_key(path: tuple[str, ...], document: Document | None) -> tuple[str, str]:
    *tables, name = path
    if path == ("profile",):
        hint = 'a profile is chosen with --policy strict, or policy="strict" in Python, not in a file'
        return f"unknown key {quoted(name)}", f"{hint}; of the check alone: code.profile"
    section = ".".join(tables)
    siblings = [k for k in (*FIELDS, *TABLES) if k.rpartition(".")[0] == section]
    known = [k.rpartition(".")[2] for k in siblings]
    # The right name in the wrong table is a common slip, and no near name of this table is meant then.
    elsewhere = [k for k in FIELDS if k.rpartition(".")[2] == name]
    if name in elsewhere:
        top = f"directly below [{'.'.join(document.prefix)}]" if document and document.prefix else "above all tables"
        return f"unknown key {quoted(name)}", f"{name} belongs at the top of the policy, {top}"
    meant = elsewhere[0] if elsewhere else nearest(name, known)
    hint = f"did you mean {quoted(meant)}?" if meant else f"known here: {', '.join(known) or 'nothing'}"
    return f"unknown key {quoted(name)}", hint


def first_error(problems: Sequence[Problem]) -> None:
    """Raise the first problem, if there is one; the others are told in its hint."""
    if problems:
        error = problems[0].error()
        if len(problems) > 1:
            others = [f"also: {in_one_line(problem)}" for problem in problems[1:6]]
            others += [f"and {len(problems) - 6} more"] if len(problems) > 6 else []
            error = dataclasses.replace(problems[0], hint="\n".join([problems[0].hint or "", *others]).strip()).error()
        raise error


def in_one_line(problem: Problem) -> str:
    """The problem and what to write instead, where there is room for one line."""
    text = str(dataclasses.replace(problem, hint=None).error())
    return f"{text} ({problem.hint})" if problem.hint else text


def complete_policy(mapping: Mapping[str, Any]) -> Policy:
    """The inverse of ``Policy.to_mapping``: a policy that has come from another process. PolicyError if it is none."""
    wishes, problems = read_table(mapping, "policy argument")
    first_error(problems)
    policy = Policy()
    for key, value in wishes.values.items():
        policy = policy.with_value(key, value)
    return policy
