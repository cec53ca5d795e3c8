"""Starts sandboxes from zygotes that were broken first: a layer is taken away, and the self-test has to notice.

The breaking is done through the command line that starts the zygote, so by test code alone: no policy, option or
variable of the product reaches it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_START = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from ipysandbox import StartError, bootstrap
from ipysandbox.backends.base import StartRequest
from ipysandbox.backends.linux.backend import LinuxBackend
from ipysandbox.policy import resolve

project, tier, names, sabotages = sys.argv[1:]
command, effective = bootstrap.command, resolve({"limits": {"cpus": 1}}, cwd=Path(project), environ=os.environ)

async def start(sabotage, folder):
    bootstrap.command = lambda code, arguments: command(names + sabotage + "; " + code, arguments)
    backend = LinuxBackend(folder)
    assert backend.choice.tier == tier
    try:
        await backend.start(StartRequest("main", effective, folder))
        return "STARTED"
    except StartError as exc:
        return f"REFUSED {exc}"
    finally:
        await backend.close()

for sabotage in json.loads(sabotages):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        print(json.dumps(asyncio.run(start(sabotage, Path(folder)))), flush=True)
"""


def start_with_each(sabotages: Sequence[str], project: Path, *, modules: str, confined: bool = False) -> list[str]:
    """What became of a start in whose zygote each of ``sabotages`` (statements) was run first: "STARTED", or "REFUSED"
    and why.

    :param modules: of the backend, by name, for the statements to work on.
    :param confined: where there are no namespaces.
    """
    command = [sys.executable, str(_TESTS / "pod.py"), sys.executable] if confined else [sys.executable]
    tier = "confined" if confined else "namespaces"
    names = f"import dataclasses, functools, os; from ipysandbox.backends.linux import {modules}; "
    done = subprocess.run(
        [*command, "-c", _START, str(project), tier, names, json.dumps(sabotages)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers_to(broken: dict[str, tuple[str, str]], project: Path, **how: object) -> dict[str, str]:
    """The same by name, with "nothing" for a start with everything in place. ``broken``: (statements, what the refusal
    must speak of)."""
    sabotages = ["pass", *(sabotage for sabotage, _ in broken.values())]
    return dict(zip(["nothing", *broken], start_with_each(sabotages, project, **how), strict=True))  # type: ignore[arg-type]


def check(answer: str, words: str) -> None:
    """A layer is missing: nothing started, and the reason names it."""
    if not answer.startswith("REFUSED"):
        pytest.fail(f"it started without the layer: {answer}")
    assert words in answer
