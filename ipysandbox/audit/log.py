"""Appends records: several processes at once, one write(2) each, whole even when a writer is killed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ipysandbox.audit import files
from ipysandbox.audit.errors import AuditError
from ipysandbox.audit.files import default_path
from ipysandbox.audit.query import last_seq
from ipysandbox.audit.record import Severity, encode, make

__all__ = ["AuditLog", "default_path"]

MAX_BYTES = 64 * 1024 * 1024  # of one file, before it rotates
KEEP = 8  # older files
MIN_FREE = 1024 * 1024  # bytes of disk that must be free when a log is opened


class AuditLog:
    """One writer of an append-only JSONL file that any number of processes and threads may write at once.

    The file is 0600 in a folder of 0700. Every record is one line of at most 64 KiB, appended by one write(2) with
    O_APPEND under flock(2) on ``<path>.lock``, and numbered (``seq``) through the whole log, rotated files included.
    The lock makes rotation and numbering safe; it is held for one write, and the kernel releases it if a holder dies.
    A line that a killed writer left torn is ended by the next record, and readers skip it. Records reach the kernel
    when ``record`` returns: they survive any crash of processes, not a power cut.

    :param path: the log's file, or a folder for ``audit.jsonl``; default: see ``default_path``.
    :raises AuditError: the log can't be written: a link, somebody else's file, no permission, no space. Whoever opens a
        log must not go on without it.
    """

    def __init__(self, path: Path | str | None = None, *, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        files.make_folder(files.log_path(path).parent)
        self.path = files.log_path(path)
        self._max_bytes, self._keep = max_bytes, keep
        self._thread = threading.Lock()  # flock doesn't keep threads with the same descriptor apart
        self._log = self._lock = -1
        self._pid = 0
        self._mine = (0, 0, 0)  # inode and size after the last record written here, and its seq
        self._open()
        self._prove_space()

    def record(
        self,
        action: str,
        *,
        sandbox: str | None = None,
        notebook: str | None = None,
        severity: Severity = "info",
        details: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Append one record and return it as written.

        ``details`` (see events.py) are cut to fit: strings to 4096 characters, six levels, 200 items each, 64 KiB in
        all; what JSON doesn't know is recorded as its type's name.

        :raises AuditError: the record is not in the log; what it was to record must not go on.
        :raises ValueError: no such severity, or an action that isn't words joined by dots.
        """
        fields = make(
            action, sandbox=sandbox, notebook=notebook, severity=severity, details=details or {}, pid=os.getpid()
        )
        with self._thread:
            if self._pid != os.getpid():  # forked: parent and child would share one lock
                self._open()
            try:
                with files.locked(self._lock):
                    return self._append(fields)
            except OSError as error:
                raise files.failed(f"record {action} in the audit log", self.path, error) from error

    def close(self) -> None:
        with self._thread:
            for fd in (self._log, self._lock):
                if fd >= 0:
                    os.close(fd)
            self._log = self._lock = -1
            self._pid = 0

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _open(self) -> None:
        for fd in (self._log, self._lock):
            if fd >= 0:
                os.close(fd)
        self._log = self._lock = -1
        self._lock = files.open_file(files.lock_path(self.path), os.O_RDWR | os.O_CREAT)
        self._log = files.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._pid = os.getpid()

    def _prove_space(self) -> None:
        try:
            system = os.fstatvfs(self._lock)
            os.pwrite(self._lock, b"held while a record is written\n", 0)
        except OSError as error:
            raise files.failed("write to the audit log", self.path, error) from error
        if system.f_bavail * system.f_frsize < MIN_FREE:
            raise AuditError(
                f"Less than {MIN_FREE >> 20} MiB of disk are free for the audit log {self.path}.",
                hint="Make space there, or set XDG_STATE_HOME to a folder on another disk.",
            )

    def _append(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Write one record. Needs the lock, so nothing changes between the steps."""
        status = os.fstat(self._log)
        if not self._is_current(status):
            self._reopen()
            status = os.fstat(self._log)
        alone = (status.st_ino, status.st_size) == self._mine[:2]  # nobody wrote since
        seq = (self._mine[2] if alone else last_seq(self.path)) + 1
        record, line = encode(fields, seq)
        if status.st_size and status.st_size + len(line) > self._max_bytes:
            files.rotate(self.path, self._keep)
            self._reopen()
            status = os.fstat(self._log)
        if status.st_size and os.pread(self._log, 1, status.st_size - 1) != b"\n":
            line = b"\n" + line  # ends the torn line of a writer that was killed
        written = os.write(self._log, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
        self._mine = (status.st_ino, status.st_size + written, seq)
        return record

    def _is_current(self, status: os.stat_result) -> bool:
        """Whether the open file is still the one of that name: another writer may have rotated it away."""
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (status.st_dev, status.st_ino)

    def _reopen(self) -> None:
        fd = files.open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.close(self._log)
        self._log = fd
