"""Reads a whole log and says whether it is complete: every line a record, the numbers one after the other."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ipysandbox.audit import files
from ipysandbox.audit.query import all_lines, parsed, snapshot

#: Gaps that are listed; the rest is counted.
_LISTED = 20


@dataclass
class Report:
    """What was found. It tells accidents and clumsy edits; who may write the file can also number it anew."""

    files: int = 0
    records: int = 0
    first: int | None = None
    last: int | None = None
    #: Lines that are no record: torn by a writer that was killed, or written by somebody else.
    broken: int = 0
    gaps: int = 0
    #: Some of them: the numbers before and behind.
    listed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.gaps and not self.broken

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "text": self.text()}

    def text(self) -> str:
        if not self.records and not self.broken:
            return "There is no record yet."
        where = f"{self.files} file{'s' * (self.files > 1)}"
        said = [f"{self.records:,} records, number {self.first} to {self.last}, in {where}."]
        if self.ok:
            said.append("They follow one another without a gap.")
        if self.gaps:
            between = ", ".join(f"{before} and {behind}" for before, behind in self.listed)
            more = f" and at {self.gaps - len(self.listed)} more places" if self.gaps > len(self.listed) else ""
            said.append(f"Records are missing, or out of order, between {between}{more}.")
        if self.broken:
            said.append(f"Lines that are no record (torn by a crash, or somebody else's): {self.broken}.")
        if self.first is not None and self.first > 1:
            said.append(f"Those before {self.first} are in files that were rotated out.")
        return " ".join(said)


def verify(path: Path | str | None = None) -> Report:
    """Look at the log as it is now. Raises AuditError or OSError where it can't be read."""
    report = Report()
    with ExitStack() as stack:
        for stream, size in reversed(snapshot(files.log_path(path), stack)):
            report.files += 1
            for line in all_lines(stream, size):
                _count(report, line)
            if size and os.pread(stream.fileno(), 1, size - 1) != b"\n":
                report.broken += 1
    return report


def _count(report: Report, line: bytes) -> None:
    record = parsed(line)
    seq = record.get("seq") if record is not None else None
    if record is None or not isinstance(seq, int):
        report.broken += bool(line)
        return
    report.records += 1
    if report.last is not None and seq != report.last + 1:
        report.gaps += 1
        if len(report.listed) < _LISTED:
            report.listed.append((report.last, seq))
    report.first = seq if report.first is None else report.first
    report.last = seq
