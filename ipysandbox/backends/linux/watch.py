"""The monitor's life: it answers the calls that the filter leaves to it, and covers what the supervisor names, until
the sandbox ends.

It shares init's mounts and has kept its rights over them; no process inside can see or reach it. A nursery, which is
the monitor of one task after the other, shares no mounts, and is asked to cover nothing.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from . import notify, rootfs
from .shared_memory import SharedMemory

#: Calls answered before anything else is looked at again.
_AT_A_TIME = 32
#: Enough for all kinds that are told apart, once each.
_LAST_LINES = 8


class Channel(Protocol):
    """The way to the supervisor, as ``launch.Report`` is."""

    def send(self, event: str, fds: tuple[int, ...] = (), **details: object) -> None: ...
    def receive(self) -> bytes: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Handover:
    """Init's end of the pair over which the monitor gets the filter's listener, before any code runs."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def give(self, listener: int) -> None:
        socket.send_fds(self._sock, [b"listener"], [listener])
        os.close(listener)

    def answered(self) -> int:
        """How many calls the monitor has answered so far: proof that it sees them."""
        self._sock.sendall(b"?")
        return int(self._sock.recv(32) or b"0")

    def close(self) -> None:
        """From here on, what is tried is the code's."""
        self._sock.close()


class Watch:
    """``handover`` is the other end of init's ``Handover``; ``proc`` the host's /proc, opened before init changed the
    root. ``shared``: the limit on memory, where shared mappings are to be counted; ``root``: below which process
    everything inside is, if not init; ``inside``: whether this process sees init's mounts. One that does not would
    cover names on the host: it covers none, and says so."""

    def __init__(
        self,
        init_pid: int,
        report: Channel,
        handover: socket.socket,
        proc: int,
        handlers: Mapping[str, notify.Handler] | None = None,
        *,
        shared: int = 0,
        root: int = 0,
        inside: bool = True,
    ) -> None:
        self._report, self._handover, self._proc = report, handover, proc
        self._handlers = {"connect": notify.see_connect} if handlers is None else dict(handlers)
        self._inside = inside
        self._shared: SharedMemory | None = None
        if shared:
            self._shared = SharedMemory(shared, root or init_pid, proc, lambda held: report.send("shared", held=held))
            self._handlers["mmap"] = self._shared.see
        self._listener: notify.Listener | None = None
        self._pidfd = os.pidfd_open(init_pid)
        self._buffer = b""
        # Of this kind because it can be waited for like one descriptor, by whoever waits for more than a sandbox.
        self._poller = select.epoll()
        self._actions: dict[int, Callable[[int], None]] = {}
        self._ended = False
        self._on(self._pidfd, self._end)
        self._on(report.fileno(), self._hear_supervisor)
        self._on(handover.fileno(), self._hear_init)

    def run(self) -> None:
        """Until init has ended."""
        while not self._ended:
            self.step(self.until_due())
        self.tell_all()

    def fileno(self) -> int:
        """Can be read when there is something to do."""
        return self._poller.fileno()

    def step(self, seconds: float | None) -> None:
        """Do what there is to do, for which it waits so long; None: without end."""
        for fd, event in self._poller.poll(seconds):
            if fd in self._actions:
                self._actions[fd](event)
        self._tell(time.monotonic())

    def tell_all(self) -> None:
        """Init has ended."""
        for _ in range(_LAST_LINES):
            self._tell(float("inf"))

    def close(self) -> None:
        """Let go of every descriptor but that of the host's /proc."""
        for fd in [*self._actions]:
            self._off(fd)
        self._poller.close()
        os.close(self._pidfd)
        self._handover.close()
        self._report.close()
        if self._listener is not None:
            os.close(self._listener.fileno())

    def _on(self, fd: int, action: Callable[[int], None]) -> None:
        self._actions[fd] = action
        self._poller.register(fd, select.EPOLLIN)

    def _off(self, fd: int) -> None:
        del self._actions[fd]
        self._poller.unregister(fd)

    def _end(self, _event: int) -> None:
        self._ended = True

    def _hear_init(self, _event: int) -> None:
        data, fds, _, _ = socket.recv_fds(self._handover, 64, 1)
        if fds:
            self._listener = notify.Listener(fds[0], self._handlers, proc=self._proc)
            self._on(fds[0], self._answer)
        elif data:
            self._handover.sendall(str(self._listener.answered if self._listener else 0).encode())
        else:
            self._off(self._handover.fileno())
            self._handover.close()
            if self._listener is not None:
                self._listener.trail.clear()  # what the self-test tried

    def _answer(self, event: int) -> None:
        assert self._listener is not None
        for _ in range(_AT_A_TIME):
            if not self._listener.step():
                break
        if event & select.EPOLLHUP:  # no process is left that the filter holds
            self._off(self._listener.fileno())

    def until_due(self) -> float | None:
        """Seconds to the next ``step`` if nothing happens; None: none is needed."""
        wait = self._listener.trail.wait(time.monotonic()) if self._listener else None
        return None if wait is None or self._handover.fileno() >= 0 else wait

    def _tell(self, now: float) -> None:
        """Pass on what was tried; a supervisor that does not listen is no reason to wait, or to forget."""
        if self._listener is None or self._handover.fileno() >= 0 or not _takes_more(self._report.fileno()):
            return
        tried = self._listener.trail.take(now)
        if tried:
            rows = [[a.name, a.detail, a.pid, a.comm, a.count] for a in tried]
            self._report.send("refused", attempts=rows)

    def _hear_supervisor(self, _event: int) -> None:
        data = self._report.receive()
        if not data:
            self._left_alone()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            wish = json.loads(line)
            if "cover" in wish:
                failed = [path for path in wish["cover"] if not (self._inside and rootfs.cover_now(path))]
                self._report.send("covered", failed=failed)
            elif self._shared is not None:
                self._report.send("shared", held=self._shared.count(), counted=True)

    def _left_alone(self) -> None:
        self._off(self._report.fileno())


def _takes_more(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poller.poll(0))
