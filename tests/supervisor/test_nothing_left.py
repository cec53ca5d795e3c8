"""Whatever is killed, and whenever: no process, mount, socket, folder or control group of ours stays behind."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipysandbox.backends.linux.processes import tree

#: The promise is two seconds; the rest is what a loaded machine needs to run the test itself.
_GONE_SECONDS = 15.0
#: A supervisor may take a while to end in order; one that does not is killed after 15.
_HANGS_SECONDS = 45.0
_KILLS, _HOSTS = 200, 4
#: Most are of the cheap kind: what a new supervisor and zygote import takes a second of the processor.
_WEIGHTS = {"sandbox": 15, "supervisor": 2, "host": 1, "zygote": 1}
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


class _Host:
    """A process with a sandbox, in a loop that starts it again whenever it ends; several run at a time."""

    def __init__(self, project: Path, runtime: Path, seed: int) -> None:
        self._project, self._runtime = project, runtime
        self._choose = random.Random(20261129 + seed)
        self._process: subprocess.Popen[str] | None = None
        #: What was killed, and the longest that anything inside lived after it.
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def kill(self, times: int) -> None:
        for _ in range(times):
            self._kill_once()
        self._end()

    def _kill_once(self) -> None:
        supervisor, sandbox = self._started()
        # Anywhere between the first instruction of a cell and the middle of it.
        select.select([], [], [], self._choose.uniform(0, 0.15))
        target = self._choose.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
        self.counts[target] += 1
        inside = tree(sandbox)
        if target == "host":
            self._end()
        else:
            pid = {"sandbox": sandbox, "supervisor": supervisor, "zygote": _zygote(supervisor) or sandbox}[target]
            os.kill(pid, signal.SIGKILL)
        self.slowest = max(self.slowest, _wait_until(functools.partial(_living, inside), _GONE_SECONDS))

    def _started(self) -> tuple[int, int]:
        if self._process is None:
            environment = {**os.environ, "XDG_RUNTIME_DIR": str(self._runtime)}
            self._process = subprocess.Popen(
                [sys.executable, "-c", _HOST, str(self._project)], stdout=subprocess.PIPE, text=True, env=environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("PIDS"), f"the host could not start a sandbox: {line!r}"
        supervisor, sandbox = (int(word) for word in line.split()[1:])
        return supervisor, sandbox

    def _end(self) -> None:
        if self._process is None:
            return
        below = tree(self._process.pid)
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        _wait_until(functools.partial(_living, below), _GONE_SECONDS)


@pytest.mark.timeout(900)
def test_kill_9_of_host_supervisor_or_sandbox_leaves_nothing(project: Path) -> None:
    runtime = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # pytest's own folders are too deep for a socket's path
    known = set(tree(os.getpid()))
    mounts = Path("/proc/self/mountinfo").read_text()
    hosts = [_Host(project, runtime, seed) for seed in range(_HOSTS)]
    ids: set[str] = set()
    done = threading.Event()
    with ThreadPoolExecutor(_HOSTS + 1) as threads:
        collecting = threads.submit(_collect_ids, runtime, ids, done)
        try:
            for finished in [threads.submit(host.kill, _KILLS // _HOSTS) for host in hosts]:
                finished.result()
        finally:
            done.set()
        collecting.result()
    _wait_until(functools.partial(_ours, known), _GONE_SECONDS)
    _wait_until(lambda: list(runtime.glob("ipysandbox")), _GONE_SECONDS)
    _wait_until(functools.partial(_groups, ids), _GONE_SECONDS)
    assert Path("/proc/self/mountinfo").read_text() == mounts
    os.rmdir(runtime)
    counts = sum((host.counts for host in hosts), Counter())
    assert sum(counts.values()) == _KILLS
    assert set(counts) == set(_WEIGHTS)
    print(f"killed {dict(counts)}; slowest end {max(host.slowest for host in hosts):.2f} s")


def test_a_supervisor_that_hangs_does_not_keep_a_sandbox_alive_after_its_notebook(project: Path) -> None:
    command = [sys.executable, "-c", _HOST, str(project)]
    runtime = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    known = set(tree(os.getpid()))
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        supervisor = int(host.stdout.readline().split()[1])
        os.kill(supervisor, signal.SIGSTOP)  # as code does to it that makes it look at one message for hours
        host.kill()
    _wait_until(functools.partial(_ours, known), _HANGS_SECONDS)
    _wait_until(lambda: list(runtime.glob("ipysandbox")), _GONE_SECONDS)
    os.rmdir(runtime)


def _collect_ids(runtime: Path, ids: set[str], done: threading.Event) -> None:
    """By its folder's name a supervisor's control groups are known; those of others on this machine are not ours."""
    while not done.wait(0.05):
        ids.update(path.name for path in runtime.glob("ipysandbox/*"))


def _groups(ids: set[str]) -> list[str]:
    found = glob.glob("/sys/fs/cgroup/**/ipysandbox-*", recursive=True)
    return [path for path in found if os.path.basename(path).split("-")[1] in ids]


def _ours(known: set[int]) -> list[str]:
    found = []
    for pid in tree(os.getpid())[1:]:
        if pid in known:
            continue
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if _alive(pid):
            found.append(f"{pid}: {_cmdline(pid)[:80]!r}")
    return found


def _wait_until(condition: Callable[[], list[Any]], seconds: float) -> float:
    """Wait for ``condition()`` to be empty; how long that took. select is the clock: nothing is slept for blindly."""
    started = time.monotonic()
    while condition():
        if time.monotonic() - started > seconds:
            pytest.fail(f"left behind after {seconds:.0f} s: {condition()}")
        select.select([], [], [], 0.02)
    return time.monotonic() - started


def _zygote(supervisor: int) -> int:
    return next((child for child in tree(supervisor)[1:] if b"zygote" in _cmdline(child)), 0)


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


_KILLED = """
import os, signal, sys
from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor
with Sandbox(project=sys.argv[1]) as box:
    box.run("1")
    supervisor = Supervisor.current()
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor._process.wait()
"""


def test_a_killed_supervisor_leaves_not_even_the_folder_that_all_share(project: Path, short_folder: Path) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(short_folder)}
    subprocess.run([sys.executable, "-c", _KILLED, str(project)], env=environment, capture_output=True)
    _wait_until(lambda: os.listdir(short_folder), _GONE_SECONDS)


_SLOW_TO_END = """
import os, signal, subprocess, sys
from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor
box = Sandbox(project=sys.argv[1], validate=False)
box.run('''
import threading, time
def arm():
    time.sleep(0.5)  # after the sweep that follows this cell
    open('results/conftest.py', 'w').close()
threading.Thread(target=arm).start()
''')
print("RAN", flush=True)
sys.stdin.readline()
pid = Supervisor.current().pid
os.kill(pid, signal.SIGSTOP)
# As late as a machine with far too much to do would be.
subprocess.Popen(["sh", "-c", f"sleep 16; kill -CONT {pid}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


@pytest.mark.slow
def test_a_supervisor_that_is_slow_to_end_still_disarms_what_was_left(project: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_TO_END, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        assert host.stdout.readline() == "RAN\n"
        trap = project / "results/conftest.py"
        _wait_until(lambda: [] if trap.exists() else ["the trap is not there yet"], _GONE_SECONDS)
        host.stdin.write("\n")
        host.stdin.close()
        host.stdout.read()
    assert host.returncode == 0
    assert not trap.exists()
