"""A copy of the zygote that starts the sandboxes of one executor's worker, one task after the other.

    zygote ── fork ─→ nursery    holds one plan, read once; in the worker's control group
                        └─ fork ─→ monitor ─→ …    as in ``launch`` and ``confined``, anew for each task

It runs no code but ours, loads only what is installed, and talks to the supervisor alone. A task's monitor is its
child, so that its end is seen, and what it has used told, by ``wait4``.
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
from typing import Any

from ipysandbox.guest import task as guest

from . import confined, launch, libc, preload

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
        self._text = self._template = ""
        #: The monitor's pid, its number.
        self._tasks: dict[int, int] = {}
        self._mapper: _Mapper | None = None
        self._wake, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self, failed: list[str], spoiled: list[str]) -> None:
        """Until the supervisor closes the control socket, which it does when no task is left."""
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
        self._send(event="ready", failed=failed, spoiled=spoiled)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._wake in ready:
                os.read(self._wake, 512)
                self._collect()
            if self._control.fileno() in ready and not self._hear():
                return

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
        return {**json.loads(text), "zygote": os.getpid()}

    def _start(self, number: int, fds: list[int]) -> None:
        namespaces = self._request["tier"] != "confined"
        if namespaces and os.geteuid() == 0 and self._mapper is None:
            self._mapper = _Mapper(self._request["plan"])
        if self._mapper is not None:
            self._mapper.open()
        pid = libc.fork()
        if pid == 0:
            self._monitor(fds)
        for fd in fds:
            os.close(fd)
        self._tasks[pid] = number
        # Its monitor waits for this, and needs it before anything of the sandbox exists.
        if self._mapper is not None:
            self._mapper.serve(pid)

    def _monitor(self, fds: list[int]) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (self._wake, self._wake_w, self._control.detach()):
                os.close(fd)
            report = launch.Report(socket.socket(fileno=fds[0]))
            if self._request["tier"] == "confined":
                status = confined.monitor(self._request, report, fds[2:], fds[1], guest.run)
            else:
                status = launch.monitor(self._request, report, fds[2:], fds[1], guest.run, self._mapper)
        except BaseException as exc:  # noqa: BLE001 - a forked copy of the nursery must end here
            print(f"monitor: {type(exc).__name__}: {exc}", file=sys.stderr)
        finally:
            os._exit(status)

    def _collect(self) -> None:
        """Tell of monitors that have ended; with each, everything in its sandbox has."""
        while True:
            try:
                pid, _, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._tasks:
                number = self._tasks.pop(pid)
                if self._template:  # there is no pid 1 whose end is everybody's
                    confined.end_all(keep=set(self._tasks))
                self._send(event="ended", task=number, cpu=used.ru_utime + used.ru_stime)

    def _send(self, **message: object) -> None:
        data = json.dumps(message).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(_HEADER.pack(len(data)) + data)


class _Mapper:
    """As ``launch``'s, where the host user is root: the nursery itself writes the maps, and one namespace tells all
    mounts how owners are shown."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._maps = (
            f"{plan['inside_id']} {plan['outside_uid']} 1",
            f"{plan['inside_id']} {plan['outside_gid']} 1",
        )
        self.idmap_fd = launch.owner_map(plan["outside_uid"], plan["outside_gid"])

    def open(self) -> None:
        """Before the fork."""
        self._mine, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def serve(self, pid: int) -> None:
        """In the nursery: write the maps of its child ``pid`` once that asks, unless it has ended."""
        self._theirs.close()
        with self._mine:
            if not self._mine.recv(1):
                return
            answer = b"ok"
            try:
                for name, text in zip(("uid_map", "gid_map"), self._maps, strict=True):
                    launch.write(f"/proc/{pid}/{name}", text)
            except OSError as exc:
                answer = str(exc.errno or 5).encode()
            with contextlib.suppress(OSError):
                self._mine.send(answer)

    def map(self, _pid: int) -> None:
        """In the monitor."""
        self._mine.close()
        with self._theirs:
            self._theirs.send(b"?")
            answer = self._theirs.recv(32)
        if answer != b"ok":
            number = int(answer or b"5")
            raise OSError(number, f"map the sandbox's user: {os.strerror(number)}")
