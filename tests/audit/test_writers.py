"""Several real processes write one log at once, are killed in the middle, and rotate it under each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from ipysandbox.audit import AuditLog, iter_records

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from ipysandbox.audit import AuditLog
path, name, count, max_bytes, keep = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
log = AuditLog(path, max_bytes=max_bytes, keep=keep)
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    log.record("cell.result", sandbox=name, details={"n": n, "text": "x" * (n % 700)})
    if n == 20:
        print("running", flush=True)
"""


def _writers(path: Path, number: int, count: int, max_bytes: int, keep: int = 1000) -> list[subprocess.Popen[str]]:
    """Writers that have opened the log and wait for a line to begin."""
    processes = []
    for name in range(number):
        arguments = [str(path), f"w{name}", str(count), str(max_bytes), str(keep)]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", WRITER, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
        )
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return processes


def _go(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def _finish(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.communicate()
        assert process.returncode == 0


@pytest.mark.parametrize("max_bytes", [64 << 20, 100_000], ids=["one file", "rotating"])
def test_four_writers_lose_and_tear_nothing(tmp_path: Path, max_bytes: int) -> None:
    path = tmp_path / "audit.jsonl"
    processes = _writers(path, 4, 1000, max_bytes)
    _go(processes)
    _finish(processes)
    records = list(iter_records(path))
    assert Counter(record["sandbox"] for record in records) == {f"w{n}": 1000 for n in range(4)}
    assert [record["seq"] for record in records] == list(range(1, 4001))
    for name in range(4):
        assert [r["details"]["n"] for r in records if r["sandbox"] == f"w{name}"] == list(range(1000))
    files = [file for file in tmp_path.iterdir() if file.suffix != ".lock"]
    assert sum(file.read_bytes().count(b"\n") for file in files) == 4000
    assert (len(files) > 5) == (max_bytes < 1 << 20)


@pytest.mark.parametrize("max_bytes", [64 << 20, 20_000], ids=["one file", "rotating"])
def test_killed_writers_leave_a_readable_log_and_hold_up_nobody(tmp_path: Path, max_bytes: int) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(5):
        processes = _writers(path, 2, 1_000_000, max_bytes)
        _go(processes)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.communicate()
    last = AuditLog(path, max_bytes=max_bytes, keep=1000).record("sandbox.stop")
    records = list(iter_records(path))
    assert records[-1] == last
    seqs = [record["seq"] for record in records]
    assert seqs == list(range(1, last["seq"] + 1))
    assert len(seqs) > 200


def test_a_reader_sees_every_record_while_writers_rotate(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    processes = _writers(path, 2, 500, 10_000)
    _go(processes)
    while any(process.poll() is None for process in processes):
        seqs = [record["seq"] for record in iter_records(path)]
        assert seqs == list(range(1, len(seqs) + 1))
    _finish(processes)


def test_threads_share_one_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=20_000, keep=1000)
    threads = [threading.Thread(target=lambda: [log.record("cell.result") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record["seq"] for record in iter_records(tmp_path)] == list(range(1, 801))
