"""Stops processes while what they write is counted, where it grows as fast as it is counted."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator

from .processes import state

#: States of one that its parent or a debugger has stopped, or that has ended.
_STILL = (b"T", b"t", b"Z", b"X", b"")


@contextlib.contextmanager
def held_still(pids: Iterable[int]) -> Iterator[None]:
    """None of ``pids`` runs meanwhile, but for what one of them forks at that very moment. Those that were stopped stay
    so. As after any stop, some system calls inside return early (EINTR, signal(7)), which programs have to expect."""
    with contextlib.ExitStack() as going_on:
        for pid in pids:
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:  # it has ended
                continue
            going_on.callback(os.close, pidfd)
            if state(pid) not in _STILL and _signal(pidfd, signal.SIGSTOP):
                going_on.callback(_signal, pidfd, signal.SIGCONT)
        yield


def _signal(pidfd: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True
