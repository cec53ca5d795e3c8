"""Measures ipysandbox against a plain ipykernel, ``python -c`` and every other sandbox found installed, in one run.

``python tests/benchmarks`` prints medians, spreads and ratios. Compare ratios, not milliseconds of different
machines or runs. Nothing here passes or fails. Looked for: bubblewrap, firejail, srt, Docker, runsc (on PATH),
sandlock (importable), Pyodide (node on PATH, the package below NODE_PATH or installed globally).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path

import cells
import chart
import memory
import peers
import readme
import report
import starts
import throughput
import work
from facts import facts
from kernels import kept, plain_kernel, relayed_kernel
from measure import Group, Result, measure
from rich.console import Console
from rich.progress import Progress

from ipysandbox import Sandbox, SandboxError

#: Samples of each case: of starts and of many tasks, of cells that work or print, of the way there and back.
_STARTS, _ROUNDS, _TRIPS = 9, 5, 200
#: Where programs keep what is the person's.
_PERSONAL = ("XDG_STATE_HOME", "XDG_DATA_HOME", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
_SHARED = ("PATH", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main() -> int:
    options = _options()
    console = Console(stderr=options.markdown or options.details)
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=".ipysandbox-benchmark-", dir=Path.home()))
        )
        project = _project(folder)
        _leave_alone_what_is_the_persons(folder)
        stated = facts()
        for name, value in stated.items():
            console.print(f"{name}: {value}", highlight=False, soft_wrap=True)
        try:
            environ = _environment(project)
        except SandboxError as exc:
            print(exc, file=sys.stderr)
            return 1
        found = peers.find(project, environ, stack)
        for name, reason in found.skipped.items():
            console.print(f"{name}: {reason}, left out", highlight=False, soft_wrap=True)
        results = _measure(_groups(project, environ, found, options.quick, stack), options, console)
    if options.markdown:
        print(readme.table(stated, results, found.skipped), end="")
    if options.details:
        print(report.markdown(stated, results, found.skipped), end="")
    if options.json:
        options.json.write_text(report.as_json(stated, results, found.skipped), encoding="utf-8")
    if options.chart:
        options.chart.write_text(chart.svg(stated, results), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the parts that matter most, in few rounds: three minutes")
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", default=[""], help="only the parts whose key begins so, as 'print'"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--markdown", action="store_true", help="write the README's table to standard output")
    shown.add_argument("--details", action="store_true", help="write all of it there as Markdown, with the spread")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every sample to FILE")
    parser.add_argument("--chart", metavar="FILE", type=Path, help="also draw the main results into FILE, an SVG")
    return parser.parse_args()


def _groups(
    project: Path, environ: Mapping[str, str], found: peers.Found, quick: bool, stack: ExitStack
) -> Iterator[Group]:
    plain = cache(lambda: kept(plain_kernel(project, environ), stack))
    sandbox = cache(lambda: kept(relayed_kernel(project, "benchmark"), stack))
    others = found.brisk if quick else found.all
    return chain(
        starts.groups(project, environ, found.all, _STARTS),
        throughput.groups(project, others, _ROUNDS, quick),
        memory.groups(project, environ, others, quick),
        cells.groups(project, plain, sandbox, environ, others, _ROUNDS, _TRIPS, stack),
        work.groups(plain, sandbox, others, project, _ROUNDS),
    )


def _measure(groups: Iterable[Group], options: argparse.Namespace, console: Console) -> list[Result]:
    results = []
    for group in groups:
        rounds = group.quick if options.quick else group.rounds
        if not rounds or not group.key.startswith(tuple(options.only)):
            continue
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(group.title, total=rounds * len(group.cases))
            results.append(measure(group, rounds, lambda bar=progress, which=task: bar.advance(which)))  # type: ignore[misc]
        report.show(console, results[-1])
    return results


def _project(folder: Path) -> Path:
    """A small study, on an ordinary file system as a person's own is."""
    project = folder / "study"
    for name, text in {"data/x.csv": "a,b\n1,2\n", "pyproject.toml": "[project]\nname = 'study'\n"}.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (project / "results").mkdir()
    return project


def _leave_alone_what_is_the_persons(folder: Path) -> None:
    """Audit trail, approvals, settings and history of whoever runs this."""
    os.environ |= {name: str(folder / name.lower()) for name in _PERSONAL}


def _environment(project: Path) -> dict[str, str]:
    """What everything else runs with: the sandbox's own, so that libraries choose the same code and as many threads."""
    with Sandbox(project=project) as box:
        value = box.run(f"import os\n{{name: os.environ[name] for name in {_SHARED!r} if name in os.environ}}").value
    kept = ("HOME", "PYTHONPATH", *_PERSONAL)
    return {**value, **{name: os.environ[name] for name in kept if name in os.environ}}


if __name__ == "__main__":
    sys.exit(main())
