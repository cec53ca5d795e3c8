"""Whatever is killed, and whenever: no process, mount, socket or folder of ours stays behind."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox.backends.linux.processes import tree

#: The promise is two seconds; the rest is what a loaded machine needs to run the test itself.
_GONE_SECONDS = 10.0
_HOST = """
import sys
from ipysandbox import Sandbox
box = Sandbox(project=sys.argv[1], validate=False)
while True:
    box.start()
    from ipysandbox.supervisor.spawn import Supervisor
    print("PIDS", Supervisor.current().pid, box.status()["pid"], flush=True)
    box.run("import subprocess, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(60)")
"""


@pytest.fixture(autouse=True)
def _adopt_orphans() -> None:
    """Orphans of a killed host come to this process, so that it sees every one of them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _reap(host: subprocess.Popen[str]) -> None:
    """Collect orphans that have ended; the host itself is collected by its Popen object."""
    for pid in tree(os.getpid())[1:]:
        if pid != host.pid:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _ours(known: set[int], host: subprocess.Popen[str]) -> list[str]:
    _reap(host)
    found = []
    for pid in tree(os.getpid())[1:]:
        if pid not in known and pid != host.pid:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    found.append(f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()[:80]!r}")
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _wait_until(condition: Callable[[], list[Any]], seconds: float) -> float:
    """Wait for ``condition()`` to be empty; how long that took. select is the clock: nothing is slept for blindly."""
    started = time.monotonic()
    while condition():
        if time.monotonic() - started > seconds:
            pytest.fail(f"left behind after {seconds:.0f} s: {condition()}")
        select.select([], [], [], 0.02)
    return time.monotonic() - started


@pytest.mark.timeout(900)
def test_kill_9_of_host_supervisor_or_sandbox_leaves_nothing(project: Path) -> None:
    runtime = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # pytest's own folders are too deep for a socket's path
    known = set(tree(os.getpid()))
    mounts = Path("/proc/self/mountinfo").read_text()
    choose = random.Random(20261129)
    counts = dict.fromkeys(("sandbox", "supervisor", "host", "zygote"), 0)
    slowest = 0.0
    host: subprocess.Popen[str] | None = None
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    while sum(counts.values()) < 200:
        if host is None:
            host = subprocess.Popen(
                [sys.executable, "-c", _HOST, str(project)], stdout=subprocess.PIPE, text=True, env=environment
            )
        assert host.stdout is not None
        line = host.stdout.readline()
        assert line.startswith("PIDS"), f"the host could not start a sandbox: {line!r}"
        supervisor, sandbox = (int(word) for word in line.split()[1:])
        # Anywhere between the first instruction of a cell and the middle of it.
        select.select([], [], [], choose.uniform(0, 0.15))
        target = choose.choices(list(counts), weights=[12, 3, 2, 2])[0]
        counts[target] += 1
        if target == "zygote":
            [pid] = [child for child in tree(supervisor)[1:] if b"zygote" in _cmdline(child)][:1] or [sandbox]
        else:
            pid = {"sandbox": sandbox, "supervisor": supervisor, "host": host.pid}[target]
        inside = tree(sandbox)
        os.kill(pid, signal.SIGKILL)
        _wait_until(functools.partial(_living, inside), _GONE_SECONDS)
        if target == "host":
            host.wait()
            host.stdout.close()
            slowest = max(slowest, _wait_until(functools.partial(_ours, known, host), _GONE_SECONDS))
            _wait_until(lambda: list(runtime.glob("ipysandbox/*")), _GONE_SECONDS)
            host = None
    if host is not None:
        host.kill()
        host.wait()
        assert host.stdout is not None
        host.stdout.close()
        _wait_until(functools.partial(_ours, known, host), _GONE_SECONDS)
    _wait_until(lambda: list(runtime.glob("ipysandbox")), _GONE_SECONDS)
    assert Path("/proc/self/mountinfo").read_text() == mounts
    os.rmdir(runtime)
    print(f"killed {counts}; slowest end {slowest:.2f} s")


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
