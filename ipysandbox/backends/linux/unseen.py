"""Memory that connections hold and no figure of the kernel's tells: pages of which a byte alone counts.

TCP puts what is sent into pages of 32 KiB, one after the other, whatever the connection (sk_page_frag of sock.c).
A byte that waits to be read holds its whole page, and counts as a byte, for control groups too. What the machine as a
whole lacks without an explanation bounds how much that can be.
"""

from __future__ import annotations

from .processes import Sockets, read

#: Most that one end of a connection can hold by that, with the buffers that ``launch`` leaves it.
_MOST = 96 << 20
#: By so much the figures of a machine that does nothing of the kind may disagree.
_NOISE = 256 << 20
#: What has a figure of its own (proc_meminfo(5)); what these hold among each other is not in here.
_EXPLAINED = frozenset(
    b"MemFree Buffers Cached SwapCached AnonPages Slab KernelStack PageTables SecPageTables Percpu VmallocUsed Hugetlb "
    b"Bounce WritebackTmp Zswap".split()
)


class Unseen:
    """Since it was made."""

    def __init__(self) -> None:
        self._before = _unexplained()

    def held(self, sockets: Sockets) -> int:
        """Bytes that the TCP sockets of a sandbox may hold."""
        if not sockets.tcp or not sockets.tcp_bytes:
            return 0
        more = _unexplained() - self._before - _NOISE
        return max(0, min(more, sockets.tcp * _MOST))


def _unexplained() -> int:
    total = explained = 0
    for line in read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(b":")
        if name == b"MemTotal":
            total = int(rest.split()[0]) * 1024
        elif name in _EXPLAINED:
            explained += int(rest.split()[0]) * 1024
    return total - explained
