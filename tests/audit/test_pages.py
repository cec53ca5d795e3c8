"""A long log page by page, what is new in it, whether it is complete, and what leaves it for other programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ipysandbox.audit import AuditLog, iter_records, verify
from ipysandbox.audit import pages as pages_
from ipysandbox.audit.export import exported
from ipysandbox.audit.pages import Follower, page
from ipysandbox.audit.query import Filter


def all_pages(path: Path, wanted: Filter, size: int) -> list[int]:
    seqs, before = [], None
    while True:
        found = page(path, wanted, before=before, size=size)
        seqs += [record["seq"] for record in found.records]
        before = found.older
        if before is None:
            return seqs


def test_pages_give_every_record_once_also_when_the_log_rotates_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, max_bytes=20_000) as log:
        for n in range(300):
            log.record("cell.result", sandbox=f"s{n % 3}", details={"n": n, "text": "é" if n == 7 else ""})
        first = page(path, Filter(), size=50)
        for n in range(200):  # the place of the first page is now in an older file
            log.record("limit.hit", details={"n": n})
    rest = page(path, Filter(), before=first.older, size=1000)
    assert [record["seq"] for record in (*first.records, *rest.records)] == list(range(300, 0, -1))
    assert all_pages(path, Filter(), 33) == list(range(500, 0, -1))
    assert all_pages(path, Filter(sandbox="s1", action="cell.*"), 7) == list(range(299, 0, -3))
    assert [record["seq"] for record in page(path, Filter(text="É")).records] == [8]
    with pytest.raises(ValueError, match="no place"):
        page(path, Filter(), before="../x")
    assert page(path, Filter(), before="1-5") == pages_.Page((), None)


def test_a_page_reads_a_bounded_part_however_little_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as log:
        log.record("limit.hit")
        for _ in range(400):
            log.record("cell.result", details={"text": "x" * 300})
    monkeypatch.setattr(pages_, "SCAN", 50_000)
    first = page(path, Filter(action="limit.hit"))
    assert first.records == ()
    assert first.older is not None
    assert all_pages(path, Filter(action="limit.hit"), 10) == [1]


def test_who_follows_gets_what_is_new_and_after_an_absence_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    early = Follower(path)
    with AuditLog(path, max_bytes=10_000) as log:
        log.record("sandbox.start")
        assert [record["seq"] for record in early.read()] == [1]
        assert early.read() == []
        seen = Follower(path, after=1)
        for _ in range(200):  # rotates
            log.record("cell.result")
        for follower in (early, seen):
            got: list[int] = []
            while records := follower.read():
                got += [record["seq"] for record in records]
            assert got == list(range(2, 202))
        assert [record["seq"] for record in Follower(path, after=198).read()] == [199, 200, 201]
    # A torn line is not a record yet.
    with path.open("ab") as file:
        file.write(b'{"action": "cell.res')
    assert early.read() == []


def test_a_log_is_complete_or_says_where_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, max_bytes=3000) as log:
        for _ in range(40):
            log.record("cell.result")
    report = verify(path)
    assert (report.ok, report.records, report.first, report.last) == (True, 40, 1, 40)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], b"not a record\n", *lines[3:]]))
    report = verify(path)
    assert (report.ok, report.broken, report.gaps) == (False, 1, 1)
    assert report.listed == [(41 - len(lines), 44 - len(lines))]
    assert f"between {41 - len(lines)} and {44 - len(lines)}" in report.text()


def test_an_export_holds_all_and_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as log:
        log.record("cell.result", sandbox="=cmd|'/C calc'!A0", notebook='a\u202eb\n\x1b[2J,"', details={"n": [1, 2]})
    records = list(iter_records(path))
    assert [json.loads(line) for line in exported(records, "jsonl")] == records
    [head, row] = csv.reader(io.StringIO("".join(exported(records, "csv"))))
    found = dict(zip(head, row, strict=True))
    assert found["sandbox"] == "'=cmd|'/C calc'!A0"
    assert found["notebook"] == 'a\\u202eb\\n\\u001b[2J,\\"'
    assert json.loads(found["details"]) == {"n": [1, 2]}
