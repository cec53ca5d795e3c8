"""Reads a log, whole or from its end, passing over lines that a crash left torn."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any

from ipysandbox.audit import files
from ipysandbox.audit.errors import AuditError
from ipysandbox.audit.record import MAX_LINE, SEVERITIES, Severity, timestamp

_BLOCK = 64 * 1024


@dataclass(frozen=True)
class Filter:
    """Which records are wanted: ``since`` as they write times, ``text`` anywhere in them, large and small alike."""

    since: str = ""
    action: str | None = None
    sandbox: str | None = None
    notebook: str | None = None
    severity: Severity = "info"
    text: str = ""

    def wants(self, record: dict[str, Any]) -> bool:
        return (
            str(record.get("time", "")) >= self.since
            and (self.action is None or fnmatchcase(str(record.get("action")), self.action))
            and (self.sandbox is None or record.get("sandbox") == self.sandbox)
            and (self.notebook is None or record.get("notebook") == self.notebook)
            and (self.severity == "info" or record.get("severity") in SEVERITIES[SEVERITIES.index(self.severity) :])
            and (not self.text or self.text.casefold() in json.dumps(record, ensure_ascii=False).casefold())
        )


def iter_records(
    path: Path | str | None = None,
    since: datetime | None = None,
    action: str | None = None,
    sandbox: str | None = None,
    *,
    notebook: str | None = None,
    severity: Severity = "info",
) -> Iterator[dict[str, Any]]:
    """Records, oldest first, as the log was when the iteration began; none if there is no log.

    :param path: as for AuditLog.
    :param since: records of this moment or later; without a time zone it is local time.
    :param action: an action, or a pattern such as ``sandbox.*``.
    :param severity: the least severity wanted.
    """
    wanted = _filter(since, action, sandbox, notebook, severity)
    with ExitStack() as stack:
        for stream, size in reversed(snapshot(files.log_path(path), stack)):
            yield from _forward(stream, size, wanted)


def iter_newest(
    path: Path | str | None = None,
    since: datetime | None = None,
    action: str | None = None,
    sandbox: str | None = None,
    *,
    notebook: str | None = None,
    severity: Severity = "info",
) -> Iterator[dict[str, Any]]:
    """As ``iter_records``, newest first, reading from the end only as far as it is iterated."""
    wanted = _filter(since, action, sandbox, notebook, severity)
    with ExitStack() as stack:
        for stream, size in snapshot(files.log_path(path), stack):
            for line in _lines_backward(stream, size):
                record = parsed(line)
                if record is not None and wanted.wants(record):
                    yield record


def tail(
    n: int = 20,
    path: Path | str | None = None,
    since: datetime | None = None,
    action: str | None = None,
    sandbox: str | None = None,
    *,
    notebook: str | None = None,
    severity: Severity = "info",
) -> list[dict[str, Any]]:
    """The last ``n`` records wanted, newest first."""
    return list(islice(iter_newest(path, since, action, sandbox, notebook=notebook, severity=severity), max(0, n)))


def last_seq(path: Path) -> int:
    """The number of the last whole record of the log; 0 if it has none. For a writer, which holds the lock."""
    for file in (path, *files.older(path)):
        try:
            stream = _opened(file)
        except FileNotFoundError:
            continue
        with stream:
            for line in _lines_backward(stream, os.fstat(stream.fileno()).st_size):
                record = parsed(line)
                if record is not None and isinstance(record.get("seq"), int):
                    return int(record["seq"])
    return 0


def _filter(
    since: datetime | None, action: str | None, sandbox: str | None, notebook: str | None, severity: Severity
) -> Filter:
    return Filter("" if since is None else timestamp(since), action, sandbox, notebook, severity)


def _opened(file: Path) -> IO[bytes]:
    """Raises AuditError for what is no file of a log, which must not look like an empty one."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # ENXIO: a socket
            raise _no_file(file) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_file(file)
    return open(fd, "rb", buffering=0)


def _no_file(file: Path) -> AuditError:
    return AuditError(
        f"The audit log {file} is not a regular file; nothing of it is read.", hint="Look at it, and move it away."
    )


def snapshot(path: Path, stack: ExitStack) -> list[tuple[IO[bytes], int]]:
    """The files of the log, newest first, opened while no writer can rotate them, and how far each is to be read."""
    if not path.parent.is_dir():
        if os.path.lexists(path.parent):
            raise AuditError(f"The folder of the audit log, {path.parent}, is not a folder.")
        return []
    with ExitStack() as held:
        lock = files.lock_path(path)
        if os.path.lexists(lock):
            stream = held.enter_context(_opened(lock))
            held.enter_context(files.locked(stream.fileno(), fcntl.LOCK_SH))
        found = []
        for file in (path, *files.older(path)):
            if os.path.lexists(file):
                stream = stack.enter_context(_opened(file))
                found.append((stream, os.fstat(stream.fileno()).st_size))
        return found


def _forward(stream: IO[bytes], size: int, wanted: Filter) -> Iterator[dict[str, Any]]:
    for line in all_lines(stream, size):
        record = parsed(line)
        if record is not None and wanted.wants(record):
            yield record


def all_lines(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Whole lines from the beginning; what stands after the last newline is torn and left out."""
    rest, at = b"", 0
    while at < size:
        block = os.pread(stream.fileno(), min(_BLOCK, size - at), at)
        if not block:
            break
        at += len(block)
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[: MAX_LINE + 1]  # longer than any record: keep enough to know that it isn't one
        yield from lines


def _lines_backward(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Whole lines from the end; what stands after the last newline is torn and left out."""
    return (line for _, line in placed_backward(stream, size))


def placed_backward(stream: IO[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """The same, each with the offset at which it begins."""
    rest, at, first = b"", size, True
    while at > 0:
        start = max(0, at - _BLOCK)
        block = os.pread(stream.fileno(), at - start, start)
        at = start
        head, *lines = (block + rest).split(b"\n")
        if lines and first:
            lines.pop()  # behind the last newline
            first = False
        starts = list(accumulate((len(line) + 1 for line in lines), initial=start + len(head) + 1))
        yield from zip(reversed(starts[: len(lines)]), reversed(lines), strict=True)
        rest = head[-MAX_LINE - 1 :]
    if rest and not first:
        yield 0, rest


def parsed(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None for a torn or foreign one."""
    if not line or len(line) > MAX_LINE:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("action"), str) else None
