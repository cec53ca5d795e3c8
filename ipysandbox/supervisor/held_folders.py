"""The writable folders of a sandbox: made where they are missing, and removed again when nobody has put anything there.

Several sandboxes may share one, of several supervisors: none may remove what another one still shows to its code, which
would then write into nothing. Each holds a shared lock on it, and only who can get it alone removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Sequence
from pathlib import Path

#: Another sandbox may remove the folder between our making and our locking it.
_TRIES = 10


class HeldFolders:
    def __init__(self, paths: Sequence[Path], made: Collection[Path] = ()) -> None:
        """``made``: by another of this process, for which they were missing."""
        self._paths = paths
        self._missing = {path for path in paths if path in made or not path.exists()}
        self._locks: dict[Path, int] = {}

    @property
    def made(self) -> frozenset[Path]:
        """Those that were missing before."""
        return frozenset(self._missing)

    def hold(self) -> None:
        """Make what is missing, and keep others from removing it. What can't be made is the backend's to tell."""
        for path in self._paths:
            for _ in range(_TRIES):
                if self._locks.get(path, -1) >= 0 and _is(path, self._locks[path]):
                    break
                self._let_go(path)
                with contextlib.suppress(OSError):
                    path.mkdir(parents=True, exist_ok=True)
                    self._locks[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    fcntl.flock(self._locks[path], fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Let go, and remove those that were made here and are empty."""
        for path in [*self._locks]:
            with contextlib.suppress(OSError):  # held by another sandbox, not empty, or on a file system without locks
                if path in self._missing:
                    fcntl.flock(self._locks[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.rmdir()
            self._let_go(path)

    def _let_go(self, path: Path) -> None:
        fd = self._locks.pop(path, -1)
        if fd >= 0:
            os.close(fd)


def _is(path: Path, fd: int) -> bool:
    """Whether the open folder is still the one of that name."""
    try:
        there, held = os.stat(path), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
