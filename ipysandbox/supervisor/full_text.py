"""Keeps all that a cell prints, when it is too much to show, in a file of the user's: cleaned, in order, bounded."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ipysandbox import state
from ipysandbox.output import amount
from ipysandbox.policy.model import Limits

from . import limits as limit_rules
from .locks import is_held

#: Bytes of one file: so much at least, or twice the cell's limit on output, but never more than all of them together.
_LARGE, _TOTAL = 256 << 20, 1 << 30
_MOST_FILES = 20
#: Bytes that are left to others on that disk, and how often that is looked at.
_LEFT_FREE, _LOOK_EVERY = 64 << 20, 8 << 20
_PART = ".part"
#: Seconds: a file that nobody holds and that is younger may be one that is just being made.
_YOUNG = 60.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def folder() -> Path:
    """Beside the audit trail: ``$XDG_STATE_HOME/ipysandbox/output``."""
    return state.folder("output")


@dataclass(frozen=True)
class Kept:
    """A file that is done: where it is, and whether it holds all that was printed."""

    path: Path
    size: int
    whole: bool

    def __str__(self) -> str:
        size = limit_rules.size(self.size)
        what = f"All that the cell printed, {size}, is" if self.whole else f"The first {size} of what it printed are"
        return f"{what} in {self.path}"


class FullText:
    """One cell's: in memory as long as a notebook shows all of it, then in a file, named ``….part`` until it is done.

    It is not the cell's failure if the file can't be written: ``problem`` says why, and the cell goes on.
    """

    def __init__(self, sandbox: str, number: int, limits: Limits) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self._name = f"{stamp}-{sandbox}-{number}-{secrets.token_hex(3)}.txt"
        self.path = folder() / self._name
        self._most = min(max(_LARGE, 2 * limits.output), _TOTAL)
        self._first = io.StringIO()
        self._amount = amount.Amount()
        self._shown = min(amount.HEAD, limits.output)
        self._directory = -1
        self._file: IO[bytes] | None = None
        self._size = self._looked = 0
        #: Whether something that was printed is not in it.
        self._lacks = False
        self.problem = ""

    @property
    def wants(self) -> bool:
        """Whether more can still go in."""
        return not self._lacks

    def lacks(self) -> None:
        """Something that the cell printed could not be had: from here on nothing is whole."""
        self._lacks = True

    def cut(self) -> None:
        """From here on nothing is shown: what still comes needs a file, however little there was."""
        self._shown = -1

    def add(self, name: str, text: str) -> None:
        """Take what comes next of the stream ``name``."""
        if self._lacks:
            return
        if self._file is None:
            self._first.write(text)
            if self._amount.add(name, text) <= self._shown:
                return
            text, self._first = self._first.getvalue(), io.StringIO()
        with self._reporting():
            if self._file is None:
                self._begin()
            self._write(text)

    def finish(self) -> Kept | None:
        """Give the file its name; None where there is none, since little was printed or it could not be written."""
        file, self._first = self._file, io.StringIO()
        if file is None:
            return None
        with self._reporting():
            file.flush()
            os.rename(self._name + _PART, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            file.close()
            _prune(self._directory)
        done = self._file is not None
        self._close()
        return Kept(self.path, self._size, not self._lacks) if done else None

    def _begin(self) -> None:
        self._directory = state.open_folder("output")
        _prune(self._directory, coming=1)
        self._look_at_the_disk()
        fd = os.open(self._name + _PART, _NEW, 0o600, dir_fd=self._directory)
        self._file = os.fdopen(fd, "wb", buffering=1 << 16)
        os.fchmod(fd, 0o600)  # whatever the umask
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while it is held, nobody takes the file for one left behind

    def _write(self, text: str) -> None:
        assert self._file is not None
        data = text.encode("utf-8", "replace")
        room = self._most - self._size
        if len(data) > room:
            data = data[:room].decode("utf-8", "ignore").encode()
            self._lacks = True
        self._file.write(data)
        self._size += len(data)
        if self._size - self._looked > _LOOK_EVERY:
            self._looked = self._size
            self._look_at_the_disk()

    def _look_at_the_disk(self) -> None:
        system = os.fstatvfs(self._directory)
        if system.f_bavail * system.f_frsize < _LEFT_FREE:
            raise OSError(errno.ENOSPC, f"less than {_LEFT_FREE >> 20} MiB of disk are free")

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.problem = f"What the cell printed could not be kept in {self.path}: {exc.strerror or exc}."
            self._lacks = True
            self._discard()

    def _discard(self) -> None:
        for name in (self._name + _PART, self._name):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._directory)
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        directory, self._directory = self._directory, -1
        if file is not None:
            with contextlib.suppress(OSError):  # what is still in its buffer meets the full disk again
                file.close()
        if directory >= 0:
            os.close(directory)


def _prune(directory: int, *, coming: int = 0) -> None:
    """Remove the oldest files until there are few enough and they are small enough, and what was left half-written."""
    found = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if name.endswith(".txt" + _PART):
                if time.time() - info.st_mtime > _YOUNG and not is_held(name, directory=directory):
                    os.unlink(name, dir_fd=directory)
            elif name.endswith(".txt") and stat.S_ISREG(info.st_mode):
                found.append((info.st_mtime_ns, name, info.st_size))
    found.sort(reverse=True)
    size = 0
    for number, (_, name, length) in enumerate(found, start=1 + coming):
        size += length
        if number > _MOST_FILES or (size > _TOTAL and number > 1):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
