"""Where this process is, also when that folder has been deleted since."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import PolicyError


def current_folder() -> Path:
    """The current folder; where it was deleted, the one that has its path now. PolicyError if there is none."""
    try:
        return Path(os.getcwd())
    except FileNotFoundError:
        was = os.readlink("/proc/self/cwd").removesuffix(" (deleted)")
        if os.path.isdir(was):
            return Path(was)
        raise PolicyError(
            f"the current folder, {was}, does not exist any more", hint="make it again, or change to another one"
        ) from None


def absolute(path: str | Path | None) -> Path:
    """``path`` from the current folder on; that folder if there is none. PolicyError as above."""
    if path and os.path.isabs(path):
        return Path(os.path.normpath(path))
    return Path(os.path.normpath(current_folder() / (path or "")))
