"""Whatever a sandbox without namespaces starts, and whoever of ours is killed: no process and no folder stays."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox.backends.linux.processes import children, tree

from .hosts import Box, Host

_PATIENCE = 30.0  # seconds: a loaded machine's
pytestmark = pytest.mark.timeout(300)

#: Daemons of every kind; each writes its number, so that it is found whoever it belongs to by now.
DAEMONS = """
import ctypes, os, signal, subprocess, sys, time
libc = ctypes.CDLL(None)
def daemon():
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    for number in range(1, 32):
        if number not in (9, 19): signal.signal(number, signal.SIG_IGN)
    libc.prctl(1, 0)  # no parent-death signal
    open(os.environ["TMPDIR"] + f"/pid-{os.getpid()}", "w").close()
    while True: time.sleep(1)
for _ in range(5): daemon()
subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True)
if not libc.prctl(1, 0):  # nor does the kernel of the sandbox hear of it
    while len([n for n in os.listdir(os.environ["TMPDIR"]) if n.startswith("pid-")]) < 5: time.sleep(0.05)
    print(os.environ["TMPDIR"])
"""
BOMB = """
import os
def bomb():
    while True:
        try: os.fork()
        except OSError: pass
if os.fork() == 0: bomb()
"""
#: Each process lives only to make the next: a list of them is old when it is read.
COMETS = """
import os
for _ in range(4):
    if os.fork() == 0:
        while True:
            try:
                if os.fork(): os._exit(0)
            except OSError: pass
"""


def _wait(gone: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while left := gone():
        assert time.monotonic() < deadline, left
        select.select([], [], [], 0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _alive(pid)]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def own_host(project: Path) -> Host:
    return Host()


@pytest.mark.parametrize("victim", ["nobody", "program", "monitor", "zygote", "supervisor", "host"])
def test_daemons_end_with_the_sandbox_whoever_is_killed(own_host: Host, project: Path, victim: str) -> None:
    box = Box(own_host, "a", project)
    scratch = Path(box.out(DAEMONS, timeout=100).strip()).parent
    inside = tree(box.pid)[1:]
    assert len(inside) >= 8
    zygote = _parent(box.pid)
    pids = {"program": children(box.pid)[0], "monitor": box.pid, "zygote": zygote, "supervisor": box.supervisor}
    if victim == "nobody":
        box.close()
    else:
        os.kill(pids.get(victim, own_host.process.pid), signal.SIGKILL)
    try:
        _wait(lambda: _living([box.pid, *inside]))
    finally:
        if victim != "host":
            own_host.close()
    _wait(lambda: _living([zygote, box.supervisor]))
    _wait(lambda: [1] if scratch.exists() else [])


@pytest.mark.parametrize("code", [BOMB, COMETS], ids=["bomb", "comets"])
@pytest.mark.parametrize("victim", ["nobody", "monitor"])
def test_a_fork_bomb_is_bounded_and_ends(own_host: Host, project: Path, code: str, victim: str) -> None:
    box = Box(own_host, "a", project, overrides={"limits.processes": 48})
    box.run(code)
    mark = str(project).encode()
    for _ in range(20):
        assert len(tree(box.pid)) <= 2 * 48
        select.select([], [], [], 0.02)
    began = time.monotonic()
    if victim == "monitor":
        with contextlib.suppress(ProcessLookupError):  # ended by its limit already, with all that it held
            os.kill(box.pid, signal.SIGKILL)
    else:
        box.close()
    _wait(lambda: _with_folder(mark, own_host.process.pid))
    print(f"ended within {time.monotonic() - began:.1f} s")
    own_host.close()


def _with_folder(mark: bytes, root: int) -> list[int]:
    """Living processes that work in the project's folder, whose children they may be: a bomb's have no other mark."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd").encode() == mark and int(name) != root and _alive(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def test_a_scratch_folder_is_removed_however_it_was_filled(own_host: Host, project: Path) -> None:
    box = Box(own_host, "a", project)
    code = """
import os
home = os.getcwd(); top = os.environ["TMPDIR"]
os.chdir(top)
for _ in range(18): os.mkdir("x" * 200); os.chdir("x" * 200)
open("file", "w").close(); os.mkdir("in"); os.mkdir("in/side"); open("in/side/file", "w").close()
os.chmod("in/side", 0); os.chmod("in", 0); os.chdir(top)
for name in ("0", "1/2", "3"): os.makedirs(name)
open("4", "w").close(); os.mkfifo("5"); os.symlink(home, "6"); os.chmod("1", 0)
os.chdir(home); print(top)
"""
    scratch = Path(box.out(code).strip()).parent
    box.close()
    _wait(lambda: [1] if scratch.exists() else [])
    assert (project / "data/x.csv").exists()
    own_host.close()


def test_when_a_sandbox_ends_its_calls_in_flight_hold_up_nothing(own_host: Host, project: Path) -> None:
    box = Box(own_host, "a", project)
    code = (
        "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        while True:\n            os.stat('data/x.csv')"
    )
    box.run(code)
    inside = tree(box.pid)
    assert len(inside) > 20
    box.close()
    _wait(lambda: _living(inside))
    own_host.close()


def test_a_monitor_that_stands_still_is_ended_with_all_below_it(own_host: Host, project: Path) -> None:
    box = Box(own_host, "a", project)
    box.run(DAEMONS)
    inside = tree(box.pid)
    os.kill(box.pid, signal.SIGSTOP)
    box.close()
    _wait(lambda: _living(inside))
    own_host.close()
