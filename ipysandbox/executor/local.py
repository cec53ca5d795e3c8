"""Runs tasks on this machine: one connection to this process's supervisor, which starts a sandbox for each."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ipysandbox.backends.linux.uses import TASKS
from ipysandbox.cwd import absolute
from ipysandbox.errors import SandboxClosed, SandboxDied, SandboxError, ValueRefused, from_json
from ipysandbox.policy import Policy, check_given
from ipysandbox.sandbox import as_json
from ipysandbox.supervisor import task_wire as wire
from ipysandbox.supervisor.spawn import Supervisor

from .outcome import Outcome

#: Tasks that wait in the supervisor, so that none of its workers waits for us; the others wait here.
_AHEAD = 4


class Runner(Protocol):
    """Where an executor's tasks run: this machine, or others."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time."""

    @property
    def guarantees(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the layers that hold each guarantee, for people."""

    @property
    def weaker(self) -> Mapping[str, str]:
        """What is held in a weaker form than elsewhere, for people."""

    def submit(self, call: bytes, limits: Mapping[str, float] | None = None) -> Future[Outcome]:
        """Run ``call`` (``call.pack``) in a fresh sandbox. ``limits``: "wall" and "cpu" in seconds, where less than the
        policy's. ``cancel()`` of the future drops a task that waits and kills one that runs; its outcome is lost.

        Never waits. Raises SandboxClosed after ``close``, and SandboxDied when nothing is there to run it."""

    def close(self) -> None:
        """End every task that runs or waits, as cancelled; returns when nothing of them is left."""


class TaskFuture(Future[Any]):
    """One that can be cancelled at any time before it is done: what runs is killed.

    So that ``cancel`` of the base works, it is pending until it is done; ``running`` asks whether it has begun.
    """

    def __init__(self, kill: Callable[[], object], began: Callable[[], bool]) -> None:
        super().__init__()
        self._kill, self._has_begun = kill, began
        self._cancelling = threading.Lock()

    def running(self) -> bool:
        return not self.done() and self._has_begun()

    def let_go(self) -> None:
        """Once it is done: what it was made from would keep its value in a circle, until the collector comes round."""
        self._kill = self._has_begun = bool

    def cancel(self) -> bool:
        with self._cancelling:
            before = self.cancelled()
            if not super().cancel():
                return False
            if not before:
                self.set_running_or_notify_cancel()  # who waits for it hears of it
        if not before:
            self._kill()
        return True


@dataclass
class _Task:
    future: Future[Outcome] = field(init=False)
    #: Options and call, until they are sent.
    data: list[bytes]
    began: bool = False
    pieces: list[bytes] = field(default_factory=list)


class TaskRunner:
    """See ``Runner``. Raises PolicyError or StartError when no sandbox can be had under the policy: nothing was run.

    ``preload``: installed modules to load once; ``suggested``: those where that does no harm. For a caller elsewhere:
    ``supervisor``, which is this process's unless given; ``records``, told each record of the audit trail, some at a
    time; and ``complete``: ``policy`` is a ``Policy`` in which no file but the administrator's has a say.
    """

    def __init__(
        self,
        *,
        policy: str | Path | Mapping[str, Any] | Policy | None = None,
        project: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
        workers: int | None = None,
        preload: tuple[str, ...] = (),
        suggested: tuple[str, ...] = (),
        on_notice: Callable[[str], None] = lambda _text: None,
        supervisor: Supervisor | None = None,
        records: Callable[[list[Any]], None] | None = None,
        complete: bool = False,
    ) -> None:
        check_given(policy, overrides or {})
        self.workers = workers or len(os.sched_getaffinity(0))
        self._on_notice, self._on_records = on_notice, records
        self._supervisor = supervisor or Supervisor.current(TASKS)
        self._pid = os.getpid()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file = self._sock.makefile("rb")
        #: ``_lock`` guards what follows it; ``_sending`` the socket's order. Whoever has both took the first first.
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._numbers = 0
        self._waiting: deque[int] = deque()
        self._tasks: dict[int, _Task] = {}
        self._sent: set[int] = set()
        self._closed: SandboxError | None = None
        request = {
            "policy": as_json(policy),
            "cwd": str(absolute(project)),
            "overrides": dict(overrides or {}),
            "workers": self.workers,
            "preload": list(preload),
            "suggested": list(suggested),
            "records": records is not None,
            "complete": complete,
        }
        try:
            self._supervisor.tell_secrets()
            self._open(request)
        except BaseException:
            self._file.close()
            self._sock.close()
            raise
        self._reader = threading.Thread(target=self._read, name="ipysandbox-tasks", daemon=True)
        self._reader.start()

    def _open(self, request: Mapping[str, Any]) -> None:
        try:
            self._sock.connect(str(self._supervisor.client.folder / wire.SOCKET))
            self._sock.sendall(wire.frame(wire.OPEN, 0, json.dumps(request).encode()))
            kind, _, data = self._receive()
            while kind not in (wire.OPENED, wire.FAILED):  # what the audit trail has of a start that failed
                self._on_frame(kind, 0, data)
                kind, _, data = self._receive()
        except (OSError, EOFError) as exc:
            raise SandboxDied(f"the sandbox supervisor does not answer ({exc})") from None
        answer = json.loads(data)
        if kind != wire.OPENED:
            raise from_json(answer)
        self.guarantees: Mapping[str, tuple[str, ...]] = {
            name: tuple(layers) for name, layers in answer["guarantees"].items()
        }
        self.weaker: Mapping[str, str] = answer["weaker"]
        self.notices: tuple[str, ...] = tuple(answer["notices"])
        #: Of the policy as it is in force.
        self.digest = str(answer["digest"])

    def submit(self, call: bytes, limits: Mapping[str, float] | None = None) -> Future[Outcome]:
        if os.getpid() != self._pid:
            raise SandboxClosed(
                "this process was forked from the one that the executor belongs to; make one of its own"
            )
        if len(call) > wire.MOST_CALL:
            raise ValueRefused(f"the call has {len(call) >> 20} MiB; at most {wire.MOST_CALL >> 20} can cross at once")
        options = json.dumps(dict(limits or {})).encode()
        self._supervisor.tell_secrets()
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._numbers += 1
            number = self._numbers
            task = _Task([wire.OPTIONS.pack(len(options)) + options, call])
            task.future = TaskFuture(lambda: self._cancel(number), lambda: task.began)
            self._tasks[number] = task
            self._waiting.append(number)
        self._send_waiting()
        return task.future

    def _send_waiting(self) -> None:
        """Send what waits, as far as the supervisor is to have it."""
        while True:
            with self._sending:
                with self._lock:
                    if not self._waiting or len(self._sent) >= self.workers + _AHEAD:
                        return
                    number = self._waiting.popleft()
                    task = self._tasks.get(number)
                    if task is None:  # cancelled
                        continue
                    self._sent.add(number)
                    data, task.data = task.data, []
                self._write(wire.HEADER.pack(wire.TASK, number, sum(map(len, data))), *data)

    def _write(self, *parts: bytes) -> None:
        """``_sending`` is held. A supervisor that is gone is told by the reader."""
        with contextlib.suppress(OSError):
            small = len(parts) == 1 or sum(map(len, parts)) < 1 << 16
            for part in [b"".join(parts)] if small else parts:
                self._sock.sendall(part)

    def _cancel(self, number: int) -> None:
        with self._sending:
            with self._lock:
                sent = number in self._sent
                if not sent:
                    self._tasks.pop(number, None)
            if sent:
                self._write(wire.frame(wire.CANCEL, number))

    # -- the reader's thread

    def _receive(self) -> tuple[int, int, bytes]:
        header = self._file.read(wire.HEADER.size)
        if len(header) < wire.HEADER.size:
            raise EOFError("it has ended")
        kind, number, size = wire.HEADER.unpack(header)
        data = self._file.read(size)
        if len(data) < size:
            raise EOFError("it has ended")
        return kind, number, data

    def _read(self) -> None:
        why = "the sandbox supervisor ended"
        try:
            while (frame := self._next_frame()) is not None:
                self._on_frame(*frame)
        except BaseException as exc:  # noqa: BLE001 - a callback's, or lack of memory: nobody may wait for ever
            why = f"the executor's reader failed ({type(exc).__name__}: {exc})"
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)  # what runs there would be heard of by nobody
        with self._lock:
            self._closed = self._closed or SandboxDied(f"{why}; make a new executor")
            left, self._tasks = [task.future for task in self._tasks.values()], {}
            self._waiting.clear()
            self._sent.clear()
        for future in left:
            _resolve(future, Outcome("died", text=self._closed.message, kind="died"))

    def _next_frame(self) -> tuple[int, int, bytes] | None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            return self._receive()
        return None

    def _on_frame(self, kind: int, number: int, data: bytes) -> None:
        if kind == wire.NOTICE:
            notice = json.loads(data)["notice"]
            with contextlib.suppress(Exception):  # results matter more
                self._on_notice(notice)
            return
        if kind == wire.RECORDS and self._on_records is not None:
            self._on_records(json.loads(data))
            return
        with self._lock:
            task = self._tasks.get(number)
        if task is None:
            return
        if kind == wire.STARTED:
            task.began = True
        elif kind == wire.PIECE and not task.future.done():
            task.pieces.append(data)
        elif kind == wire.DONE:
            outcome = None if task.future.done() else _outcome(json.loads(data), task.pieces)
            with self._lock:
                del self._tasks[number]
                self._sent.discard(number)
            self._send_waiting()
            if outcome is not None:
                _resolve(task.future, outcome)

    # -- end

    def close(self) -> None:
        with self._lock:
            self._closed = self._closed or SandboxClosed("the executor is shut down")
            futures = [task.future for task in self._tasks.values()]
            self._waiting.clear()
        for future in futures:
            future.cancel()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)  # it ends what runs, and closes when nothing is left
        if threading.current_thread() is not self._reader:
            self._reader.join()
            self._file.close()
            self._sock.close()


def _resolve(future: Future[Outcome], outcome: Outcome) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled at this very moment
        future.set_result(outcome)
    if isinstance(future, TaskFuture):
        future.let_go()


def _outcome(head: dict[str, Any], pieces: list[bytes]) -> Outcome:
    """``head``: the supervisor's; it says where in the pieces the value's JSON and its buffers lie."""
    sizes = head.pop("sizes", [])
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    frames, at = [], 0
    for size in sizes:
        frames.append(whole[at : at + size])
        at += size
    return Outcome.from_wire([json.dumps(head).encode(), *(frames or [b""])])
