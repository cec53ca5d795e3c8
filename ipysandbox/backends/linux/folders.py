"""Folders of the host that hostile code may be moving about: reached through no link, and known by what they are.

A path that was resolved when the policy was read has no link in it. One that has now was put there since: another
sandbox may write around the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipysandbox.errors import StartError

from . import libc

#: What opening says where somebody has put a link, or a file, in the way.
SWAPPED = (errno.ELOOP, errno.ENOTDIR)
_NO_SYMLINKS = 4  # RESOLVE_NO_SYMLINKS of openat2(2)
_HANDLE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class FilesChanged(StartError):
    """Something that was to be shown or covered has gone since its plan was made; another sandbox may do that."""


#: Of folders, by path: device and inode.
Identities = Mapping[str, tuple[int, int]]


def held_by(request: Mapping[str, Any]) -> Identities:
    """Those of the writable folders that the supervisor watches, from what it sends with a plan."""
    return {path: (device, inode) for path, device, inode in request["held"]}


def require(fd: int, path: str, held: Identities) -> None:
    """Raises OSError (ESTALE) if ``fd`` has taken the place of the folder that is held at ``path``."""
    info = os.fstat(fd)
    if held.get(path, (info.st_dev, info.st_ino)) != (info.st_dev, info.st_ino):
        raise OSError(errno.ESTALE, f"{path}: another folder has taken its place")


class HeldFolder:
    """One folder, whatever its path means later. ``widen``: what may not be read is made readable for its owner. Raises
    OSError: see ``SWAPPED``."""

    def __init__(self, path: Path, *, widen: bool = True) -> None:
        handle = libc.openat2(libc.AT_FDCWD, os.fsencode(path), _HANDLE, _NO_SYMLINKS)
        try:
            info = os.fstat(handle)
            self.identity = info.st_dev, info.st_ino
            #: As it was found: to be looked into it may need more.
            self.mode = stat.S_IMODE(info.st_mode)
            self.fd = _reopen(handle, widen=widen)
        finally:
            os.close(handle)
        weakref.finalize(self, os.close, self.fd)

    def open(self) -> int:
        """Another descriptor of it, to list it with."""
        return _reopen(self.fd, widen=True)

    def stat(self) -> os.stat_result:
        return os.fstat(self.fd)


def _reopen(fd: int, *, widen: bool) -> int:
    """To read from the beginning."""
    place = f"/proc/self/fd/{fd}"  # the folder itself
    try:
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        if not widen:
            raise
        os.chmod(place, stat.S_IMODE(os.fstat(fd).st_mode) | 0o500)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def make_folder(path: Path) -> None:
    """The folder and those above it that are missing. Raises OSError."""
    with contextlib.ExitStack() as opened:
        folder = os.open("/", _HANDLE)
        opened.callback(os.close, folder)
        for name in path.parts[1:]:
            with contextlib.suppress(FileExistsError):
                # Asked first: to make what is there may be refused for other reasons (a read-only file system).
                if not has(folder, name):
                    os.mkdir(name, dir_fd=folder)
            folder = libc.openat2(folder, os.fsencode(name), _HANDLE, _NO_SYMLINKS)
            opened.callback(os.close, folder)


def has(folder: int, name: str) -> bool:
    """Whether the open folder has an entry of that name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def remove_empty(path: Path, identity: tuple[int, int]) -> None:
    """Remove the folder if it is the one of that identity. Raises OSError: ENOTEMPTY, or ESTALE where it is another."""
    parent = libc.openat2(libc.AT_FDCWD, os.fsencode(path.parent), _HANDLE, _NO_SYMLINKS)
    try:
        there = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        if (there.st_dev, there.st_ino) != identity:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        os.rmdir(path.name, dir_fd=parent)
    finally:
        os.close(parent)
