"""What a sandbox may do, as the panel shows it: each setting with its source, by file and line; never a value of a
credential or variable."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipysandbox.approving import approve
from ipysandbox.errors import PolicyError, SandboxError
from ipysandbox.policy import (
    NotGranted,
    check_approvable,
    is_trusted,
    lint,
    loosens,
    project_policy,
    resolve,
)
from ipysandbox.policy.discovery import ADMIN_FILES
from ipysandbox.policy.merge import MOST_ENTRIES
from ipysandbox.policy.source import read_document
from ipysandbox.server import bounded
from ipysandbox.server.places import Places

#: Of one thing that a project's policy asks for: more is approved in a terminal.
_MOST_ENTRY = 1000
_LISTS = ("read", "write", "hidden", "protected", "notices")
#: A source that is a file: its kind, and where it lies.
_FILE = re.compile(r"(user|project|policy) file (/.*)", re.DOTALL)


@dataclass(frozen=True)
class View:
    """Reads policy files for the panel; blocking, so call it in a thread."""

    places: Places
    environ: Mapping[str, str]

    def of_folder(self, folder: Path) -> dict[str, Any]:
        """What would hold for a notebook in this folder, or what is wrong with its policy."""
        try:
            shown = self._shown(resolve(cwd=folder, environ=self.environ).to_json())
        except PolicyError as error:
            return {**self._empty(folder), "problem": self._problems(error, folder)}
        return {**shown, "file": self._project_file(folder)}

    def of_sandbox(self, effective: Mapping[str, Any]) -> dict[str, Any]:
        """What a sandbox runs under, from its supervisor's answer, and what is wrong by now with its policy's files."""
        shown = self._shown(effective)
        folder = folder_of(effective)
        if folder is None:
            return shown
        try:
            resolve(cwd=folder, environ=self.environ)
        except PolicyError as error:
            shown["problem"] = self._problems(error, folder)
        return {**shown, "file": self._project_file(folder)}

    def _shown(self, effective: Mapping[str, Any]) -> dict[str, Any]:
        """A policy that was resolved, now or when a sandbox started; nothing about its files as they are."""
        environment = _mapping(effective.get("environment"))
        return {
            "project": bounded.text(effective.get("project"), 1000),
            "too_wide": effective.get("project_is_home") is True,
            "settings": self._settings(_mapping(effective.get("policy")), _mapping(effective.get("sources"))),
            **{key: bounded.texts(effective.get(key)) for key in _LISTS},
            "variables": {key: bounded.texts(environment.get(key)) for key in _VARIABLES},
            "totals": {
                **{key: _length(effective.get(key)) for key in _LISTS},
                **{key: _length(environment.get(key)) for key in _VARIABLES},
            },
            "problem": None,
            "file": None,
        }

    def approve(self, folder: Path, digest: str) -> None:
        """Approve the policy that speaks about this folder, as it was shown. PolicyError where it is another now."""
        path = project_policy(folder, environ=self.environ)
        if path is None:
            raise PolicyError("no policy file speaks about this folder", hint="look again")
        if not _shown_whole(loosens(path, environ=self.environ)[1]):
            raise _too_long(path)
        approve(path, digest, environ=self.environ)

    def _empty(self, folder: Path) -> dict[str, Any]:
        lists: dict[str, Any] = {key: [] for key in ("settings", *_LISTS)}
        variables: dict[str, list[str]] = {key: [] for key in _VARIABLES}
        totals = dict.fromkeys((*_LISTS, *_VARIABLES), 0)
        named = {"project": str(folder), "too_wide": False, "file": None}
        return {**named, **lists, "variables": variables, "totals": totals}

    def _settings(self, policy: Mapping[str, Any], sources: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = []
        for key, value in _flat(policy):
            label = sources.get(key, sources.get(key.split(".")[0], ""))
            found.append({"key": key, "value": bounded.tree(value), "source": self._source(str(label), key)})
        return found[: bounded.MAX_ITEMS]

    def _source(self, label: str, key: str) -> dict[str, Any]:
        file = _FILE.fullmatch(label)
        place = self._place(file[2], key) if file else None
        if label == "administrator":
            place = next((self._place(str(path), key) for path in ADMIN_FILES if path.exists()), None)
        kind = "built-in" if label.startswith("built-in") else file[1] if file else label
        known = kind if kind in _KINDS else "argument"
        return {"kind": known, "label": bounded.text(label, 1000), "place": place}

    def _place(self, path: str, key: str = "", line: int | None = None) -> dict[str, Any]:
        """A file, the line of a key in it, and where the page can open it."""
        if key:
            try:
                document = read_document(Path(path))
                line = document.line(tuple(key.split("."))) if document is not None else None
            except SandboxError:
                line = None  # it has changed since, and its error is told elsewhere
        return {"file": bounded.text(path, 1000), "line": line, "opens": self.places.opens(path)}

    def _problems(self, error: PolicyError, folder: Path) -> dict[str, Any]:
        """What is wrong with a policy, and everything else that is wrong with the same file, each with its place."""
        found: list[PolicyError] = []
        if error.file and os.path.isabs(error.file):
            try:
                project = folder if Path(error.file).parent not in (folder, *folder.parents) else None
                found = [problem.error() for problem in lint(error.file, project=project, environ=self.environ)]
            except SandboxError:
                found = []  # it has changed since
        first, *others = found or [error]
        shown = [self._problem(other) for other in others[: bounded.MAX_ENTRIES]]
        return {**self._problem(first), "others": shown}

    def _problem(self, error: PolicyError) -> dict[str, Any]:
        place = None
        if error.file and os.path.isabs(error.file):
            place = self._place(error.file, line=error.line)
        # Its message names the place too.
        message = error.message.removeprefix(f"{error.file}:{error.line}: ").removeprefix(f"{error.file}: ")
        return {
            "message": bounded.lines(message, 2000),
            "hint": bounded.lines(error.hint, 1000) or None,
            "place": place,
        }

    def _project_file(self, folder: Path) -> dict[str, Any] | None:
        """The project's own policy file and what of it does not count before it is approved; None if it has none."""
        try:
            path = project_policy(folder, environ=self.environ)
            if path is None:
                return None
            digest, wishes = loosens(path, environ=self.environ)
            trusted = is_trusted(path, environ=self.environ)
        except SandboxError:
            return None
        shown = {
            "place": self._place(str(path)),
            "digest": digest,
            "trusted": trusted,
            "wishes": _wishes(wishes),
            "refused": None,
        }
        if wishes and not trusted:
            try:
                if not _shown_whole(wishes):
                    raise _too_long(path)
                check_approvable(path, environ=self.environ)
            except PolicyError as error:
                shown["refused"] = self._problem(error)
        return shown


