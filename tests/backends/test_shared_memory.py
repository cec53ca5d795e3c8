"""The count of shared memory: never too little, and no more than as many of the largest pieces as are mapped."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipysandbox.backends.linux.notify import Answer, Notification
from ipysandbox.backends.linux.shared_memory import SharedMemory

_MIB = 1 << 20
#: Maps as many pieces as it is told, and passes them on to a child that alone holds them in the end.
_MAPS = """
import mmap, os, sys
kept = [mmap.mmap(-1, 1 << 20) for _ in range(int(sys.argv[1]))]
if os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
kept.clear()
os.wait()
"""


class _Counted:
    """``root``: a process below which there is nothing but what the test has made."""

    def __init__(self, most: int, root: int) -> None:
        self.told: list[int] = []
        self.memory = SharedMemory(most, root, os.open("/proc", os.O_PATH | os.O_CLOEXEC), self.told.append)

    def map(self, length: int, thread: int = 0, flags: int = 0x21, fd: int = -1) -> Answer:
        args = (0, length, 3, flags, fd & 0xFFFFFFFFFFFFFFFF, 0)
        return self.memory.see(Notification(thread or os.getpid(), "mmap", args, lambda: True))


@pytest.fixture
def alone() -> Iterator[int]:
    """A process without children."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process.pid


def _until_it_waits(pid: int) -> None:
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_mapped_nowhere_counts_no_more(alone: int) -> None:
    counted = _Counted(512 * _MIB, alone)
    for _ in range(100):
        assert counted.map(64 * _MIB).proceed
        assert counted.memory.held <= 512 * 1.25 * _MIB
    assert counted.told[0] == 64 * _MIB
    assert counted.memory.count() <= 64 * _MIB  # the last may be on its way


def test_of_the_pieces_as_many_of_the_largest_count_as_are_mapped_anywhere() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MAPS, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        _until_it_waits(child.pid)
        counted = _Counted(512 * _MIB, child.pid)
        for size in (1, 7, 2, 9, 3, 8, 4):
            counted.map(size * _MIB, thread=child.pid)
        assert counted.memory.held == 34 * _MIB
        # The last call of a thread that waits is over.
        assert counted.memory.count() == (9 + 8 + 7) * _MIB
        child.communicate()
    assert counted.memory.count() == 0


def test_what_goes_over_is_refused(alone: int) -> None:
    counted = _Counted(8 * _MIB, alone)
    assert counted.map(16 * _MIB).errno == errno.ENOMEM
    assert counted.map((1 << 64) - 1).errno == errno.ENOMEM
    assert counted.map(8 * _MIB).proceed
    assert counted.memory.held == 8 * _MIB


def test_a_file_is_no_such_memory_and_the_device_of_zeros_is(alone: int) -> None:
    counted = _Counted(512 * _MIB, alone)
    zero = os.open("/dev/zero", os.O_RDWR)
    null = os.open("/dev/null", os.O_RDWR)
    assert counted.map(_MIB, flags=0x01, fd=null).proceed
    assert counted.memory.held == 0
    assert counted.map(_MIB, flags=0x01, fd=zero).proceed
    assert counted.memory.held == _MIB
    os.close(zero)
    os.close(null)
