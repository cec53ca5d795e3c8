"""From nothing to the first result: what somebody waits for who wants one piece of code run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernels import plain_kernel
from measure import CannotDo, Group, Sample
from peers import Peer
from pool import Pool, without_pool

from ipysandbox import Sandbox

#: How many folders a policy names, and how often each start is taken.
_PATHS, _PATH_ROUNDS = (1, 10, 100, 1000), 5
#: Run in a Python of its own. A notebook has IPython loaded already, so its import does not count.
_FIRST = """
import IPython, time
begin = time.perf_counter()
from ipysandbox import Sandbox
box = Sandbox(project={project!r})
value = box.run({code!r}).value
print(time.perf_counter() - begin, value)
box.close()
"""


@dataclass(frozen=True)
class Task:
    """``setup`` is run, then ``expression`` has to give ``value``."""

    key: str
    title: str
    setup: str
    expression: str
    value: int

    @property
    def cell(self) -> str:
        return f"{self.setup}\n{self.expression}"

    def check(self, value: object) -> None:
        if int(str(value)) != self.value:
            raise RuntimeError(f"{self.title}: {value!r} instead of {self.value}")


_TASKS = (
    Task("start", "1 + 1", "", "1 + 1", 2),
    Task(
        "start-pandas",
        "numpy and pandas",
        "import numpy as np, pandas as pd\ntable = pd.DataFrame({'x': np.arange(10)})",
        "int(table['x'].sum())",
        45,
    ),
)


def groups(project: Path, environ: Mapping[str, str], peers: Sequence[Peer], rounds: int) -> Iterator[Group]:
    baseline = "plain ipykernel, cold"
    pool = Pool(project)
    for task in _TASKS:
        cases: dict[str, Sample] = {
            baseline: partial(_plain, task, project, environ),
            "sandbox, from the pool": partial(_pooled, task, pool),
            "sandbox, pool empty": partial(_sandbox, task, project, without_pool()),
            "sandbox, first of a process": partial(_first, task, project),
            **{peer.name: partial(_peer, task, project, peer) for peer in peers},
        }
        yield Group(task.key, f"Start to first result: {task.title}", baseline, cases, rounds)
    imports: dict[str, Sample] = {
        "import IPython": partial(_import, "import time", "import IPython"),
        "import ipysandbox.magics after it": partial(_import, "import time, IPython", "import ipysandbox.magics"),
    }
    yield Group("import", "Import in the notebook's kernel", "import IPython", imports, rounds)
    yield from _by_paths(project.parent / "wide", peers)


def _by_paths(project: Path, peers: Sequence[Peer]) -> Iterator[Group]:
    """A start for each way to hold, whose policy names more and more folders."""
    folders = [project / f"data/{number:04}" for number in range(max(_PATHS))]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "x.csv").write_text("a,b\n1,2\n")
    (project / "pyproject.toml").touch()
    (project / "results").mkdir()
    check = f"open({str(folders[0])!r} + '/x.csv').read()[0] == 'a' and 2"
    task = replace(_TASKS[0], expression=check)
    chosen = {count: [str(folder) for folder in folders[:count]] for count in _PATHS}
    names = {count: f"{count:,} path{'s' if count > 1 else ''}" for count in _PATHS}
    cases: dict[str, Sample] = {
        names[count]: partial(_sandbox, task, project, {"files.read": paths, **without_pool()})
        for count, paths in chosen.items()
    }
    yield Group("paths", "Start by paths to read: sandbox, pool empty", names[1], cases, _PATH_ROUNDS)
    for peer in peers:
        ways = {names[count]: partial(_with_paths, task, project, peer, paths) for count, paths in chosen.items()}
        key = f"paths-{peer.name.replace(' ', '-')}"
        if peer.chooses:
            yield Group(key, f"Start by paths to read: {peer.name}", names[1], ways, _PATH_ROUNDS, quick=0)


def _with_paths(task: Task, project: Path, peer: Peer, paths: Sequence[str]) -> float:
    return _peer(task, project, peer.reading(paths))


def _plain(task: Task, project: Path, environ: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    kernel = plain_kernel(project, environ)
    try:
        value = kernel.first(task.setup, task.expression)
        seconds = time.perf_counter() - begin
    finally:
        kernel.close()
    task.check(value)
    return seconds


def _sandbox(task: Task, project: Path, overrides: Mapping[str, object]) -> float:
    begin = time.perf_counter()
    with Sandbox(project=project, overrides=overrides) as box:
        result = box.run(task.cell)
        value = result.value
        seconds = time.perf_counter() - begin
    if result.status != "ok":
        raise CannotDo(f"{result.status}: {result.error}")
    task.check(value)
    return seconds


def _pooled(task: Task, pool: Pool) -> float:
    pool.fill()
    return _sandbox(task, pool.project, pool.overrides)


def _first(task: Task, project: Path) -> float:
    code = _FIRST.format(project=str(project), code=task.cell)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, cwd=project)
    seconds, value = done.stdout.split()
    task.check(value.decode())
    return float(seconds)


def _peer(task: Task, project: Path, peer: Peer) -> float:
    begin = time.perf_counter()
    value = peer.run(f"{task.setup}\nprint({task.expression})", project)
    seconds = time.perf_counter() - begin
    task.check(value)
    return seconds


def _import(before: str, statement: str) -> float:
    code = f"{before}\nbegin = time.perf_counter()\n{statement}\nprint(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)
