"""Measures ipysandbox against a plain ipykernel, and against bubblewrap and Docker where installed, in one run.

``python tests/benchmarks`` prints medians, spreads and ratios. Compare ratios, not milliseconds of different
machines or runs. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import cells
import peers
import report
import starts
from facts import facts
from measure import Group, Result, measure
from rich.console import Console
from rich.progress import Progress

from ipysandbox import Sandbox, SandboxError

#: Samples of each case: of starts, of cells that work or print, of the way there and back.
_ROUNDS, _TRIPS = 10, 200
#: Where programs keep what is the person's.
_PERSONAL = ("XDG_STATE_HOME", "XDG_DATA_HOME", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
_SHARED = ("PATH", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main() -> int:
    options = _options()
    console = Console(stderr=options.markdown)
    share = 5 if options.quick else 1
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
        others, skipped = peers.find(project, environ, stack)
        for name, reason in skipped.items():
            console.print(f"{name}: {reason}, left out", highlight=False, soft_wrap=True)
        groups = chain(
            starts.groups(project, environ, others, _ROUNDS // share),
            cells.groups(project, environ, others, _ROUNDS // share, _TRIPS // share, stack),
        )
        results = _measure(groups, options.only, console)
    if options.markdown:
        print(report.markdown(stated, results, skipped), end="")
    if options.json:
        options.json.write_text(report.as_json(stated, results, skipped), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    parser.add_argument("--only", metavar="WORD", default="", help="only the parts whose key begins so, as 'print'")
    parser.add_argument("--markdown", action="store_true", help="write Markdown to standard output, the rest to stderr")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every sample to FILE")
    return parser.parse_args()


def _measure(groups: Iterable[Group], only: str, console: Console) -> list[Result]:
    results = []
    for group in groups:
        if not group.key.startswith(only):
            continue
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task(group.title, total=group.rounds * len(group.cases))
            results.append(measure(group, lambda bar=progress, which=task: bar.advance(which)))  # type: ignore[misc]
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
