"""One executor's connection: its tasks come in, each gets a sandbox of its own, and their outcomes go out.

    client ── frames ─→ lane ── a queue ─→ workers, each with one task at a time

What all tasks share is looked after here: the policy, the writable folders, the watch, the trail. While any task runs,
those folders are the tasks'; the outcome of the last one is told when they have been looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ipysandbox import hints
from ipysandbox.audit import AuditLog, events
from ipysandbox.backends.base import StartRequest
from ipysandbox.backends.linux.backend import LinuxBackend
from ipysandbox.backends.linux.task_room import TaskRoom, Worker, in_thread
from ipysandbox.errors import SandboxError, StartError
from ipysandbox.output.redact import KnownSecrets, Redactor
from ipysandbox.policy import Effective

from . import task_wire as wire
from .attempts import Attempts
from .background import in_background
from .held_folders import HeldFolders
from .managed import KILLERS
from .task_run import TaskRun, encoded
from .task_watch import TaskWatch
from .trail import Trail

#: While tasks run without a break, their folders are looked at that often; and for at most a tenth of the time.
_SWEEP_SECONDS = 60.0
_MOST_WORKERS = 1024
#: Records that wait to be told; the oldest are left out.
_MOST_RECORDS = 1000
#: From the end of a task's socket to that of its sandbox, unless the code has only closed it.
_LAST_SECONDS = 1.0


class Host(Protocol):
    """What the supervisor lends."""

    backend: LinuxBackend
    audit: AuditLog
    secrets: KnownSecrets


class TaskLane:
    def __init__(
        self,
        host: Host,
        name: str,
        directory: Path,
        effective: Effective,
        options: dict[str, Any],
        writer: asyncio.StreamWriter,
    ) -> None:
        self.name, self.effective, self._host, self._writer = name, effective, host, writer
        self.started = time.time()
        self._directory = directory
        self._redactor = Redactor(host.secrets)
        self._notices: list[str] = []
        #: Asked for by an executor whose caller is on another machine.
        self._records: deque[dict[str, Any]] = deque(maxlen=_MOST_RECORDS)
        tell = self._records.append if options.get("records") else None
        self.trail = Trail(host.audit, name, None, self._notices, self._redactor, tell)
        self._attempts = Attempts(self.trail)
        self.count = workers = max(1, min(_MOST_WORKERS, int(options["workers"])))
        asked, suggested = ([str(module) for module in options.get(key, ())] for key in ("preload", "suggested"))
        request = StartRequest(name, effective, directory)
        self._room: TaskRoom = host.backend.task_room(request, workers, asked, suggested)
        self._folders = HeldFolders(effective.write)
        self._queue: asyncio.Queue[TaskRun | None] = asyncio.Queue()
        self._waiting: dict[int, TaskRun] = {}
        self._running: dict[int, TaskRun] = {}
        self._watch: TaskWatch | None = None
        self._workers: list[asyncio.Task[None]] = []
        #: Tasks that have begun and whose outcome is not out; and one look at the folders at a time.
        self._busy, self._turn = 0, asyncio.Lock()
        self._next_sweep = 0.0
        #: One long answer at a time is looked into.
        self._reading = asyncio.Lock()
        self._done = {"ok": 0}
        self._killed_by = ""
        self._closing: asyncio.Future[None] | None = None

    # -- life

    async def open(self) -> dict[str, Any]:
        """What to tell the executor. Raises SandboxError and leaves nothing behind but what ``close`` removes."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        began = time.monotonic()
        done: list[str] = []
        try:
            await self._host.backend.recover(self._room.request, done)
            self.trail.swept(done, ", left by a sandbox whose supervisor was killed")
            self._folders.hold()
            await self._room.open()
            await in_thread(self._room.rest)  # nothing has run yet
        except SandboxError as exc:
            self.trail.after(events.SANDBOX_REFUSED, severity="warning", reason=exc.message)
            raise
        choice = self._room.choice
        self.trail.before(
            events.SANDBOX_START,
            backend=self._host.backend.name,
            policy=self.effective.digest(),
            project=str(self.effective.project),
            seconds=round(time.monotonic() - began, 4),
            workers=len(self._room.workers),
            guarantees={name: list(layers) for name, layers in choice.layers.items()},
        )
        self._watch = TaskWatch(self._room, self._running, self._end, self._fail)
        self._workers = [asyncio.ensure_future(self._work(worker)) for worker in self._room.workers]
        for task in self._workers:
            task.add_done_callback(self._worker_ended)
        notices, self._notices[:] = [*self.effective.notices, *self._notices], []
        return {
            "name": self.name,
            "guarantees": {name: list(layers) for name, layers in choice.layers.items()},
            "weaker": dict(choice.weaker),
            "notices": notices,
            "digest": self.effective.digest(),
        }

    async def close(self) -> None:
        """End every task; returns when nothing of them is left. Again: the same."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for run in [*self._waiting.values(), *self._running.values()]:
            run.cancelled = True
            self._end(run)
        # Told rather than cancelled: a start that is under way is one to be ended in order.
        for _ in self._workers:
            self._queue.put_nowait(None)
        await asyncio.gather(*self._workers, return_exceptions=True)
        if self._watch is not None:
            self._watch.close()
            if self._next_sweep:  # what has been put there since the last task is the user's
                await in_thread(self._room.adopt)
        self.trail.swept(await self._room.close())
        self._folders.close()
        self._attempts.sum_up()
        if self._watch is not None:
            self.trail.after(events.SANDBOX_STOP, reason=self._killed_by or "closed", tasks=self._done)
        await self._tell_records()
        with contextlib.suppress(OSError):
            self._directory.rmdir()

    # -- what the executor says

    def submit(self, number: int, data: bytes) -> None:
        """Raises SandboxError for a frame that is none."""
        view = memoryview(data)
        size = wire.OPTIONS.size + wire.OPTIONS.unpack_from(view)[0]
        own = json.loads(bytes(view[wire.OPTIONS.size : size]))
        limits = self.effective.policy.limits
        less = {name: min(float(own[name]), getattr(limits, name)) for name in ("wall", "cpu") if name in own}
        room = min(wire.MOST_VALUE, int(own.get("value", wire.MOST_VALUE)))
        run = TaskRun(number, view[size:], replace(limits, **less), room, killed_by=self._killed_by)
        self._waiting[number] = run
        self._queue.put_nowait(run)

    def cancel(self, number: int) -> None:
        run = self._waiting.get(number) or self._running.get(number)
        if run is not None:
            run.cancelled = True
            self._end(run)

    def kill(self, by: str) -> None:
        """End what runs and what waits, and whatever comes yet, on somebody else's order."""
        self._killed_by = KILLERS.get(by, KILLERS[""])
        for run in [*self._waiting.values(), *self._running.values()]:
            run.killed_by = self._killed_by
            self._end(run)

    # -- tasks

    async def _work(self, worker: Worker) -> None:
        while (run := await self._queue.get()) is not None:
            del self._waiting[run.number]
            if run.cancelled or run.killed_by:
                status = {"status": "cancelled"} if run.cancelled else _failed(f"ended by {run.killed_by}", "died")
                await self._send(wire.DONE, run.number, encoded(status))
                continue
            self._running[run.number] = run
            try:
                outcome = await self._outcome(worker, run)
            except SandboxError as exc:
                outcome = _failed(self._redactor.text(str(exc)), exc.kind)
            except OSError as exc:
                outcome = _failed(self._redactor.text(f"the sandbox of a task can't be had: {exc}"), "start")
            finally:
                self._running.pop(run.number, None)
                await self._rest()
            self._record(run, outcome)
            await self._tell_records()
            await self._send(wire.DONE, run.number, encoded(outcome))
            await self._tell_notices()

    async def _outcome(self, worker: Worker, run: TaskRun) -> dict[str, Any]:
        """Start its sandbox, let it run, and end all of it. Raises SandboxError: it did not run."""
        await self._begin()
        digest = hashlib.sha256(run.call).hexdigest()
        self.trail.before(events.TASK_STARTED, number=run.number, sha256=digest, size=len(run.call))
        run.instance, sock = await worker.begin(run.number)
        run.began = time.monotonic()
        run.instance.on_attempts(self._attempts.note)
        if run.cancelled or run.killed_by:
            self._end(run)
        assert self._watch is not None
        self._watch.begin(run)
        await self._send(wire.STARTED, run.number, b"")
        reply = await run.talk(sock, self._host.secrets, self._send, self._reading)
        if reply is None:  # its program has ended, most likely, and then the rest does by itself, saying how
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(run.instance.ended.wait(), _LAST_SECONDS)
        await self._kill(run)
        cpu = await worker.ended(run.number)
        outcome = run.verdict(reply)
        if outcome["status"] == "error":
            self._explain(outcome["error"])
        words = run.last_words(self._redactor) if outcome["status"] == "died" else ""
        if words:
            outcome["text"] += f"\n{words}"
        return {**outcome, "usage": run.figures(cpu), **run.printed(self._host.secrets)}

    def _explain(self, error: dict[str, str]) -> None:
        """Below its traceback, what an error has to do with the sandbox: as under a cell."""
        name, message = error["name"], error["message"]
        if not hints.may_apply(name, message):
            return
        namespaces = self._room.choice.tier == "namespaces"
        trace = error["traceback"]
        line = hints.hint(name, message, self.effective.to_json(), namespaces=namespaces, traceback=trace)
        if line:
            error["traceback"] = f"{trace.rstrip()}\nipysandbox: {line}\n"

    async def _kill(self, run: TaskRun) -> None:
        if run.instance is not None:
            await run.instance.kill()

    def _end(self, run: TaskRun) -> None:
        if run.instance is not None:
            in_background(run.instance.kill())

    def _fail(self, exc: BaseException) -> None:
        """Something of ours broke: end what runs rather than let it run unwatched."""
        self.trail.after(events.SUPERVISOR_FAILED, severity="alert", error=type(exc).__name__, text=str(exc))
        for run in self._running.values():
            run.killed_by = f"the supervisor, which failed ({type(exc).__name__}: {exc})"
            self._end(run)

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        """One that failed would leave its tasks waiting for ever: the executor is told, by its connection's end."""
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            self._fail(exc)
            self._writer.close()

    def _record(self, run: TaskRun, outcome: dict[str, Any]) -> None:
        status = outcome["status"]
        self._done[status] = self._done.get(status, 0) + 1
        limit, error = outcome.get("limit"), outcome.get("error")
        details = {"limit": limit.name} if limit is not None else {}
        if error is not None:
            details["error"] = error["name"]
        if run.instance is not None:
            usage = outcome.get("usage", {})
            self.trail.after(events.TASK_RESULT, number=run.number, status=status, usage=usage, **details)

    # -- folders

    async def _begin(self) -> None:
        """Before a task: what has appeared on the host is hidden and covered; while none ran, it is the user's."""
        async with self._turn:
            first = self._busy == 0
            self._busy += 1
            if first and self._room.generation and self._next_sweep:
                await in_thread(self._room.adopt)
                await self._room.look()
            if first:
                await in_thread(self._room.wake)
                self._next_sweep = time.monotonic() + _SWEEP_SECONDS
        if not first:
            await self._room.look_now_and_then()
            if time.monotonic() >= self._next_sweep:
                await self._sweep()

    async def _rest(self) -> None:
        """A task has ended; after the last one the folders are looked at before anybody hears of it."""
        async with self._turn:
            self._busy -= 1
            if not self._busy:
                await self._sweep()
                await in_thread(self._room.rest)

    async def _sweep(self) -> None:
        began = time.monotonic()
        self._next_sweep = float("inf")
        self.trail.swept(await in_thread(self._room.sweep))
        now = time.monotonic()
        self._next_sweep = now + max(_SWEEP_SECONDS, 10 * (now - began))

    # -- what it tells

    async def _tell_records(self) -> None:
        if self._records:
            records = [self._records.popleft() for _ in range(len(self._records))]
            await self._send(wire.RECORDS, 0, json.dumps(records).encode())

    async def _tell_notices(self) -> None:
        while self._notices:
            await self._send(wire.NOTICE, 0, json.dumps({"notice": self._notices.pop(0)}).encode())

    async def _send(self, kind: int, number: int, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it is gone, which the reader tells
            self._writer.write(wire.frame(kind, number, data))
            await self._writer.drain()

    def state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "project": str(self.effective.project),
            "started": self.started,
            "workers": len(self._workers),
            "running": len(self._running),
            "waiting": len(self._waiting),
            "done": dict(self._done),
        }


