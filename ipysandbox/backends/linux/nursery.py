"""A copy of the zygote that starts the sandboxes of one executor's worker, one task after the other.

    zygote ── fork ─→ nursery    holds one plan, read once; in the worker's control group
                        └─ clone ─→ init ─→ program    as in ``launch``, anew for each task, with this as their monitor
                        └─ fork ─→ monitor ─→ program  as in ``confined``, where there are no namespaces

It runs no code but ours, loads only what is installed, and talks to the supervisor alone, but that it answers what a
task's filter refuses. A task's first process is its child, so that its end is seen, and what it has used told, by
``wait4``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from ipysandbox.guest import task as guest

from . import confined, launch, libc, preload
from .plan import Plan
from .watch import Watch

_HEADER = struct.Struct("!I")
_MOST_REQUEST = 64 << 20
#: Report socket, log pipe, then the program's own: its socket, its standard output.
_DESCRIPTORS = 4


def prepare() -> None:
    """In the zygote: what the nurseries share."""
    for name in guest.PRELOAD:
        importlib.import_module(name)


def serve(request: dict[str, Any], control: socket.socket) -> int:
    """``request``: {"zygote", "preload": names of installed modules}."""
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)  # where a monitor is killed, what it held in comes here
    if os.getppid() != request["zygote"]:
        return 1
    os.setsid()
    failed, spoiled = _load((*guest.PRELOAD, *request["preload"]))
    gc.collect()
    gc.freeze()
    _Nursery(control).run(failed, spoiled)
    return 0


def _load(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Load modules for the tasks to share. Those that could not be, and those that started threads: a fork has only
    the one that forks, and what such a library left half done stays so."""
    failed, spoiled, before = [], [], _threads()
    for name in names:
        try:
            with preload.installed_only():
                importlib.import_module(name)
        except BaseException as exc:  # noqa: BLE001 - the task's to meet, where it needs it
            failed.append(f"{name}: {type(exc).__name__}: {exc}")
        now = _threads()
        if now - before:
            spoiled.append(f"{name} ({', '.join(sorted({comm for _, comm in now - before}))})")
        before = now
    return failed, spoiled


def _threads() -> set[tuple[str, str]]:
    found = set()
    for number in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{number}/comm") as file:
            found.add((number, file.read().strip()))
    # pyarrow's allocator restarts its own in each child (jemalloc, "background_thread").
    return {row for row in found if row[1] != "jemalloc_bg_thd"}


