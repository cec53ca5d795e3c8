"""Sends signals on a sandbox's behalf, to its own processes only, where Landlock can't bound them (before ABI 6)."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable

from . import libc, processes
from .caller import number
from .notify import Notification


class Signals:
    """``root``: the process whose descendants are the sandbox; itself it is none of them."""

    def __init__(self, root: int) -> None:
        self._root = root

    def calls(self) -> dict[str, Callable[[Notification], None]]:
        """By name of the system call; each raises OSError with what the caller is to get."""
        return {
            "kill": lambda c: self._kill(c.pid, number(c.args[0]), number(c.args[1])),
            "tkill": lambda c: self._thread(number(c.args[0]), number(c.args[0]), number(c.args[1])),
            "tgkill": lambda c: self._thread(number(c.args[0]), number(c.args[1]), number(c.args[2])),
            "rt_sigqueueinfo": lambda c: self._kill(c.pid, number(c.args[0]), number(c.args[1])),
            "rt_tgsigqueueinfo": lambda c: self._thread(number(c.args[0]), number(c.args[1]), number(c.args[2])),
            "pidfd_send_signal": lambda c: self._by_descriptor(c.pid, number(c.args[0]), number(c.args[1])),
        }

    def _ours(self) -> list[int]:
        return processes.tree(self._root)[1:]

    def _kill(self, caller: int, pid: int, signum: int) -> None:
        if pid > 0:
            self._one(pid, signum)
        elif pid == -1:
            for other in self._ours():
                if other != caller:
                    self._one(other, signum)
        else:
            self._group(os.getpgid(caller) if pid == 0 else -pid, signum)

    def _one(self, pid: int, signum: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:  # a thread's number: kill(2) takes its process
            self._thread(pid, pid, signum)
            return
        try:
            # Looked up with the descriptor held: the number can't come to mean another process in between.
            if pid not in self._ours():
                raise PermissionError(errno.EPERM, "not a process of this sandbox")
            signal.pidfd_send_signal(pidfd, signum)
        finally:
            os.close(pidfd)

    def _group(self, group: int, signum: int) -> None:
        """A process group lies in one session, and the sandbox began with a session of its own."""
        members = [pid for pid in self._ours() if _group_of(pid) == group]
        if not members:
            raise ProcessLookupError(errno.ESRCH, "no such process group")
        for pid in members:
            self._one(pid, signum)

    def _thread(self, process: int, thread: int, signum: int) -> None:
        if _process_of(thread) not in self._ours() or process not in (thread, _process_of(thread)):
            raise PermissionError(errno.EPERM, "not a thread of this sandbox")
        libc.syscall("tgkill", _process_of(thread), thread, signum)

    def _by_descriptor(self, caller: int, descriptor: int, signum: int) -> None:
        try:
            with open(f"/proc/{caller}/fdinfo/{descriptor}") as file:
                found = re.search(r"^Pid:\s*(-?\d+)$", file.read(), re.MULTILINE)
        except FileNotFoundError:
            found = None
        if found is None:
            raise OSError(errno.EBADF, "not a process descriptor")
        if int(found[1]) <= 0:
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        self._one(int(found[1]), signum)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def _process_of(thread: int) -> int:
    try:
        with open(f"/proc/{thread}/status") as file:
            found = re.search(r"^Tgid:\s*(\d+)$", file.read(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        found = None
    if found is None:
        raise ProcessLookupError(errno.ESRCH, "no such thread")
    return int(found[1])
