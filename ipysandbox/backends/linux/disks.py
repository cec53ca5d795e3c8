"""How much fuller the file systems have become on which a sandbox may write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from .confined_plan import ConfinedPlan
from .plan import Plan

#: By the device that stat tells: the one of the file system that is mounted, which takes a table of all mounts to find.
_mounts: dict[int, int] = {}


class Disks:
    """Those that ``plan`` gives to write, from now on. Others may write there too: what is found is an upper bound of
    what the sandbox keeps there, as long as nobody else frees anything."""

    def __init__(self, plan: Plan | ConfinedPlan) -> None:
        #: By device: a path there, and the bytes that were in use.
        self._then: dict[int, tuple[str, int]] = {}
        #: By the device that /proc/PID/maps shows: the one that stat tells. On btrfs each subvolume has its own.
        self.shown: dict[int, int] = {}
        for path in writable(plan):
            with contextlib.suppress(OSError):
                device = os.stat(path).st_dev
                self._then.setdefault(device, (path, _used(path)))
                if device not in _mounts:
                    _mounts[device] = _mounted(path) or device
                self.shown.setdefault(_mounts[device], device)

    def grown(self, devices: Iterable[int]) -> int:
        """Bytes."""
        found = 0
        for device in devices:
            with contextlib.suppress(OSError, KeyError):
                path, then = self._then[device]
                found += max(0, _used(path) - then)
        return found


def writable(plan: Plan | ConfinedPlan) -> Iterable[str]:
    """Where on the host's disks the code may write; the paths are the same inside."""
    if isinstance(plan, ConfinedPlan):
        return plan.writable
    return [bind.source for bind in plan.binds if bind.writable]


def _mounted(path: str) -> int:
    """The device of the file system that is mounted there, by proc(5), /proc/PID/mountinfo; 0: it isn't listed."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{fd}").read_bytes()
    finally:
        os.close(fd)
    number = info.partition(b"mnt_id:")[2].split(maxsplit=1)[:1]
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(maxsplit=3)
        if fields[:1] == number:
            major, minor = map(int, fields[2].split(b":"))
            return os.makedev(major, minor)
    return 0


def _used(path: str) -> int:
    space = os.statvfs(path)
    return (space.f_blocks - space.f_bfree) * space.f_frsize
