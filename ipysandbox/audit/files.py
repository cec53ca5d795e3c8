"""The files of a log: where they are, how they are opened safely, how they rotate."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipysandbox.audit.errors import AuditError

NAME = "audit.jsonl"
_ELSEWHERE = "Set XDG_STATE_HOME to a folder of your own on a disk with space, or correct the file named."


def default_path() -> Path:
    """``$XDG_STATE_HOME/ipysandbox/audit/audit.jsonl``, with ``~/.local/state`` where that isn't set to a full path."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "ipysandbox" / "audit" / NAME


def log_path(path: Path | str | None) -> Path:
    """The current file of the log that ``path`` means: the file, or the folder it is in; None is the default."""
    if path is None:
        return default_path()
    path = Path(path)
    return path / NAME if path.is_dir() else path


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def rotated(path: Path, number: int) -> Path:
    """The older files: number 1 is the newest of them."""
    return path.with_name(f"{path.name}.{number}")


def older(path: Path) -> list[Path]:
    """The rotated files that exist, newest first."""
    numbers = []
    for name in os.listdir(path.parent):
        ending = name.removeprefix(path.name + ".")
        if ending != name and ending.isascii() and ending.isdigit():
            numbers.append(int(ending))
    return [rotated(path, number) for number in sorted(numbers)]


def make_folder(folder: Path) -> None:
    """Make ``folder`` (0700) where it is missing; whoever could write in it could replace the log."""
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise failed("make the folder of the audit log", folder, error) from error
    status = folder.stat()
    if status.st_uid != os.geteuid() and not status.st_mode & stat.S_ISVTX:
        raise AuditError(f"The folder of the audit log, {folder}, belongs to user {status.st_uid}.", hint=_ELSEWHERE)


def open_file(path: Path, flags: int) -> int:
    """Open a file of the log, made with 0600 where it is missing; refuses links and anything that isn't a plain file.

    Links are refused since the log may stand in a folder that others write to: an append to a link's target is how a
    log becomes a weapon. O_NONBLOCK keeps the opening of a FIFO from waiting.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise AuditError(f"The audit log {path} is a symbolic link; none is followed.", hint=_ELSEWHERE) from None
        raise failed("open the audit log", path, error) from error
    try:
        status = os.fstat(fd)
        wrong = None
        if not stat.S_ISREG(status.st_mode):
            wrong = "is not a regular file"
        elif status.st_uid != os.geteuid():
            wrong = f"belongs to user {status.st_uid}"
        elif status.st_nlink > 1:
            wrong = "has a second name (a hard link)"
        if wrong:
            raise AuditError(f"The audit log {path} {wrong}.", hint=_ELSEWHERE)
        if stat.S_IMODE(status.st_mode) != 0o600:  # made under another umask, or by hand
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def rotate(path: Path, keep: int) -> None:
    """Move the current file to number 1 and the older ones up, dropping what comes after ``keep``. Needs the lock.

    Each step is one rename, the last number first, so a crash between two leaves a gap in the numbers and no loss; the
    next rotation begins by closing the first gap.
    """
    free = next((number for number in range(1, keep) if not rotated(path, number).exists()), keep)
    for number in range(free - 1, 0, -1):
        os.replace(rotated(path, number), rotated(path, number + 1))
    os.replace(path, rotated(path, 1))
    for old in older(path):
        if int(old.name.rpartition(".")[2]) > keep:
            old.unlink()


@contextmanager
def locked(fd: int, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold flock(2) on ``fd``; the kernel releases it when its process ends, however it ends."""
    fcntl.flock(fd, kind)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def failed(what: str, path: Path, error: OSError) -> AuditError:
    return AuditError(
        f"Could not {what} {path}: {error.strerror or error}. Nothing is run unrecorded.", hint=_ELSEWHERE
    )
