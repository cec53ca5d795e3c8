"""Many small tasks, each in a fresh sandbox: what one costs, and how that changes with their number and the workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from measure import CannotDo, Group, Sample
from peers import Peer
from pool import without_pool

from ipysandbox import Sandbox

#: The same work everywhere: numpy is imported (in a zygote it is there already), a small array made and summed.
_SETUP, _VALUE = "import numpy as np", "int(np.arange({count}).sum())"
_COUNT, _SUM = 1000, 499_500
_WORKERS = 2
#: Tasks of one sample: by command, by an executor, and of a run that looks how the cost grows.
_FEW, _MANY, _GROWING = 10, 200, (100, 1_000, 10_000)
_QUICK_GROWING = (100, 500)


def small(count: int) -> int:
    import numpy as np

    return int(np.arange(count).sum())


# It crosses by value, as a function of a notebook does: this module is not in the sandbox.
small.__module__ = "__main__"


def groups(project: Path, peers: Sequence[Peer], rounds: int, quick: bool) -> Iterator[Group]:
    baseline = peers[0].name
    cases: dict[str, Sample] = {peer.name: partial(_commands, peer, project) for peer in peers}
    cases["sandbox: SandboxExecutor"] = partial(_executor, project, _MANY, _WORKERS)
    cases["sandbox: a Sandbox each"] = partial(_sandboxes, project)
    for peer in peers:
        if hasattr(peer, "forks"):
            cases[f"{peer.name}: forks in one sandbox"] = partial(_forks, peer)
    title = f"A small numpy task, each in a fresh sandbox, {_WORKERS} at a time"
    yield Group("tasks", title, baseline, cases, rounds, quick=1, unit="s/task")
    counts = _QUICK_GROWING if quick else _GROWING
    growing: dict[str, Sample] = {f"{count:,} tasks": partial(_executor, project, count, _WORKERS) for count in counts}
    title = f"SandboxExecutor, {_WORKERS} workers: cost of a task by their number"
    yield Group("tasks-number", title, f"{counts[0]:,} tasks", growing, 1, quick=1, unit="s/task", warm=False)
    workers: dict[str, Sample] = {
        f"{count} worker{'s' if count > 1 else ''}": partial(_executor, project, _MANY, count) for count in (1, 2, 4)
    }
    title = f"SandboxExecutor, {_MANY} tasks: cost of a task by workers"
    yield Group("tasks-workers", title, "1 worker", workers, rounds, quick=1, unit="s/task", warm=False)


def _commands(peer: Peer, project: Path) -> float:
    def one(_number: int) -> int:
        return int(peer.run(f"{_SETUP}\nprint({_VALUE.format(count=_COUNT)})", project))

    return _each(one, _FEW)


def _sandboxes(project: Path) -> float:
    def one(_number: int) -> int:
        with Sandbox(project=project, overrides=without_pool()) as box:
            return int(box.run(f"{_SETUP}\n{_VALUE.format(count=_COUNT)}").value)

    return _each(one, _FEW)


def _each(one: Any, count: int) -> float:
    with ThreadPoolExecutor(_WORKERS) as threads:
        begin = time.perf_counter()
        sums = list(threads.map(one, range(count)))
        seconds = time.perf_counter() - begin
    _check(sums, count)
    return seconds / count


def _executor(project: Path, count: int, workers: int) -> float:
    """Without the start of the executor, which is paid once."""
    try:
        from ipysandbox import SandboxExecutor
    except ImportError:
        raise CannotDo("not in this version") from None
    with SandboxExecutor(max_workers=workers, project=project) as executor:
        _check([executor.submit(small, _COUNT).result()], 1)
        begin = time.perf_counter()
        sums = list(executor.map(small, [_COUNT] * count))
        seconds = time.perf_counter() - begin
    _check(sums, count)
    return seconds / count


def _forks(peer: Any) -> float:
    """Forks of one process that has numpy, in one sandbox that they share; its start is left out here too."""

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        lines = peer.forks(_SETUP, lambda _number: print(small(_COUNT), flush=True), count)
        taken = time.perf_counter() - begin
        _check([int(line) for line in lines], count)
        return taken

    return max(0.0, seconds(_MANY + 1) - seconds(1)) / _MANY


def _check(sums: Sequence[int], count: int) -> None:
    if sums != [_SUM] * count:
        raise RuntimeError(f"{count} tasks gave {sums[:10]}")
