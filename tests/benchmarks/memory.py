"""Memory that idle sandboxes take, each with numpy and pandas loaded (PSS: a shared page counts by its share)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from kernels import PLAIN, kept, plain_kernel
from measure import CannotDo, Group, Sample
from peers import Peer
from pool import without_pool

from ipysandbox import Sandbox
from ipysandbox.errors import SandboxError
from ipysandbox.supervisor.spawn import Supervisor

_LOADED = "import numpy, pandas"
#: How many at once; the smaller numbers are for ``--quick`` and for what takes a plain Python's memory each.
_COUNTS, _QUICK, _OTHERS = (1, 10, 100, 300), (1, 10), 10


def groups(project: Path, environ: Mapping[str, str], peers: Sequence[Peer], quick: bool) -> Iterator[Group]:
    cases: dict[str, Sample] = {f"{PLAIN}, {_OTHERS}": partial(_plain, project, environ, _OTHERS)}
    for count in _QUICK if quick else _COUNTS:
        cases[f"sandbox, {count}"] = partial(_sandboxes, project, count)
    if not quick:
        cases |= {f"{peer.name}, {_OTHERS}": partial(_peers, project, peer, _OTHERS) for peer in peers}
    title = "Memory of each idle one, everything outside it included, by how many there are"
    yield Group("memory", title, f"{PLAIN}, {_OTHERS}", cases, 1, quick=1, unit="B", warm=False)


def _plain(project: Path, environ: Mapping[str, str], count: int) -> float:
    before = set(_children(os.getpid()))
    with ExitStack() as stack:
        for _ in range(count):
            kept(plain_kernel(project, environ), stack).run(_LOADED)
        return _settled(lambda: [pid for pid in _children(os.getpid()) if pid not in before]) / count


def _sandboxes(project: Path, count: int) -> float:
    """With their supervisor, its zygote, and what watches each of them."""
    with ExitStack() as stack:
        for number in range(count):
            try:
                box = stack.enter_context(Sandbox(project=project, overrides=without_pool()))
                box.run(_LOADED, want_value=False)
            except SandboxError as exc:
                raise CannotDo(f"the sandbox number {number + 1}: {exc}") from None
        return _settled(lambda: [Supervisor.current().pid]) / count


def _peers(project: Path, peer: Peer, count: int) -> float:
    with ExitStack() as stack:
        roots = [pid for _ in range(count) for pid in stack.enter_context(peer.idle(_LOADED, project))]
        return _settled(lambda: roots) / count


def _settled(roots: Callable[[], Sequence[int]]) -> float:
    """Bytes of all below ``roots``, themselves included."""
    return float(sum(_pss(pid) for root in roots() for pid in (root, *_below(root))))


def _below(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _below(child)


def _children(pid: int) -> list[int]:
    """Those of all its threads (proc_pid_task_children(5)); none of one that has ended."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def _pss(pid: int) -> int:
    """Of a process that has ended, nothing. Raises CannotDo for one that can't be looked at."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        raise CannotDo("only root can look at its processes") from None
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
