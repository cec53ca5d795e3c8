"""Keeps a sandbox's processes and threads within its limit where no namespace and no control group counts them.

RLIMIT_NPROC counts the tasks of a user wherever they are, and none of root's. So each call that makes one waits for the
monitor; whoever no longer has a monitor makes none. What the call asks for stands in registers, which can't change
while it waits.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from . import decisions, processes, seccomp
from .notify import Answer, Notification, refuse


class Tasks:
    """``root``: the process whose descendants count, itself not; ``most`` of them, threads included."""

    def __init__(self, root: int, most: int) -> None:
        self._root, self._most = root, most
        #: So many more can't exceed the limit, however many of the others live on: counting is what costs.
        self._left = 0

    def calls(self) -> dict[str, Callable[[Notification], Answer]]:
        """By name of the system call."""
        return dict.fromkeys(decisions.CONFINED_COUNTED, self._make)

    def _make(self, call: Notification) -> Answer:
        if call.name == "clone" and seccomp.is_refused_clone(call.args[0]):
            return refuse(call)
        if self._left <= 0:
            self._left = self._most - count(self._root)
        if self._left <= 0:
            return Answer(errno=errno.EAGAIN)  # as the kernel at RLIMIT_NPROC
        self._left -= 1
        return Answer(proceed=True)


def count(root: int) -> int:
    """Processes and threads below ``root``, ended ones that nobody has waited for included."""
    return sum(map(_threads, processes.tree(root)[1:]))


def _threads(pid: int) -> int:
    try:
        # The folder has a link for each of its own, and two.
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except (FileNotFoundError, ProcessLookupError):
        return 0
