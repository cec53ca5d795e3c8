"""Without namespaces too the self-test notices a missing layer: each is taken away in turn, and nothing may start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]


def _without(*names: str) -> str:
    """The filter without what it has for ``names`` in this tier."""
    return (
        "rules = seccomp._confined_rules; "
        f"seccomp._confined_rules = lambda *a: {{k: v for k, v in rules(*a).items() if k not in {names!r}}}"
    )


#: Statements run in the zygote before it forks, and what the refusal must speak of.
BROKEN = {
    "seccomp": ("seccomp.install = lambda program, listener=False: None", ""),
    "user notification": ("seccomp.program = functools.partial(seccomp.program, notify=False)", ""),
    "Landlock": ("landlock.restrict = lambda rules, level, strict=False: None", "opening"),
    "Landlock's rules for files": (
        "restrict = landlock.restrict; landlock.restrict = lambda rules, level, strict=False: "
        "restrict([*rules, landlock.Rule('/', landlock.READ)], level)",
        "opening",
    ),
    "Landlock's rules for writing": (
        "restrict = landlock.restrict; landlock.restrict = lambda rules, level, strict=False: "
        "restrict([landlock.Rule(r.path, r.rights | landlock.WRITE) for r in rules], level)",
        "writing to the project",
    ),
    "access mode 3": ("seccomp._confined_open = lambda flags, otherwise, deny: otherwise", "a handle on"),
    "asking about files": ("seccomp.CONFINED_TOLD = frozenset()", "asking about"),
    "asking about files, the monitor tells all": (
        "metadata.Metadata._shows = lambda self, place: True",
        "asking about",
    ),
    "modes and times": ("seccomp.CONFINED_EMULATED = frozenset()", "changing the project's mode was not refused"),
    "modes and times, the monitor changes all": (
        "emulate.Files.__init__ = lambda self, tops: setattr(self, '_tops', ('',))",
        "changing the project's mode was not refused",
    ),
    "counting tasks": ("seccomp.CONFINED_COUNTED = frozenset()", "that the monitor did not count"),
    "no sockets": (_without("socket"), "a socket of AF_INET was not refused"),
    "no pairs that send elsewhere": (_without("socketpair"), "a pair of datagrams"),
    "commands of sockets": (_without("ioctl"), "asking a socket for devices"),
    "signals by descriptors": (_without("fcntl"), "signals sent by descriptors"),
    "limits of others": (_without("prlimit64"), "limits of another process"),
    "rlimits": ("confined.resource.setrlimit = lambda kind, values: None", "the limit DATA is not set"),
    "affinity": ("os.sched_setaffinity = lambda pid, cpus: None", "more processors"),
}
if os.geteuid() == 0:
    BROKEN["capabilities"] = ("libc.drop_capabilities = libc.clear_capabilities = lambda: None", "CapEff is")
_START = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from ipysandbox import StartError, bootstrap
from ipysandbox.backends.base import StartRequest
from ipysandbox.backends.linux import landlock
from ipysandbox.backends.linux.backend import LinuxBackend
from ipysandbox.policy import resolve

command, effective = bootstrap.command, resolve({"limits": {"cpus": 1}}, cwd=Path(sys.argv[1]), environ=os.environ)
names = "import functools, os; from ipysandbox.backends.linux import confined, emulate, landlock, libc, metadata, "
names += "seccomp; "

async def start(sabotage, folder):
    bootstrap.command = lambda code, arguments: command(names + sabotage + "; " + code, arguments)
    backend = LinuxBackend(folder)
    assert backend.choice.tier == "confined"
    try:
        await backend.start(StartRequest("main", effective, folder))
        return "STARTED"
    except StartError as exc:
        return f"REFUSED {exc}"
    finally:
        await backend.close()

for sabotage in json.loads(sys.argv[2]):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        print(json.dumps(asyncio.run(start(sabotage, Path(folder)))), flush=True)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    project = tmp_path_factory.mktemp("p")
    sabotages = ["pass", *(row[0] for row in BROKEN.values())]
    pod = [sys.executable, str(_TESTS / "pod.py"), sys.executable]
    places = os.pathsep.join([str(_TESTS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*pod, "-c", _START, str(project), json.dumps(sabotages)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": places},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(["nothing", *BROKEN], map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", sorted(BROKEN))
def test_without_one_layer_nothing_starts(answers: dict[str, str], layer: str) -> None:
    assert answers[layer].startswith("REFUSED")
    assert BROKEN[layer][1] in answers[layer]


@pytest.mark.timeout(600)
def test_with_all_layers_it_starts(answers: dict[str, str]) -> None:
    assert answers["nothing"] == "STARTED"
