"""Reads a policy's TOML file without trusting it, and knows on which line each key stands."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ipysandbox.errors import PolicyError

from .links import follow
from .units import BadValue, type_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[str | int, ...]

FILE_NAME = "ipysandbox.toml"
PYPROJECT = "pyproject.toml"
TABLE = ("tool", "ipysandbox")
# A policy is a page of text; a project's file is untrusted and must not fill the memory.
MAX_FILE_BYTES = 1 << 20
#: Of a key, and of brackets within each other. A parser takes time and memory by the square of both.
_MOST_PARTS, _MOST_DEPTH = 32, 32
#: Parts of a key, with the tables around it, whose lines are noted: a policy's have six at most.
_NOTED_PARTS = 12
#: What TOML is made of, as far as dots and brackets go. It matches any text, valid or not, without going back.
_TOKENS = re.compile(
    r'''
    (?P<part> """(?:[^"\\]|\\.|"(?!""))*(?:"{3,5})? | \'{3}(?:[^']|'(?!\'\'))*(?:'{3,5})?
            | "(?:[^"\\\n]|\\.)*"? | '[^'\n]*'? | [A-Za-z0-9_-]+ )
    | (?P<dot> \.) | (?P<open> [\[{]) | (?P<close> [\]}]) | (?P<space> [ \t]+) | (?P<other> \#[^\n]* | . )
    ''',
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Document:
    """One policy as it was read: the approval by hash and the parsing see the same bytes."""

    path: Path
    table: Mapping[str, Any]
    prefix: tuple[str, ...]
    text: str
    sha256: str
    #: Of the file that was read, not of one that has its name by now.
    status: os.stat_result

    def line(self, key: KeyPath) -> int | None:
        """The line of a key, or of the nearest table around it."""
        lines = line_table(self.text)
        full = self.prefix + key
        return next((lines[full[:n]] for n in range(len(full), 0, -1) if full[:n] in lines), None)


def read_document(path: Path, *, inside: Path | None = None) -> Document | None:
    """The policy in this file; None for a pyproject.toml without a [tool.ipysandbox] table.

    With ``inside``, a real path, the file must not be a link that leads out of that folder. PolicyError if it can't be
    read.
    """
    if inside is not None:
        try:
            follow(str(path), str(inside), path.name)
        except BadValue as error:
            raise PolicyError(error.message, file=str(path), hint="replace the link by a file, or remove it") from None
    raw, status = _read_bytes(path)
    try:
        text = raw.decode("utf-8")
        _check_shape(text, str(path))
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        before = raw[: error.start].count(b"\n")
        raise PolicyError("not UTF-8 text", file=str(path), line=before + 1, hint="save the file as UTF-8") from None
    except RecursionError:
        raise PolicyError("nested too deep", file=str(path), hint="a policy needs two levels of tables") from None
    except ValueError as error:
        found = re.search(r"\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1 if found else None
        message = re.sub(r"\s*\(at [^)]*\)", "", str(error))
        bare = _bare_value(text, line)
        if bare is not None:
            message, hint = f"{bare[1]} is a text, and has to be in quotes", f'write {bare[0]} = "{bare[1]}"'
        else:
            message, hint = f"not valid TOML: {message}", "see https://toml.io"
        raise PolicyError(message, file=str(path), line=line, hint=hint) from None
    if path.name != PYPROJECT:
        return Document(path, data, (), text, hashlib.sha256(raw).hexdigest(), status)
    table: Any = data
    for name in TABLE:
        table = table.get(name) if isinstance(table, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise PolicyError(
            f"tool.ipysandbox is {type_name(table)}, not a table",
            file=str(path),
            line=line_table(text).get(TABLE),
            hint="write [tool.ipysandbox] and its keys below",
        )
    # Only our table is approved: a new dependency in pyproject.toml changes nothing about the sandbox.
    canonical = json.dumps(table, sort_keys=True, default=str)
    return Document(path, table, TABLE, text, hashlib.sha256(canonical.encode()).hexdigest(), status)


def read_required(path: Path) -> Document:
    """The policy in this file; PolicyError if it holds none."""
    document = read_document(path)
    if document is None:
        raise PolicyError("no [tool.ipysandbox] table", file=str(path), hint="add one, or name another file")
    return document


#: A key whose value is a quantity or a word without quotes, as 2GiB or strict; before it no text has begun.
_BARE = re.compile(
    r"[^\"']*?([\w.-]{1,50})[ \t]*=[ \t]*(\d[\d.]{0,20}[ \t]*[A-Za-z]{1,10}|[A-Za-z][\w-]{0,30})[ \t]*(?:[,}#]|$)"
)
#: Characters of a line that are looked at for one.
_MOST_LINE = 200


def _bare_value(text: str, line: int | None) -> tuple[str, str] | None:
    """Key and value on a line that is no TOML, where quotes are what is missing."""
    written = text.split("\n")[line - 1][:_MOST_LINE].rstrip() if line else ""
    found = _BARE.match(written)
    return None if found is None or found[2] in ("true", "false", "inf", "nan") else (found[1], found[2])


def _read_bytes(path: Path) -> tuple[bytes, os.stat_result]:
    try:
        # Non-blocking: a named pipe with this name must not hang the notebook.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        why = "a loop of links" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        hint = "check the path" if error.errno == errno.ENOENT else "nothing runs without it"
        raise PolicyError(f"the policy can't be read: {why}", file=str(path), hint=hint) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise PolicyError("the policy is not a regular file", file=str(path), hint="make it a TOML file")
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise PolicyError(f"larger than {MAX_FILE_BYTES} bytes", file=str(path), hint="a policy is a page of text")
    return raw, status


def _check_shape(text: str, file: str) -> None:
    """PolicyError for keys of too many parts, or brackets too deep, before a parser sees them."""
    parts = depth = 0
    dotted = False
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        if kind == "space":
            continue
        if kind == "part":
            parts = parts + 1 if dotted else 1
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        dotted = kind == "dot"
        if parts > _MOST_PARTS or depth > _MOST_DEPTH:
            what = "nested too deep" if depth > _MOST_DEPTH else f"a key of more than {_MOST_PARTS} parts"
            line = text.count("\n", 0, token.start()) + 1
            raise PolicyError(what, file=file, line=line, hint="a policy needs two levels of tables")


@lru_cache(maxsize=8)
def line_table(text: str) -> Mapping[KeyPath, int]:
    """Line of every table, key and list element of a valid TOML text; list elements have their index in the path."""
    scanner = _Scanner(text)
    # Lines are a courtesy: those found so far are right.
    with contextlib.suppress(RecursionError, IndexError, ValueError):
        scanner.document()
    return scanner.lines


def _below(path: KeyPath, name: str | int) -> KeyPath:
    return (*path, name) if len(path) < _NOTED_PARTS else path


class _Scanner:
    """Walks over TOML that is known to be valid and notes where keys stand; it doesn't build values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[KeyPath, int] = {}
        self._tables: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while self._skip(" \t\r\n"):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        line, brackets = self.line, 2 if self.text.startswith("[[", self.at) else 1
        self._advance(brackets)
        table: KeyPath = ()
        names = self._key()
        for depth, name in enumerate(names, 1):
            table = _below(table, name)
            if depth == len(names) and brackets == 2:
                self._tables[table] = self._tables.get(table, -1) + 1
            self.lines.setdefault(table, line)
            if table in self._tables:
                table = _below(table, self._tables[table])
                self.lines.setdefault(table, line)
        self._skip(" \t")
        self._advance(brackets)
        return table

    def _pair(self, table: KeyPath) -> None:
        line, path = self.line, table
        for name in self._key():
            path = _below(path, name)
            self.lines.setdefault(path, line)
        # A header [a.b] before [a] noted the outer name; the key's own line is the better one.
        self.lines[path] = line
        self._skip(" \t")
        self._advance(1)
        self._value(path)

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip(" \t")
            start = self.at
            if self.text[start] in "\"'":
                self._string()
                names.append(str(tomllib.loads(f"x = {self.text[start : self.at]}")["x"]))
            else:
                while self.text[self.at] not in " \t.=]\r\n":
                    self._advance(1)
                names.append(self.text[start : self.at])
            self._skip(" \t")
            if self.text[self.at] != ".":
                return names
            self._advance(1)

    def _value(self, path: KeyPath) -> None:
        self._skip(" \t")
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._advance(1)
            index = 0
            while self._skip(" \t\r\n,") and self.text[self.at] != "]":
                element = _below(path, index)
                self.lines[element] = self.line
                self._value(element)
                index += 1
            self._advance(1)
        elif first == "{":
            self._advance(1)
            while self._skip(" \t\r\n,") and self.text[self.at] != "}":
                self._pair(path)
            self._advance(1)
        else:
            # One step at least, so that the walk ends on any text.
            self._advance(1)
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\r\n":
                self._advance(1)

    def _string(self) -> None:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            self._advance(3)
            while not self.text.startswith(quote * 3, self.at):
                if self.at >= len(self.text):
                    raise IndexError
                self._advance(2 if quote == '"' and self.text[self.at] == "\\" else 1)
            while self.text.startswith(quote, self.at):
                self._advance(1)
        else:
            self._advance(1)
            while self.text[self.at] != quote:
                self._advance(2 if quote == '"' and self.text[self.at] == "\\" else 1)
            self._advance(1)

    def _skip(self, characters: str) -> bool:
        """Go over these characters and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in characters:
                self._advance(1)
            else:
                return True
        return False

    def _advance(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count
