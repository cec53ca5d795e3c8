"""Shows a log page by page, newest first, and what is new in it: each step reads a bounded part, however long it is."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ipysandbox.audit import files
from ipysandbox.audit.query import Filter, parsed, placed_backward, snapshot

#: Bytes that one page looks through for what is wanted: about 15,000 records, a fifth of a second.
SCAN = 4 << 20
#: Bytes that a follower reads at once, and how far behind it may be before it leaves some out.
_STEP, _BEHIND = 256 << 10, 4 << 20


@dataclass(frozen=True)
class Page:
    """Records, newest first, and the place before which the next page begins (None: this was the last)."""

    records: tuple[dict[str, Any], ...]
    older: str | None


def page(path: Path | str | None, wanted: Filter, *, before: str | None = None, size: int = 100) -> Page:
    """Up to ``size`` records from before a place on. Where few fit, a page may be short, even empty, and not the last.

    A place is a file's inode and an offset in it, so it stays right when files rotate. ValueError for what is none;
    a place in a file that is no longer kept is the end.
    """
    start = None if before is None else _place(before)
    found: list[dict[str, Any]] = []
    scanned = 0
    with ExitStack() as stack:
        for stream, length in snapshot(files.log_path(path), stack):
            inode = os.fstat(stream.fileno()).st_ino
            end = length
            if start is not None:
                if inode != start[0]:
                    continue
                end, start = min(start[1], length), None
            for offset, line in placed_backward(stream, end):
                scanned += len(line) + 1
                record = parsed(line)
                if record is not None and wanted.wants(record):
                    found.append(record)
                if len(found) >= size or scanned >= SCAN:
                    return Page(tuple(found), f"{inode}-{offset}")
    return Page(tuple(found), None)


def _place(text: str) -> tuple[int, int]:
    inode, _, offset = text.partition("-")
    if not (inode.isascii() and inode.isdigit() and offset.isascii() and offset.isdigit()) or len(text) > 40:
        raise ValueError(f"{text[:40]!r} is no place in the audit log")
    return int(inode), int(offset)


class Follower:
    """Reads what is new in a log since ``after``, a record's number (None: since now); one look costs a stat(2)."""

    def __init__(self, path: Path | str | None = None, after: int | None = None) -> None:
        self._path = files.log_path(path)
        self._inode, self._at = 0, 0
        with ExitStack() as stack:
            found = snapshot(self._path, stack)
            if found:
                self._inode, self._at = os.fstat(found[0][0].fileno()).st_ino, found[0][1]
            if after is not None:
                self._go_back(found, after)

    def _go_back(self, found: list[tuple[IO[bytes], int]], after: int) -> None:
        """To just behind the record of that number, or to the furthest that is read at once."""
        scanned = 0
        for stream, length in found:
            inode = os.fstat(stream.fileno()).st_ino
            for offset, line in placed_backward(stream, length):
                record = parsed(line)
                seq = record.get("seq") if record is not None else None
                if isinstance(seq, int) and seq <= after:
                    return
                scanned += len(line) + 1
                if scanned > _BEHIND // 2:
                    return
                self._inode, self._at = inode, offset

    def read(self) -> list[dict[str, Any]]:
        """Some new records, oldest first; the rest comes with the next call. Numbers tell what was left out."""
        try:
            now = os.stat(self._path)
        except OSError:
            return []
        if (now.st_ino, now.st_size) == (self._inode, self._at):
            return []
        with ExitStack() as stack:
            found = snapshot(self._path, stack)
            inodes = [os.fstat(stream.fileno()).st_ino for stream, _ in found]
            if self._inode not in inodes:  # long gone, or the first look at a log that was not there
                oldest = len(found) - 1 if not self._inode else 0
                self._inode, self._at = (inodes[oldest], 0) if found else (0, 0)
            for index in range(len(found) - 1, -1, -1):
                if inodes[index] == self._inode:
                    records = self._read(*found[index])
                    if records or index == 0:
                        return records
                    self._inode, self._at = inodes[index - 1], 0
        return []

    def _read(self, stream: IO[bytes], length: int) -> list[dict[str, Any]]:
        if length - self._at > _BEHIND:
            self._at = length - _STEP
            skipped = os.pread(stream.fileno(), _STEP, self._at).find(b"\n")
            self._at += skipped + 1
        block = os.pread(stream.fileno(), min(_STEP, length - self._at), self._at)
        whole = block.rfind(b"\n") + 1
        self._at += whole
        return [record for record in map(parsed, block[:whole].split(b"\n")) if record is not None]
