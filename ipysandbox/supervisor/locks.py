"""Whether a file is somebody's who lives: a lock ends with the process that took it, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_held(path: str | Path, *, directory: int | None = None) -> bool:
    """Raises OSError where the file can't be opened. ``directory``: an open one that ``path`` is relative to."""
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
