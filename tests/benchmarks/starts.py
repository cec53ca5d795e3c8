"""From nothing to the first result: what somebody waits for who wants one piece of code run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernels import plain_kernel
from measure import Group, Sample
from peers import Peer

from ipysandbox import Sandbox

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
    for task in _TASKS:
        cases: dict[str, Sample] = {
            baseline: partial(_plain, task, project, environ),
            "sandbox, zygote warm": partial(_sandbox, task, project),
            "sandbox, first of a process": partial(_first, task, project),
            **{peer.name: partial(_peer, task, project, peer) for peer in peers},
        }
        yield Group(task.key, f"Start to first result: {task.title}", baseline, cases, rounds)
    imports = {
        "import IPython": partial(_import, "import time", "import IPython"),
        "import ipysandbox.magics after it": partial(_import, "import time, IPython", "import ipysandbox.magics"),
    }
    yield Group("import", "Import in the notebook's kernel", "import IPython", imports, rounds)


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


def _sandbox(task: Task, project: Path) -> float:
    begin = time.perf_counter()
    with Sandbox(project=project) as box:
        value = box.run(task.cell).value
        seconds = time.perf_counter() - begin
    task.check(value)
    return seconds


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
