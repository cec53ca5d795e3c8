"""What a single writer promises: one bounded line per record, private files, and refusal where it can't keep a log."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ipysandbox.audit import AuditError, AuditLog, default_path, iter_records, tail
from ipysandbox.audit.record import MAX_LINE, MAX_STRING
from ipysandbox.errors import SandboxError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "audit.jsonl"


def test_record_is_one_json_line_with_every_field(path: Path) -> None:
    with AuditLog(path) as log:
        written = log.record("sandbox.start", sandbox="main", notebook="a.ipynb", details={"seconds": 0.5})
    lines = path.read_bytes().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0]) == written
    assert list(written) == ["time", "seq", "action", "sandbox", "notebook", "pid", "severity", "details"]
    assert written["seq"] == 1
    assert written["pid"] == os.getpid()
    assert written["severity"] == "info"
    moment = datetime.fromisoformat(written["time"])
    assert moment.utcoffset() == timedelta(0)
    assert len(written["time"]) == 32


def test_default_place_follows_xdg_state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "ipysandbox" / "audit" / "audit.jsonl"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "state" / "ipysandbox" / "audit" / "audit.jsonl"


def test_files_are_private_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        AuditLog(path).record("sandbox.start")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


def test_a_log_that_was_made_readable_is_made_private_again(path: Path) -> None:
    AuditLog(path).close()
    path.chmod(0o644)
    AuditLog(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_means_the_log_in_it(tmp_path: Path) -> None:
    AuditLog(tmp_path).record("sandbox.start")
    assert (tmp_path / "audit.jsonl").is_file()
    assert len(list(iter_records(tmp_path))) == 1


def test_symlinked_log_is_refused_and_its_target_untouched(path: Path) -> None:
    path.parent.mkdir()
    target = path.parent / "target"
    target.write_text("x")
    path.symlink_to(target)
    with pytest.raises(AuditError, match="symbolic link"):
        AuditLog(path)
    assert target.read_text() == "x"


@pytest.mark.parametrize("kind", ["lock", "hard link", "fifo", "folder"])
def test_anything_but_a_plain_file_is_refused(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "lock":
        path.with_name("audit.jsonl.lock").symlink_to(path.parent / "elsewhere")
    elif kind == "hard link":
        path.touch()
        os.link(path, path.parent / "second")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.with_name("audit.jsonl.lock").mkdir()
    with pytest.raises(AuditError):
        AuditLog(path)


def test_log_swapped_for_a_symlink_is_refused_at_the_next_record(path: Path) -> None:
    log = AuditLog(path)
    log.record("sandbox.start")
    target = path.parent / "target"
    target.touch()
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(AuditError, match="symbolic link"):
        log.record("sandbox.stop")
    assert target.read_bytes() == b""


def test_a_folder_that_cannot_be_made_is_refused_when_the_log_is_opened() -> None:
    with pytest.raises(AuditError, match="/proc/audit"):  # where not even root makes a folder
        AuditLog(Path("/proc/audit/audit.jsonl"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to somebody else")
def test_somebody_elses_log_is_refused(path: Path) -> None:
    AuditLog(path).close()
    os.chown(path, 65534, 65534)
    with pytest.raises(AuditError, match="belongs to user 65534"):
        AuditLog(path)


def test_error_is_a_sandbox_error_that_says_where_and_what_to_do(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()
    (path / "audit.jsonl").mkdir()
    with pytest.raises(SandboxError) as caught:
        AuditLog(path)
    assert str(path) in str(caught.value)
    assert "XDG_STATE_HOME" in str(caught.value)
    assert caught.value.to_json()["kind"] == "audit"


def test_record_that_finds_no_room_is_told_to_the_caller_and_the_log_stays_readable(path: Path) -> None:
    log = AuditLog(path)
    for _ in range(3):
        log.record("sandbox.start")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        with pytest.raises(AuditError) as caught:
            log.record("sandbox.stop")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno in (errno.EFBIG, errno.ENOSPC)
    log.record("sandbox.refused")
    assert [(r["seq"], r["action"]) for r in iter_records(path)] == [
        (1, "sandbox.start"),
        (2, "sandbox.start"),
        (3, "sandbox.start"),
        (4, "sandbox.refused"),
    ]


def test_torn_last_line_is_ended_by_the_next_record_and_skipped(path: Path) -> None:
    AuditLog(path).record("sandbox.start")
    with path.open("ab") as file:
        file.write(b'{"time": "2025-01-01T00:0')
    assert [record["seq"] for record in iter_records(path)] == [1]
    assert [record["seq"] for record in tail(5, path)] == [1]
    AuditLog(path).record("sandbox.stop")
    assert [record["seq"] for record in iter_records(path)] == [1, 2]
    assert len(path.read_bytes().splitlines()) == 3


class _Strange(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return object()

    def __iter__(self) -> Any:
        return iter(("a",))

    def __len__(self) -> int:
        return 1


def test_details_become_bounded_json(path: Path) -> None:
    class Text(str):
        pass

    cycle: list[Any] = []
    cycle.append(cycle)
    details: dict[Any, Any] = {
        "long": "x" * 10_000,
        "controls": "\x1b[31m\n\x00\x7f\u202e\ud800",
        "object": object(),
        "bytes": b"secret",
        "path": Path("x"),
        "nan": float("nan"),
        "big": 10**5000,
        "text": Text("plain"),
        "cycle": cycle,
        "strange": _Strange(),
        "many": list(range(10_000)),
        "tuple": (1, None, True, 1.5),
        3: "key",
    }
    written = AuditLog(path).record("cell.result", details=details)["details"]
    assert len(written["long"]) == MAX_STRING + 1
    assert written["controls"] == details["controls"]
    assert written["object"] == "object"
    assert written["bytes"] == "bytes"
    assert written["path"] == "PosixPath"
    assert written["nan"] == "nan"
    assert written["big"] == "int"
    assert written["text"] == "plain"
    assert written["strange"] == {"a": "object"}
    assert written["tuple"] == [1, None, True, 1.5]
    assert len(written["many"]) == 201
    assert written["many"][-1] == "… 9800 more"
    assert written["3"] == "key"
    line = path.read_bytes()
    assert line.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in line[:-1])


def test_a_record_is_never_longer_than_64_kib(path: Path) -> None:
    log = AuditLog(path)
    wide: Any = "\u0001" * 5000
    for _ in range(5):
        wide = {f"{n}\u0001" * 40: wide for n in range(100)}
    for details in ({"a": ["\x00" * 5000] * 200}, wide, {f"k{n}": "y" * 5000 for n in range(5000)}):
        log.record("cell.result", details=details, notebook="n" * 100_000, sandbox="\x00" * 100_000)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    assert max(map(len, lines)) <= MAX_LINE
    assert len(list(iter_records(path))) == 3


@pytest.mark.parametrize("action", ["", "Sandbox.start", "a b", "a\nb", "a..b", ".a", "x" * 65, "ä"])
def test_an_action_is_words_joined_by_dots(path: Path, action: str) -> None:
    with pytest.raises(ValueError, match="not an action"):
        AuditLog(path).record(action)
    assert path.read_bytes() == b""


def test_an_unknown_severity_is_a_mistake_of_the_caller(path: Path) -> None:
    with pytest.raises(ValueError, match="not a severity"):
        AuditLog(path).record("sandbox.start", severity="fatal")  # type: ignore[arg-type]


def test_rotation_keeps_the_newest_files_and_goes_on_numbering(path: Path) -> None:
    log = AuditLog(path, max_bytes=2000, keep=3)
    for _ in range(100):
        log.record("cell.result")
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3", "audit.jsonl.lock"]
    assert all(file.stat().st_size <= 2000 for file in path.parent.iterdir())
    seqs = [record["seq"] for record in iter_records(path)]
    assert seqs == list(range(seqs[0], 101))
    assert [record["seq"] for record in tail(1000, path)] == seqs[::-1]


def test_a_rotation_that_a_crash_left_half_done_loses_nothing(path: Path) -> None:
    log = AuditLog(path, max_bytes=1000, keep=5)
    for _ in range(20):
        log.record("cell.result")
    older = path.with_name("audit.jsonl.2")
    older.rename(path.with_name("audit.jsonl.3"))  # as if killed between two renames
    before = {record["seq"] for record in iter_records(path)}
    for _ in range(4):
        log.record("cell.result")
    assert before <= {record["seq"] for record in iter_records(path)}


def test_a_child_after_fork_writes_with_a_lock_of_its_own(path: Path) -> None:
    code = (
        "import os, sys\nfrom ipysandbox.audit import AuditLog\nlog = AuditLog(sys.argv[1])\nlog.record('a.parent')\n"
        "child = os.fork()\n"
        "for n in range(200):\n    log.record('a.child' if child == 0 else 'a.parent')\n"
        "if child == 0:\n    os._exit(0)\n"
        "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=Path(__file__).parents[2])
    records = list(iter_records(path))
    assert [record["seq"] for record in records] == list(range(1, 402))
    assert len({record["pid"] for record in records}) == 2
