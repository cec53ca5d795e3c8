"""Sandboxes that wait ready: kernel up, tested, under a policy that has been used. A new one of that policy takes one.

Nothing but our own kernel has run in them. That is made sure of when one is taken, with everything else that a start
would look at: what differs from what a start would give now is ended unused. They are no user's sandboxes: they have no
name, stand in no list, and the audit trail knows one from the moment that it is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipysandbox.backends.base import Backend, Instance, StartRequest
from ipysandbox.errors import SandboxError
from ipysandbox.policy import Effective

from .back import Back
from .background import in_background
from .held_folders import HeldFolders

#: No cell and no start for so long, before one is made: it takes a processor for a tenth of a second.
QUIET_SECONDS = 0.5
#: Policies for which sandboxes wait; of one more, the one that was not used for longest goes.
MOST_POLICIES = 3
#: What all that wait may hold together (bytes).
MOST_BYTES = 256 << 20
#: None is made where the machine has less left than this (bytes).
_LEAST_AVAILABLE = 512 << 20
#: A policy that nobody has used for so long (seconds) has none any more.
IDLE_SECONDS = 600.0
#: In a row: what can't be started, or ends by itself, is not tried for ever.
_MOST_FAILURES = 3
_READY_SECONDS = 60.0
#: A kernel that has just answered has a little to do yet, and nobody is told when a thread goes to sleep: looked at so
#: often (seconds), and so many times.
_REST_SECONDS, _MOST_LOOKS = 0.02, 250


@dataclass
class Ready:
    """One that waits. Whoever takes it has its folders held already."""

    instance: Instance
    back: Back
    directory: Path
    folders: HeldFolders
    memory: int = 0


@dataclass
class _Wanted:
    """How many of one policy are to wait, and those that do."""

    request: StartRequest
    count: int
    made: frozenset[Path]
    used: float = field(default_factory=time.monotonic)
    failures: int = 0
    ready: list[Ready] = field(default_factory=list)


class Pool:
    """Owned by the supervisor; all methods run on its loop."""

    def __init__(self, backend: Backend, folder: Path, busy: Callable[[], bool]) -> None:
        self._backend, self._folder, self._busy = backend, folder, busy
        self._wanted: OrderedDict[str, _Wanted] = OrderedDict()
        self._numbers = itertools.count(1)
        self._stirred, self._wake = asyncio.Event(), asyncio.Event()
        self._task = asyncio.ensure_future(self._run())
        self._closed = False
        #: What was disarmed in writable folders before one was started, for whoever is told next.
        self.disarmed: list[str] = []

    # -- for those who start sandboxes

    def stir(self) -> None:
        """A cell or a start has begun or ended."""
        self._stirred.set()

    async def take(self, request: StartRequest) -> Ready | None:
        """One that is what a start would give now, or None."""
        wanted = self._wanted.get(_key(request)) if request.effective.policy.start.pool else None
        while wanted is not None and wanted.ready:
            ready = wanted.ready.pop()
            self._wake.set()
            try:
                if await self._backend.renew(ready.instance, request):
                    ready.folders.close()
                    return ready
            except BaseException:
                in_background(self._end(ready))
                raise
            in_background(self._end(ready))
        return None

    def want(self, request: StartRequest, folders: HeldFolders) -> None:
        """A sandbox of this policy has started: from now on some wait for the next. ``folders``: as it holds them."""
        self._drop_outdated()
        policy = request.effective.policy
        key = _key(request)
        if self._closed or not policy.start.pool or not _can_wait(request.effective):
            self._forget(key)
            return
        wanted = self._wanted.get(key) or _Wanted(request, policy.start.pool, folders.made)
        wanted.request, wanted.count, wanted.failures = request, policy.start.pool, 0
        wanted.used, wanted.made = time.monotonic(), wanted.made | folders.made
        self._wanted[key] = wanted
        self._wanted.move_to_end(key)
        while len(self._wanted) > MOST_POLICIES:
            self._forget(next(iter(self._wanted)))
        self._wake.set()

    def _drop_outdated(self) -> None:
        """The packages have changed, as the start has seen: so much the sooner there are others."""
        for wanted in self._wanted.values():
            for ready in [one for one in wanted.ready if self._backend.outdated(one.instance)]:
                wanted.ready.remove(ready)
                in_background(self._end(ready))

    def state(self) -> dict[str, Any]:
        """How many wait, and what they hold (bytes)."""
        ready = self._all()
        return {"ready": len(ready), "memory": sum(one.memory for one in ready)}

    def waiting(self, request: StartRequest) -> dict[str, Any]:
        """The same of one policy."""
        wanted = self._wanted.get(_key(request))
        ready = wanted.ready if wanted else []
        return {"ready": len(ready), "memory": sum(one.memory for one in ready)}

    async def close(self) -> None:
        """End all, the one that is being made as well."""
        self._closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        ready = self._all()
        self._wanted.clear()
        await asyncio.gather(*map(_drop, ready), return_exceptions=True)

    async def _end(self, ready: Ready) -> None:
        self.disarmed += await _drop(ready)

    def _all(self) -> list[Ready]:
        return [one for wanted in self._wanted.values() for one in wanted.ready]

    def _forget(self, key: str) -> None:
        wanted = self._wanted.pop(key, None)
        for ready in wanted.ready if wanted else ():
            in_background(self._end(ready))

    # -- filling it

    async def _run(self) -> None:
        while not self._closed:
            await _set(self._wake, self._next_end())
            self._wake.clear()
            self._end_idle()
            while not self._closed and (wanted := self._lacking()) is not None:
                await self._quiet()
                if wanted is self._lacking():  # nobody has come meanwhile
                    await self._add(wanted)

    def _next_end(self) -> float | None:
        oldest = min((wanted.used for wanted in self._wanted.values()), default=None)
        return None if oldest is None else max(0.0, oldest + IDLE_SECONDS - time.monotonic())

    def _end_idle(self) -> None:
        for key, wanted in [*self._wanted.items()]:
            if time.monotonic() - wanted.used >= IDLE_SECONDS:
                self._forget(key)

    def _lacking(self) -> _Wanted | None:
        """The last used first."""
        if self.state()["memory"] >= MOST_BYTES or _available() < _LEAST_AVAILABLE:
            return None
        for wanted in reversed(self._wanted.values()):
            if len(wanted.ready) < wanted.count and wanted.failures < _MOST_FAILURES:
                return wanted
        return None

    async def _quiet(self) -> None:
        """Until nobody has wanted anything for a while."""
        stirred = True
        while stirred:
            self._stirred.clear()
            stirred = await _set(self._stirred, None if self._busy() else QUIET_SECONDS)

    async def _add(self, wanted: _Wanted) -> None:
        try:
            ready = await self._make(wanted)
        except (SandboxError, OSError, asyncio.TimeoutError):  # the next start meets it as well, and tells it
            wanted.failures += 1
            return
        if wanted not in self._wanted.values() or not ready.instance.alive():
            wanted.failures += 1
            in_background(self._end(ready))
            return
        wanted.ready.append(ready)
        ready.instance.on_exit(lambda _status: self._ended(wanted, ready))

    def _ended(self, wanted: _Wanted, ready: Ready) -> None:
        """By itself, by the machine's lack of memory, by somebody's kill: another one takes its place."""
        if ready in wanted.ready:
            wanted.ready.remove(ready)
            wanted.failures += 1
            in_background(self._end(ready))
            self._wake.set()

    async def _make(self, wanted: _Wanted) -> Ready:
        directory = self._folder / f"p{next(self._numbers)}"
        directory.mkdir(mode=0o700)
        request = StartRequest("pool", wanted.request.effective, directory, wanted.request.page, waits=True)
        folders = HeldFolders(request.effective.write, wanted.made)
        back: Back | None = None
        instance: Instance | None = None
        try:
            await self._backend.recover(request, self.disarmed)
            folders.hold()
            instance = await self._backend.start(request)
            back = Back(instance.endpoints.channels, instance.endpoints.key)
            await _settled(back, instance)
            await _at_rest(instance)
            # What it shares with others counts as a share, where that can be seen: once a start that is worth a look.
            instance.exact_above(0, request.effective.policy.limits.memory)
            return Ready(instance, back, directory, folders, instance.measure().memory)
        except BaseException:
            if instance is not None and back is not None:
                await self._end(Ready(instance, back, directory, folders))
            else:
                folders.close()
                remove_directory(directory)
            raise


async def _set(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it is set by then. ``wait_for`` loses a cancellation that comes at the same moment (before 3.12)."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        return bool((await asyncio.wait({waiting}, timeout=seconds))[0])
    finally:
        waiting.cancel()


def _can_wait(effective: Effective) -> bool:
    """Cards are for who uses them. And by variables of these names Python and IPython run what they find elsewhere as
    they start, before anybody has asked."""
    ours = all(not name.startswith(("PYTHON", "IPYTHON", "JUPYTER")) for name in effective.environment)
    return ours and not effective.policy.limits.gpu.devices


def _key(request: StartRequest) -> str:
    """Of what may share a pool. Whether one is as a start would make it is looked at when it is taken."""
    start = request.effective.policy.start
    return repr((request.effective.digest(), start.preload, request.page, request.effective.policy.output.html))


async def _settled(back: Back, instance: Instance) -> None:
    settled = asyncio.ensure_future(back.settled(_READY_SECONDS))

    def stop_waiting(_status: int | None) -> None:
        settled.cancel()

    instance.on_exit(stop_waiting)
    try:
        await settled
    except asyncio.CancelledError:
        if instance.alive():
            raise
        raise SandboxError("it ended") from None


async def _at_rest(instance: Instance) -> None:
    """Until nothing runs inside, which is what it has to stay like until it is taken."""
    for _ in range(_MOST_LOOKS):
        instance.mark()
        await asyncio.sleep(_REST_SECONDS)
        if instance.untouched():
            return
    raise SandboxError("it does not come to rest")


async def _drop(ready: Ready) -> list[str]:
    """End one that nobody has used. Where something inside has run after all, what it may have left is disarmed: one
    phrase for each."""
    untouched = ready.instance.untouched() or not ready.instance.alive()
    done: list[str] = []
    ready.back.close()
    try:
        await ready.instance.kill()
    finally:
        if untouched:
            ready.instance.dismiss()
        else:
            with contextlib.suppress(OSError):
                done = await asyncio.get_running_loop().run_in_executor(None, ready.instance.sweep)
        ready.folders.close()
        remove_directory(ready.directory)
    return done


def remove_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _available() -> int:
    """Bytes of memory that the machine can still give."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62
