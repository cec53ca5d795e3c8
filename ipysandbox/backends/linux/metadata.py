"""Tells a sandbox about files on the kernel's behalf, where no mounts decide what is there.

Landlock keeps code from opening a file, not from asking about it: stat(2), access(2) and readlink(2) answer for every
file of the machine. Without a root of its own, a sandbox would see that a key exists, how large it is and when it was
used. So the monitor answers these calls, and what the policy does not show is "not there", as it is with namespaces.
Folders are opened here as well: a Landlock rule for one would hold for all below it, hidden folders included.

It also opens what a process of the sandbox may read of its own in /proc: a Landlock rule can't name a process that does
not exist yet.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Sequence

from . import libc, processes, seccomp
from .caller import Memory, number, open_at, open_descriptor, own_descriptor, process_of, require_waiting
from .notify import Answer, Notification, refuse

_AT_SYMLINK_NOFOLLOW, _AT_EACCESS = 0x100, 0x200
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 2, 8
#: struct stat of x86-64 and (shorter) of the generic table; struct statx.
_STAT_BYTES, _STATX_BYTES = 144 if libc.X86 else 128, 256
_OWN = re.compile(rb"/proc/(self|thread-self|[0-9]{1,10})(?:/(.*))?", re.DOTALL)
#: What a process may read of its own folder in /proc: nothing of the machine's network, no page's place in memory.
OWN_FILES = frozenset(
    """
    auxv cgroup cmdline comm cpuset environ io limits maps mountinfo mounts numa_maps oom_adj oom_score oom_score_adj
    sched schedstat smaps smaps_rollup stat statm status wchan
    """.split()
)
_OWN_FILE = re.compile(rb"(?:task/[0-9]+/)?(?:%s|fdinfo/[0-9]+)" % "|".join(sorted(OWN_FILES)).encode())
_OWN_FOLDER = re.compile(rb"(?:task/[0-9]+/?)?(?:task|fd|fdinfo)?")
#: Links of the kernel's own that lead to objects, not to names; a process may read its own.
_OWN_LINK = re.compile(rb"(?:task/[0-9]+/)?(?:exe|cwd|root|fd/[0-9]+|ns/[a-z_]+)")
#: Places whose answer is remembered, and the longest of them; of others it is found out again.
_MOST_KNOWN, _LONGEST_KNOWN = 4096, 512


class Metadata:
    """``readable``: files and folders that the policy shows, ``hidden``: paths below them that it does not. All are
    without links, as for ``emulate.Files``."""

    def __init__(self, root: int, readable: Sequence[str], writable: Sequence[str], hidden: Sequence[str]) -> None:
        self._root = root
        self._readable = frozenset(readable)
        self._writable = frozenset(writable)
        self._hidden = frozenset(hidden)
        #: Folders on the way to something that is shown: themselves may be asked about.
        self._above = frozenset(parent for path in self._readable | self._writable for parent in _parents(path)) | {
            "/proc",
            "/dev",
            "/",
        }
        self._known: dict[str, bool] = {}
        self._buffer = ctypes.create_string_buffer(_STATX_BYTES)

    def calls(self) -> dict[str, Callable[[Notification], Answer]]:
        """By name of the system call."""
        here, nofollow = libc.AT_FDCWD, _AT_SYMLINK_NOFOLLOW
        return {
            "stat": lambda c: self._stat(c, here, c.args[0], c.args[1], 0),
            "lstat": lambda c: self._stat(c, here, c.args[0], c.args[1], nofollow),
            "newfstatat": lambda c: self._stat(c, number(c.args[0]), c.args[1], c.args[2], number(c.args[3])),
            "statx": self._statx,
            "access": lambda c: self._access(c, here, c.args[0], c.args[1], 0),
            "faccessat": lambda c: self._access(c, number(c.args[0]), c.args[1], c.args[2], 0),
            "faccessat2": lambda c: self._access(c, number(c.args[0]), c.args[1], c.args[2], number(c.args[3])),
            "readlink": lambda c: self._readlink(c, here, c.args[0], c.args[1], number(c.args[2])),
            "readlinkat": lambda c: self._readlink(c, number(c.args[0]), c.args[1], c.args[2], number(c.args[3])),
            "open": lambda c: self._open(c, here, c.args[0], c.args[1] & 0xFFFFFFFF),
            "openat": lambda c: self._open(c, number(c.args[0]), c.args[1], c.args[2] & 0xFFFFFFFF),
        }

    # -- what is there

    def _find(self, call: Notification, base: int, path: bytes, flags: int) -> int:
        """An O_PATH descriptor of what the caller's path means, if it is one that the policy shows."""
        nofollow = bool(flags & _AT_SYMLINK_NOFOLLOW)
        own = _own_fd(base, path, flags)
        if own >= 0:
            return open_descriptor(call, own)  # what it has open, it may know
        if not path and flags & libc.AT_EMPTY_PATH:
            fd = open_descriptor(call, base)
        else:
            fd = open_at(call, base, self._own_path(call, path), nofollow)
        try:
            if not self._shows(os.readlink(f"/proc/self/fd/{fd}")):
                raise FileNotFoundError(errno.ENOENT, "not shown")
        except OSError:
            os.close(fd)
            raise
        return fd

    def _own_path(self, call: Notification, path: bytes) -> bytes:
        """ "self" means the caller, not this process."""
        found = _OWN.fullmatch(path) if path.startswith(b"/proc/") else None
        if found and not found[1].isdigit():
            return b"/proc/%d/%s" % (process_of(call.pid), found[2] or b"")
        return path

    def _shows(self, place: str) -> bool:
        known = self._known.get(place)
        if known is not None:
            return known
        if place.startswith("/proc/"):
            return place in self._readable or place in self._above or self._own_process(place)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        shown = self._is_below_shown(place)
        if len(place) <= _LONGEST_KNOWN:
            self._known[place] = shown
        return shown

    def _is_below_shown(self, place: str) -> bool:
        if not place.startswith("/"):
            return False  # pipes, sockets and the like have no place
        return place in self._above or self._is_within(place)

    def _is_within(self, place: str) -> bool:
        paths = (place, *_parents(place))
        if any(path in self._hidden for path in paths):
            return False
        return any(path in self._readable or path in self._writable for path in paths)

    def _own_process(self, place: str) -> bool:
        """Asked with a descriptor in hand: should the number have become another's by now, that one leads nowhere."""
        own = re.match(r"/proc/([0-9]+)(/|\Z)", place)
        return own is not None and self._is_ours(int(own[1]))

    def _is_ours(self, pid: int) -> bool:
        return pid in processes.tree(self._root)[1:]

    def _may_write(self, fd: int) -> bool:
        place = os.readlink(f"/proc/self/fd/{fd}")
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            return place in self._readable
        return any(path in self._writable for path in (place, *_parents(place)))

    # -- the answers

    def _stat(self, call: Notification, base: int, pointer: int, where: int, flags: int) -> Answer:
        with Memory(call) as memory:
            path = memory.text(pointer) if pointer or not flags & libc.AT_EMPTY_PATH else b""
            own = _own_fd(base, path, flags)
            if own >= 0:
                self._stat_of_descriptor(call, own)
            else:
                fd = self._find(call, base, path, flags)
                try:
                    libc.fstatat(fd, b"", self._buffer, libc.AT_EMPTY_PATH)
                finally:
                    os.close(fd)
            memory.write(where, self._buffer.raw[:_STAT_BYTES])
        return Answer()

    def _stat_of_descriptor(self, call: Notification, descriptor: int) -> None:
        """Every file that is opened is asked about like this."""
        try:
            libc.fstatat(libc.AT_FDCWD, b"/proc/%d/fd/%d" % (call.pid, descriptor), self._buffer, 0)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "descriptor") from None
        require_waiting(call)

    def _statx(self, call: Notification) -> Answer:
        base, pointer, flags, mask, where = call.args[:5]
        flags = number(flags)
        with Memory(call) as memory:
            # A null path with AT_EMPTY_PATH means the descriptor (kernel 6.11).
            path = memory.text(pointer) if pointer or not flags & libc.AT_EMPTY_PATH else b""
            fd = self._find(call, number(base), path, flags)
            try:
                libc.syscall("statx", fd, b"", libc.AT_EMPTY_PATH, mask & 0xFFFFFFFF, self._buffer)
            finally:
                os.close(fd)
            memory.write(where, self._buffer.raw)
        return Answer()

    def _access(self, call: Notification, base: int, pointer: int, mode: int, flags: int) -> Answer:
        with Memory(call) as memory:
            path = memory.text(pointer)
        fd = self._find(call, base, path, flags & ~_AT_EACCESS)
        try:
            if mode & os.W_OK and not self._may_write(fd):
                raise PermissionError(errno.EACCES, "not in a writable folder")
            if not os.access(f"/proc/self/fd/{fd}", mode & 7):
                raise PermissionError(errno.EACCES, "mode")
        finally:
            os.close(fd)
        return Answer()

    def _readlink(self, call: Notification, base: int, pointer: int, where: int, size: int) -> Answer:
        if size <= 0:
            raise OSError(errno.EINVAL, "size")
        with Memory(call) as memory:
            path = memory.text(pointer)
            target = self._target(call, base, path)[:size]
            memory.write(where, target)
        return Answer(value=len(target))

    def _target(self, call: Notification, base: int, path: bytes) -> bytes:
        """What a link holds."""
        if path in (b"/proc/self", b"/proc/thread-self"):
            thread = b"/task/%d" % call.pid if path.endswith(b"thread-self") else b""
            return b"%d%s" % (process_of(call.pid), thread)
        own = _OWN.fullmatch(path) if path.startswith(b"/proc/") else None
        if own and own[2] and _OWN_LINK.fullmatch(own[2]):
            folder = self._own_folder(call, own[1])
            try:
                link: bytes = os.readlink(own[2], dir_fd=folder)
                return link
            finally:
                os.close(folder)
        fd = self._find(call, base, path, _AT_SYMLINK_NOFOLLOW | (0 if path else libc.AT_EMPTY_PATH))
        try:
            target: bytes = os.readlink(b"", dir_fd=fd)
            return target
        finally:
            os.close(fd)

    def _own_folder(self, call: Notification, name: bytes) -> int:
        """A descriptor of the folder in /proc of a process of the sandbox's."""
        pid = int(name) if name.isdigit() else process_of(call.pid)
        folder = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        # Opened before it is looked for: it stays that process's, and empty once that has ended.
        if not self._is_ours(pid):
            os.close(folder)
            raise FileNotFoundError(errno.ENOENT, "not shown")
        return folder

    def _open(self, call: Notification, base: int, pointer: int, flags: int) -> Answer:
        """What the filter sends here; of that, only the plainest way to open is ever carried out by the kernel, where
        Landlock decides."""
        flags = 0 if flags == seccomp.ASKING else flags
        folder = flags & os.O_DIRECTORY and not flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC)
        if flags and not flags & os.O_PATH and not folder:
            return refuse(call)
        with Memory(call) as memory:
            path = memory.text(pointer)
        if flags:
            return Answer(descriptor=self._open_shown(call, base, path, flags))
        own = _OWN.fullmatch(path) if path.startswith(b"/proc/") else None
        if own is None or not own[2] or not _OWN_FILE.fullmatch(own[2]):
            return Answer(proceed=True)
        parent = self._own_folder(call, own[1])
        try:
            resolve = _RESOLVE_NO_MAGICLINKS | _RESOLVE_BENEATH
            fd = libc.openat2(parent, own[2], os.O_RDONLY | os.O_CLOEXEC, resolve)
        finally:
            os.close(parent)
        return Answer(descriptor=fd)

    def _open_shown(self, call: Notification, base: int, path: bytes, flags: int) -> int:
        """A folder to list, which Landlock can't allow without what is hidden in it; or, since no descriptor made by
        O_PATH can be handed over, one to read from instead."""
        found = self._find(call, base, path, _AT_SYMLINK_NOFOLLOW if flags & os.O_NOFOLLOW else 0)
        try:
            kind = stat.S_IFMT(os.fstat(found).st_mode)
            if flags & os.O_DIRECTORY and kind != stat.S_IFDIR:
                raise NotADirectoryError(errno.ENOTDIR, "not a folder")
            # Nothing else: to open a pipe or a device does something. Files where they may be changed only, which is
            # what such a descriptor is for; elsewhere Landlock knows better which may be read.
            allowed = (kind == stat.S_IFDIR and self._may_list(found)) or (
                kind == stat.S_IFREG and self._may_write(found)
            )
            if not allowed:
                raise PermissionError(errno.EACCES, "not to be read")
            return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(found)

    def _may_list(self, fd: int) -> bool:
        place = os.readlink(f"/proc/self/fd/{fd}")
        own = re.match(r"/proc/([0-9]+)(?:/|\Z)", place)
        if own:
            return self._is_ours(int(own[1])) and bool(_OWN_FOLDER.fullmatch(os.fsencode(place[own.end() :])))
        return self._is_within(place)


def _own_fd(base: int, path: bytes, flags: int) -> int:
    """The caller's descriptor that is asked about itself, or -1."""
    if not path:
        return base if flags & libc.AT_EMPTY_PATH and base != libc.AT_FDCWD else -1
    return -1 if flags & _AT_SYMLINK_NOFOLLOW else own_descriptor(path)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(len(parts) - 1, 0, -1)]
