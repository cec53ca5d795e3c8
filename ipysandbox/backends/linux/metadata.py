"""Tells a sandbox about files on the kernel's behalf, where no mounts decide what is there.

Landlock keeps code from opening a file, not from asking about it: stat(2), access(2) and readlink(2) answer for every
file of the machine. Without a root of its own, a sandbox would see that a key exists, how large it is and when it was
used. So the monitor answers these calls, and what the policy does not show is "not there", as it is with namespaces.

It also opens what a process of the sandbox may read of its own in /proc: a Landlock rule can't name a process that does
not exist yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from . import libc, processes
from .caller import file_at, file_of, number, read_text, write_bytes
from .notify import Answer, Notification

_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH, _AT_EACCESS = 0x100, 0x1000, 0x200
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 2, 8
#: struct stat of x86-64 and (shorter) of the generic table; struct statx.
_STAT_BYTES, _STATX_BYTES = 144, 256
#: Links of the kernel's own that lead to objects, not to names; a process may read its own.
_MAGIC = re.compile(rb"/proc/(self|thread-self|\d+)/(exe|cwd|root|fd/\d+|ns/\w+)")
_OWN = re.compile(rb"/proc/(self|thread-self|\d{1,10})(?:/(.*))?", re.DOTALL)


class Metadata:
    """``readable``: files and folders that the policy shows, ``hidden``: paths below them that it does not."""

    def __init__(self, root: int, readable: Sequence[str], writable: Sequence[str], hidden: Sequence[str]) -> None:
        self._root = root
        self._readable = frozenset(os.path.realpath(path) for path in readable)
        self._writable = frozenset(os.path.realpath(path) for path in writable)
        self._hidden = frozenset(hidden)
        #: Folders on the way to something that is shown: themselves may be asked about.
        self._above = frozenset(parent for path in self._readable | self._writable for parent in _parents(path)) | {
            "/proc",
            "/dev",
            "/",
        }
        self._buffer = ctypes.create_string_buffer(_STATX_BYTES)

    def calls(self) -> dict[str, Callable[[Notification], Answer]]:
        """By name of the system call."""
        nofollow = _AT_SYMLINK_NOFOLLOW
        return {
            "stat": lambda c: self._stat(c, self._find(c, libc.AT_FDCWD, c.args[0], 0), c.args[1]),
            "lstat": lambda c: self._stat(c, self._find(c, libc.AT_FDCWD, c.args[0], nofollow), c.args[1]),
            "newfstatat": lambda c: self._stat(
                c, self._find(c, number(c.args[0]), c.args[1], number(c.args[3])), c.args[2]
            ),
            "statx": self._statx,
            "access": lambda c: self._access(c, libc.AT_FDCWD, c.args[0], c.args[1], 0),
            "faccessat": lambda c: self._access(c, number(c.args[0]), c.args[1], c.args[2], 0),
            "faccessat2": lambda c: self._access(c, number(c.args[0]), c.args[1], c.args[2], number(c.args[3])),
            "readlink": lambda c: self._readlink(c, libc.AT_FDCWD, c.args[0], c.args[1], number(c.args[2])),
            "readlinkat": lambda c: self._readlink(c, number(c.args[0]), c.args[1], c.args[2], number(c.args[3])),
            "open": lambda c: self._open(c, c.args[0], c.args[1]),
            "openat": lambda c: self._open(c, c.args[1], c.args[2]),
        }

    # -- what is there

    @contextlib.contextmanager
    def _find(self, call: Notification, base: int, pointer: int, flags: int) -> Iterator[int]:
        """An O_PATH descriptor of what the caller's path means, if it is one that the policy shows."""
        path = read_text(call, pointer)
        if not path and flags & _AT_EMPTY_PATH:
            with file_of(call, base) as fd:
                yield fd
            return
        with file_at(call, base, self._own_path(call, path), bool(flags & _AT_SYMLINK_NOFOLLOW)) as fd:
            self._check(fd)
            yield fd

    def _own_path(self, call: Notification, path: bytes) -> bytes:
        """ "self" means the caller, not this process."""
        found = _OWN.fullmatch(path)
        if found and not found[1].isdigit():
            return b"/proc/%d/%s" % (_process_of(call.pid), found[2] or b"")
        return path

    def _check(self, fd: int) -> None:
        place = os.readlink(f"/proc/self/fd/{fd}")
        if not self._shows(place):
            raise FileNotFoundError(errno.ENOENT, "not shown")

    def _shows(self, place: str) -> bool:
        if place in self._above:
            return True
        shown = False
        path = place
        while path:
            if path in self._hidden:
                return False
            shown = shown or path in self._readable or path in self._writable
            path = path[: path.rindex("/")]
        return shown or self._own_process(place)

    def _own_process(self, place: str) -> bool:
        own = re.match(r"/proc/(\d+)(/|$)", place)
        return own is not None and int(own[1]) in processes.tree(self._root)[1:]

    def _may_write(self, fd: int) -> bool:
        place = os.readlink(f"/proc/self/fd/{fd}")
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            return place in self._readable
        return any(path in self._writable for path in (place, *_parents(place)))

    # -- the answers

    def _stat(self, call: Notification, target: contextlib.AbstractContextManager[int], pointer: int) -> Answer:
        with target as fd:
            libc.syscall("newfstatat", fd, b"", self._buffer, _AT_EMPTY_PATH)
        write_bytes(call, pointer, self._buffer.raw[: _STAT_BYTES if libc.X86 else 128])
        return Answer()

    def _statx(self, call: Notification) -> Answer:
        base, pointer, flags, mask, where = call.args[:5]
        # A null path with AT_EMPTY_PATH means the descriptor (kernel 6.11).
        target = (
            self._find(call, number(base), pointer, number(flags))
            if pointer or not flags & _AT_EMPTY_PATH
            else file_of(call, number(base))
        )
        with target as fd:
            libc.syscall("statx", fd, b"", _AT_EMPTY_PATH, mask & 0xFFFFFFFF, self._buffer)
        write_bytes(call, where, self._buffer.raw)
        return Answer()

    def _access(self, call: Notification, base: int, pointer: int, mode: int, flags: int) -> Answer:
        with self._find(call, base, pointer, flags & ~_AT_EACCESS) as fd:
            if mode & os.W_OK and not self._may_write(fd):
                raise PermissionError(errno.EACCES, "not in a writable folder")
            if not os.access(f"/proc/self/fd/{fd}", mode & 7):
                raise PermissionError(errno.EACCES, "mode")
        return Answer()

    def _readlink(self, call: Notification, base: int, pointer: int, where: int, size: int) -> Answer:
        path = read_text(call, pointer)
        if size <= 0:
            raise OSError(errno.EINVAL, "size")
        magic = _MAGIC.fullmatch(path)
        if magic:
            pid = _process_of(call.pid) if not magic[1].isdigit() else int(magic[1])
            if pid not in processes.tree(self._root)[1:]:
                raise FileNotFoundError(errno.ENOENT, "not shown")
            target = os.readlink(b"/proc/%d/%s" % (pid, magic[2]))
        elif path in (b"/proc/self", b"/proc/thread-self"):
            target = str(_process_of(call.pid)).encode()
        else:
            with file_at(call, base, self._own_path(call, path), True) as fd:
                self._check(fd)
                target = os.readlink(b"", dir_fd=fd)
        write_bytes(call, where, target[:size])
        return Answer(value=len(target[:size]))

    def _open(self, call: Notification, pointer: int, flags: int) -> Answer:
        """Only the plainest way to open comes here, and that without opening. Landlock decides about all the rest."""
        if flags & os.O_PATH:
            return Answer(errno=errno.EACCES)
        found = _OWN.fullmatch(read_text(call, pointer))
        if found is None or not found[2]:
            return Answer(proceed=True)
        pid = int(found[1]) if found[1].isdigit() else _process_of(call.pid)
        if pid not in processes.tree(self._root)[1:]:
            return Answer(proceed=True)
        folder = os.open(f"/proc/{pid}", os.O_PATH | os.O_CLOEXEC)
        try:
            resolve = _RESOLVE_NO_MAGICLINKS | _RESOLVE_BENEATH
            return Answer(descriptor=libc.openat2(folder, found[2], os.O_RDONLY | os.O_CLOEXEC, resolve))
        finally:
            os.close(folder)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(len(parts) - 1, 0, -1)]


def _process_of(thread: int) -> int:
    """The process that a thread belongs to."""
    with open(f"/proc/{thread}/status", "rb") as file:
        found = re.search(rb"^Tgid:\s*(\d+)$", file.read(), re.MULTILINE)
    if found is None:
        raise ProcessLookupError(errno.ESRCH, "the caller has ended")
    return int(found[1])
