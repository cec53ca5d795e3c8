"""Tells whether a path answers, before anything that must not hang looks at it.

A dead server behind NFS, FUSE or autofs stops whoever looks at a path there, for minutes or for good. The kernel's own
table of mounts says which paths lie on such file systems, without asking any server; those are looked at by a child
process with a deadline. Paths on local file systems, which is nearly all of them, cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import StartError

#: What a first cell and `doctor` may wait for a server, of their 3 s.
_SECONDS = 1.0
#: For the child itself to start, on a busy machine; it does not count as waiting for a server.
_CHILD_SECONDS = 20.0
#: An answer, or the lack of one, holds for so long: several looks of one start ask once.
_REMEMBERED_SECONDS = 5.0
_MOST_LINKS = 40  # as many as the kernel follows (path_resolution(7))
#: File systems that wait for nobody but this machine's own disks. What is not listed is asked, in some milliseconds.
_LOCAL = frozenset(
    "bcachefs bpf btrfs cgroup cgroup2 configfs cramfs debugfs devpts devtmpfs efivarfs erofs exfat ext2 ext3 ext4 "
    "f2fs fusectl hugetlbfs iso9660 jfs mqueue ntfs3 overlay proc pstore ramfs reiserfs rootfs securityfs selinuxfs "
    "squashfs sysfs tmpfs tracefs ubifs udf vfat xfs zfs".split()
)
_ESCAPE = re.compile(r"\\([0-7]{3})")
#: statvfs as well: attributes may come from the kernel's cache while the server is long gone. Any answer is one.
_LOOK = """
import os, sys, _thread, time
def look(number, path):
    for call in (os.stat, os.statvfs):
        try: call(path)
        except OSError: pass
    os.write(1, b"%d\\n" % number)
os.write(1, b"started\\n")
for row in enumerate(sys.argv[1:]): _thread.start_new_thread(look, row)
time.sleep(60)
"""
#: Children that could not be ended yet: the kernel holds a process until its request to a file system is settled.
_abandoned: list[subprocess.Popen[bytes]] = []
_remembered: dict[str, tuple[float, bool]] = {}


def stalled(paths: Iterable[str | Path]) -> list[str]:
    """Those of ``paths`` that don't answer in time. A path that does not exist, or may not be seen, does answer."""
    wanted = list(dict.fromkeys(os.path.abspath(path) for path in paths))
    mounts = _mounts()
    remote = [path for path in wanted if _is_remote(path, mounts)]
    now = time.monotonic()
    known = {p: _remembered[p][1] for p in remote if p in _remembered and now - _remembered[p][0] < _REMEMBERED_SECONDS}
    asked = [path for path in remote if path not in known]
    answered = _ask(asked) if asked else set()
    for path in asked:
        known[path] = path in answered
        _remembered[path] = (time.monotonic(), known[path])
    return [path for path in remote if not known[path]]


def answers(path: str | Path) -> bool:
    return not stalled([path])


def require(paths: Iterable[str | Path]) -> None:
    """Raises StartError, with the path, when one of ``paths`` doesn't answer."""
    for path in stalled(paths):
        raise no_answer(path)


def no_answer(path: str | Path) -> StartError:
    return StartError(
        f"{path} does not answer (a stalled network or FUSE file system?)",
        hint="Try again in a moment: a first look may have to mount it. If it stays so, unmount it "
        "(fusermount -u, umount -l), or work in a folder and with a HOME on a disk that answers.",
    )


def mounts_below(folder: str | Path) -> set[str]:
    """Mount points strictly below ``folder``, which is a real path."""
    top = str(folder).rstrip("/") + "/"
    return {point for point in _mounts() if point.startswith(top) and point != top}


class _Table:
    """This process's mounts, read anew only when the kernel says that they have changed (proc_pid_mountinfo(5)): they
    are asked for before every cell, and a login node may have hundreds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd, self._pid = -1, 0
        self._poller = select.poll()
        self._types: Mapping[str, str] = {}

    def types(self) -> Mapping[str, str]:
        with self._lock:
            if self._pid != os.getpid():  # a forked process may be in another namespace, and have closed what it had
                self._open()
            elif self._poller.poll(0):
                try:
                    self._types = self._read()
                except OSError:  # somebody in this process has closed what is not theirs
                    self._open()
            return self._types

    def _open(self) -> None:
        self._fd, self._pid = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC), os.getpid()
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLPRI)
        self._poller.poll(0)  # what changes from here on is told by the next
        self._types = self._read()

    def _read(self) -> Mapping[str, str]:
        os.lseek(self._fd, 0, os.SEEK_SET)
        text = b"".join(iter(lambda: os.read(self._fd, 1 << 16), b"")).decode(errors="surrogateescape")
        found = {}
        for line in text.split("\n")[:-1]:
            before, _, after = line.partition(" - ")
            point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
            found[point] = after.split(" ")[0]
        # What the whole system lies on needs no asking: nothing would run if it did not answer.
        found.pop("/", None)
        return found


_table = _Table()


def _mounts() -> Mapping[str, str]:
    """File system types by mount point; of several at one place the uppermost."""
    return _table.types()


def _is_remote(path: str, mounts: Mapping[str, str]) -> bool:
    """Does the way to ``path``, links followed, lead over a file system that may stall? Looks at local ones only."""
    todo, current, links = path.split("/")[1:], "", 0
    while todo:
        part = todo.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            current = os.path.dirname(current).rstrip("/")
            continue
        current = f"{current}/{part}"
        # Before it is looked at: the mount covers the folder that lies below.
        if mounts.get(current, "tmpfs") not in _LOCAL:
            return True
        try:
            target = os.readlink(current)
        except OSError:  # no link, or not there
            continue
        links += 1
        if links > _MOST_LINKS:
            return False
        todo = target.split("/") + todo
        current = "" if target.startswith("/") else os.path.dirname(current).rstrip("/")
    return False


def _ask(paths: list[str]) -> set[str]:
    """Those of ``paths`` that answer, asked all at once."""
    _abandoned[:] = [process for process in _abandoned if process.poll() is None]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LOOK, *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        lines = _read_until(process.stdout.fileno(), len(paths))
    finally:
        process.kill()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
        if process.returncode is None:
            _abandoned.append(process)
    return {paths[int(line)] for line in lines if line.isdigit()}


def _read_until(fd: int, count: int) -> list[str]:
    """The child's lines, until all have come or the time is up: counted from when it says that it has started."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    data, deadline = b"", time.monotonic() + _CHILD_SECONDS
    while data.count(b"\n") <= count:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            break
        more = os.read(fd, 65536)
        if not more:
            break
        if not data:
            deadline = time.monotonic() + _SECONDS
        data += more
    return data.decode().split("\n")[:-1]