class _Nursery:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._request: dict[str, Any] = {}
        self._plan: Plan | None = None
        self._text = self._template = ""
        self._tasks: dict[int, _Task] = {}
        self._mapper: _Mapper | None = None
        self._wake, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self._poller = select.epoll()

    def run(self, failed: list[str], spoiled: list[str]) -> None:
        """Until the supervisor closes the control socket, which it does when no task is left."""
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
        self._send(event="ready", failed=failed, spoiled=spoiled)
        self._poller.register(self._control, select.EPOLLIN)
        self._poller.register(self._wake, select.EPOLLIN)
        while True:
            ready = {fd for fd, _ in self._poller.poll(self._until_due())}
            for task in self._tasks.values():
                if task.watch is not None:
                    task.watch.step(0)
            if self._wake in ready:
                os.read(self._wake, 512)
                self._collect()
            if self._control.fileno() in ready and not self._hear():
                return

    def _until_due(self) -> float | None:
        due = [task.watch.until_due() for task in self._tasks.values() if task.watch is not None]
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _hear(self) -> bool:
        header, fds, _, _ = socket.recv_fds(self._control, _HEADER.size, _DESCRIPTORS)
        if len(header) < _HEADER.size:
            return False
        size = _HEADER.unpack(header)[0]
        data = bytearray()
        while len(data) < size <= _MOST_REQUEST:
            chunk = self._control.recv(size - len(data))
            if not chunk:
                return False
            data += chunk
        message = json.loads(data)
        if "task" not in message:
            self._text, self._template = message["request"], message["template"]
            self._request = self._parsed(self._text)
            return True
        if self._template:  # nothing is mounted: each has a folder of its own
            self._request = self._parsed(self._text.replace(self._template, message["scratch"]))
        self._request["proven"] = message["proven"]
        self._start(message["task"], fds)
        return True

    def _parsed(self, text: str) -> dict[str, Any]:
        request = {**json.loads(text), "zygote": os.getpid()}
        if request["tier"] != "confined":
            self._plan = Plan.from_json(request["plan"])
            if os.geteuid() == 0 and self._mapper is None:
                self._mapper = _Mapper(self._plan)
            # Its work is the tasks', and so is the time it takes.
            os.sched_setaffinity(0, self._plan.cpus)
        return request

    def _start(self, number: int, fds: list[int]) -> None:
        spent = time.process_time()
        report = launch.Report(socket.socket(fileno=fds[0]))
        if self._plan is None:
            pid = libc.fork()
            if pid == 0:
                self._monitor(report, fds)
            report.close()
            self._tasks[pid] = _Task(number, spent)
        else:
            begun = launch.begin(self._plan, self._request, report, fds[2:], fds[1], guest.run, self._mapper)
            if begun is None:
                report.close()
                self._send(event="ended", task=number, cpu=0.0)
            else:
                shared = self._request["shared"]
                watch = Watch(begun.init, report, begun.handover, self._proc, shared=shared, inside=False)
                self._poller.register(watch, select.EPOLLIN)
                self._tasks[begun.init] = _Task(number, spent, watch, begun.alive)
        for fd in fds[1:]:
            os.close(fd)

    def _monitor(self, report: launch.Report, fds: list[int]) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._poller.close()
            for fd in (self._wake, self._wake_w, self._proc, self._control.detach()):
                os.close(fd)
            status = confined.monitor(self._request, report, fds[2:], fds[1], guest.run)
        except BaseException as exc:  # noqa: BLE001 - a forked copy of the nursery must end here
            print(f"monitor: {type(exc).__name__}: {exc}", file=sys.stderr)
        finally:
            os._exit(status)

    def _collect(self) -> None:
        """Tell of tasks whose first process has ended; with it, everything in its sandbox has."""
        while True:
            try:
                pid, _, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            task = self._tasks.pop(pid, None)
            if task is None:
                continue
            cpu = used.ru_utime + used.ru_stime
            if task.watch is not None:
                task.watch.step(0)
                task.watch.tell_all()
                self._poller.unregister(task.watch)
                task.watch.close()
                os.close(task.alive)
                cpu += time.process_time() - task.spent
            if self._template:  # there is no pid 1 whose end is everybody's
                confined.end_all(keep=set(self._tasks))
            self._send(event="ended", task=task.number, cpu=cpu)

    def _send(self, **message: object) -> None:
        data = json.dumps(message).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(_HEADER.pack(len(data)) + data)


@dataclass(frozen=True)
class _Task:
    """``spent``: processor seconds of the nursery when it began. With namespaces: who answers what is refused, and a
    descriptor that says inside, for as long as it is open, that this is so."""

    number: int
    spent: float
    watch: Watch | None = None
    alive: int = -1


class _Mapper:
    """As ``launch``'s, where the host user is root: init is the nursery's own child, and one namespace tells all mounts
    how owners are shown."""

    def __init__(self, plan: Plan) -> None:
        self._maps = (
            f"{plan.inside_id} {plan.outside_uid} 1",
            f"{plan.inside_id} {plan.outside_gid} 1",
        )
        self.idmap_fd = launch.owner_map(plan.outside_uid, plan.outside_gid)

    def map(self, pid: int) -> None:
        for name, text in zip(("uid_map", "gid_map"), self._maps, strict=True):
            launch.write(f"/proc/{pid}/{name}", text)
