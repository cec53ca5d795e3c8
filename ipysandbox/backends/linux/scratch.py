"""Private folders on disk for sandboxes that have no file system of their own: their home and temporary files.

A runtime folder may lie in memory (XDG_RUNTIME_DIR) and be small, so these lie below /tmp; the runtime folder holds a
link to them, so that whoever removes the one finds the other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

_LINK = "scratch"
_PREFIX = "/tmp/ipysandbox-"


def make(runtime_dir: Path, name: str, fonts: Iterable[Path]) -> Path:
    """A new folder for the sandbox ``name``. ``fonts``: files that its home shows in matplotlib's folder."""
    link = runtime_dir / _LINK
    try:
        top = os.readlink(link)
    except FileNotFoundError:
        top = tempfile.mkdtemp(prefix=os.path.basename(_PREFIX), dir=os.path.dirname(_PREFIX))
        os.symlink(top, link)
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=top))
    for folder in ("home/.config/matplotlib", "tmp", "shm"):
        (scratch / folder).mkdir(mode=0o700, parents=True)
    for font in fonts:
        os.symlink(font, scratch / "home/.config/matplotlib" / font.name)
    return scratch


def remove(runtime_dir: Path) -> None:
    """Remove the folders of a supervisor that has ended, if it had any."""
    try:
        top = os.readlink(runtime_dir / _LINK)
    except OSError:
        return
    if top.startswith(_PREFIX) and os.lstat(top).st_uid == os.getuid():
        shutil.rmtree(top, ignore_errors=True)
