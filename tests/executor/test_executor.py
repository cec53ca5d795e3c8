"""What ``SandboxExecutor`` promises: the interface of ``concurrent.futures``, and a fresh sandbox for each call."""

from __future__ import annotations

import concurrent.futures
import gc
import io
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ipysandbox
from ipysandbox import LimitExceeded, PolicyError, SandboxClosed, SandboxDied, SandboxExecutor, TaskError, ValueRefused
from ipysandbox.audit.query import iter_records

MakePool = Callable[..., SandboxExecutor]


class OwnError(Exception):
    pass


def double(x: int) -> int:
    return 2 * x


def sleep() -> None:
    time.sleep(1000)


def namespaces(pool: SandboxExecutor) -> bool:
    return "mount namespace" in pool.guarantees["files.read"]


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.01)


def test_calls_return_what_they_return_and_raise_what_can_be_caught(pool: SandboxExecutor) -> None:
    def raise_own() -> None:
        raise OwnError("a reason")

    def leave() -> None:
        sys.exit(3)

    def interrupt() -> None:
        raise KeyboardInterrupt

    def end_loop() -> None:
        raise StopIteration

    assert pool.submit(divmod, 17, 5).result() == (3, 2)
    assert pool.submit(dict, a=[1.5, None]).result() == {"a": [1.5, None]}
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        pool.submit(lambda: 1 / 0).result()
    assert "<lambda>" in str(caught.value.__cause__)
    assert "ZeroDivisionError: division by zero" in str(caught.value.__cause__)
    assert "guest" not in str(caught.value.__cause__)
    # What has to do with the sandbox is told as under a cell.
    with pytest.raises(FileNotFoundError) as unseen:
        pool.submit(open, "/home/nobody/elsewhere.csv").result()
    assert str(unseen.value) == "[Errno 2] No such file or directory: '/home/nobody/elsewhere.csv'"
    assert "\nipysandbox: The sandbox can't see /home/nobody/elsewhere.csv: it is not in files.read. Copy it" in str(
        unseen.value.__cause__
    )
    # What ends programs or loops does so inside only.
    for function, name in ((raise_own, "OwnError"), (leave, "SystemExit"), (interrupt, "KeyboardInterrupt")):
        with pytest.raises(TaskError, match=name) as other:
            pool.submit(function).result()
        assert other.value.ename == name
    with pytest.raises(TaskError, match="StopIteration"):
        list(pool.map(lambda _: end_loop(), [1]))
    with pytest.raises(ValueRefused, match="object"):
        pool.submit(object).result()


def test_each_call_has_a_sandbox_of_its_own(pool: SandboxExecutor, project: Path) -> None:
    def look() -> tuple[list[str], float, float, int]:
        import random

        import numpy

        found = os.listdir(os.environ["TMPDIR"])
        with open(os.environ["TMPDIR"] + "/mine", "w") as file:
            file.write("x")
        with open("data/x.csv") as file:
            assert file.read().startswith("a,b")
        return found, random.random(), float(numpy.random.random()), os.getppid()

    seen = list(pool.map(lambda _: look(), range(6)))
    assert not any("mine" in found for found, *_ in seen)
    assert len({row[1] for row in seen}) == len({row[2] for row in seen}) == 6
    with pytest.raises(OSError, match=r"\.env"):
        pool.submit(lambda: open(".env").read()).result()  # noqa: SIM115 - it is refused


def test_a_limit_or_a_crash_ends_its_own_task_and_says_so(make_pool: MakePool) -> None:
    def spin() -> None:
        while True:
            pass

    def fill_memory() -> None:
        import mmap

        held = []
        while True:  # no limit of one process counts what is shared
            held.append(mmap.mmap(-1, 16 << 20))
            held[-1].write(b"x" * (16 << 20))

    def fill_results() -> None:
        for number in itertools.count():
            with open(f"results/{number}", "wb") as file:
                file.write(b"x" * (4 << 20))

    def flood() -> None:
        while True:
            os.write(1, b"x" * 65536)

    limits = {"memory": "512MiB", "disk": "64MiB", "output": "1MiB"}
    pool = make_pool(3, timeout=6, limits=limits)
    good = pool.map(double, range(20))
    bad = {
        "wall": pool.submit(time.sleep, 1000),
        "memory": pool.submit(fill_memory),
        "disk": pool.submit(fill_results),
        "output": pool.submit(flood),
    }
    assert list(good) == [2 * x for x in range(20)]
    for name, future in bad.items():
        error = future.exception()
        assert isinstance(error, LimitExceeded), (name, error)
        assert error.name == name
        assert error.observed is None or error.observed >= error.value
        argument = "timeout=" if name == "wall" else f'limits={{"{name}": '
        assert f"To allow more: {argument}" in str(error)
    with pytest.raises(LimitExceeded, match="cpu"):
        make_pool(1, limits={"cpu": "1s"}).submit(spin).result()
    with pytest.raises(SandboxDied, match="status 3"):
        pool.submit(os._exit, 3).result()
    with pytest.raises(LimitExceeded, match="memory"):
        pool.submit(bytearray, 1 << 50).result()


