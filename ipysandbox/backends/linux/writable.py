"""Keeps the folders that a sandbox writes directly (results/) within bounds and free of traps.

No kernel limit covers a plain folder, so its growth is measured: cheaply by the free space of its file system,
exactly by walking it when that moved. The walk holds descriptors and follows no link, since the code inside changes
names meanwhile.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Most entries looked at in one walk; what lies beyond is counted as over any limit on files.
_MOST_ENTRIES = 300_000
_MOST_DEPTH = 200


class WritableFolder:
    """One writable path of a sandbox."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = {(info.st_dev, info.st_ino) for info, _ in _walk(path)}
        self._base_bytes, self._base_files = self._count()
        self.bytes = self.files = 0
        self._free = self._filesystem()
        self._next = 0.0
        self._cost = 0.0

    def measure(self, step_bytes: int) -> tuple[int, int]:
        """(bytes, files) grown since the start. ``step_bytes``: how much growth of the file system asks for a new
        walk."""
        now = time.monotonic()
        free = self._filesystem()
        moved = self._free[0] - free[0] >= step_bytes or self._free[1] - free[1] >= 1000
        # At least every few seconds, and never more than a tenth of the time.
        if moved or now >= self._next:
            used, files = self._count()
            self.bytes, self.files = max(0, used - self._base_bytes), max(0, files - self._base_files)
            self._free = free
            self._cost = time.monotonic() - now
            self._next = now + max(2.0, 10 * self._cost)
        return self.bytes, self.files

    def _filesystem(self) -> tuple[int, int]:
        try:
            v = os.statvfs(self.path)
        except FileNotFoundError:
            return 0, 0
        return v.f_bfree * v.f_frsize, v.f_ffree

    def _count(self) -> tuple[int, int]:
        seen: set[tuple[int, int]] = set()
        total = entries = 0
        for info, _ in _walk(self.path):
            entries += 1
            if (info.st_dev, info.st_ino) not in seen:  # a hard link costs nothing twice
                if info.st_nlink > 1:
                    seen.add((info.st_dev, info.st_ino))
                total += info.st_blocks * 512
        return total, entries

    def sweep(self, protected: Callable[[str], bool]) -> list[str]:
        """Remove what the sandbox left and should not have: protected names, pipes, sockets, devices, set-id bits.

        What was there before stays. Returns what was done, one phrase each, relative paths.
        """
        done: list[str] = []
        for info, relative in list(_walk(self.path)):
            if (info.st_dev, info.st_ino) in self._before:
                continue
            special = not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode))
            if special or protected(relative):
                _remove(self.path, relative)
                done.append(f"{relative} (a name that programs act on)" if not special else f"{relative} (not a file)")
            elif stat.S_ISREG(info.st_mode) and info.st_mode & 0o6000:
                _clear_setid(self.path, relative)
                done.append(f"{relative} (set-user-id bit)")
        return done


def _walk(root: Path) -> Iterator[tuple[os.stat_result, str]]:
    """Every entry below ``root``, depth first: (lstat, relative path). Holds one descriptor a level.

    Stops after ``_MOST_ENTRIES``; a folder nested deeper than ``_MOST_DEPTH`` yields its entry that many times over, so
    that hiding things in depth runs into the limit on files instead of past it.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        levels = [(os.open(root, flags), "")]
    except OSError:
        return
    rows = [os.scandir(levels[0][0])]
    entries = 0
    try:
        while rows:
            row = next(rows[-1], None)
            if row is None:
                rows.pop().close()
                os.close(levels.pop()[0])
                continue
            try:
                info = row.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            relative = levels[-1][1] + row.name
            for _ in range(1 if len(levels) < _MOST_DEPTH else _MOST_ENTRIES):
                entries += 1
                yield info, relative
                if entries >= _MOST_ENTRIES:
                    return
            if stat.S_ISDIR(info.st_mode):
                try:
                    levels.append((os.open(row.name, flags, dir_fd=levels[-1][0]), relative + "/"))
                except OSError:
                    continue
                rows.append(os.scandir(levels[-1][0]))
    finally:
        for iterator in rows:
            iterator.close()
        for folder, _ in levels:
            os.close(folder)


def _parent(root: Path, relative: str) -> tuple[int, str]:
    """A descriptor of the folder that holds ``relative``, reached without following links."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(root, flags)
    *parents, name = relative.split("/")
    for part in parents:
        try:
            deeper = os.open(part, flags, dir_fd=folder)
        finally:
            os.close(folder)
        folder = deeper
    return folder, name


def _remove(root: Path, relative: str) -> None:
    try:
        folder, name = _parent(root, relative)
    except OSError:
        return  # already gone with its parent
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            _remove_tree(folder, name)
        else:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    finally:
        os.close(folder)


def _remove_tree(folder: int, name: str) -> None:
    # shutil.rmtree with dir_fd resists swapped links (bpo-4489) since Python 3.11; on 3.10 it takes a path only.
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        for entry in os.listdir(inner):
            info = os.stat(entry, dir_fd=inner, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                _remove_tree(inner, entry)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)


def _clear_setid(root: Path, relative: str) -> None:
    try:
        folder, name = _parent(root, relative)
    except OSError:
        return
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return
    finally:
        os.close(folder)
    try:
        os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) & 0o1777)
    finally:
        os.close(fd)
