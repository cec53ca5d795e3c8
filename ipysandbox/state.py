"""Folders of our own state, beside the audit trail: for this user alone, and hidden from every sandbox by name."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from ipysandbox.audit import default_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folder(name: str) -> Path:
    """``$XDG_STATE_HOME/ipysandbox/NAME``; ``policy/names.py`` hides each by name."""
    return default_path().parent.parent / name


def open_folder(name: str) -> int:
    """The folder, made where it is missing. Raises OSError, for a link or another user's too."""
    place = folder(name)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    directory = os.open(place, _FOLDER)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the folder belongs to somebody else")
        os.fchmod(directory, 0o700)
    except BaseException:
        os.close(directory)
        raise
    return directory