def _failed(text: str, kind: str) -> dict[str, Any]:
    return {"status": "failed", "text": text, "kind": kind}


async def serve(
    lane: TaskLane, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closing: Callable[[TaskLane], None]
) -> None:
    """Open the lane, feed it until the executor closes its end, and close it."""
    failed: SandboxError | None = None
    try:
        try:
            opened = await lane.open()
        except SandboxError as exc:
            failed = exc
            return
        except Exception as exc:  # noqa: BLE001 - ours, or the machine's: whoever waits is told which
            lane.trail.after(events.SUPERVISOR_FAILED, severity="alert", error=type(exc).__name__, text=str(exc))
            text = f"the executor's sandboxes can't be started: {type(exc).__name__}: {exc}"
            failed = StartError(text, hint=f"It was to have {lane.count} workers; fewer may do.")
            return
        writer.write(wire.frame(wire.OPENED, 0, json.dumps(opened).encode()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, number, size = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
                data = await reader.readexactly(size)
                if kind == wire.TASK:
                    lane.submit(number, data)
                elif kind == wire.CANCEL:
                    lane.cancel(number)
    finally:
        try:
            await lane.close()
        finally:
            closing(lane)
            if failed is not None:  # told when what it had taken is free again
                writer.write(wire.frame(wire.FAILED, 0, json.dumps(failed.to_json()).encode()))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()
