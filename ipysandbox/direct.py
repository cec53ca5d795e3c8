"""Reads a large value where it lies, in the memory of the sandbox's interpreter: one copy instead of six by messages.

What is read is as untrusted as a message's bytes, and is decoded as strictly. The sandbox names addresses of its own,
the supervisor names the process; nothing is ever written there. Where the kernel allows no such reading (Yama for
those who are no descendants, another user's process) values come by messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Sequence

from .backends.linux.processes import started

#: Of one call (IOV_MAX); a value of more buffers comes by messages.
MOST_SPANS = 1024
#: From here on a buffer has pages of its own, which go back to the system with it.
_OWN_PAGES = 1 << 20


class Unreadable(Exception):
    """The memory can't be read from here."""


class _Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read(process: object, spans: object, limit: int) -> list[memoryview]:
    """The buffers at ``spans``, (address, length) each, of ``process``, (pid, start time), in memory of our own.

    Raises Unreadable for spans that make no sense or of more than ``limit`` bytes, and where the kernel refuses.
    """
    pid, start = _pair(process)
    if not isinstance(spans, list) or not 0 < len(spans) <= MOST_SPANS:
        raise Unreadable
    pairs = [_pair(span) for span in spans]
    if sum(length for _, length in pairs) > limit:
        raise Unreadable
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        raise Unreadable from None
    try:
        # By its start time it is the one that was meant, and while it lives its number is nobody else's.
        if started(pid) != start:
            raise Unreadable
        buffers = _read(pid, pairs)
        if started(pid) != start:
            raise Unreadable
    finally:
        os.close(pidfd)
    return buffers


def _pair(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Unreadable
    first, second = value
    if type(first) is not int or type(second) is not int or not 0 <= first < 1 << 63 or not 0 <= second < 1 << 63:
        raise Unreadable
    return first, second


def _read(pid: int, pairs: Sequence[tuple[int, int]]) -> list[memoryview]:
    rooms = [_room(length) for _, length in pairs]
    ours = (_Span * len(pairs))(*(_Span(_address(room), len(room)) for room in rooms))
    theirs = (_Span * len(pairs))(*(_Span(*pair) for pair in pairs))
    # A page that can't be read ends it early (process_vm_readv(2)).
    if _vm_readv(pid, ours, theirs) != sum(length for _, length in pairs):
        raise Unreadable
    return rooms


def _room(length: int) -> memoryview:
    if length < _OWN_PAGES:
        return memoryview(bytearray(length))
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _address(room: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(room)) if room else 0


def _vm_readv(pid: int, ours: ctypes.Array[_Span], theirs: ctypes.Array[_Span]) -> int:
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except AttributeError:
        raise Unreadable from None
    call.restype = ctypes.c_ssize_t
    count = ctypes.c_ulong(len(ours))
    return int(call(ctypes.c_int(pid), ours, count, theirs, count, ctypes.c_ulong(0)))
