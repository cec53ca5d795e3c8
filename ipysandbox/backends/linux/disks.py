"""How much fuller the file systems have become on which a sandbox may write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from .confined_plan import ConfinedPlan
from .plan import Plan


class Disks:
    """Those that ``plan`` gives to write, from now on. Others may write there too: what is found is an upper bound of
    what the sandbox keeps there, as long as nobody else frees anything."""

    def __init__(self, plan: Plan | ConfinedPlan) -> None:
        #: By device: a path there, and the bytes that were in use.
        self._then: dict[int, tuple[str, int]] = {}
        for path in _writable(plan):
            with contextlib.suppress(OSError):
                self._then.setdefault(os.stat(path).st_dev, (path, _used(path)))

    def grown(self, devices: Iterable[int]) -> int:
        """Bytes."""
        found = 0
        for device in devices:
            with contextlib.suppress(OSError, KeyError):
                path, then = self._then[device]
                found += max(0, _used(path) - then)
        return found


def _writable(plan: Plan | ConfinedPlan) -> Iterable[str]:
    if isinstance(plan, ConfinedPlan):
        return plan.writable
    return [bind.source for bind in plan.binds if bind.writable]


def _used(path: str) -> int:
    space = os.statvfs(path)
    return (space.f_blocks - space.f_bfree) * space.f_frsize
