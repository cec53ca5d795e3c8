"""Prints how far each limit can be overshot and how long it takes to enforce, for four ways of driving it.

``python tests/benchmarks/limits.py [LIMIT ...]`` measures what this machine gives to this user, a control group or the
watchdog: the first line says which. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "supervisor"))
from drives import ACTORS, LIMITS, Reading, read

from ipysandbox import Sandbox

_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("limits", nargs="*", metavar="LIMIT", help=f"one of {', '.join(LIMITS)}; all of them without")
    chosen = parser.parse_args().limits or [*LIMITS]
    if unknown := {*chosen} - {*LIMITS}:
        parser.error(f"no such limit: {', '.join(unknown)}")
    console = Console()
    with tempfile.TemporaryDirectory(prefix=".ipysandbox-benchmark-", dir=Path.home()) as folder:
        for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "JUPYTER_CONFIG_DIR"):
            os.environ[name] = f"{folder}/{name.lower()}"
        console.print(f"memory is held by {', '.join(_layers(Path(folder)))}", highlight=False)
        table = Table("limit", *ACTORS, box=SIMPLE_HEAD)
        for limit in chosen:
            table.add_row(
                limit, *(_cell([_once(Path(folder), limit, actor) for _ in range(_ROUNDS)]) for actor in ACTORS)
            )
        console.print(table)


def _layers(folder: Path) -> list[str]:
    with Sandbox(project=_project(folder), validate=False) as box:
        return [*box.status()["guarantees"]["memory"]]


def _project(folder: Path) -> Path:
    path = Path(tempfile.mkdtemp(dir=folder))
    (path / "pyproject.toml").touch()
    return path


def _once(folder: Path, limit: str, actor: str) -> Reading:
    project = _project(folder)

    def make(**options: object) -> Sandbox:
        box = Sandbox(project=project, validate=False, **options)  # type: ignore[arg-type]
        box.start()
        return box

    return read(make, project, limit, actor)


def _cell(readings: list[Reading]) -> str:
    """The worst overshoot and the median time."""
    verdicts = "/".join(dict.fromkeys(reading.verdict for reading in readings))
    over = max(reading.overshoot for reading in readings)
    return f"{verdicts} {over:+.1%} {statistics.median(reading.seconds for reading in readings):.2f} s"


if __name__ == "__main__":
    main()
