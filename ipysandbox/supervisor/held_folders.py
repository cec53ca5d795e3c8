"""The writable folders of a sandbox: made where they are missing, and removed again when nobody has put anything there.

Several sandboxes may share one, of several supervisors: none may remove what another one still shows to its code, which
would then write into nothing. Each holds a shared lock on it, and only who can get it alone removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Collection, Sequence
from pathlib import Path

from ipysandbox.backends.linux.folders import HeldFolder, make_folder, remove_empty

#: Another sandbox may remove the folder between our making and our locking it.
_TRIES = 10


class HeldFolders:
    def __init__(self, paths: Sequence[Path], made: Collection[Path] = ()) -> None:
        """``made``: by another of this process, for which they were missing."""
        self._paths = paths
        self._missing = {path for path in paths if path in made or not path.exists()}
        self._locks: dict[Path, HeldFolder] = {}

    @property
    def made(self) -> frozenset[Path]:
        """Those that were missing before."""
        return frozenset(self._missing)

    def hold(self) -> None:
        """Make what is missing, and keep others from removing it. What can't be made is the backend's to tell."""
        for path in self._paths:
            for _ in range(_TRIES):
                if path in self._locks and _is(path, self._locks[path]):
                    break
                self._locks.pop(path, None)
                with contextlib.suppress(OSError):
                    make_folder(path)
                    self._locks[path] = HeldFolder(path, widen=False)
                    fcntl.flock(self._locks[path].fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Let go, and remove those that were made here and are empty."""
        for path, held in self._locks.items():
            with contextlib.suppress(OSError):  # held by another sandbox, not empty, or on a file system without locks
                if path in self._missing:
                    fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_empty(path, held.identity)
        self._locks.clear()


def _is(path: Path, held: HeldFolder) -> bool:
    """Whether the open folder is still the one of that name."""
    try:
        return HeldFolder(path, widen=False).identity == held.identity
    except OSError:
        return False