def folder_of(effective: Mapping[str, Any]) -> Path | None:
    """The folder whose policy holds for the next sandbox like this one; None for an answer that names none.

    Where its code begins rather than its project: a policy file that was added there since makes that the project.
    """
    named = effective.get("folder", effective.get("project"))
    return Path(named) if isinstance(named, str) and os.path.isabs(named) and "\0" not in named else None


def _entries(wish: NotGranted) -> list[str]:
    """Each thing that a wish asks for: of a list, every one of its own."""
    return list(wish.entries) or [str(wish).removeprefix(wish.key).strip()]


def _wishes(wishes: Sequence[NotGranted]) -> list[dict[str, Any]]:
    shown, left = [], MOST_ENTRIES
    for wish in wishes:
        entries = _entries(wish)
        fit = [bounded.text(entry, _MOST_ENTRY) for entry in entries[:left]]
        left -= len(fit)
        shown.append({"key": wish.key, "entries": fit, "total": len(entries)})
    return shown


def _shown_whole(wishes: Sequence[NotGranted]) -> bool:
    """Whether the panel shows everything that is asked for, letter by letter: nothing else may be approved in it."""
    entries = [entry for wish in wishes for entry in _entries(wish)]
    return len(entries) <= MOST_ENTRIES and all(bounded.text(entry, _MOST_ENTRY) == entry for entry in entries)


def _too_long(path: Path) -> PolicyError:
    return PolicyError(
        "what it asks for is too long, or has letters that can't be seen, to be shown whole in the panel",
        file=str(path),
        hint=f"Read the file, then approve it in a terminal: ipysandbox policy trust {shlex.quote(str(path))}",
    )


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


_VARIABLES = ("passed", "withheld", "not_passed", "unset")
_KINDS = ("built-in", "user", "project", "policy", "administrator", "cell option")


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
