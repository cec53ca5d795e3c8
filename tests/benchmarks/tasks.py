"""Runs thousands of tasks of ``SandboxExecutor``, many of them hostile, and compares every verdict with the expected.

``python tests/benchmarks/tasks.py --tasks 10000``: some tasks crash, raise, go over a limit, hang with every signal
ignored, return what can't cross, or megabytes. At the end nothing may be left: no process, mount, control group,
socket, folder or descriptor, and neither this process nor the supervisor may have grown with the number of tasks.
Exits with 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import task_kinds as kinds
from left import Left, resident
from rich.console import Console
from rich.progress import Progress

from ipysandbox import LimitExceeded, SandboxDied, SandboxExecutor, TaskError, ValueRefused
from ipysandbox.supervisor.spawn import Supervisor

#: Low, so that what goes over them does so soon; what goes well stays far below, on a busy machine too.
_LIMITS = {"wall": "10s", "cpu": "3s", "memory": "512MiB", "disk": "16MiB", "processes": 24}
#: By which this process or the supervisor may grow from the first tenth of the tasks to the last; bytes.
_MOST_GROWTH = 64 << 20
_SEED = 5


@dataclass(frozen=True)
class Kind:
    """``share``: of a thousand tasks. ``right`` judges a value or an exception."""

    task: Callable[[int], Any]
    share: float
    right: Callable[[int, Any], bool]


def _raises(*types: type[BaseException]) -> Callable[[int, Any], bool]:
    return lambda _number, result: isinstance(result, types)


def _over(name: str, *instead: type[BaseException]) -> Callable[[int, Any], bool]:
    """A limit's verdict, or Python's own error for it, where it has one and the task did not catch it."""
    return lambda _number, result: (
        (isinstance(result, LimitExceeded) and result.name == name) or isinstance(result, instead)
    )


KINDS = {
    "numpy": Kind(kinds.small, 0, lambda number, result: result == number * (number - 1) // 2),
    "megabytes": Kind(kinds.megabytes, 10, lambda number, result: len(result) == 4 << 20 and result[0] == number % 256),
    "array": Kind(kinds.array, 10, lambda number, result: result.shape == (500_000,) and result[1] == number),
    "raises": Kind(kinds.raises, 10, lambda number, result: type(result) is ValueError and str(number) in str(result)),
    "raises its own": Kind(kinds.raises_own, 10, _raises(TaskError)),
    "segfault": Kind(kinds.segfault, 10, _raises(SandboxDied)),
    "os._exit": Kind(kinds.exits, 10, _raises(SandboxDied)),
    "kills its parent": Kind(kinds.kills, 5, _raises(SandboxDied, PermissionError, ProcessLookupError)),
    "refused type": Kind(kinds.refused, 10, _raises(ValueRefused)),
    "false result": Kind(kinds.forged, 10, _raises(SandboxDied, ValueRefused)),
    "memory": Kind(kinds.memory, 5, _over("memory", MemoryError)),
    "disk": Kind(kinds.disk, 5, _over("disk", OSError)),
    "processes": Kind(kinds.processes, 5, _over("processes", BlockingIOError)),
    "cpu": Kind(kinds.cpu, 2, _over("cpu")),
    "wall": Kind(kinds.wall, 2, _over("wall")),
    "hangs": Kind(kinds.hangs, 2, _over("wall")),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/tasks.py", description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix=".ipysandbox-tasks-", dir=Path.home()) as folder:
        project = Path(folder, "study")
        (project / "results").mkdir(parents=True)
        (project / "pyproject.toml").touch()
        os.environ |= {
            name: f"{folder}/{name.lower()}" for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "JUPYTER_CONFIG_DIR")
        }
        left = Left()
        problems = _run(project, options.tasks, options.workers, console)
        Supervisor._stop_current()
        problems += left.now()
    for problem in problems[:50]:
        console.print(problem, highlight=False, markup=False)
    console.print(f"{len(problems)} problems" if problems else "Every verdict right, nothing left behind.")
    return 1 if problems else 0


def _run(project: Path, count: int, workers: int, console: Console) -> list[str]:
    done = _Done(count)
    names = _chosen(count)
    with SandboxExecutor(max_workers=workers, project=project, limits=_LIMITS) as pool:
        begin = time.monotonic()
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("tasks", total=count)
            for number, name in enumerate(names):
                future = pool.submit(KINDS[name].task, number)
                future.add_done_callback(lambda future, name=name, number=number: done.note(name, number, future))
                progress.update(bar, completed=done.count)
            while not done.all.wait(1.0):
                progress.update(bar, completed=done.count)
        seconds = time.monotonic() - begin
    console.print(
        f"{count} tasks in {seconds:.0f} s, {count / seconds:.1f} a second, {workers} at a time: "
        + ", ".join(f"{number} × {name}" for name, number in Counter(names).most_common()),
        highlight=False,
    )
    return [*done.wrong, *done.grown(console)]


def _chosen(count: int) -> list[str]:
    """The same mixture every time, in an order that has nothing to do with the kinds."""
    shares = {name: max(1, round(kind.share * count / 1000)) for name, kind in KINDS.items() if kind.share}
    names = [name for name, number in shares.items() for _ in range(number)]
    names += ["numpy"] * (count - len(names))
    random.Random(_SEED).shuffle(names)
    return names[:count]


class _Done:
    """What has come back. Called from threads of the executor."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0
        self.wrong: list[str] = []
        self.all = threading.Event()
        self._lock = threading.Lock()
        self._sizes: dict[str, list[int]] = {"this process": [], "the supervisor": []}

    def note(self, name: str, number: int, future: Future[Any]) -> None:
        error = future.exception()
        result = future.result() if error is None else error
        if not KINDS[name].right(number, result):
            self.wrong.append(f"{name}, task {number}: {type(result).__name__} {str(result)[:200]}")
        with self._lock:
            self.count += 1
            if self.count in (max(1, self.total // 10), self.total):
                for who, pid in {"this process": os.getpid(), "the supervisor": Supervisor.current().pid}.items():
                    self._sizes[who].append(resident(pid))
            if self.count == self.total:
                self.all.set()

    def grown(self, console: Console) -> Iterator[str]:
        for who, (early, late) in self._sizes.items():
            text = f"{who}: {early >> 20} MiB after a tenth of the tasks, {late >> 20} MiB after all"
            console.print(text, highlight=False)
            if late - early > _MOST_GROWTH:
                yield text


if __name__ == "__main__":
    sys.exit(main())
