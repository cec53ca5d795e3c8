"""Private folders on disk for sandboxes that have no file system of their own: their home and temporary files.

A runtime folder may lie in memory (XDG_RUNTIME_DIR) and be small, so these lie below /tmp; the runtime folder holds a
link to them, so that whoever removes the one finds the other.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_LINK = "scratch"
_PREFIX = "/tmp/ipysandbox-"
#: How often another that removes the same may come in between.
_TRIES = 1000


def make(runtime_dir: Path, name: str, fonts: Iterable[Path]) -> Path:
    """A new folder for the sandbox ``name``. ``fonts``: files that its home shows in matplotlib's folder."""
    link = runtime_dir / _LINK
    try:
        top = os.readlink(link)
    except FileNotFoundError:
        top = tempfile.mkdtemp(prefix=os.path.basename(_PREFIX), dir=os.path.dirname(_PREFIX))
        os.symlink(top, link)
    scratch = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{name}-", dir=top)))
    for folder in ("home/.config/matplotlib", "tmp", "shm"):
        (scratch / folder).mkdir(mode=0o700, parents=True)
    for font in fonts:
        os.symlink(font, scratch / "home/.config/matplotlib" / font.name)
    return scratch


def remove_tree(top: str) -> None:
    """Remove what code may have filled as it liked: folders deeper than any path is long, or that forbid to look into
    them. It has ended, so nothing changes meanwhile."""
    for _ in range(_TRIES):
        try:
            root = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            _empty(root)
            os.rmdir(top)
        except OSError as exc:
            # A supervisor and its zygote may both be at it; what the file system itself no longer gives up is nobody's
            # to wait for.
            if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                return
        finally:
            os.close(root)


def _empty(root: int) -> None:
    """Folders inside folders are brought to the top, so that none lies deep."""
    numbers = itertools.count()
    while names := os.listdir(root):
        for name in names:
            info = os.stat(name, dir_fd=root, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(name, dir_fd=root)
                continue
            os.chmod(name, 0o700, dir_fd=root)
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
            try:
                _empty_into(root, folder, numbers)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=root)


def _empty_into(root: int, folder: int, numbers: Iterator[int]) -> None:
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=folder)  # to move a folder changes it
            _bring(folder, name, root, numbers)
        else:
            os.unlink(name, dir_fd=folder)


def _bring(folder: int, name: str, root: int, numbers: Iterator[int]) -> None:
    while True:
        try:
            os.rename(name, f"{next(numbers)}", src_dir_fd=folder, dst_dir_fd=root)
            return
        except OSError as exc:
            if exc.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise  # else the code has named something so


def remove(runtime_dir: Path) -> None:
    """Remove the folders of a supervisor that has ended, if it had any."""
    try:
        top = os.readlink(runtime_dir / _LINK)
    except OSError:
        return
    with contextlib.suppress(FileNotFoundError):  # another of its zygotes is at it too
        if top.startswith(_PREFIX) and os.lstat(top).st_uid == os.getuid():
            remove_tree(top)
