"""One running task's sandbox, seen from the supervisor: an ``Instance`` without a kernel, for the time of one call."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Any, Protocol

from ipysandbox.backends.base import Change, Endpoints

from .confined_instance import ConfinedInstance
from .confined_plan import ConfinedPlan
from .groups import Used
from .instance import LinuxInstance
from .layout import Spent
from .plan import Plan

#: Of each stream the beginning is kept, in bytes; all of it is counted.
MOST_KEPT = 64 << 10
_PIPE = 1 << 16


class Meter(Protocol):
    """What the control group of a worker says of the task that runs in it."""

    def used(self) -> Used: ...
    def killed(self) -> int: ...


class Printed:
    """What comes out of one descriptor, until it is closed inside."""

    def __init__(self, fd: int) -> None:
        self._fd, self.kept, self.count = fd, bytearray(), 0
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self.read)

    def read(self) -> bool:
        """Take what is there; whether there may be more."""
        try:
            data = os.read(self._fd, _PIPE)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
            return False
        self.count += len(data)
        self.kept += data[: max(0, MOST_KEPT - len(self.kept))]
        return True

    def close(self) -> None:
        """All inside has ended: what is left is what a pipe holds."""
        self.read()
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


def _nothing_hidden() -> tuple[list[str], Spent]:
    return [], Spent(0.0, 0.0)  # the executor looks


class Task(LinuxInstance):
    """What differs where nobody talks to a kernel, and the folders are the executor's."""

    def __init__(
        self,
        plan: Plan | ConfinedPlan,
        guarantees: Mapping[str, tuple[str, ...]],
        report: socket.socket,
        stderr: int,
        stdout: int,
        devices: frozenset[int],
        meter: Meter | None,
    ) -> None:
        super().__init__(plan, Endpoints({}, b""), guarantees, report, stderr, [], _nothing_hidden)
        self._holdings.devices |= devices
        self._meter = meter
        self.out = Printed(stdout)
        self.err_kept, self.err_count = bytearray(), 0
        self.on_exit(lambda _status: self.out.close())

    @property
    def ended(self) -> asyncio.Event:
        return self._ended

    @property
    def status(self) -> int | None:
        """The program's exit status, or a signal's number below zero; as the sandbox says."""
        return self._status

    def _on_log(self) -> None:
        try:
            data = os.read(self._log_fd, _PIPE)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._log_fd)
            return
        self.err_count += len(data)
        self.err_kept += data[: max(0, MOST_KEPT - len(self.err_kept))]

    def _used(self) -> Used:
        if self._meter is None:
            return Used()
        used = self._meter.used()
        if used.oom_kills:
            self._enforced["memory"] = used.peak or used.memory or 0
        return used

    def _finish(self) -> None:
        # Read once more for what the kernel has ended; all of the meters would cost as much as a short task.
        meter, self._meter = self._meter, None
        super()._finish()
        if meter is not None and self._ended.is_set():
            if meter.killed():
                self._enforced.setdefault("memory", 0)
        else:
            self._meter = meter

    def changes(self) -> list[Change]:
        return []  # dropped with the task, and nobody asks


class TaskInstance(Task):
    """With namespaces."""


class ConfinedTaskInstance(Task, ConfinedInstance):
    """Without them."""


def make(plan: Plan | ConfinedPlan, *arguments: Any) -> Task:
    return (ConfinedTaskInstance if isinstance(plan, ConfinedPlan) else TaskInstance)(plan, *arguments)
