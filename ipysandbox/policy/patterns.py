"""Name patterns, as in .gitignore but simpler: is this path hidden, is this name protected?"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath


class _Group:
    """Neighbouring patterns of one sign, tested at once."""

    def __init__(self, hides: bool, patterns: Iterable[str]) -> None:
        self.hides = hides
        self.literal: set[str] = set()
        self.literal_tails: dict[str, list[tuple[str, ...]]] = {}
        globs: list[str] = []
        self._glob_tails: list[tuple[bool, list[re.Pattern[str]]]] = []
        for pattern in patterns:
            rooted, parts = pattern.startswith("/"), tuple(pattern.casefold().strip("/").split("/"))
            is_glob = any(c in part for part in parts for c in "*?[")
            if rooted or (is_glob and len(parts) > 1):
                self._glob_tails.append((rooted, [re.compile(fnmatch.translate(part)) for part in parts]))
            elif len(parts) > 1:
                self.literal_tails.setdefault(parts[-1], []).append(parts)
            elif is_glob:
                globs.append(fnmatch.translate(parts[0]))
            else:
                self.literal.add(parts[0])
        # fnmatch's translation can't backtrack badly, whatever pattern a project's file brings along.
        self._globs = re.compile("|".join(globs)) if globs else None

    def matches(self, name: str, relpath: str) -> bool:
        if name in self.literal or (self._globs is not None and self._globs.match(name)):
            return True
        tails = self.literal_tails.get(name)
        if tails is None and not self._glob_tails:
            return False
        parts = relpath.split("/")
        if tails is not None and any(tuple(parts[-len(tail) :]) == tail for tail in tails):
            return True
        for rooted, regexes in self._glob_tails:
            if len(parts) == len(regexes) if rooted else len(parts) >= len(regexes):
                last = parts[-len(regexes) :]
                if all(regex.match(part) for regex, part in zip(regexes, last, strict=True)):
                    return True
        return False


class Matcher:
    """A compiled list of patterns; the last pattern that matches decides, "!" in front of it takes out again.

    A pattern without "/" is the name of a file or folder at any depth. One with "/" in it is the end of a path. One
    that starts with "/" is a path from the top. Upper and lower case are the same: a file system may think so too.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        signed = [(not p.startswith("!"), p.removeprefix("!")) for p in patterns]
        self._groups = [
            _Group(sign, [p for _, p in group]) for sign, group in groupby(signed, key=lambda item: item[0])
        ]
        self._groups.reverse()

    def match(self, name: str, relpath: str) -> bool:
        """Does this entry itself match? ``relpath`` is its path from the top, "/" between the parts.

        The caller that walks down a tree doesn't enter a folder that matched; otherwise use ``covers``.
        """
        name, relpath = name.casefold(), relpath.casefold()
        for group in self._groups:
            if group.matches(name, relpath):
                return group.hides
        return False

    def covers(self, path: PurePosixPath | str) -> bool:
        """Does the path, or a folder above it, match?"""
        parts = [part for part in str(path).split("/") if part not in ("", ".")]
        return any(self.match(part, "/".join(parts[: i + 1])) for i, part in enumerate(parts))


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> Matcher:
    return Matcher(patterns)


def compile_patterns(patterns: Iterable[str]) -> Matcher:
    """A matcher for these patterns; the same list is compiled once."""
    return _compiled(tuple(patterns))


def is_hidden(relative_path: PurePosixPath | str, patterns: Iterable[str]) -> bool:
    """Is the path, or a folder above it, matched by the patterns?"""
    return compile_patterns(patterns).covers(relative_path)
