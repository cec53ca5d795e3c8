"""Keeps count of shared anonymous memory where no control group does.

Its pages stay as long as anything of it is mapped anywhere, and no figure of /proc shows those that are in no process's
page tables at the moment (madvise(2), MADV_DONTNEED). So calls that make some wait for the monitor, which adds up their
lengths: the kernel takes flags and lengths from registers, which nobody can change meanwhile.
"""

from __future__ import annotations

import errno
import heapq
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from .notify import Answer, Notification

_MAP_ANONYMOUS = 0x20
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Mapped shared, it gives the same kind of memory.
_DEV_ZERO = os.makedev(1, 5)
_MAPPED = b" /dev/zero (deleted)\n"
#: Beyond the limit on memory: who fills what is mapped is to meet that first, which names itself.
_MORE = 1.25
#: The supervisor is told of growth by such a part of the limit.
_STEP = 64
#: Pieces at a time: vm.max_map_count, what the kernel lets one process map.
_MOST_PIECES = 65_530
#: Of a thread that has run for so long (ns) after it was answered, the call is over.
_RAN = 1_000_000
#: Rounds in which processes may be new, before it can't be said what is mapped.
_ROUNDS = 3


@dataclass(frozen=True)
class _Last:
    """The last call of a thread that may not have been carried out yet."""

    length: int
    ran: int


class SharedMemory:
    """``most``: the limit on memory (bytes). ``root``: the process below which everything inside is; ``proc``: a
    descriptor of the /proc that shows it. ``tell`` takes an upper bound of what there is, when it has grown."""

    def __init__(self, most: int, root: int, proc: int, tell: Callable[[int], None]) -> None:
        self._most, self._root, self._proc, self._tell = most, root, proc, tell
        self._pieces: list[int] = []
        self._sum = 0
        self._last: dict[int, _Last] = {}
        self._told = 0

    @property
    def held(self) -> int:
        return self._sum + sum(last.length for last in self._last.values())

    def see(self, note: Notification) -> Answer:
        """Answer an mmap with MAP_SHARED."""
        if not note.args[3] & _MAP_ANONYMOUS and not self._is_zero(note.pid, note.args[4]):
            return Answer(proceed=True)
        length = -(-note.args[1] // _PAGE) * _PAGE
        self._is_over(note.pid)  # a thread makes one call at a time
        most = self._most * _MORE
        if self.held + length > most or len(self._pieces) >= _MOST_PIECES:
            self.count()
        if self.held + length > most or len(self._pieces) >= _MOST_PIECES:
            return Answer(errno=errno.ENOMEM)
        self._last[note.pid] = _Last(length, self._ran(note.pid))
        if self.held > self._told + self._most // _STEP:
            self._told = self.held
            self._tell(self._told)
        return Answer(proceed=True)

    def count(self) -> int:
        """Look at what is mapped, and return what there may be: of so many pieces, as many of the largest."""
        for thread in [*self._last]:
            if not self._may_wait(thread):
                self._is_over(thread)
        mapped = self._mapped()
        if mapped is not None:
            self._pieces = heapq.nlargest(mapped, self._pieces)
            self._sum = sum(self._pieces)
        self._told = self.held
        return self._told

    def _is_over(self, thread: int) -> None:
        last = self._last.pop(thread, None)
        if last is not None:
            self._pieces.append(last.length)
            self._sum += last.length

    def _may_wait(self, thread: int) -> bool:
        """Whether it may not have come to map what it was told to go on with: nothing but the processor and locks of
        the kernel can hold it up before."""
        text = self._read(f"{thread}/stat") or b""
        if text[text.rfind(b")") + 2 :][:1] not in (b"R", b"D"):
            return False
        return self._ran(thread) - self._last[thread].ran < _RAN

    def _ran(self, thread: int) -> int:
        return int((self._read(f"{thread}/schedstat") or b"0").split()[0])

    def _is_zero(self, pid: int, fd: int) -> bool:
        """Where that can't be looked at, it could be."""
        try:
            info = os.stat(f"{pid}/fd/{fd & 0xFFFFFFFF}", dir_fd=self._proc)
        except PermissionError:
            return True
        except OSError:
            return False
        return stat.S_ISCHR(info.st_mode) and info.st_rdev == _DEV_ZERO

    def _mapped(self) -> int | None:
        """How many pieces are mapped anywhere; None where that can't be said."""
        seen: set[int] = set()
        found: set[bytes] = set()
        for _ in range(_ROUNDS):
            new = self._tree() - seen
            # A mapping is passed on to children alone: when there are none that were not looked at, it can't be there.
            if not new:
                return len(found)
            for pid in new:
                text = self._read(f"{pid}/maps")
                if text is None:
                    return None
                found |= _inodes(text)
            seen |= new
        return None

    def _tree(self) -> set[int]:
        found: set[int] = set()
        queue = self._children(self._root)
        while queue:
            pid = queue.pop()
            if pid not in found:
                found.add(pid)
                queue += self._children(pid)
        return found

    def _children(self, pid: int) -> list[int]:
        try:
            folder = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return []
        try:
            tasks = os.listdir(folder)
        except OSError:
            return []
        finally:
            os.close(folder)
        return [int(child) for task in tasks for child in (self._read(f"{pid}/task/{task}/children") or b"").split()]

    def _read(self, path: str) -> bytes | None:
        """None where that is hidden, nothing where the process has ended."""
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc), "rb", buffering=0) as file:
                return file.read()
        except PermissionError:
            return None
        except OSError:
            return b""


def _inodes(text: bytes) -> set[bytes]:
    """Of the lines of a /proc/PID/maps that are such memory."""
    found = set()
    at = text.find(_MAPPED)
    while at >= 0:
        found.add(text[text.rfind(b"\n", 0, at) + 1 : at].split()[4])
        at = text.find(_MAPPED, at + 1)
    return found
