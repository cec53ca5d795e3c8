"""Gives each sandbox of a supervisor its control group, and takes it back when the sandbox has ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from . import groups, scope
from .cgroup import Facts
from .groups import Bounds, Group

#: The monitor of a sandbox ends a moment after its init, and the kernel keeps a group that is not empty.
_REMOVE_SECONDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: A sweep by another supervisor may take a group before its first process is in it.
_TRIES = 3


class GroupKeeper:
    """``facts`` are what this machine offers until ``prepare``, and what holds after it."""

    def __init__(self, facts: Facts, runtime_id: str) -> None:
        self.facts, self._runtime_id = facts, runtime_id
        self._offered = facts
        self._numbers = itertools.count(1)
        self._scopes = itertools.count(1)
        self._removing: set[asyncio.Task[None]] = set()

    async def prepare(self, zygote_pid: int) -> None:
        """Before the first sandbox of a zygote; never raises, and takes at most ``scope.SCOPE_SECONDS``."""
        offered = self._offered
        if offered.how == "systemd scope":
            name = f"ipysandbox-{self._runtime_id}-{next(self._scopes)}.scope"
            self.facts = await scope.obtain(offered, zygote_pid, name)
            return
        groups.sweep(offered)
        if offered.how == "subtree":
            controllers = groups.hand_down(offered.places[""])
            refused = Facts(reason="the control group above refuses to hand down its memory controller")
            self.facts = offered if "memory" in controllers else refused

    def make(self, bounds: Bounds) -> Group | None:
        """A group for one sandbox; None where there is none to be had (then ``facts`` says so from now on)."""
        if not self.facts.version:
            return None
        error: OSError | None = None
        for _ in range(_TRIES):
            try:
                return groups.make(self.facts, groups.name(self._runtime_id, next(self._numbers)), bounds)
            except FileNotFoundError as exc:
                error = exc
            except OSError as exc:
                error = exc
                break
        self.facts = Facts(reason=f"a control group could not be made: {error}")
        return None

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
