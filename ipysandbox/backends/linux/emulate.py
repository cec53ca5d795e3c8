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
import stat
import struct
from collections.abc import Callable, Iterator, Sequence

from . import libc
from .caller import Memory, number, open_at, open_descriptor
from .notify import Notification

_AT_SYMLINK_NOFOLLOW = 0x100
_SECONDS, _MICROSECONDS, _TIMESPECS = struct.Struct("qq"), struct.Struct("qqqq"), struct.Struct("qqqq")
_SETID = stat.S_ISUID | stat.S_ISGID


class Files:
    """Does the calls; ``writable`` are the folders in which a file may be changed, by paths without links: where there
    is one now, somebody put it there to have another folder meant."""

    def __init__(self, writable: Sequence[str]) -> None:
        self._tops = tuple(writable)

    def calls(self) -> dict[str, Callable[[Notification], None]]:
        """By name of the system call; each raises OSError with what the caller is to get."""
        return {
            "chmod": lambda c: self._chmod(self._at(c, libc.AT_FDCWD, c.args[0]), c.args[1]),
            "fchmod": lambda c: self._chmod(self._fd(c, number(c.args[0])), c.args[1]),
            "fchmodat": lambda c: self._chmod(self._at(c, number(c.args[0]), c.args[1]), c.args[2]),
            "fchmodat2": lambda c: self._chmod(self._at(c, *_place(c, flags=3)), c.args[2]),
            "chown": lambda c: self._chown(self._at(c, libc.AT_FDCWD, c.args[0]), c, 1),
            "lchown": lambda c: self._chown(self._at(c, libc.AT_FDCWD, c.args[0], _AT_SYMLINK_NOFOLLOW), c, 1),
            "fchown": lambda c: self._chown(self._fd(c, number(c.args[0])), c, 1),
            "fchownat": lambda c: self._chown(self._at(c, *_place(c, flags=4)), c, 2),
            "truncate": lambda c: self._truncate(self._at(c, libc.AT_FDCWD, c.args[0]), c.args[1]),
            "utimensat": self._utimensat,
            "utime": lambda c: self._times_of(self._at(c, libc.AT_FDCWD, c.args[0]), c, 1, _SECONDS),
            "utimes": lambda c: self._times_of(self._at(c, libc.AT_FDCWD, c.args[0]), c, 1, _MICROSECONDS),
            "futimesat": lambda c: self._times_of(self._at(c, *_place(c)), c, 2, _MICROSECONDS),
        }

    # -- finding the file

    @contextlib.contextmanager
    def _at(self, call: Notification, base: int, pointer: int, flags: int = 0) -> Iterator[int]:
        """An O_PATH descriptor of what the caller's path means, checked to lie in a writable folder."""
        with Memory(call) as memory:
            path = memory.text(pointer)
        if not path and flags & libc.AT_EMPTY_PATH:
            fd = open_descriptor(call, base)
        else:
            fd = open_at(call, base, path, bool(flags & _AT_SYMLINK_NOFOLLOW))
        with self._checked(fd):
            yield fd

    @contextlib.contextmanager
    def _fd(self, call: Notification, descriptor: int) -> Iterator[int]:
        fd = open_descriptor(call, descriptor)
        with self._checked(fd):
            yield fd

    @contextlib.contextmanager
    def _checked(self, fd: int) -> Iterator[None]:
        """Only what is an ordinary file or folder, in a writable folder, and reached by one name. Closes ``fd``."""
        try:
            info = os.fstat(fd)
            kind = stat.S_IFMT(info.st_mode)
            place = os.readlink(f"/proc/self/fd/{fd}")
            inside = any(place == top or place.startswith(top + "/") for top in self._tops)
            plain = kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            elsewhere_too = kind == stat.S_IFREG and info.st_nlink > 1
            if not inside or not plain or elsewhere_too:
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

    def _chown(self, target: contextlib.AbstractContextManager[int], call: Notification, first: int) -> None:
        """Nobody may give files away; to whom they belong already is no change."""
        uid, gid = number(call.args[first]), number(call.args[first + 1])
        with target as fd:
            info = os.fstat(fd)
            if uid not in (-1, info.st_uid) or gid not in (-1, info.st_gid):
                raise PermissionError(errno.EPERM, "owner")

    def _truncate(self, target: contextlib.AbstractContextManager[int], length: int) -> None:
        with target as fd:
            if length >> 63:
                raise OSError(errno.EINVAL, "length")
            os.truncate(f"/proc/self/fd/{fd}", length)

    def _utimensat(self, call: Notification) -> None:
        # A null path means the descriptor itself: that is futimens(3).
        target = self._at(call, *_place(call, flags=3)) if call.args[1] else self._fd(call, number(call.args[0]))
        with target as fd:
            _set_times(fd, _read(call, call.args[2], 32) if call.args[2] else None)

    def _times_of(
        self, target: contextlib.AbstractContextManager[int], call: Notification, index: int, layout: struct.Struct
    ) -> None:
        """The older calls: two times in whole seconds, or in seconds and microseconds."""
        pointer = call.args[index]
        with target as fd:
            if not pointer:
                _set_times(fd, None)
                return
            fields = layout.unpack(_read(call, pointer, layout.size))
            seconds, micros = (fields, (0, 0)) if layout is _SECONDS else (fields[::2], fields[1::2])
            if not all(0 <= value < 1_000_000 for value in micros):
                raise OSError(errno.EINVAL, "microseconds")
            _set_times(fd, _TIMESPECS.pack(seconds[0], micros[0] * 1000, seconds[1], micros[1] * 1000))


def _place(call: Notification, flags: int | None = None) -> tuple[int, int, int]:
    """(folder, path, flags) of a call that names its file by the first two arguments."""
    return number(call.args[0]), call.args[1], 0 if flags is None else number(call.args[flags])


def _read(call: Notification, address: int, count: int) -> bytes:
    with Memory(call) as memory:
        return memory.read(address, count)


def _set_times(fd: int, times: bytes | None) -> None:
    """utimensat(2) on what ``fd`` stands for: times as two struct timespec, None for now."""
    buffer = ctypes.create_string_buffer(times, 32) if times is not None else None
    path = os.fsencode(f"/proc/self/fd/{fd}")
    libc.syscall("utimensat", libc.AT_FDCWD, path, buffer, 0)
