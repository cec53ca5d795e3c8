"""Name patterns, as in .gitignore but simpler: is this path hidden, is this name protected?"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import PurePosixPath

# What marks a file as a copy of another, at the end of its name: Emacs and others (~, .~1~), vim (.swp, .un~), nano
# (.save), Kate, JetBrains, patch and merges (.orig), wget (.1), Jupyter (.invalid), hands (.bak, .old).
_ENDING = re.compile(
    r"(?:\.~\d+~|\.un~|~|___jb_(?:tmp|old)___|\.kate-swp|\.sw[a-z]|\.\d{1,3}"
    r"|[._-](?:bak|old|orig|save|tmp|temp|backup|copy|prev|invalid)(?:[._-]?\d+)?)$"
)
# Before the extension, or at the end: Jupyter (-checkpoint, -Copy1), browsers, file managers and shared folders
# (" (1)", " copy 2", " - Copy", " (conflicted copy of …)", .sync-conflict-…), hands.
_BEFORE_EXTENSION = re.compile(
    r"(?:-checkpoint|-copy\d*| \([^()]*\)|(?: -)? copy(?: \d+)?|\.sync-conflict-[\d-]+-\w+"
    r"|[._-](?:bak|old|orig|save|tmp|temp|backup|copy|prev)\d*)(?=(?:\.[^.]*)?$)"
)
# In front: Emacs (#…#, .#…), Jupyter while it writes (.~), Syncthing, web drives.
_FRONT = re.compile(r"(?:#(?=.*#$)|\.#|\.~|\.syncthing\.|~syncthing~|copy of )")
#: What is in every name that is a copy by the above: nearly all names are seen through by this alone.
_MAY_BE_COPY = re.compile(r"[~# ]|[._-](?:ba[kc]|old|orig|save|te?mp|cop|prev|inval|check|sync|sw[a-z]$|__|\d{1,3}$)")
#: Names that one may be a copy of; each step takes something off.
_MOST_ORIGINALS = 32
_NONE: tuple[str, ...] = ()
_CHECKPOINTS = ".ipynb_checkpoints"


def originals(name: str) -> Sequence[str]:
    """The names that a file or folder of this name (folded) may be a copy of, made by an editor, Jupyter, a browser, a
    file manager or a hand; of a copy of a copy as well. None for nearly all names."""
    if _MAY_BE_COPY.search(name) is None:
        return _NONE
    names = [name]
    for one in names:
        less = []
        ending = _ENDING.search(one)
        if ending is not None:
            less.append(one[: ending.start()])
            less.append(less[0].removeprefix("."))  # vim's .server.key.swp; .env.swp is of .env
        if (marker := _BEFORE_EXTENSION.search(one)) is not None:
            less.append(one[: marker.start()] + one[marker.end() :])
        if (front := _FRONT.match(one)) is not None:
            less.append(one[front.end() :].removesuffix("#") if one.endswith("#") else one[front.end() :])
        names += dict.fromkeys(each for each in less if each and each not in names)
        if len(names) > _MOST_ORIGINALS:
            break
    return names[1:]


class _Group:
    """Neighbouring patterns of one sign, tested at once."""

    def __init__(self, hides: bool, patterns: Iterable[str], copies: bool) -> None:
        self.hides, self._copies = hides, copies
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
        # A folder may be a copy as well (.config copy/gh), and a checkpoint belongs to the folder above its own.
        meant = [(part, *originals(part)) if self._copies else (part,) for part in parts]
        if self._ends(meant, tails or ()):
            return True
        checkpoint = self._copies and parts[-2:-1] == [_CHECKPOINTS]
        return checkpoint and self._ends([*meant[:-2], meant[-1]], tails or ())

    def _ends(self, meant: list[tuple[str, ...]], tails: Iterable[tuple[str, ...]]) -> bool:
        for tail in tails:
            last = meant[-len(tail) :]
            if len(last) == len(tail) and all(part in names for part, names in zip(tail, last, strict=True)):
                return True
        for rooted, regexes in self._glob_tails:
            if len(meant) == len(regexes) if rooted else len(meant) >= len(regexes):
                last = meant[-len(regexes) :]
                if all(any(map(regex.match, names)) for regex, names in zip(regexes, last, strict=True)):
                    return True
        return False


class Matcher:
    """A compiled list of patterns; the last pattern that matches decides, "!" in front of it takes out again.

    A pattern without "/" is the name of a file or folder at any depth. One with "/" in it is the end of a path. One
    that starts with "/" is a path from the top. Upper and lower case are the same: a file system may think so too.
    ``copies``: a pattern means the copies of what it names as well (see ``originals``); a "!" means that name alone.
    """

    def __init__(self, patterns: Sequence[str], *, copies: bool = True) -> None:
        signed = [(not p.startswith("!"), p.removeprefix("!")) for p in patterns]
        self._copies = copies
        self._groups = [
            _Group(sign, [p for _, p in group], copies and sign)
            for sign, group in groupby(signed, key=lambda item: item[0])
        ]
        self._groups.reverse()

    def match(self, name: str, relpath: str, *, in_repository: bool = False) -> bool:
        """Does this entry itself match? ``relpath`` is its path from the top, "/" between the parts.

        ``in_repository``: git takes its folder for a repository, whatever the folder's name, so what a pattern says of
        .git is meant too. The caller that walks down a tree doesn't enter a folder that matched; otherwise use
        ``covers``.
        """
        name, relpath = name.casefold(), relpath.casefold()
        copied = originals(name) if self._copies else _NONE
        for group in self._groups:
            if group.matches(name, relpath):
                return group.hides
            if group.hides and (copied or in_repository):
                folder = ".git/" if in_repository else ""
                paths = [(one, relpath[: -len(name)] + one) for one in copied]
                paths += [(one, folder + one) for one in (name, *copied) if folder]
                if any(group.matches(*path) for path in paths):
                    return True
        return False

    def covers(self, path: PurePosixPath | str) -> bool:
        """Does the path, or a folder above it, match?"""
        parts = [part for part in str(path).split("/") if part not in ("", ".")]
        return any(self.match(part, "/".join(parts[: i + 1])) for i, part in enumerate(parts))


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...], copies: bool) -> Matcher:
    return Matcher(patterns, copies=copies)


def compile_patterns(patterns: Iterable[str], *, copies: bool = True) -> Matcher:
    """A matcher for these patterns; the same list is compiled once."""
    return _compiled(tuple(patterns), copies)


def is_hidden(relative_path: PurePosixPath | str, patterns: Iterable[str]) -> bool:
    """Is the path, or a folder above it, matched by the patterns?"""
    return compile_patterns(patterns).covers(relative_path)
