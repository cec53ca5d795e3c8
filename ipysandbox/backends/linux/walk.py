"""Walks a folder that hostile code changes meanwhile: by descriptors, through no link, to its end.

No entry can stop the walk, and none can hide by its mode or depth.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path

from ipysandbox.errors import StartError

#: Most entries in a folder that is watched: to count more takes longer than the next of them to be made.
MOST_ENTRIES = 300_000
MOST_DEPTH = 200
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk(root: Path | int) -> Generator[tuple[os.stat_result, str, int], None, None]:
    """Every entry below ``root`` (a path, or a descriptor that is then closed), depth first.

    Yields (lstat, relative path, descriptor of its folder). Whoever reads decides how many are enough. Folders deeper
    than ``MOST_DEPTH`` are not entered: see ``is_deep``. A folder is opened before it is yielded: what lies in one that
    the consumer renames comes all the same, under the name that it had.
    """
    try:
        levels = [(root if isinstance(root, int) else _open_folder(str(root)), "")]
    except OSError:
        return
    rows = [os.scandir(levels[0][0])]
    try:
        while rows:
            try:
                row = next(rows[-1], None)
            except OSError:
                row = None
            if row is None:
                rows.pop().close()
                os.close(levels.pop()[0])
                continue
            folder, prefix = levels[-1]
            try:
                info = os.stat(row.name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            if stat.S_ISDIR(info.st_mode) and len(levels) < MOST_DEPTH:
                with contextlib.suppress(OSError):
                    deeper = _open_folder(row.name, folder)
                    levels.append((deeper, f"{prefix}{row.name}/"))
                    rows.append(os.scandir(deeper))
            yield info, prefix + row.name, folder
    finally:
        for iterator in rows:
            iterator.close()
        for folder, _ in levels:
            os.close(folder)


def is_deep(relative: str) -> bool:
    """Whether ``walk`` has not entered the entry of that path, were it a folder."""
    return relative.count("/") >= MOST_DEPTH - 1


def too_many(folder: Path | str) -> StartError:
    """Nothing may run that writes there."""
    return StartError(
        f"files.write: {folder} holds more than {MOST_ENTRIES:,} entries: what is written there can't be watched",
        hint="Point files.write at another folder, or move what lies there elsewhere.",
    )


def _open_folder(name: str, parent: int | None = None) -> int:
    """A descriptor to list a folder with, never through a link. What the code made unreadable is made readable again:
    what can't be looked into can't be counted."""
    try:
        fd = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
        try:
            path = f"/proc/self/fd/{handle}"  # the folder itself, whatever its name means by now
            os.chmod(path, stat.S_IMODE(os.fstat(handle).st_mode) | 0o500)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(handle)
    with contextlib.suppress(PermissionError):  # somebody else's folder, which the code could not change either
        allow(fd, 0o500)
    return fd


def allow(folder: int, bits: int) -> None:
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & bits != bits:
        os.fchmod(folder, mode | bits)
