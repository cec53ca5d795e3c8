"""Folders that a sandbox writes directly: nothing in them is beyond counting or disarming without being told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipysandbox import StartError
from ipysandbox.audit import AuditLog, iter_records
from ipysandbox.backends.base import NotLookedAt, Uncountable
from ipysandbox.backends.linux import left_behind, walk, writable
from ipysandbox.backends.linux.writable import WritableFolder, by_path, sweep_all
from ipysandbox.output import KnownSecrets
from ipysandbox.output.redact import Redactor
from ipysandbox.policy import resolve
from ipysandbox.policy.names import DEFAULT_HIDE, PROTECTED
from ipysandbox.supervisor.trail import Trail


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten entries are as many as can be watched."""
    for module in (walk, writable):
        monkeypatch.setattr(module, "MOST_ENTRIES", 10)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def watched(results: Path) -> WritableFolder:
    return WritableFolder(results, by_path(PROTECTED, copies=False), by_path(DEFAULT_HIDE, copies=True))


def fill(results: Path, count: int) -> None:
    for number in range(count):
        (results / f"{number}.csv").touch()


def test_a_folder_with_more_than_can_be_counted_says_so(few: None, results: Path) -> None:
    folder = watched(results)
    folder._next = 0.0
    fill(results, 9)
    assert folder.measure(1)[1] == 9
    folder._next = 0.0
    fill(results, 11)
    with pytest.raises(Uncountable) as raised:
        folder.measure(1)
    assert (raised.value.folder, raised.value.most) == ("results", 10)


def test_growth_of_the_file_system_tells_of_too_much_before_all_is_counted(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [(1 << 40, 1 << 30)]
    monkeypatch.setattr(WritableFolder, "_filesystem", lambda _folder: free[-1])
    folder = watched(results)
    assert not folder.may_exceed(1 << 20, 100)
    free.append((1 << 40, (1 << 30) - 101))
    assert folder.may_exceed(1 << 20, 100)
    free.append(((1 << 40) - (2 << 20), 1 << 30))
    assert folder.may_exceed(1 << 20, 100)
    folder._next = 0.0
    folder.measure(1)  # it was somebody else's
    assert not folder.may_exceed(1 << 20, 100)


def test_what_lies_too_deep_to_be_counted_says_so(few: None, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST_DEPTH", 2)
    folder = watched(results)
    folder._next = 0.0
    (results / "a/b").mkdir(parents=True)
    with pytest.raises(Uncountable):
        folder.measure(1)
    # What was so deep before hinders no start, and growth beside it counts.
    folder = watched(results)
    folder._next = 0.0
    fill(results, 3)
    assert folder.measure(1)[1] == 3


def test_no_sandbox_begins_in_a_folder_with_more_than_can_be_counted(few: None, results: Path) -> None:
    fill(results, 10)
    with pytest.raises(StartError, match=r"holds more than 10 entries.*can't be watched"):
        watched(results)


def test_traps_are_disarmed_however_many_entries_there_are(
    few: None, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable, "MOST_TRAPS", 3)
    folder = watched(results)
    fill(results, 20)
    for number in range(20):
        (results / f"d{number}").mkdir()
        (results / f"d{number}/conftest.py").touch()
    done = sweep_all([folder])
    assert [*results.rglob("conftest.py")] == []
    with pytest.raises(Uncountable):  # though nothing has been counted since
        folder.measure(1 << 40)
    assert len(done) == 4
    assert done[-1] == "results/… and 17 more"
    assert not any(isinstance(text, NotLookedAt) for text in done)
    assert folder.whole


def test_a_sweep_that_could_not_end_is_told_as_an_alert_and_left_for_the_next_start(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effective = resolve(cwd=tmp_path, environ={})
    folder = left_behind.writable(results, effective)
    record = left_behind.Record(folder, effective, ())
    (results / "conftest.py").touch()
    monkeypatch.setattr(writable, "SWEEP_SECONDS", 0.0)
    done = sweep_all([folder])
    assert len(done) == 1
    assert isinstance(done[0], NotLookedAt)
    assert not folder.whole

    notices: list[str] = []
    with AuditLog(tmp_path / "audit.jsonl") as audit:
        Trail(audit, "box", None, notices, Redactor(KnownSecrets())).swept(done)
    (told,) = notices
    assert told.startswith("Not all could be disarmed: results holds more than could be looked at in 0 s (0 entries")
    (written,) = iter_records(tmp_path / "audit.jsonl")
    assert written["severity"] == "alert"
    assert written["details"]["missed"] == [done[0]]

    record.remove()
    later: list[str] = []
    with pytest.raises(StartError, match="more than can be looked at"):
        left_behind.disarm([results], later)
    monkeypatch.setattr(writable, "SWEEP_SECONDS", 60.0)
    left_behind.disarm([results], later)
    assert any("conftest.py renamed" in text for text in later)
    assert not (results / "conftest.py").exists()
    assert not record.path.exists()
