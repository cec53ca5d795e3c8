"""Changes a file's mode, times, owner or length on a sandbox's behalf, where no mounts bound what it could reach.

Landlock decides who may open, make or remove a file, but not who may change the mode or the times of one. Without a
root of its own, a sandbox could do that to every file of its user. So these calls stop in the kernel (seccomp user
notification), and the monitor does them itself: on the very file it has opened, and only if that file lies in a folder
the sandbox may write. Nothing is read twice: what the code changes while it is looked at changes nothing.

Sources: seccomp_unotify(2) on the pitfalls; path_resolution(7); landlock(7), "Current limitations".
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Sequence

from . import libc
from .notify import Notification

_PATH_MAX = _PAGE = 4096
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_RESOLVE_NO_MAGICLINKS = 2
_UTIME_OMIT = 0x3FFFFFFE
_SETID = stat.S_ISUID | stat.S_ISGID
#: A process's own descriptors by name, as glibc's fchmodat(AT_SYMLINK_NOFOLLOW) writes them.
_OWN_FD = re.compile(rb"(?:/proc/(?:self|thread-self)/fd|/dev/fd)/(\d{1,9})")


def number(value: int) -> int:
    """An argument as C's int: the kernel looks at the lower half of the register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class Files:
    """Does the calls; ``writable`` are the folders in which a file may be changed."""

    def __init__(self, writable: Sequence[str]) -> None:
        self._tops = tuple(os.path.realpath(path) for path in writable)

    def calls(self) -> dict[str, Callable[[Notification], None]]:
        """By name of the system call; each raises OSError with what the caller is to get."""
        return {
            "chmod": lambda c: self._chmod(self._at(c, _AT_FDCWD, c.args[0]), c.args[1]),
            "fchmod": lambda c: self._chmod(self._fd(c, number(c.args[0])), c.args[1]),
            "fchmodat": lambda c: self._chmod(self._at(c, number(c.args[0]), c.args[1]), c.args[2]),
            "fchmodat2": lambda c: self._chmod(self._at(c, number(c.args[0]), c.args[1], number(c.args[3])), c.args[2]),
            "chown": lambda c: self._chown(self._at(c, _AT_FDCWD, c.args[0]), number(c.args[1]), number(c.args[2])),
            "lchown": lambda c: self._chown(
                self._at(c, _AT_FDCWD, c.args[0], _AT_SYMLINK_NOFOLLOW), number(c.args[1]), number(c.args[2])
            ),
            "fchown": lambda c: self._chown(self._fd(c, number(c.args[0])), number(c.args[1]), number(c.args[2])),
            "fchownat": lambda c: self._chown(self._at(c, number(c.args[0]), c.args[1], c.args[4]), number(c.args[2]), number(c.args[3])),
            "truncate": lambda c: self._truncate(self._at(c, _AT_FDCWD, c.args[0]), c.args[1]),
            "utimensat": self._utimensat,
            "utime": lambda c: self._times_of(self._at(c, _AT_FDCWD, c.args[0]), c, c.args[1], "qq", 1),
            "utimes": lambda c: self._times_of(self._at(c, _AT_FDCWD, c.args[0]), c, c.args[1], "qqqq", 1000),
            "futimesat": lambda c: self._times_of(self._at(c, number(c.args[0]), c.args[1]), c, c.args[2], "qqqq", 1000),
        }

    # -- finding the file

    @contextlib.contextmanager
    def _at(self, call: Notification, base: int, pointer: int, flags: int = 0) -> Iterator[int]:
        """An O_PATH descriptor of what the caller's path means, checked to lie in a writable folder."""
        path = read_text(call, pointer)
        own = _OWN_FD.fullmatch(path)
        if own:
            with self._fd(call, int(own[1])) as fd:
                yield fd
            return
        if not path:
            if not flags & _AT_EMPTY_PATH:
                raise OSError(errno.ENOENT, "empty path")
            with self._fd(call, base) as fd:
                yield fd
            return
        where = "cwd" if base == _AT_FDCWD else f"fd/{base}"
        start = os.open("/", os.O_PATH) if path.startswith(b"/") else _open_of(call, where)
        try:
            nofollow = os.O_NOFOLLOW if flags & _AT_SYMLINK_NOFOLLOW else 0
            fd = libc.openat2(start, path, os.O_PATH | os.O_CLOEXEC | nofollow, _RESOLVE_NO_MAGICLINKS)
        finally:
            os.close(start)
        with self._checked(fd):
            yield fd

    @contextlib.contextmanager
    def _fd(self, call: Notification, descriptor: int) -> Iterator[int]:
        if descriptor < 0:
            raise OSError(errno.EBADF, "descriptor")
        fd = _open_of(call, f"fd/{descriptor}")
        with self._checked(fd):
            yield fd

    @contextlib.contextmanager
    def _checked(self, fd: int) -> Iterator[None]:
        """Only what is an ordinary file or folder, in a writable folder, and reached by one name."""
        try:
            info = os.fstat(fd)
            place = os.readlink(f"/proc/self/fd/{fd}")
            inside = any(place.startswith(top + "/") for top in self._tops)
            unnamed = info.st_nlink == 0  # an own temporary file: deleted, or never named
            if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode) and not stat.S_ISLNK(info.st_mode):
                inside = False
            if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
                inside = False  # another name of it may lie elsewhere
            if not inside or (unnamed and not place.endswith(" (deleted)")):
                raise PermissionError(errno.EPERM, "not in a writable folder")
            yield
        finally:
            os.close(fd)

    # -- doing it

    def _chmod(self, target: contextlib.AbstractContextManager[int], mode: int) -> None:
        with target as fd:
            if mode & _SETID:
                raise PermissionError(errno.EPERM, "set-id bits")
            os.chmod(f"/proc/self/fd/{fd}", mode & 0o1777)

    def _chown(self, target: contextlib.AbstractContextManager[int], uid: int, gid: int) -> None:
        """Nobody may give files away; to whom they belong already is no change."""
        with target as fd:
            info = os.fstat(fd)
            if uid not in (-1, info.st_uid) or gid not in (-1, info.st_gid):
                raise PermissionError(errno.EPERM, "owner")

    def _truncate(self, target: contextlib.AbstractContextManager[int], length: int) -> None:
        with target as fd:
            os.truncate(f"/proc/self/fd/{fd}", length)

    def _utimensat(self, call: Notification) -> None:
        # A null path means the descriptor itself: that is futimens(3).
        target = (
            self._at(call, number(call.args[0]), call.args[1], call.args[3])
            if call.args[1]
            else self._fd(call, number(call.args[0]))
        )
        with target as fd:
            raw = read_bytes(call, call.args[2], 32) if call.args[2] else None
            _set_times(fd, raw)

    def _times_of(
        self, target: contextlib.AbstractContextManager[int], call: Notification, pointer: int, layout: str, unit: int
    ) -> None:
        """The older calls: two times in whole seconds, or in seconds and microseconds."""
        with target as fd:
            if not pointer:
                _set_times(fd, None)
                return
            fields = struct.unpack(layout, read_bytes(call, pointer, 8 * len(layout)))
            if len(fields) == 2:
                fields = (fields[0], 0, fields[1], 0)
            _set_times(fd, struct.pack("qqqq", fields[0], fields[1] * unit, fields[2], fields[3] * unit))


def _set_times(fd: int, times: bytes | None) -> None:
    """utimensat(2) on what ``fd`` stands for: times as two struct timespec, None for now."""
    buffer = ctypes.create_string_buffer(times, 32) if times is not None else None
    path = os.fsencode(f"/proc/self/fd/{fd}")
    libc.syscall("utimensat", libc.AT_FDCWD, path, buffer, 0)


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
    try:
        with open(f"/proc/{call.pid}/mem", "rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), count, address)
    except (OSError, OverflowError):
        data = b""
    if not call.waits():  # gone, and its number may be another's by now
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")
    if len(data) != count:
        raise OSError(errno.EFAULT, "memory")
    return data


def read_text(call: Notification, address: int) -> bytes:
    """A C string of the caller's memory, page by page: the next page may not be there."""
    data = b""
    while len(data) < _PATH_MAX:
        there = address + len(data)
        chunk = read_bytes(call, there, min(_PAGE - there % _PAGE, _PATH_MAX - len(data)))
        end = chunk.find(b"\0")
        if end >= 0:
            return data + chunk[:end]
        data += chunk
    raise OSError(errno.ENAMETOOLONG, "path")
