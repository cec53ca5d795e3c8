"""Tasks on a Dask cluster: real workers in processes of their own, killed, refused, and on two hosts."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import (
    LimitExceeded,
    NotAvailable,
    SandboxDied,
    SandboxExecutor,
    StartError,
    ValueRefused,
)
from ipysandbox.audit import iter_records
from ipysandbox.backends.linux.processes import tree

distributed = pytest.importorskip("distributed", reason="distributed is not installed")
dask = pytest.importorskip("dask")

#: What a loaded machine may need for something to end, or to come: workers import much when they start.
_SECONDS = 150.0
pytestmark = pytest.mark.timeout(400)
#: One more than a test kills before the first is back.
_WORKERS = 3
_HOSTS = Path(__file__).with_name("two_hosts.py")
#: Fifteen seconds after it has lost a worker a cluster removes its nanny, if the worker of the same name is away just
#: then: also where that is another that was started since, and killed by the next test.
_NANNIES_STAY = {"distributed.deploy.lost-worker-timeout": "1h"}


@pytest.fixture(scope="module")
def client(_own_folders: None) -> Iterator[Any]:
    # Restarts are wanted by tests that kill; quiet, since a killed worker is what they are about.
    with (
        dask.config.set(_NANNIES_STAY),
        distributed.LocalCluster(
            n_workers=_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dask") / "study"
    (root / "results").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    return root


@pytest.fixture(scope="module")
def pool(client: Any, study: Path) -> Iterator[SandboxExecutor]:
    """For all tests that can share it: a start costs three workers' processors a second."""
    with SandboxExecutor(client=client, project=study, limits={"cpu": "2s"}) as pool:
        yield pool


@pytest.fixture
def results(study: Path) -> Path:
    folder = study / "results"
    for path in folder.iterdir():
        path.unlink()
    return folder


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + _SECONDS
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


class _Ends:
    """The processes below some, which have to end."""

    def __init__(self, pids: list[int]) -> None:
        self._watched = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                self._watched[pid] = os.pidfd_open(pid)
        assert self._watched

    def wait(self) -> None:
        left, end = dict(self._watched), time.monotonic() + _SECONDS
        while left:
            ended, _, _ = select.select([*left.values()], [], [], max(0.0, end - time.monotonic()))
            assert ended, f"still there: {[*left]}"
            left = {pid: fd for pid, fd in left.items() if fd not in ended}
        for fd in self._watched.values():
            os.close(fd)


def _workers(client: Any) -> dict[str, int]:
    pids: dict[str, int] = client.run(os.getpid, on_error="ignore")
    return pids


def _is_watched(client: Any, address: str) -> bool:
    """Whether its nanny is done with starting it: of a worker that ends before, it starts no other."""
    told = client.run(lambda dask_worker: dask_worker.status.name, workers=[address], nanny=True, on_error="ignore")
    return [*told.values()] == ["running"]


def _runner(pool: SandboxExecutor) -> Any:
    return pool._running()


def _below(pids: list[int]) -> list[int]:
    return [inner for pid in pids for inner in tree(pid) if inner != pid]


def test_a_task_gives_its_value_its_exception_or_its_limit_as_on_one_machine(pool: SandboxExecutor) -> None:
    def total(count: int) -> Any:
        import numpy as np

        return np.arange(count)

    def fails(text: str) -> None:
        raise KeyError(text)

    def hangs() -> None:
        while True:
            pass

    assert [int(part.sum()) for part in pool.map(total, range(6))] == [0, 0, 1, 3, 6, 10]
    with pytest.raises(KeyError, match="this one") as caught:
        pool.submit(fails, "this one").result()
    assert "in fails" in str(caught.value.__cause__)
    with pytest.raises(LimitExceeded) as limit:
        pool.submit(hangs).result()
    assert limit.value.name == "cpu"
    with pytest.raises(SandboxDied):
        pool.submit(lambda: os._exit(0)).result()
    assert {"network", "files.write"} <= {*pool.guarantees}


def test_what_a_task_returns_is_bytes_to_dask_and_never_unpickled(
    client: Any, pool: SandboxExecutor, study: Path, tmp_path: Path
) -> None:
    from ipysandbox.executor import dask_worker
    from ipysandbox.executor.call import Packer

    trap = tmp_path / "sprung"

    def evil() -> Any:
        class Trap:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(trap),)

        return Trap()

    def forged() -> None:
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(fd, b"cposix\nmkdir\n(V" + str(trap).encode() + b"\ntR.")
        os._exit(0)

    with pytest.raises(ValueRefused):
        pool.submit(evil).result()
    with pytest.raises((SandboxDied, ValueRefused)):
        pool.submit(forged).result()
    packer = Packer(study)
    call = packer.call(packer.function(lambda: {"x": 1}), (), {})
    sent = client.submit(dask_worker.run_task, _runner(pool).name, "by-hand", call, None, pure=False).result()
    assert type(sent) is bytes
    assert dask_worker.unpacked(sent)[1].status == "ok"
    assert not trap.exists()


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\2[]", b"\0\0\0\2[]\xff\xff\xff\xff", b"\0\0\0\2{}\0\0\0\0", bytes(range(1, 100))]
)
def test_bytes_of_a_worker_that_are_no_result_are_an_error(data: bytes) -> None:
    from ipysandbox.executor import dask_worker

    with pytest.raises(Exception, match=r"not the outcome of a task|no result"):
        dask_worker.unpacked(data)


