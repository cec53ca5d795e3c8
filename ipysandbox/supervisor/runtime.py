"""The folder where supervisors keep their sockets: private, short-pathed, and swept of what dead ones left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ipysandbox import reach
from ipysandbox.backends.linux import scratch
from ipysandbox.errors import StartError

from .locks import is_held

#: unix(7): sun_path holds 108 bytes with its zero. Ours add an id, a sandbox's number and a channel below the root.
_MOST_PATH = 107
_LONGEST_TAIL = len("/0123456789ab/s999999/k-control")


def roots(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where to keep runtime folders, best first."""
    found = []
    xdg = environ.get("XDG_RUNTIME_DIR")
    if xdg and os.path.isabs(xdg):
        found.append(Path(xdg, "ipysandbox"))
    found.append(Path(f"/tmp/ipysandbox-{os.getuid()}"))
    return [path for path in found if len(os.fsencode(path)) + _LONGEST_TAIL <= _MOST_PATH]


def create(environ: Mapping[str, str] = os.environ) -> tuple[Path, int]:
    """A new private folder for one supervisor, and the descriptor whose lock says that it lives.

    Raises StartError when no root can be used, with each reason.
    """
    problems = []
    for root in roots(environ):
        try:
            if not reach.answers(root):
                raise OSError(None, "does not answer (a stalled network or FUSE file system?)")
            _own(root)
            sweep(root)
            folder = root / secrets.token_hex(6)
            folder.mkdir(mode=0o700)
            lock = os.open(folder / "new-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Held before it has its name: a sweep never sees it free while we live.
            os.rename(folder / "new-lock", folder / "lock")
            return folder, lock
        except OSError as exc:
            problems.append(f"{root}: {exc.strerror or exc}")
    raise StartError(
        "no folder for the supervisor's sockets can be used: " + "; ".join(problems),
        hint="Set XDG_RUNTIME_DIR to a folder of yours with mode 0700 and a short path.",
    )


def _own(root: Path) -> None:
    """Make ``root`` if it is missing; refuse one that somebody else could write to."""
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    info = os.lstat(root)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise PermissionError(1, "is not a folder that only you can use (mode 0700, owned by you)")


def folders(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Runtime folders of living supervisors of this user."""
    for root in roots(environ):
        try:
            names = sorted(os.listdir(root)) if os.lstat(root).st_uid == os.getuid() else []
        except OSError:
            continue
        for name in names:
            if _locked(root / name):
                yield root / name


def sweep(root: Path) -> None:
    """Remove folders whose supervisor is gone without having removed them (killed together with its zygote)."""
    for name in os.listdir(root):
        folder = root / name
        if (folder / "lock").exists() and not _locked(folder):
            scratch.remove(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _locked(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return is_held(folder / "lock")
    return False


def remove(folder: Path) -> None:
    """Remove a runtime folder and, if it was the last, its root."""
    scratch.remove(folder)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
