"""Sends signals on a sandbox's behalf, to its own processes only, where Landlock can't bound them (before ABI 6).

Where it can, the kernel sends them, and what is left to do is to notice who was meant.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections.abc import Callable

from . import libc, processes
from .caller import number, process_of
from .notify import Answer, Handler, Notification

_OUTSIDE = "not a process of this sandbox"


class Signals:
    """``root``: the process whose descendants are the sandbox; itself it is none of them."""

    def __init__(self, root: int) -> None:
        self._root = root

    def calls(self) -> dict[str, Callable[[Notification], None]]:
        """By name of the system call; each raises OSError with what the caller is to get."""
        return {
            "kill": lambda c: self._kill(c.pid, number(c.args[0]), number(c.args[1])),
            "tkill": lambda c: self._thread(None, number(c.args[0]), number(c.args[1])),
            "tgkill": lambda c: self._thread(number(c.args[0]), number(c.args[1]), number(c.args[2])),
            "rt_sigqueueinfo": lambda c: self._kill(c.pid, number(c.args[0]), number(c.args[1])),
            "rt_tgsigqueueinfo": lambda c: self._thread(number(c.args[0]), number(c.args[1]), number(c.args[2])),
            "pidfd_send_signal": lambda c: self._by_descriptor(c.pid, number(c.args[0]), number(c.args[1])),
        }

    def seen(self) -> dict[str, Handler]:
        """The same where Landlock refuses: let through, and told if meant for one process outside."""
        return {
            "kill": lambda c: self._see(lambda: number(c.args[0])),
            "pidfd_send_signal": lambda c: self._see(lambda: _named_by(c.pid, number(c.args[0]))),
        }

    def _see(self, find: Callable[[], int]) -> Answer:
        outside = False
        with contextlib.suppress(OSError):  # there is none: the kernel says so
            pid = find()
            outside = pid > 0 and process_of(pid) not in self._ours()
        return Answer(proceed=True, tell=_OUTSIDE if outside else None)

    def _ours(self) -> list[int]:
        return processes.tree(self._root)[1:]

    def _kill(self, caller: int, pid: int, signum: int) -> None:
        if pid > 0:
            self._one(pid, signum)
        elif pid == -1:
            self._many([other for other in self._ours() if other != process_of(caller)], signum)
        else:
            self._group(os.getpgid(caller) if pid == 0 else -pid, signum)

    def _one(self, pid: int, signum: int) -> None:
        try:
            pidfd = self._open(pid)
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            pidfd = self._open(process_of(pid))  # a thread's number: kill(2) takes its process
        try:
            signal.pidfd_send_signal(pidfd, signum)
        finally:
            os.close(pidfd)

    def _open(self, pid: int) -> int:
        """A descriptor of a process of the sandbox's."""
        pidfd = os.pidfd_open(pid)
        # Looked up with the descriptor held: the number can't come to mean another process in between.
        if pid not in self._ours():
            os.close(pidfd)
            raise PermissionError(errno.EPERM, _OUTSIDE)
        return pidfd

    def _group(self, group: int, signum: int) -> None:
        """A process group lies in one session, and the sandbox began with a session of its own."""
        self._many([pid for pid in self._ours() if _group_of(pid) == group], signum)

    def _many(self, pids: list[int], signum: int) -> None:
        """As the kernel has it: one that is reached is enough."""
        reached = False
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # ended since it was seen
                self._one(pid, signum)
                reached = True
        if not reached:
            raise ProcessLookupError(errno.ESRCH, "no such processes")

    def _thread(self, process: int | None, thread: int, signum: int) -> None:
        """``process`` None: whichever the thread belongs to."""
        owner = process_of(thread)
        if process not in (None, owner):
            raise ProcessLookupError(errno.ESRCH, "not a thread of that process")
        pidfd = self._open(owner)
        try:
            if not self._by_thread_descriptor(owner, thread, signum):
                # Before Linux 6.9 a thread is reached by its numbers only. Its process has not ended just before; what
                # is left is that both its numbers come to mean another's in these microseconds.
                signal.pidfd_send_signal(pidfd, 0)
                libc.syscall("tgkill", owner, thread, signum)
        finally:
            os.close(pidfd)

    def _by_thread_descriptor(self, owner: int, thread: int, signum: int) -> bool:
        """Whether this kernel has descriptors of threads; if so, the signal is sent."""
        try:
            fd = libc.syscall("pidfd_open", thread, os.O_EXCL)  # PIDFD_THREAD
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                return False
            raise
        try:
            if process_of(thread) != owner or owner not in self._ours():
                raise ProcessLookupError(errno.ESRCH, "it has ended")
            libc.syscall("pidfd_send_signal", fd, signum, None, 0)
        finally:
            os.close(fd)
        return True

    def _by_descriptor(self, caller: int, descriptor: int, signum: int) -> None:
        pid = _named_by(caller, descriptor)
        if pid <= 0:
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        self._one(pid, signum)


def _named_by(caller: int, descriptor: int) -> int:
    """The process behind a descriptor of the caller's; not above 0 if it has ended."""
    try:
        with open(f"/proc/{caller}/fdinfo/{descriptor}") as file:
            found = re.search(r"^Pid:\s*(-?\d+)$", file.read(), re.MULTILINE)
    except FileNotFoundError:
        found = None
    if found is None:
        raise OSError(errno.EBADF, "not a process descriptor")
    return int(found[1])


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
