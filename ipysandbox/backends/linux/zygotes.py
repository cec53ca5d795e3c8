"""The zygotes of one supervisor: one for each list of libraries, few in number, none older than what it has loaded.

A zygote ends with its last sandbox when it is no longer to be forked from: the environment's packages have changed, a
library has spoiled it, or nobody has wanted a sandbox for long.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from ipysandbox.errors import StartError
from ipysandbox.policy.model import Start

from . import fonts, packages
from .cgroup import Facts
from .group_keeper import GroupKeeper
from .uses import KERNELS
from .zygote_handle import Spawned, Unfit, ZygoteHandle, preload_of, spawn

_T = TypeVar("_T")
#: Of each use: one for each list of libraries, which take tens to hundreds of megabytes. Where there are more lists, a
#: sandbox is forked from one that has others loaded, and imports its own by itself.
MOST_ZYGOTES = 3
#: Without a sandbox for so long, a zygote ends; the next start takes half a second more.
IDLE_SECONDS = 900.0
#: A library more is left out each time.
_TRIES = 4


class Zygote:
    """One that can be forked from, or that lives for the sandboxes it has."""

    def __init__(
        self, handle: ZygoteHandle, groups: GroupKeeper, preload: Sequence[str], use: str, stamp: packages.Stamp
    ) -> None:
        self.handle, self.groups, self.preload, self.use, self.stamp = handle, groups, tuple(preload), use, stamp
        #: Sandboxes that start or run.
        self.boxes = 0
        #: No sandbox comes from it any more.
        self.retired = False
        self.used = time.monotonic()

    def fit(self) -> bool:
        return self.handle.alive() and not (self.handle.spoiled or self.retired)

    def is_current(self) -> bool:
        """Whether a sandbox of it has what a new one would have. Looks at files: call it from a thread."""
        return self.handle.alive() and not self.handle.spoiled and self.stamp == packages.stamp()


class Zygotes:
    """Owned by the backend; all methods run on the supervisor's loop."""

    def __init__(self, runtime_dir: Path, host: int, offered: Facts, ahead: Spawned | None) -> None:
        self._runtime_dir, self._host, self._offered = runtime_dir, host, offered
        self._ahead = ahead
        self._ahead_stamp = packages.stamp_since(ahead.began) if ahead is not None else ()
        self._all: list[Zygote] = []
        self._numbers, self._scopes = itertools.count(1), itertools.count(1)
        self._lock = asyncio.Lock()
        #: Libraries that have spoiled a zygote, and how.
        self.unfit: dict[str, str] = {}
        #: The packages as they were when somebody last looked.
        self._newest: packages.Stamp = ()
        self._version = packages.own_version()
        self._leaving: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def one(self, preload: Sequence[str], *, use: str, own: bool = False) -> AsyncIterator[Zygote]:
        """A zygote to fork a sandbox from, that does not end meanwhile. ``own``: a new one, for this sandbox alone.

        ``took`` and ``let_go`` say for how long it has to live for the sandbox.
        """
        zygote = await self._new((), use, own=True) if own else await self._shared(preload, use)
        self.took(zygote)
        try:
            yield zygote
        except Unfit as exc:
            self._blame(zygote, str(exc))
            raise
        finally:
            self.let_go(zygote)

    def took(self, zygote: Zygote) -> None:
        zygote.boxes += 1

    def let_go(self, zygote: Zygote) -> None:
        zygote.boxes -= 1
        zygote.used = time.monotonic()
        if not zygote.boxes and zygote.retired:
            self._leave(zygote)
        self._look_later()

    async def _shared(self, preload: Sequence[str], use: str) -> Zygote:
        async with self._lock:
            stamp = await self._look_at_packages()
            for zygote in self._all:
                if not zygote.fit() or zygote.stamp != stamp:
                    self._retire(zygote)
            wanted = tuple(name for name in dict.fromkeys(preload) if name not in self.unfit)
            usable = [zygote for zygote in self._all if zygote.use == use and not zygote.retired]
            for zygote in usable:
                if set(zygote.preload) - self.unfit.keys() == set(wanted):
                    return zygote
            if len(usable) >= MOST_ZYGOTES:
                oldest = min(usable, key=lambda zygote: (zygote.boxes > 0, zygote.used))
                if oldest.boxes:
                    return max(usable, key=lambda zygote: len(set(zygote.preload) & set(wanted)))
                self._retire(oldest)
            return await self._new(wanted, use, stamp=stamp)

    async def _look_at_packages(self) -> packages.Stamp:
        self._newest = await asyncio.get_running_loop().run_in_executor(None, packages.stamp)
        return self._newest

    def outdated(self, zygote: Zygote) -> bool:
        """Whether it has loaded what is known to have changed."""
        return bool(zygote.handle.spoiled) or (bool(self._newest) and zygote.stamp != self._newest)

    async def _new(
        self, preload: tuple[str, ...], use: str, *, own: bool = False, stamp: packages.Stamp = ()
    ) -> Zygote:
        fonts.prepare()
        if own:
            stamp = await self._look_at_packages()
        if self._ahead is not None and self._ahead_stamp != stamp:  # it may have loaded what is outdated by now
            self._leave_aside(ZygoteHandle(self._ahead).leave())
            self._ahead = None
        ahead = self._ahead
        if ahead is not None and not own and ahead.use == use and set(ahead.preload) == set(preload):
            spawned, self._ahead = ahead, None
        elif packages.own_version() != self._version:
            raise StartError("ipysandbox itself was updated meanwhile", hint="Restart the notebook's kernel.")
        else:
            spawned = spawn(self._runtime_dir, self._host, preload, use)
        handle = ZygoteHandle(spawned)
        groups = GroupKeeper(self._offered, self._runtime_dir.name, self._numbers, self._scopes)
        started = asyncio.ensure_future(handle.started())
        await asyncio.gather(started, groups.prepare(handle.pid, started))
        zygote = Zygote(handle, groups, preload, use, stamp)
        zygote.retired = own
        self._all.append(zygote)
        return zygote

    def _blame(self, zygote: Zygote, why: str) -> None:
        """It refused: with what it has loaded nobody may be forked from it."""
        for name in zygote.handle.spoiled or zygote.preload:
            self.unfit[name] = zygote.handle.loaded.get(name) or why
        self._retire(zygote)

    def _retire(self, zygote: Zygote) -> None:
        if zygote.handle.spoiled and not zygote.retired:
            self.unfit.update({name: zygote.handle.loaded[name] for name in zygote.handle.spoiled})
        zygote.retired = True
        if not zygote.boxes:
            self._leave(zygote)

    def _leave(self, zygote: Zygote) -> None:
        if zygote in self._all:
            self._all.remove(zygote)
            self._leave_aside(_end(zygote))

    def _leave_aside(self, end: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(end)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._look)

    def _look(self) -> None:
        """End what has been idle for long."""
        self._timer = None
        now = time.monotonic()
        for zygote in [*self._all]:
            if not zygote.boxes and now - zygote.used >= IDLE_SECONDS:
                self._retire(zygote)
        if self._all:
            self._look_later()

    def problems(self, preload: Sequence[str]) -> dict[str, str]:
        """Of these libraries, those that sandboxes don't find loaded, and why."""
        found = {name: why for name, why in self.unfit.items() if name in preload}
        for zygote in self._all:
            for name, why in zygote.handle.loaded.items():
                if why and name in preload:
                    found.setdefault(name, why)
        return found

    async def close(self) -> None:
        """End all; with the last one the supervisor's folder goes."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            await ZygoteHandle(ahead).close()
        await asyncio.gather(*(_close(zygote) for zygote in self._all), *self._leaving)
        self._all.clear()


async def _end(zygote: Zygote) -> None:
    await zygote.handle.leave()
    await zygote.groups.close()


async def _close(zygote: Zygote) -> None:
    await zygote.handle.close()
    await zygote.groups.close()


async def until_fit(
    zygotes: Zygotes, policy: Start, start: Callable[[Zygote], Awaitable[_T]], use: str = KERNELS
) -> _T:
    """What ``start`` gives with a zygote as the policy asks for; with less loaded each time that one is found unfit.
    Raises StartError."""
    why = ""
    for _ in range(_TRIES):
        try:
            async with zygotes.one(preload_of(use, policy.preload), use=use, own=policy.mode == "exec") as zygote:
                return await start(zygote)
        except Unfit as exc:
            why = str(exc)
    raise StartError(f"no sandbox can be forked: {why}", hint="Leave libraries out of start.preload in the policy.")
