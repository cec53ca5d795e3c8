"""Gives each sandbox of a zygote its control group, and takes it back when the sandbox has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from . import groups, scope
from .cgroup import Facts
from .groups import Bounds, Group

#: The monitor of a sandbox ends a moment after its init, and the kernel keeps a group that is not empty.
_REMOVE_SECONDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: A sweep by another supervisor may take a group before its first process is in it.
_TRIES = 3


class GroupKeeper:
    """``facts`` are what this machine offers until ``prepare``, and what holds after it."""

    def __init__(self, facts: Facts, runtime_id: str, numbers: Iterator[int], scopes: Iterator[int]) -> None:
        """``numbers`` and ``scopes``: of the supervisor's groups and scopes so far."""
        self.facts, self._runtime_id = facts, runtime_id
        self._offered = facts
        self._numbers, self._scopes = numbers, scopes
        self._removing: set[asyncio.Task[None]] = set()

    async def prepare(self, zygote_pid: int, started: asyncio.Future[None]) -> None:
        """Before the first sandbox of a zygote, while it loads (until ``started``). Never raises, and is waited for at
        most ``scope.SCOPE_SECONDS``."""
        offered = self._offered
        if offered.how == "systemd scope":
            name = f"ipysandbox-{self._runtime_id}-{next(self._scopes)}.scope"
            self.facts = await scope.obtain(offered, zygote_pid, name, started)
            return
        groups.sweep(offered)
        if offered.how == "subtree":
            controllers = groups.hand_down(offered.places[""])
            refused = Facts(reason="the control group above refuses to hand down its memory controller")
            self.facts = offered if "memory" in controllers else refused

    def plan(self) -> Group | None:
        """The next sandbox's group, which does not exist yet; None where none is to be had (``facts`` says why)."""
        return Group(self.facts, groups.name(self._runtime_id, next(self._numbers))) if self.facts.version else None

    def fill(self, group: Group, pid: int, bounds: Bounds) -> bool:
        """Make it and put its first process in. False where that fails: from now on no group is offered or claimed."""
        for attempt in range(_TRIES):
            try:
                group.make(bounds)
                group.add(pid)
                return True
            except OSError as exc:
                group.remove()
                if not isinstance(exc, FileNotFoundError) or attempt + 1 == _TRIES:
                    self.facts = Facts(reason=f"a control group could not be made: {exc}")
                    return False
        return False

    def drop(self, group: Group | None) -> None:
        """The sandbox has ended: remove its group as soon as the kernel lets go of it."""
        if group is not None and not group.remove():
            task = asyncio.ensure_future(_remove(group))
            self._removing.add(task)
            task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Returns when every group is gone."""
        await asyncio.gather(*self._removing, return_exceptions=True)


async def _remove(group: Group) -> None:
    for seconds in _REMOVE_SECONDS:
        await asyncio.sleep(seconds)  # the kernel tells nobody when the last process has left
        if group.remove():
            return
    with contextlib.suppress(OSError):
        group.kill()
    await asyncio.sleep(_REMOVE_SECONDS[-1])
    group.remove()