def test_who_fills_a_shared_folder_uncounted_is_ended_with_those_beside_it(make_pool: MakePool) -> None:
    def allocates() -> None:
        for _ in range(40):
            with open(f"results/{time.monotonic()}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 8 << 20)
            time.sleep(0.05)
        time.sleep(60)

    def writes_little() -> None:
        for _ in range(400):
            with open("results/small", "a") as file:
                file.write("hello" * 1000)
            time.sleep(0.05)

    def copies() -> None:
        for number in range(40):
            with open(f"results/{number}", "wb") as file:
                file.write(bytes(8 << 20))
            time.sleep(0.05)
        time.sleep(60)

    pool = make_pool(2, limits={"disk": "64MiB"}, timeout="60s")
    futures = [pool.submit(writes_little), pool.submit(allocates)]
    for future in futures:
        with pytest.raises(LimitExceeded, match="could not be told which") as caught:
            future.result()
        assert caught.value.name == "disk"
        assert "the sandbox wrote" not in str(caught.value)
    # What a task has written by its own count is its own.
    beside, guilty = pool.submit(time.sleep, 4), pool.submit(copies)
    with pytest.raises(LimitExceeded, match="This one had written most"):
        guilty.result()
    assert beside.result() is None
    with pytest.raises(LimitExceeded, match="disk") as alone:
        pool.submit(allocates).result()
    assert "share the writable folders" not in str(alone.value)


def test_a_task_answers_with_no_more_than_it_may_hold(make_pool: MakePool) -> None:
    def stream() -> None:
        import socket
        import struct

        tree = b'{"v":1,"value":{"t":"bytes","b":0}}'
        for fd in range(3, 64):
            try:
                sock = socket.socket(fileno=os.dup(fd))
                sock.sendall(struct.pack("!4sBQIQ", b"IPT1", 0, len(tree), 1, 300 << 20) + tree)
                for _ in range(300):
                    sock.sendall(bytes(1 << 20))
            except OSError:
                continue
        os._exit(0)

    pool = make_pool(1, limits={"memory": "256MiB"})
    with pytest.raises(ValueRefused, match=r"300.0 MiB, more than the 256.0 MiB that limits.memory"):
        pool.submit(stream).result()


def test_a_task_that_runs_can_be_cancelled_and_one_that_waits(make_pool: MakePool) -> None:
    pool = make_pool(1)
    running, waiting = pool.submit(sleep), pool.submit(double, 1)
    wait_until(running.running)
    assert not waiting.running()
    assert waiting.cancel()
    assert running.cancel()
    assert concurrent.futures.wait([running, waiting], 0).not_done == set()
    assert pool.submit(double, 4).result() == 8
    assert not pool.submit(double, 4).exception()


def test_the_command_line_shows_an_executor_and_ends_its_tasks(make_pool: MakePool) -> None:
    pool = make_pool(1)
    running, waiting = pool.submit(sleep), pool.submit(double, 1)
    wait_until(running.running)
    command = [sys.executable, "-m", "ipysandbox"]
    shown = subprocess.run([*command, "ps"], capture_output=True, text=True, check=True).stdout
    [name] = [line.split()[0] for line in shown.splitlines() if "/tasks-" in line and "1 tasks, 1 wait" in line]
    subprocess.run([*command, "kill", name], check=True)
    for future in (running, waiting, pool.submit(double, 2)):
        with pytest.raises(SandboxDied, match="ipysandbox kill"):
            future.result()


def test_an_executor_that_nobody_holds_ends(project: Path) -> None:
    pool = SandboxExecutor(1, project=project)
    assert pool.submit(double, 1).result() == 2

    def shown() -> str:
        return subprocess.run([sys.executable, "-m", "ipysandbox", "ps"], capture_output=True, text=True).stdout

    assert str(project) in shown()
    del pool
    gc.collect()
    wait_until(lambda: str(project) not in shown())


def test_a_failed_task_leaves_others_alone_and_an_exception_ends_a_map(make_pool: MakePool) -> None:
    pool = make_pool(2)
    calls = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            calls.append(number)
            yield number

    results = pool.map(lambda x: 12 // (3 - x), endless(), buffersize=8)
    assert [next(results) for _ in range(3)] == [4, 6, 12]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(calls) < 20  # a million would not be held, nor begun
    with pytest.raises(StopIteration):
        next(results)
    assert pool.submit(double, 1).result() == 2
    slow = pool.map(time.sleep, [1000], timeout=0.2)
    with pytest.raises(concurrent.futures.TimeoutError):
        next(slow)


def test_submit_waits_while_too_much_waits(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipysandbox.executor.pool.MOST_WAITING", 3)
    pool = make_pool(1)
    first = [pool.submit(sleep) for _ in range(3)]
    more: list[concurrent.futures.Future[int]] = []
    thread = threading.Thread(target=lambda: more.append(pool.submit(double, 2)))
    thread.start()
    wait_until(first[0].running)
    assert not more
    for future in first:
        future.cancel()
    thread.join()
    assert more[0].result() == 4
    # A callback that submits does not wait for itself.
    chained: list[concurrent.futures.Future[int]] = []
    again = pool.submit(double, 3)
    again.add_done_callback(lambda done: chained.append(pool.submit(double, done.result())))
    wait_until(lambda: bool(chained))
    assert chained[0].result() == 12


def test_what_tasks_print_is_shown_cleaned_and_bounded(
    make_pool: MakePool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-9f8e7d6c5b4a3f2e1d")
    (project / "notes.txt").write_text("tok-9f8e7d6c5b4a3f2e1d")
    monkeypatch.setattr("ipysandbox.executor.printed.MOST_SHOWN", 70_000)
    pool = make_pool(1)

    def say() -> str:
        text = open("notes.txt").read()  # noqa: SIM115
        print("hello", text, "\x1b]0;title\x07")
        print("aside", file=sys.stderr)
        return text

    assert pool.submit(say).result() == "•••SERVICE_TOKEN•••"
    out, err = capsys.readouterr()
    assert "hello •••SERVICE_TOKEN•••" in out
    assert "\x1b" not in out
    assert "aside" in err
    for _ in range(2):
        pool.submit(print, "x" * 100_000).result()
    out = capsys.readouterr().out
    assert "more bytes of stdout" in out
    assert "is not shown" in out
    assert len(out) < 75_000
    with pytest.raises(ValueRefused, match="SERVICE_TOKEN"):
        pool.submit(len, os.environ["SERVICE_TOKEN"])


def test_what_the_policy_came_to_is_said_at_the_start(
    make_pool: MakePool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ipysandbox.toml").write_text('[limits]\nmemory = "64GiB"\n')
    assert make_pool(1).submit(double, 1).result() == 2
    assert "ipysandbox policy trust" in capsys.readouterr().err


def test_whatever_fails_while_results_come_nobody_waits_for_ever(
    make_pool: MakePool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "ipysandbox.toml").write_text('[limits]\nmemory = "64GiB"\n')
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    pool = make_pool(1)
    for _ in range(2):  # notices at the start and after it, and what tasks print
        pool.submit(lambda: (os.makedirs("results/.git/hooks"), print("x", file=sys.stderr))).result()
    first, second = pool.submit(sleep), pool.submit(double, 2)
    second.add_done_callback(lambda _done: sys.exit())
    third = pool.submit(sleep)
    assert first.cancel()
    assert second.result() == 4
    with pytest.raises(SandboxDied, match="SystemExit"):
        third.result()
    with pytest.raises(SandboxDied):
        pool.submit(double, 3)


def test_what_a_task_leaves_in_results_is_disarmed_before_its_result_is_told(
    pool: SandboxExecutor, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lay_trap() -> None:
        os.makedirs("results/.git/hooks")
        with open("results/good.txt", "w") as file:
            file.write("x")

    pool.submit(lay_trap).result()
    assert sorted(path.name for path in (project / "results").iterdir()) == ["git.untrusted", "good.txt"]
    if not namespaces(pool):
        return  # there a writable folder must hold no such name, and the next task would not start
    (project / "results/.git").mkdir()  # the user's own, while no task runs
    assert pool.submit(os.listdir, "results").result()
    wait_until(lambda: "Disarmed" in capsys.readouterr().err)
    pool.shutdown()
    assert (project / "results/.git").is_dir()


def test_a_task_that_makes_and_removes_what_is_hidden_keeps_no_other_from_starting(
    make_pool: MakePool, make_box: Callable[..., ipysandbox.Sandbox]
) -> None:
    def make_and_remove() -> None:
        while True:
            with open("results/x.env", "w"):
                time.sleep(0.005)
            os.unlink("results/x.env")
            time.sleep(0.005)

    pool = make_pool(2, timeout="30s")
    if not namespaces(pool):
        pytest.skip("there a writable folder that holds such a name is refused")
    busy = pool.submit(make_and_remove)
    wait_until(busy.running)
    assert [pool.submit(double, x).result() for x in range(20)] == [2 * x for x in range(20)]
    for _ in range(2):
        box = make_box()
        assert [box.run("1 + 1").status for _ in range(50)] == ["ok"] * 50
    assert busy.cancel()


def test_it_is_recorded_what_ran_and_how_it_went(pool: SandboxExecutor) -> None:
    pool.submit(double, 1).result()
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()
    with pytest.raises(OSError, match="Errno 1"):
        pool.submit(_unshare, 0x10000000).result()
    with_namespaces = namespaces(pool)
    pool.shutdown()
    records = [r for r in iter_records() if (r["sandbox"] or "").startswith("tasks-")]
    name = records[-1]["sandbox"]
    mine = [record for record in records if record["sandbox"] == name]
    assert [r["details"]["status"] for r in mine if r["action"] == "task.result"] == ["ok", "error", "error"]
    assert len([r for r in mine if r["action"] == "task.started"]) == 3
    if with_namespaces:  # else a container's engine may refuse it first
        assert any(r["action"] == "syscall.refused" and r["details"]["name"] == "unshare" for r in mine)
    assert mine[-1]["action"] == "sandbox.stop"
    assert mine[-1]["details"]["tasks"] == {"ok": 1, "error": 2}


def _unshare(flags: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def test_it_refuses_what_makes_no_sense_and_what_can_not_be_held(project: Path, make_pool: MakePool) -> None:
    with pytest.raises(ipysandbox.PolicyError):
        SandboxExecutor(1, limits={"memory": "lots"})
    with pytest.raises(ValueError, match="max_workers"):
        SandboxExecutor(0)
    with pytest.raises(ipysandbox.PolicyError, match="does not exist"):
        make_pool(1, project=project.parent / "nowhere").submit(double, 1)
    with pytest.raises(ValueRefused, match="pickled"):
        make_pool(1).submit(double, threading.Lock())
    with pytest.raises(ipysandbox.StartError, match="no_such_module"):
        make_pool(1, preload=["no_such_module"]).submit(double, 1)
    closed = make_pool(1)
    closed.shutdown()
    assert issubclass(SandboxClosed, RuntimeError)  # as of every executor
    with pytest.raises(SandboxClosed):
        closed.submit(double, 1)


def test_a_script_needs_no_main_guard_and_ends_with_its_tasks(project: Path) -> None:
    script = project / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import time
            from ipysandbox import SandboxExecutor
            from src.model import FACTOR

            def times(x):
                return x * FACTOR

            pool = SandboxExecutor(2, timeout="20s")
            print(list(pool.map(times, range(5), progress=True)), flush=True)
            pool.submit(time.sleep, 1000)
            raise SystemExit(7)
            """
        )
    )
    done = subprocess.run([sys.executable, script], cwd=project, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[0, 3, 6, 9, 12]\n"
    assert "5/5" in done.stderr
    assert done.returncode == 7


def test_an_argument_that_makes_no_sense_is_named_as_it_was_given() -> None:
    with pytest.raises(PolicyError, match=r'^timeout: "10 seconds" has an unknown unit "seconds"'):
        SandboxExecutor(timeout="10 seconds")
    with pytest.raises(PolicyError, match=r"^limits\['memory'\]: 2000 has no unit"):
        SandboxExecutor(limits={"memory": 2000})


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"limits": 3}, PolicyError, "limits is of type int"),
        ({"overrides": [1]}, PolicyError, "overrides is of type list"),
        ({"timeout": float("nan")}, PolicyError, "timeout is nan"),
        ({"timeout": []}, PolicyError, "timeout is of type list"),
        ({"max_workers": "2"}, TypeError, "max_workers must be a whole number, not of type str"),
    ],
)
def test_what_an_argument_does_not_take_is_told_by_its_name(given: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        SandboxExecutor(**given)