def test_a_lost_worker_costs_no_result_and_a_task_that_loses_three_is_given_up(
    client: Any, pool: SandboxExecutor, results: Path
) -> None:
    def slow(number: int) -> int:
        import time

        time.sleep(0.2)
        return number

    def taking() -> None:
        import time

        open(f"results/{time.monotonic()}", "w").close()
        time.sleep(600)

    before = {*_runner(pool)._workers}
    fatal = pool.submit(taking)
    number = max(_runner(pool)._tasks)
    others = [pool.submit(slow, number) for number in range(30)]
    for count in range(1, 4):
        _until(lambda count=count: len([*results.iterdir()]) == count)
        where = _runner(pool)._tasks[number].worker
        _until(lambda where=where: _is_watched(client, where))
        killed = _workers(client)[where]
        ends = _Ends(_below([killed]))
        os.kill(killed, signal.SIGKILL)
        ends.wait()
    with pytest.raises(SandboxDied, match="3 workers of the Dask cluster were lost"):
        fatal.result(_SECONDS)
    assert [future.result(_SECONDS) for future in others] == [*range(30)]
    # Nannies start others, which are used too.
    _until(lambda: {*_runner(pool)._workers} - before)


@pytest.fixture(scope="module")
def pair(_own_folders: None) -> Iterator[Any]:
    """One worker, on which two tasks are beside each other."""
    with (
        dask.config.set(_NANNIES_STAY),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=True,
            memory_limit="1GiB",
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_value_that_would_cost_the_worker_its_memory_is_refused_and_the_neighbour_has_its_result(
    pair: Any, study: Path, results: Path
) -> None:
    def stream(megabytes: int) -> None:
        """Answer with more than was ever held."""
        import socket
        import struct

        tree = b'{"v":1,"value":{"t":"bytes","b":0}}'
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=os.dup(fd))
                sock.sendall(struct.pack("!4sBQIQ", b"IPT1", 0, len(tree), 1, megabytes << 20) + tree)
                for _ in range(megabytes):
                    sock.sendall(bytes(1 << 20))
        os._exit(0)

    def waits() -> int:
        while not os.path.exists("results/go"):
            time.sleep(0.02)
        return 7

    before = _workers(pair)
    with SandboxExecutor(client=pair, project=study, limits={"memory": "256MiB"}) as pool:
        neighbour = pool.submit(waits)
        with pytest.raises(ValueRefused, match=r"400.0 MiB, more than the 64.0 MiB .* an eighth of its memory limit"):
            pool.submit(stream, 400).result(_SECONDS)
        assert len(pool.submit(bytes, 50 << 20).result(_SECONDS)) == 50 << 20
        (results / "go").touch()
        assert neighbour.result(_SECONDS) == 7
    assert _workers(pair) == before


def test_a_task_beside_one_that_loses_its_workers_has_its_result(pair: Any, study: Path, results: Path) -> None:
    def begins(name: str) -> str:
        open(f"results/{name}-{time.monotonic()}", "w").close()
        while not (name == "innocent" and os.path.exists("results/go")):
            time.sleep(0.02)
        return name

    def begun(name: str) -> int:
        return len([*results.glob(f"{name}-*")])

    with SandboxExecutor(client=pair, project=study) as pool:
        guilty, innocent = pool.submit(begins, "guilty"), pool.submit(begins, "innocent")
        number = min(_runner(pool)._tasks)
        for count in range(1, 4):
            if count == 3:
                (results / "go").touch()
            _until(lambda count=count: begun("guilty") == count and (count == 3 or begun("innocent") == count))
            where = _runner(pool)._tasks[number].worker
            _until(lambda where=where: _is_watched(pair, where))
            assert len(_runner(pool)._workers[where].tasks) == (2 if count < 3 else 1)
            os.kill(_workers(pair)[where], signal.SIGKILL)
        with pytest.raises(SandboxDied, match="3 workers of the Dask cluster were lost"):
            guilty.result(_SECONDS)
        assert innocent.result(_SECONDS) == "innocent"
        # What was kept for one is all tasks' again.
        assert [*pool.map(abs, range(4))] == [*range(4)]


