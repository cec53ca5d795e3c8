"""What a stopped call's arguments mean: the caller's memory, descriptors and paths, seen by the monitor.

A process's number can become another's at any time; while its call waits (``Notification.waits``) it hasn't. So what
is reached by number is opened first and believed only if the caller still waits then: from there on the descriptor is
what counts. Everything is read once. Source: seccomp_unotify(2), "Caveats".
"""

from __future__ import annotations

import errno
import os
import re

from . import libc
from .notify import Notification

_PATH_MAX = _PAGE = 4096
_FIRST = 256
_RESOLVE_NO_MAGICLINKS = 2
#: A process's own descriptors by name, as glibc's fchmodat(AT_SYMLINK_NOFOLLOW) writes them.
_OWN_FD = re.compile(rb"(?:/proc/(?:self|thread-self)/fd|/dev/fd)/([0-9]{1,9})")


def number(value: int) -> int:
    """An argument as C's int: the kernel looks at the lower half of the register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class Memory:
    """The caller's memory, for reading and writing. It stays that, whatever its number comes to mean: process_vm_writev
    would go by the number, so could write into a process outside."""

    def __init__(self, call: Notification) -> None:
        try:
            self._fd = os.open(f"/proc/{call.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ProcessLookupError(errno.ESRCH, "the caller has ended") from None
        try:
            require_waiting(call)
        except OSError:
            os.close(self._fd)
            raise

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)

    def read(self, address: int, count: int) -> bytes:
        """OSError(EFAULT) where that is not all readable."""
        data = self._some(address, count)
        if len(data) != count:
            raise OSError(errno.EFAULT, "memory")
        return data

    def write(self, address: int, data: bytes) -> None:
        """Put ``data`` where the kernel would have put its answer."""
        try:
            done = os.pwrite(self._fd, data, address)
        except (OSError, OverflowError):
            done = 0
        if done != len(data):
            raise OSError(errno.EFAULT, "memory")

    def text(self, address: int) -> bytes:
        """A C string, page by page: the next page may not be there."""
        data = b""
        while len(data) < _PATH_MAX:
            there = address + len(data)
            # Most paths are short, and so is most of what is read to find their end.
            count = min(_PAGE - there % _PAGE, _PATH_MAX - len(data), _PAGE if data else _FIRST)
            chunk = self.read(there, count)
            end = chunk.find(b"\0")
            if end >= 0:
                return data + chunk[:end]
            data += chunk
        raise OSError(errno.ENAMETOOLONG, "path")

    def _some(self, address: int, count: int) -> bytes:
        try:
            return os.pread(self._fd, count, address)
        except (OSError, OverflowError):
            return b""


def require_waiting(call: Notification) -> None:
    """What was opened by the caller's number before this was the caller's own."""
    if not call.waits():
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")


def own_descriptor(path: bytes) -> int:
    """The number of the caller's descriptor that ``path`` names, or -1."""
    own = _OWN_FD.fullmatch(path) if path.startswith((b"/proc/", b"/dev/")) else None
    return int(own[1]) if own else -1


def open_at(call: Notification, base: int, path: bytes, nofollow: bool) -> int:
    """An O_PATH descriptor of what ``path`` means to the caller, from its folder ``base``."""
    if not path:
        raise FileNotFoundError(errno.ENOENT, "empty path")
    flags = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if nofollow else 0)
    if path.startswith(b"/"):
        own = -1 if nofollow else own_descriptor(path)
        if own >= 0:
            return open_descriptor(call, own)
        return libc.openat2(libc.AT_FDCWD, path, flags, _RESOLVE_NO_MAGICLINKS)
    start = open_descriptor(call, base)
    try:
        return libc.openat2(start, path, flags, _RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(start)


def open_descriptor(call: Notification, descriptor: int) -> int:
    """An O_PATH descriptor of the file behind one of the caller's; AT_FDCWD is its working folder."""
    if descriptor < 0 and descriptor != libc.AT_FDCWD:
        raise OSError(errno.EBADF, "descriptor")
    what = "cwd" if descriptor == libc.AT_FDCWD else f"fd/{descriptor}"
    try:
        fd = os.open(f"/proc/{call.pid}/{what}", os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.EBADF, what) from None
    try:
        require_waiting(call)
    except OSError:
        os.close(fd)
        raise
    return fd


def process_of(thread: int) -> int:
    """The process that a thread belongs to, by number."""
    try:
        with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
            found = re.search(rb"^Tgid:\s*([0-9]+)$", file.read(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        found = None
    if found is None:
        raise ProcessLookupError(errno.ESRCH, "no such thread")
    return int(found[1])
