"""The sandboxes of one executor: what they share (plan, writable folders, workers), and how each task's is started."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ipysandbox.backends.base import StartRequest
from ipysandbox.errors import StartError
from ipysandbox.policy import Effective

from . import fonts, left_behind, processes, scratch, task_instance
from .choice import Choice
from .confined_plan import ConfinedPlan
from .folders import FilesChanged
from .group_keeper import GroupKeeper
from .groups import Bounds, Group, Used
from .instance import until_files_hold
from .plan import Plan
from .still import held_still
from .task_instance import Task
from .uses import TASKS
from .writable import HELD_SECONDS, WritableFolder, sweep_all
from .zygote_handle import START_SECONDS
from .zygotes import Zygote, Zygotes, until_fit

_T = TypeVar("_T")
#: A look for names to hide or to cover takes at most this share of the time.
_LOOK_SHARE = 20
#: Workers that are forked at a time: each has its own time to begin, and does not spend it waiting for the others.
_STARTED_AT_ONCE = 64
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Tools:
    """What the backend lends: these sandboxes stand on its zygote, plans and control groups."""

    runtime_dir: Path
    zygotes: Zygotes
    choice: Callable[[], Choice]
    choose: Callable[[GroupKeeper], object]
    make_ready: Callable[[Effective], None]
    plan: Callable[[Effective], Plan]
    confined_plan: Callable[[Effective, Path], ConfinedPlan]


class TaskRoom:
    def __init__(
        self, tools: Tools, request: StartRequest, workers: int, preload: Sequence[str], suggested: Sequence[str]
    ) -> None:
        self.tools, self.request, self.effective = tools, request, request.effective
        self.preload, self.suggested = tuple(preload), tuple(suggested)
        self.folders: list[WritableFolder] = []
        self.workers: list[Worker] = []
        self._count = workers
        #: Threads for each numeric library: all workers together use the processors once.
        share = min(self.effective.policy.limits.cpus, len(os.sched_getaffinity(0)) / workers)
        self.threads = max(1, math.floor(share))
        self._template = ""
        self.plan: Plan | ConfinedPlan
        #: Grows with each plan that differs from the one before.
        self.generation = 0
        self._next_look = 0.0
        self._looking = asyncio.Lock()

    @property
    def choice(self) -> Choice:
        return self.tools.choice()

    async def open(self) -> None:
        """Until tasks can be started. Raises StartError and leaves nothing behind but what ``close`` removes."""
        self.tools.make_ready(self.effective)
        if self.effective.policy.limits.gpu.devices:
            raise StartError(
                "limits.gpu: tasks of an executor can't be given graphics cards in this version",
                hint="Run such code in a Sandbox, or leave limits.gpu.devices empty for the executor.",
            )
        await in_thread(self._begin)
        await self.look()
        for number in range(self._count):
            self.workers.append(Worker(self, f"{self.request.name}-{number}"))
        at_once = asyncio.Semaphore(_STARTED_AT_ONCE)

        async def start(worker: Worker) -> None:
            async with at_once:
                await worker.start()

        # All of them, also where one fails: what still starts when the rest is closed would stay.
        ends = await asyncio.gather(*map(start, self.workers), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    def _begin(self) -> None:
        self.folders = [left_behind.writable(path, self.effective) for path in self.effective.write]
        self.devices = frozenset(folder.device for folder in self.folders)

    # -- what is shown

    async def look(self) -> None:
        """Make the plan, as the host's files are now."""
        async with self._looking:
            began = time.monotonic()
            plan = await in_thread(self._make_plan)
            if not self.generation or plan != self.plan:
                self.plan = plan
                self.generation += 1
            now = time.monotonic()
            self._next_look = now + _LOOK_SHARE * (now - began)

    async def look_now_and_then(self) -> None:
        """Before a task: the same, but for at most a share of the time."""
        if time.monotonic() >= self._next_look and not self._looking.locked():
            await self.look_again()

    async def look_again(self) -> None:
        """While tasks run."""
        try:
            await self.look()
        except StartError:
            # A task may have put there what no sandbox can be given.
            await in_thread(self.sweep)
            await self.look()

    def _make_plan(self) -> Plan | ConfinedPlan:
        if self.choice.tier != "confined":
            plan = self.tools.plan(self.effective)
            return dataclasses.replace(plan, environment=self._environment(plan))
        if not self._template:
            self._template = self._new_scratch()
        confined = self.tools.confined_plan(self.effective, Path(self._template))
        return dataclasses.replace(confined, environment=self._environment(confined))

    def _environment(self, plan: Plan | ConfinedPlan) -> dict[str, str]:
        numbers = {name: str(self.threads) for name in plan.environment if name.endswith("_NUM_THREADS")}
        return {**plan.environment, **numbers}

    def message(self, bounded: frozenset[str]) -> dict[str, Any]:
        """What a nursery has to know of the plan. ``bounded``: limits that its control group holds."""
        program = {"threads": self.threads, "confined": self._template or None, "gpu": None}
        shared = 0 if "memory" in bounded else self.effective.policy.limits.memory
        request = {"tier": self.choice.tier, "plan": self.plan.to_json(), "program": program, "shared": shared}
        request["held"] = [(str(folder.path), *folder.identity) for folder in self.folders]
        return {"request": json.dumps(request), "template": self._template}

    def own_scratch(self) -> str:
        """For one task where nothing is mounted, else ""."""
        return self._new_scratch() if self._template else ""

    def _new_scratch(self) -> str:
        return str(scratch.make(self.tools.runtime_dir, self.request.directory.name, fonts.cached()))

    # -- writable folders

    async def record(self, pids: Sequence[int]) -> list[left_behind.Record]:
        """Before anything hostile runs below ``pids``: for whoever sweeps the folders if we can't."""
        return [await in_thread(left_behind.Record, folder, self.effective, pids) for folder in self.folders]

    def touch(self) -> None:
        for worker in self.workers:
            for record in worker.records:
                record.touch()

    def adopt(self) -> None:
        """What has appeared in the folders since the last sweep is the user's: no task has run since that began, and no
        other sandbox that writes there. Where nothing can be covered, tasks could change it, so there it is not."""
        if self.choice.tier == "confined":
            return
        for folder in self.folders:
            if not folder.whole or not folder.new_names():
                continue
            before = left_behind.others(folder.place, self._records)
            there = folder.new_names()
            if not before.awake and left_behind.others(folder.place, self._records) == before:
                folder.adopt(there)
                for record in self._records:
                    record.renew()

    def wake(self) -> None:
        """A task is about to begin."""
        for record in self._records:
            record.rest(0, None)

    def rest(self) -> None:
        """No task runs, and all that they have left is swept."""
        for record in self._records:
            record.rest(0, {} if all(folder.whole for folder in self.folders) else None)

    @property
    def _records(self) -> list[left_behind.Record]:
        return [record for worker in self.workers for record in worker.records]

    def sweep(self) -> list[str]:
        return sweep_all(self.folders)

    def count(self, most_files: int, inits: Iterable[int]) -> list[tuple[int, int]]:
        """Each folder as its ``measure`` tells. ``most_files``: what a task may add; ``inits``: first processes of
        those that run."""
        most = self.effective.policy.limits.disk
        step = max(1 << 20, most // 16)
        if not any(folder.may_exceed(folder.bytes + most, folder.files + most_files) for folder in self.folders):
            return [folder.measure(step) for folder in self.folders]
        with held_still(pid for init in inits for pid in processes.tree(init) if pid != init):
            return [folder.measure(step, HELD_SECONDS) for folder in self.folders]

    # -- end

    async def close(self) -> list[str]:
        """All tasks have ended. What was disarmed."""
        await asyncio.gather(*(worker.close() for worker in self.workers))
        done = await in_thread(self.sweep)
        for worker in self.workers:
            worker.forget()
        if self._template:
            await in_thread(scratch.remove_tree, self._template)
        return done


class _GroupMeter:
    """A worker's control group, as its present task has used it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._cpu, self._kills = 0.0, group.oom_kills()

    def begin(self) -> None:
        self._cpu = self._group.cpu()

    def used(self) -> Used:
        used = self._group.used()
        cpu = None if used.cpu is None else max(0.0, used.cpu - self._cpu)
        return dataclasses.replace(used, cpu=cpu, oom_kills=used.oom_kills - self._kills)

    def killed(self) -> int:
        """Also makes ready for the next."""
        now = self._group.oom_kills()
        before, self._kills = self._kills, now
        return now - before


class Worker:
    """One nursery, and its tasks one after the other."""

    def __init__(self, room: TaskRoom, name: str) -> None:
        self._room = room
        self._name = f"{name}-{next(_NUMBERS)}"
        self._sock: socket.socket | None = None
        self._reader: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[dict[str, Any]]
        self._ends: dict[int, asyncio.Future[float]] = {}
        self._group: Group | None = None
        self._planned: Group | None = None
        self._meter: _GroupMeter | None = None
        self._sent = self._proven = 0
        self.pid = 0
        self._zygote: Zygote | None = None
        self.records: list[left_behind.Record] = []

    async def start(self) -> None:
        """Fork the nursery. Raises StartError."""
        await until_fit(self._room.tools.zygotes, self._room.effective.policy.start, self._start, TASKS)

    async def _start(self, zygote: Zygote) -> None:
        # What it has not loaded yet would have to be loaded by each nursery.
        await asyncio.wait_for(zygote.handle.settled.wait(), START_SECONDS)
        ready = await self._fork(zygote)
        if ready["spoiled"] and self._room.suggested:
            self._room.suggested = ()
            await self.close()
            ready = await self._fork(zygote)
        asked = [row for row in ready["failed"] if row.partition(":")[0] in self._room.preload]
        if asked or ready["spoiled"]:
            what = "; ".join([*asked, *(f"{row} starts threads, which no fork keeps" for row in ready["spoiled"])])
            raise StartError(f"preload: {what}", hint="Leave it out of preload: each task can import it by itself.")
        # After it has loaded what tasks share: that is nobody's, and would stay charged to the group.
        limits, keeper = self._room.effective.policy.limits, zygote.groups
        bounds = Bounds(limits.memory, limits.processes + 3, limits.cpus)
        if self._planned is not None and keeper.fill(self._planned, self.pid, bounds):
            self._group, self._meter = self._planned, _GroupMeter(self._planned)
        else:
            self._room.tools.choose(keeper)
        records = await self._room.record((zygote.handle.pid, self.pid))
        self.forget()  # of the one before, below which nothing is left
        self.records = records

    def forget(self) -> None:
        for record in self.records:
            record.remove()

    async def _fork(self, zygote: Zygote) -> dict[str, Any]:
        """What the new nursery says of the modules that it has loaded. Raises Unfit."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        self._planned = group = zygote.groups.plan()
        try:
            self.pid = await zygote.handle.fork(self._name, [theirs.fileno()], group.folders if group else [])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._sock, self._sent, self._proven = ours, 0, 0
        # As long as its child lives.
        self._room.tools.zygotes.took(zygote)
        self._zygote = zygote
        self._reader = asyncio.ensure_future(self._read(ours))
        await self._send({"tier": "nursery", "preload": [*self._room.preload, *self._room.suggested]})
        return await asyncio.wait_for(asyncio.shield(self._ready), START_SECONDS)

    @property
    def bounded(self) -> frozenset[str]:
        return self._group.bounded if self._group is not None else frozenset()

    async def begin(self, number: int) -> tuple[Task, socket.socket]:
        """A sandbox that has proven its layers, and the socket of what runs in it. Raises StartError."""
        if self._reader is None or self._reader.done():  # the kernel ended it with a task, for the memory
            await self.close()
            await self.start()
        return await until_files_hold(functools.partial(self._begin, number))

    async def _begin(self, number: int) -> tuple[Task, socket.socket]:
        room = self._room
        if self._sent != room.generation:
            self._sent, self._proven = room.generation, 0
            await self._send(room.message(self.bounded))
        plan = room.plan
        own = await in_thread(room.own_scratch) if isinstance(plan, ConfinedPlan) else ""
        if isinstance(plan, ConfinedPlan):
            plan = dataclasses.replace(plan, scratch=own)
        if self._meter is not None:
            self._meter.begin()
        report, reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        sock, programs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # It belongs to the host's network namespace, and so would an abstract name that the task gave it. It has one
        # now (autobind, unix(7)), and no socket takes a second.
        programs.bind("")
        err, err_w = os.pipe2(os.O_CLOEXEC)
        out, out_w = os.pipe2(os.O_CLOEXEC)
        instance = task_instance.make(plan, room.choice.layers, report, err, out, room.devices, self._meter)
        instance.bounded = self.bounded
        self._ends[number] = asyncio.get_running_loop().create_future()
        try:
            fds = [reports.fileno(), err_w, programs.fileno(), out_w]
            await self._send({"task": number, "proven": bool(self._proven), "scratch": own}, fds)
        finally:
            reports.close()
            programs.close()
            os.close(err_w)
            os.close(out_w)
        try:
            await instance.wait_ready(START_SECONDS)
        except BaseException as exc:
            sock.close()
            await instance.kill()
            with contextlib.suppress(asyncio.TimeoutError):
                await self.ended(number)
            if isinstance(exc, FilesChanged):  # by a task that runs
                await room.look_again()
            raise
        self._proven = 1
        sock.setblocking(False)
        return instance, sock

    async def ended(self, number: int) -> float:
        """When the monitor of a task has ended: the processor seconds of all that ran for it."""
        try:
            return await asyncio.wait_for(self._ends[number], START_SECONDS)
        finally:
            del self._ends[number]

    async def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        assert self._sock is not None
        data = json.dumps(message).encode()
        data = struct.pack("!I", len(data)) + data
        try:
            sent = socket.send_fds(self._sock, [data], fds) if fds else 0
            if sent < len(data):
                await asyncio.get_running_loop().sock_sendall(self._sock, data[sent:])
        except OSError as exc:
            raise StartError(f"a worker of the executor ended: {exc}") from None

    async def _read(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        buffer = b""
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(sock, 65536):
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= (size := 4 + struct.unpack("!I", buffer[:4])[0]):
                    self._hear(json.loads(buffer[4:size]))
                    buffer = buffer[size:]
        if not self._ready.done():
            self._ready.set_exception(StartError("a worker of the executor ended at its start"))
        for future in self._ends.values():
            if not future.done():
                future.set_result(0.0)

    def _hear(self, message: dict[str, Any]) -> None:
        if message["event"] == "ready":
            self._ready.set_result(message)
        elif message["event"] == "ended":
            future = self._ends.get(message["task"])
            if future is not None and not future.done():
                future.set_result(message["cpu"])

    async def close(self) -> None:
        """No task of its runs any more."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
            if self._reader is not None:
                await asyncio.wait([self._reader], timeout=START_SECONDS)
            self._sock.close()
            self._sock = None
        if self._zygote is not None:
            if self._group is not None:
                self._zygote.groups.drop(self._group)
            self._room.tools.zygotes.let_go(self._zygote)
        self._zygote = self._group = self._meter = None


async def in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def written_by(pid: int) -> int:
    """Bytes that the processes below ``pid`` have written, those that it has waited for included."""
    total = 0
    for one in processes.tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{one}/io", "rb", buffering=0) as file:
            rows = dict(line.split(b": ") for line in file.read().splitlines())
            total += int(rows[b"wchar"])
    return total