def test_a_cancelled_task_is_killed_on_its_worker_and_what_waits_never_runs(
    pool: SandboxExecutor, results: Path
) -> None:
    def begins(number: int) -> None:
        import time

        open(f"results/{number}", "w").close()
        time.sleep(600)

    places = pool._running().workers
    running = [pool.submit(begins, number) for number in range(places)]
    _until(lambda: len([*results.iterdir()]) == places)
    waiting = [pool.submit(begins, number) for number in range(places, 30)]
    for future in [*waiting, *running]:
        assert future.cancel()
    # Their places are free again.
    assert [*pool.map(abs, range(places))] == [*range(places)]
    assert len([*results.iterdir()]) == places


def test_records_of_the_workers_come_home_under_their_names(client: Any, pool: SandboxExecutor) -> None:
    assert pool.submit(abs, -1).result() == 1
    prefix = f"{_runner(pool).name}/"
    mine = [record for record in iter_records() if str(record["sandbox"]).startswith(prefix)]
    assert {"sandbox.start", "task.started", "task.result"} <= {record["action"] for record in mine}
    last = mine[-1]["details"]["worker"]
    assert any(address in last for address in _workers(client))


def test_a_worker_where_the_policy_comes_to_something_else_is_not_used_and_says_why(
    client: Any, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_AT_THE_CALLER", "x")
    executor = SandboxExecutor(client=client, project=study, overrides={"environment.allow": ["ONLY_AT_THE_CALLER"]})
    with pytest.raises(StartError) as caught:
        executor.submit(lambda: 1)
    text = str(caught.value)
    assert "environment.allow is [] here" in text
    assert all(address in text for address in _workers(client))
    assert executor._runner is None


def test_what_a_policy_file_does_not_get_is_said_where_the_executor_is(
    client: Any, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = study.parent / "wide.toml"
    file.write_text('[limits]\nwall = "9h"\ncpu = "2s"\n')
    with SandboxExecutor(client=client, project=study, policy=file) as pool:
        assert pool.submit(lambda: 1).result() == 1
    told = capsys.readouterr().err
    assert "not granted: limits.wall" in told
    assert f"ipysandbox policy trust {file}" in told


def test_a_worker_that_cannot_hold_what_is_asked_says_why(client: Any, study: Path) -> None:
    executor = SandboxExecutor(client=client, project=study, overrides={"limits.gpu.devices": ["0"]})
    with pytest.raises(StartError, match=r"no worker of the Dask cluster can hold the policy:\n- worker .*: .*gpu"):
        executor.submit(lambda: 1)


_GONE = """
import os, sys, threading
from distributed import Client
from ipysandbox import SandboxExecutor
client = Client(sys.argv[1])
pool = SandboxExecutor(client=client, project=sys.argv[2])
def begins():
    import time
    open("results/began", "w").close()
    time.sleep(600)
if sys.argv[3] == "killed":
    pool.submit(begins)
    threading.Event().wait()
pool.submit(lambda: 1).result()
client.close()
"""


def _let_all_begin(pool: SandboxExecutor) -> None:
    """What the tasks of a worker share, whoever sent them, is started with the first."""

    def meet(number: int) -> None:
        open(f"results/met-{number}", "w").close()
        while len([name for name in os.listdir("results") if name.startswith("met-")]) < _WORKERS:
            time.sleep(0.02)

    list(pool.map(meet, range(_WORKERS)))


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_caller_that_goes_leaves_nothing_on_the_workers(
    client: Any, pool: SandboxExecutor, study: Path, results: Path, how: str
) -> None:
    _let_all_begin(pool)
    before = {*_below([*_workers(client).values()])}
    command = [sys.executable, "-c", _GONE, client.scheduler.address, str(study), how]
    with subprocess.Popen(command, cwd=study) as caller:
        if how == "killed":
            _until((results / "began").exists)
            ends = _Ends([pid for pid in _below([*_workers(client).values()]) if pid not in before])
            caller.kill()
            ends.wait()
        caller.wait(_SECONDS)
    _until(lambda: all(len(names) == 1 for names in client.run(_plugins, on_error="ignore").values()))  # the other one
    _until(lambda: not [pid for pid in _below([*_workers(client).values()]) if pid not in before])


def _plugins(dask_worker: Any) -> list[str]:
    return [name for name in dask_worker.plugins if name.startswith("ipysandbox")]


def test_without_distributed_the_error_says_what_to_install(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NotAvailable, match=r"pip install ipysandbox\[dask\]"):
        SandboxExecutor(client=object(), project=study).submit(lambda: 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="two hosts are made of network namespaces, which needs root")
def test_on_two_hosts_tasks_run_on_those_that_can_and_go_on_when_one_is_lost(
    study: Path, results: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "elsewhere" / "shared"
    shared.mkdir(parents=True)
    (shared / "x.csv").write_text("1\n")
    done = subprocess.run(
        [sys.executable, str(_HOSTS), str(study), str(shared)], capture_output=True, text=True, timeout=390
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every task done" in done.stdout
