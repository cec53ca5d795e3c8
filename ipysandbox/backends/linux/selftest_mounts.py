"""The part of the self-test that reads the table of mounts: only what the plan shows is there, and no more writable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from . import rootfs
from .plan import Bind, Overlay, Plan

_DEVICES = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_READ_ONLY_PROC = ("sys", "bus", "fs", "irq")
_EMPTY_PROC = ("kcore", "kmsg", "keys", "sysrq-trigger", "kallsyms")
#: A tmpfs counts in pages.
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class _Mount:
    where: str
    options: frozenset[str]
    kind: str


def failures(plan: Plan) -> Iterator[str]:
    mounts = {mount.where: mount for mount in _mounts()}  # of several at one place the last is what is seen
    items: list[Bind | Overlay] = [*plan.overlays, *plan.binds]  # at one path the bind is what is seen
    shown = {item.where: item.writable for item in items}
    # The kernel tells mounts by what links on the way to them lead to.
    shown = {(path if path in mounts else os.path.realpath(path)): free for path, free in shown.items()}
    writable = {path for path, free in shown.items() if free}
    for mount in mounts.values():
        yield from _own_flags(mount, plan, set(shown), writable)
    for overlay in plan.overlays:
        yield from _is(mounts, overlay.where, "overlay")
        # Where a writable folder lies over it, such a name is covered instead, as below.
        hidden = {f"{overlay.target}/{name}" for name in overlay.hidden} - set(plan.covered)
        yield from (f"{path} is not hidden" for path in hidden if os.path.lexists(path))
    for path in plan.covered:
        if not _is_empty(path):
            yield f"{path} is not covered"
    for path in set(plan.private) - set(shown):  # a project may lie right there
        yield from _is(mounts, path, "tmpfs")
        space = os.statvfs(path)
        if space.f_blocks * space.f_frsize > plan.scratch_bytes + _PAGE or space.f_files > plan.scratch_inodes + 1:
            yield f"{path} has more space than the policy allows"
    for name in _READ_ONLY_PROC:
        if os.path.exists(f"/proc/{name}") and not os.statvfs(f"/proc/{name}").f_flag & os.ST_RDONLY:
            yield f"/proc/{name} can be written"
    for name in _EMPTY_PROC:
        if os.path.exists(f"/proc/{name}") and f"/proc/{name}" not in mounts:
            yield f"/proc/{name} is the machine's"


def _own_flags(mount: _Mount, plan: Plan, shown: set[str], writable: set[str]) -> Iterator[str]:
    """One mount by itself: known, without set-id programs and devices, and read-only unless it is to be written."""
    where = mount.where
    if where in {*_DEVICES, *plan.devices} or where in {f"/proc/{name}" for name in rootfs.PROC_EMPTY}:
        return  # one harmless device each
    ours = where in {"/", "/dev/pts", *plan.private, *plan.covered} or where == "/proc" or where.startswith("/proc/")
    if not ours and not any(where == top or where.startswith(top + "/") for top in shown):
        yield f"{where} is mounted, and the plan knows nothing of it"
    if "nosuid" not in mount.options or ("nodev" not in mount.options and where != "/dev/pts"):
        yield f"{where} is mounted without nosuid and nodev"
    free = where in {"/proc", "/dev/pts", *(set(plan.private) - shown)} or any(
        where == top or where.startswith(top + "/") for top in writable
    )
    if "ro" not in mount.options and not free:
        yield f"{where} can be written"


def _is(mounts: dict[str, _Mount], path: str, kind: str) -> Iterator[str]:
    mount = mounts.get(path) or mounts.get(os.path.realpath(path))
    if mount is None or mount.kind != kind:
        yield f"{path} is not of its own ({kind})"


def _is_empty(path: str) -> bool:
    """Covered by something empty; what has gone on the host meanwhile needs no cover."""
    try:
        return not os.listdir(path) if os.path.isdir(path) else os.stat(path).st_size == 0
    except FileNotFoundError:
        return True


def _mounts() -> Iterator[_Mount]:
    """proc_pid_mountinfo(5); spaces and the like are octal escapes."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(" ")
            kind, _, of_all = line.rstrip("\n").split(" - ", 1)[1].split(" ", 2)
            where = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            # Read-only by this mount, or (an overlay without an upper folder) by the file system.
            options = {*fields[5].split(","), *({"ro"} & set(of_all.split(",")))}
            yield _Mount(where, frozenset(options), kind)
