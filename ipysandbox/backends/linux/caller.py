"""What a stopped call's arguments mean: the caller's memory, descriptors and paths, seen by the monitor.

Everything is read once, and what was read counts only if the caller still waits (``Notification.waits``): its number
can't have become another's before that. Source: seccomp_unotify(2), "Caveats".
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator

from . import libc
from .notify import Notification

_PATH_MAX = _PAGE = 4096
_FIRST = 256
_RESOLVE_NO_MAGICLINKS = 2
#: A process's own descriptors by name, as glibc's fchmodat(AT_SYMLINK_NOFOLLOW) writes them.
_OWN_FD = re.compile(rb"(?:/proc/(?:self|thread-self|\d+)/fd|/dev/fd)/(\d{1,9})")


def number(value: int) -> int:
    """An argument as C's int: the kernel looks at the lower half of the register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@contextlib.contextmanager
def file_at(call: Notification, base: int, path: bytes, nofollow: bool) -> Iterator[int]:
    """An O_PATH descriptor of what ``path`` means to the caller, from its folder ``base``."""
    own = None if nofollow else _OWN_FD.fullmatch(path)
    if own:
        with file_of(call, int(own[1])) as fd:
            yield fd
        return
    if not path:
        raise FileNotFoundError(errno.ENOENT, "empty path")
    what = "cwd" if base == libc.AT_FDCWD else f"fd/{base}"
    start = os.open("/", os.O_PATH | os.O_CLOEXEC) if path.startswith(b"/") else _open_of(call, what)
    try:
        flags = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if nofollow else 0)
        fd = libc.openat2(start, path, flags, _RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(start)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def file_of(call: Notification, descriptor: int) -> Iterator[int]:
    """An O_PATH descriptor of the file behind one of the caller's."""
    if descriptor < 0 and descriptor != libc.AT_FDCWD:
        raise OSError(errno.EBADF, "descriptor")
    fd = _open_of(call, "cwd" if descriptor == libc.AT_FDCWD else f"fd/{descriptor}")
    try:
        yield fd
    finally:
        os.close(fd)


def _open_of(call: Notification, what: str) -> int:
    """What the caller's working folder or one of its descriptors stands for."""
    try:
        fd = os.open(f"/proc/{call.pid}/{what}", os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.EBADF, what) from None
    if not call.waits():
        os.close(fd)
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")
    return fd


def read_bytes(call: Notification, address: int, count: int) -> bytes:
    """``count`` bytes of the caller's memory; OSError(EFAULT) where that is not all readable."""
    data = libc.read_memory(call.pid, address, count)
    if not call.waits():
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")
    if len(data) != count:
        raise OSError(errno.EFAULT, "memory")
    return data


def write_bytes(call: Notification, address: int, data: bytes) -> None:
    """Put ``data`` into the caller's memory, where the kernel would have put its answer."""
    if not call.waits():
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")
    if libc.write_memory(call.pid, address, data) != len(data):
        raise OSError(errno.EFAULT, "memory")


def read_text(call: Notification, address: int) -> bytes:
    """A C string of the caller's memory, page by page: the next page may not be there."""
    data = b""
    while len(data) < _PATH_MAX:
        there = address + len(data)
        # Most paths are short, and so is most of what is read to find their end.
        count = min(_PAGE - there % _PAGE, _PATH_MAX - len(data), _PAGE if data else _FIRST)
        chunk = read_bytes(call, there, count)
        end = chunk.find(b"\0")
        if end >= 0:
            return data + chunk[:end]
        data += chunk
    raise OSError(errno.ENAMETOOLONG, "path")
