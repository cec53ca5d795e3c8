"""How much memory a sandbox holds, where no control group counts it: as exact as it has to be, and never too little."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from . import processes
from .holdings import Descriptors
from .shared_bound import SharedBound

#: Figures that are shown are at most so old.
_EXACT_SECONDS = 0.5
#: Twice net.core.wmem_default: what one socket may have waiting to be read, the last message included. Copies of what
#: was written, since no call puts pages there (see decisions.EINVAL): of those the kernel would count the bytes alone.
_SOCKET_BUFFER = 416 << 10
_FREE_SOCKETS = 256
#: Of a piece of address space: vm_area_struct, its part of the tree of them, and what finds its pages (anon_vma).
_MAPPING = 512
#: Of a descriptor: file, inode and name of a pipe or an eventfd.
_DESCRIPTOR = 1 << 10
#: Of one in /proc, what was read of it stays in memory until it is closed; of one that tells of an epoll set, the whole
#: of its list, which can be as long as there are descriptors and numbers for them (seq_file, eventpoll of the kernel).
_RECORD, _LIST = 8 << 10, 32 << 20
#: Stands beside the numbers of processes.
_SCRATCH = 0


def of_sockets(sockets: processes.Sockets) -> int:
    """Bytes that they may hold: which belong to no process's memory, and the kernel tells of all TCP's together only.
    Beyond a few, each counts as full; one of TCP at both ends, as ``launch`` bounds it."""
    others = max(0, sockets.used - sockets.tcp - _FREE_SOCKETS) * _SOCKET_BUFFER
    return others + min(sockets.tcp * 2 * _SOCKET_BUFFER, sockets.tcp_bytes)


def of_mappings(count: int) -> int:
    """Bytes that the kernel needs for so many pieces of address space, whatever lies in them."""
    return count * _MAPPING


def of_descriptors(held: Descriptors) -> int:
    """Bytes that the kernel needs for those that are open, beside what they lead to."""
    return held.open * _DESCRIPTOR + held.records * _RECORD + held.told * _LIST


class Memory:
    """``ask`` has the monitor count what is mapped together, and says whether it could be asked."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self.shared = SharedBound(ask)
        self._shares = processes.Shares()
        self._exact_above = self.limit = 0
        #: What the last exact look found (anonymous, shared), when, and the resident bytes of each process, and of
        #: files in memory, then.
        self._exact = (0, 0)
        self._exact_at = 0.0
        self._exact_residents: Mapping[int, int] = {}

    @property
    def hidden(self) -> int:
        """A process that keeps itself from being looked at, if there is one."""
        return self._shares.hidden

    def exact_above(self, resident: int, limit: int) -> None:
        """As the instance's."""
        self._exact_above, self.limit = resident, limit

    def held(self, sample: processes.Sample, root: int, scratch: int, kernel: int) -> int:
        """Bytes of the processes below ``root``. ``scratch``: bytes of the scratch space that lie in memory;
        ``kernel``: those that the kernel holds for them, and no process's memory shows."""
        # Without walking any map first: resident pages and scratch space are never less than what counts.
        memory = sample.resident + scratch + kernel
        if memory + self.shared.told <= self._exact_above:
            return memory
        # An exact look at large processes takes tens of milliseconds, in which they grow on: until one could matter,
        # what they grew since the last is added to it, which is never too little.
        known = self._exact_residents
        now = {**sample.residents, _SCRATCH: scratch}
        grown = sum(max(0, size - known.get(key, 0)) for key, size in now.items())
        old = time.monotonic() - self._exact_at > _EXACT_SECONDS
        anonymous, shared = self._exact
        if old or not known or anonymous + max(shared, scratch) + grown + kernel > self.limit:
            anonymous, shared = self._exact = self._shares.look(sample, root, self.limit - kernel)
            self._exact_at, self._exact_residents, grown = time.monotonic(), now, 0
        rest = anonymous + grown + kernel
        return rest + max(shared, self.shared.bound(scratch, self.limit - rest))
