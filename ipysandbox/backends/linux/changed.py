"""What differs in a project from what the host has, by what overlayfs keeps of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ipysandbox.backends.base import Change

from .confined_plan import ConfinedPlan
from .plan import Overlay, Plan
from .rootfs import ordered
from .walk import walk

_MOST_CHANGES, _MOST_LOOKED_AT = 5_000, 20_000


def writable_overlays(plan: Plan | ConfinedPlan) -> list[tuple[int, str]]:
    """Number and place of each, as ``rootfs`` counts them."""
    if isinstance(plan, ConfinedPlan):
        return []
    steps = enumerate(ordered(plan))
    return [(number, step.target) for number, step in steps if isinstance(step, Overlay) and step.writable]


def changes(scratch: int, overlays: Sequence[tuple[int, str]], project: str) -> list[Change]:
    """``scratch``: a descriptor of the sandbox's scratch space. Paths are relative to the project, and hostile text."""
    found: list[Change] = []
    for number, overlay in overlays:
        base = os.path.relpath(overlay, project)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            upper = os.open(f"layer{number}/upper", flags, dir_fd=scratch)
        except OSError:
            continue
        _list_upper(upper, "" if base == "." else base + "/", overlay, found)
    return sorted(found, key=lambda change: change.path)


def _list_upper(upper: int, prefix: str, host: str, found: list[Change]) -> None:
    """Read overlayfs's upper folder: what is in it is what changed, or what was only opened for writing; a 0/0 device
    marks a removed name."""
    for looked_at, (info, relative, _) in enumerate(walk(upper)):
        if looked_at >= _MOST_LOOKED_AT or len(found) >= _MOST_CHANGES:
            return
        there = _lstat(os.path.join(host, relative))
        if stat.S_ISCHR(info.st_mode):
            found.append(Change(prefix + relative, "removed"))
        elif not stat.S_ISDIR(info.st_mode):
            if there is None or not _copied_only(info, there):
                found.append(Change(prefix + relative, "added" if there is None else "changed", info.st_size))
        elif there is None:
            found.append(Change(f"{prefix}{relative}/", "added"))


def _copied_only(inside: os.stat_result, there: os.stat_result) -> bool:
    """Whether overlayfs has copied the host's file when somebody opened it for writing, as SQLite does to read one, and
    nothing was written since. Code that keeps the size and sets the time back escapes this: the list is for people."""
    known = (inside.st_mode, inside.st_size, inside.st_mtime_ns)  # type and permissions are both in the mode
    return known == (there.st_mode, there.st_size, there.st_mtime_ns)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
