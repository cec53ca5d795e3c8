"""Undoes what a process is born with when its parent is odd: signals ignored or blocked, addresses not random, ….

All of it passes fork and exec, so a nohup, a debugger or a daemon's habit would reach the code in a sandbox, and break
what waits for a child or a signal on the way there.
"""

from __future__ import annotations

import ctypes
import signal
import sys

from . import libc

_PER_LINUX = 0
#: The kernel's own default, in nanoseconds (prctl(2)); 0 would mean what this process was born with.
_TIMER_SLACK = 50_000
#: glibc's own (nptl(7)): it sets their handlers when it needs them, and its posix_spawn leaves them ignored.
_INTERNAL = (32, 33)
#: SIGKILL and SIGSTOP can't be changed.
_FIXED = (signal.SIGKILL, signal.SIGSTOP, *_INTERNAL)
_SIG_IGN = 1


def inheritance() -> None:
    """Before this process starts others: randomness of addresses is chosen at the next exec."""
    signals()
    libc.syscall("personality", _PER_LINUX)
    libc.prctl(libc.PR_SET_TIMERSLACK, _TIMER_SLACK)


def signals() -> None:
    """As Python itself starts: a write past a limit is an error of that write, not the end."""
    for number in range(1, signal.NSIG):
        if number not in _FIXED:
            ignored = number in (signal.SIGPIPE, signal.SIGXFSZ)
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    for number in _INTERNAL:
        _stop_ignoring(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _stop_ignoring(number: int) -> None:
    """For a signal that the C library lets nobody change."""
    # struct sigaction of the kernel: a handler, flags, on x86-64 a restorer, a mask of 64 bits.
    action = ctypes.create_string_buffer(32)
    libc.syscall("rt_sigaction", number, None, action, 8)
    if int.from_bytes(action.raw[:8], sys.byteorder) == _SIG_IGN:
        libc.syscall("rt_sigaction", number, ctypes.create_string_buffer(32), None, 8)
