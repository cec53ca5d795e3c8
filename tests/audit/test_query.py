"""Reading a log: filters, newest first, and lines that aren't records."""

from __future__ import annotations

import os
import re
import tracemalloc
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ipysandbox.audit import AuditError, AuditLog, iter_newest, iter_records, tail, verify


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as log:
        for n in range(10):
            log.record("cell.result", sandbox=f"s{n % 2}", details={"n": n})
        log.record("limit.hit", sandbox="s1", severity="alert", notebook="b.ipynb")
        log.record("sandbox.stop", severity="warning")
    return path


def test_records_come_oldest_first_and_tail_newest_first(path: Path) -> None:
    assert [record["seq"] for record in iter_records(path)] == list(range(1, 13))
    assert [record["seq"] for record in tail(3, path)] == [12, 11, 10]
    assert tail(0, path) == []
    assert tail(-1, path) == []
    assert len(tail(100, path)) == 12


def test_filters_by_action_pattern_sandbox_notebook_severity(path: Path) -> None:
    assert len(list(iter_records(path, action="cell.result"))) == 10
    assert len(list(iter_records(path, action="cell.*", sandbox="s1"))) == 5
    assert [r["action"] for r in iter_records(path, severity="warning")] == ["limit.hit", "sandbox.stop"]
    assert [r["action"] for r in iter_newest(path, severity="alert")] == ["limit.hit"]
    assert [r["seq"] for r in iter_records(path, notebook="b.ipynb")] == [11]


def test_since_is_a_moment_in_any_time_zone(path: Path) -> None:
    records = list(iter_records(path))
    moment = datetime.fromisoformat(records[5]["time"])
    later = moment.astimezone(timezone(timedelta(hours=9)))
    assert [r["seq"] for r in iter_records(path, since=later)] == list(range(6, 13))
    assert [r["seq"] for r in iter_records(path, since=moment.astimezone().replace(tzinfo=None))] == list(range(6, 13))


@pytest.mark.parametrize(
    "junk",
    [
        b"\n",
        b"{",
        b"[1]\n",
        b"null\n",
        b'{"action": 1}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b"x" * 300_000 + b"\n",
    ],
    ids=["empty line", "torn", "list", "null", "foreign", "binary", "deep", "long"],
)
def test_lines_that_are_no_records_are_passed_over(path: Path, junk: bytes) -> None:
    path.write_bytes(junk + b"\n" + path.read_bytes() + junk)
    assert [record["seq"] for record in iter_records(path)] == list(range(1, 13))
    assert [record["seq"] for record in tail(100, path)] == list(range(12, 0, -1))
    assert AuditLog(path).record("sandbox.start")["seq"] == 13
    assert tail(1, path)[0]["seq"] == 13


def test_no_log_means_no_records(tmp_path: Path) -> None:
    assert list(iter_records(tmp_path / "none" / "audit.jsonl")) == []
    assert tail(5, tmp_path) == []


def test_the_tail_of_a_large_log_is_read_from_its_end(path: Path) -> None:
    with path.open("ab") as file:
        for _ in range(1000):
            file.write(b'{"action": "a", "seq": 1, "pad": "' + b"x" * 30_000 + b'"}\n')
    AuditLog(path).record("sandbox.start")
    tracemalloc.start()
    try:
        assert tail(1, path)[0]["action"] == "sandbox.start"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", ["directory", "fifo", "dangling link", "link"])
@pytest.mark.parametrize("place", ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.lock"])
def test_what_is_no_file_in_the_logs_place_is_named_and_no_empty_log(tmp_path: Path, what: str, place: str) -> None:
    odd = tmp_path / place
    if what == "directory":
        odd.mkdir()
    elif what == "fifo":
        os.mkfifo(odd)
    else:
        odd.symlink_to(tmp_path if what == "link" else "nowhere")
    for read in (tail, verify, lambda path: list(iter_records(path))):
        with pytest.raises(AuditError, match=rf"{re.escape(str(odd))} is not a regular file"):
            read(path=tmp_path)
