"""Fills what is free between what a zygote has allocated, so that its children's own objects lie together.

A child that puts a small object into a hole of a shared page has that page copied. The first ten thousand objects of a
kernel would so take three megabytes more than they need, in each sandbox. What fills the holes is shared, and never
written to again.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator

#: CPython's allocator for small objects: sizes up to this, in steps, from pools of pages (Objects/obmalloc.c). Where a
#: version has other pools, each size takes as much as is allowed here, and no harm is done.
_MOST, _STEP, _POOL, _POOL_HEADER = 512, 16, 16 << 10, 48
_MOST_BYTES_EACH = 512 << 10
#: The C library's: sizes from here down, each until it gives what lies side by side, which is beyond all holes.
_LARGEST, _SMALLEST = 128 << 10, 24
_IN_A_ROW, _MOST_BLOCKS = 4, 20_000

_kept: list[object] = []


def fill() -> None:
    """Before the collector is told to leave everything alone. A few milliseconds."""
    _fill_pools()
    _fill_heap()


def _fill_pools() -> None:
    empty = sys.getsizeof(b"")
    makers: list[tuple[int, Callable[[], object]]] = [(16, object), (32, lambda: float("1.5"))]
    makers += [(size, lambda size=size: bytes(size - empty)) for size in range(48, _MOST + 1, _STEP)]  # type: ignore[misc]
    for size, make in makers:
        for filler in itertools.islice(iter(make, None), _MOST_BYTES_EACH // size):
            _kept.append(filler)
            if id(filler) % _POOL == _POOL_HEADER:  # the first of a new pool: those before it are full
                break


def _fill_heap() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    for size in _sizes():
        last, row = 0, 0
        for _ in range(_MOST_BLOCKS):
            block = libc.malloc(size - 8) or 0
            row = row + 1 if block - last == size else 0
            if not block or row == _IN_A_ROW:
                break
            last = block


def _sizes() -> Iterator[int]:
    size = _LARGEST
    while size >= _SMALLEST:
        yield size
        size = size // 2 if size > 2048 else size - 16
