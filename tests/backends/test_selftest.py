"""The self-test notices a missing layer: each is taken away in turn, in a real zygote, and nothing may start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

#: Statements run in the zygote before it forks, and what the refusal must speak of.
BROKEN = {
    "seccomp": ("seccomp.install = lambda program, listener=False: None", "no system-call filter is active"),
    "capabilities": ("libc.drop_capabilities = lambda: None", "CapEff is"),
    "no_new_privs": (
        "prctl = libc.prctl; libc.prctl = lambda option, *rest: 0 if option == 38 else prctl(option, *rest)",
        "file rules",  # the kernel takes no Landlock domain then, nor a filter
    ),
    "network namespace": ("launch._ALL_NAMESPACES &= ~libc.CLONE_NEWNET", "network"),
    "process namespace": ("launch._ALL_NAMESPACES &= ~libc.CLONE_NEWPID", "proc"),
    "own root": ("rootfs._enter = lambda: None", ""),
    "Landlock refuses": ("landlock.restrict = lambda rules, level: libc.unshare(-1)", "file rules"),
}
_START = """
import asyncio, os, sys
from pathlib import Path
from ipysandbox import StartError, bootstrap
from ipysandbox.backends.base import StartRequest
from ipysandbox.backends.linux.backend import LinuxBackend
from ipysandbox.policy import resolve

project, folder, sabotage = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
command = bootstrap.command
names = "from ipysandbox.backends.linux import landlock, launch, libc, rootfs, seccomp; "
bootstrap.command = lambda code, arguments: command(names + sabotage + "; " + code, arguments)

async def main():
    backend = LinuxBackend(folder)
    try:
        await backend.start(StartRequest("main", resolve(None, cwd=project, environ=os.environ), folder))
        print("STARTED")
    except StartError as exc:
        print("REFUSED", exc)
    finally:
        await backend.close()

asyncio.run(main())
"""


def start_with(sabotage: str, project: Path) -> str:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = subprocess.run(
            [sys.executable, "-c", _START, str(project), folder, sabotage], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("layer", sorted(BROKEN))
def test_without_one_layer_nothing_starts(project: Path, layer: str) -> None:
    sabotage, words = BROKEN[layer]
    answer = start_with(sabotage, project)
    assert answer.startswith("REFUSED")
    assert words in answer


def test_with_all_layers_it_starts(project: Path) -> None:
    assert start_with("pass", project) == "STARTED\n"
