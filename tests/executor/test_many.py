"""Many tasks of all kinds: every verdict is right, and nothing is left behind, whoever is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ipysandbox
from ipysandbox import LimitExceeded, SandboxDied, SandboxExecutor, TaskError, ValueRefused
from ipysandbox.backends.linux.processes import children, tree
from ipysandbox.supervisor.spawn import Supervisor

MakePool = Callable[..., SandboxExecutor]
#: How long a loaded machine may take to end what is told to.
_GONE_SECONDS = 20.0


class OwnError(Exception):
    pass


def of_all_kinds(kind: str, number: int) -> object:
    if kind == "value":
        return number * 2
    if kind == "array":
        import numpy

        return numpy.full(1000, number)
    if kind == "raises":
        raise ValueError(number)
    if kind == "own":
        raise OwnError(number)
    if kind == "odd":
        return object()
    if kind == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "leaves":
        os._exit(number % 100 + 1)
    if kind == "hangs":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            time.sleep(1000)
    if kind == "spins":
        while True:
            pass
    if kind == "memory":
        return bytearray(1 << 40)
    if kind == "forks":
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                time.sleep(1000)
    return None


#: Most are short; what has to be waited for is rare.
_EVERY = {"hangs": 67, "spins": 71, "memory": 29, "crashes": 13, "leaves": 17, "forks": 11, "raises": 7, "own": 19}
_EVERY |= {"odd": 23, "array": 5}


def kind_of(number: int) -> str:
    return next((kind for kind, every in _EVERY.items() if number % every == every - 1), "value")


def is_right(kind: str, number: int, future: object) -> bool:
    error = future.exception()  # type: ignore[attr-defined]
    expected = {
        "raises": lambda: type(error) is ValueError and str(error) == str(number),
        "own": lambda: isinstance(error, TaskError) and error.ename == "OwnError",
        "odd": lambda: isinstance(error, ValueRefused),
        "crashes": lambda: isinstance(error, SandboxDied) and "signal 11" in str(error),
        "leaves": lambda: isinstance(error, SandboxDied) and f"status {number % 100 + 1}," in str(error),
        "hangs": lambda: isinstance(error, LimitExceeded) and error.name == "wall",
        "spins": lambda: isinstance(error, LimitExceeded) and error.name in ("wall", "cpu"),
        "memory": lambda: isinstance(error, LimitExceeded) and error.name == "memory",
        "forks": lambda: error is None and future.result() is None,  # type: ignore[attr-defined]
        "array": lambda: error is None and future.result().tolist() == [number] * 1000,  # type: ignore[attr-defined]
        "value": lambda: error is None and future.result() == number * 2,  # type: ignore[attr-defined]
    }
    return expected[kind]()


def left_by_executors() -> list[str]:
    """Folders and control groups of executors of this process's supervisor; and processes but that and its zygotes."""
    supervisor = Supervisor.current()
    folder = supervisor.client.folder
    found = [str(path) for path in folder.iterdir() if path.name.startswith("s") and path.is_dir()]
    with contextlib.suppress(OSError):
        found += [str(path) for path in (folder / "scratch").iterdir()]
    found += [str(place) for place in Path("/sys/fs/cgroup").glob(f"*/ipysandbox-{folder.name}-*")]
    ours = {supervisor.pid, *children(supervisor.pid)}
    return found + [f"process {pid}" for pid in tree(supervisor.pid) if pid not in ours]


def wait_until_nothing_is_left(look: Callable[[], list[str]]) -> None:
    until = time.monotonic() + _GONE_SECONDS
    while (found := look()) and time.monotonic() < until:
        select.select([], [], [], 0.05)
    assert not found


def test_of_many_mixed_tasks_every_verdict_is_right_and_nothing_is_left(make_pool: MakePool) -> None:
    """``tests/benchmarks/tasks.py`` does the same with ten thousand."""
    count = 150
    pool = make_pool(4, limits={"wall": "2s", "memory": "512MiB"})
    wrong = []
    futures: dict[int, object] = {}
    for number in range(count):
        futures[number] = pool.submit(of_all_kinds, kind_of(number), number)
        if number - 64 in futures:  # as they come, so that their number is no matter of memory
            wrong += _check(futures, number - 64)
    for number in [*futures]:
        wrong += _check(futures, number)
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:50]])
    pool.shutdown()
    wait_until_nothing_is_left(left_by_executors)


def _check(futures: dict[int, object], number: int) -> list[str]:
    future = futures.pop(number)
    kind = kind_of(number)
    return [] if is_right(kind, number, future) else [f"{number} {kind}: {future.exception()!r}"]  # type: ignore[attr-defined]


_HOST = """
import os, sys, time
from concurrent.futures import FIRST_COMPLETED, wait
from ipysandbox import SandboxExecutor

def stay():
    if os.fork() == 0:
        os.setsid()
    open(f"results/{os.getpid()}-{time.time()}", "w").close()
    os.makedirs("results/.git", exist_ok=True)
    time.sleep(1000)

pool = SandboxExecutor(2)
futures = [pool.submit(stay) for _ in range(4)]
while not all(f.running() for f in futures[:2]) or len(os.listdir("results")) < 3:
    time.sleep(0.02)
from ipysandbox.supervisor.spawn import Supervisor
print(Supervisor.current().pid, flush=True)
done = wait(futures, return_when=FIRST_COMPLETED).done
print(type(done.pop().exception()).__name__, flush=True)
"""


@pytest.mark.parametrize("victim", ["supervisor", "zygote", "nursery", "init"])
def test_whoever_is_killed_no_task_goes_on_and_its_traps_are_disarmed(project: Path, victim: str) -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of the host come here, and are seen
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_HOST)], cwd=project, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        supervisor = int(host.stdout.readline())
        below = tree(supervisor)
        zygote = below[1]
        nursery = children(zygote)[0]
        [init] = children(nursery)
        victims = {"supervisor": supervisor, "zygote": zygote, "nursery": nursery, "init": init}
        os.kill(victims[victim], 9)
        assert host.stdout.readline().strip() == "SandboxDied"
        host.kill()
    wait_until_nothing_is_left(lambda: [str(pid) for pid in below if _alive(pid)])
    with ipysandbox.SandboxExecutor(1, project=project) as pool:
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
    assert not (project / "results/.git").exists()


def _alive(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_workers_that_the_machine_can_not_have_are_told_and_the_supervisor_lives(project: Path) -> None:
    code = """
        import resource
        from ipysandbox import SandboxExecutor, StartError
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        with SandboxExecutor(1) as small:
            assert small.submit(abs, -1).result() == 1
            try:
                with SandboxExecutor(300) as large:
                    large.submit(abs, -1).result()
            except StartError as exc:
                print(exc)
            assert small.submit(abs, -2).result() == 2
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=project, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Too many open files" in done.stdout
