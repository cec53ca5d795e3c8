"""The sandboxes after a worker's first test themselves in short, and still notice a layer that does not hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipysandbox.backends.linux import choice, machine

#: By the number of the sandbox: a step that does nothing in it, and what the refusal must speak of.
BROKEN = {
    2: ("landlock.restrict", "Landlock"),
    3: ("seccomp.install", "no system-call filter is active"),
    4: ("libc.drop_capabilities", "CapEff is"),
    5: ("launch.set_limits", "is not set"),
}
#: Statements run in the zygote. The byte is shared by all that fork from it, and counted up by each start's first step.
_COUNT = (
    "import mmap; count = mmap.mmap(-1, 1); first = launch._loopback_up; "
    "launch._loopback_up = lambda: (count.__setitem__(0, count[0] + 1), first())[1]; "
    "less = lambda step, number: lambda *a, **o: None if count[0] == number else step(*a, **o); "
)
_SABOTAGE = _COUNT + "; ".join(f"{step} = less({step}, {number})" for number, (step, _) in BROKEN.items())
_START = """
import asyncio, json, os, sys, tempfile
from pathlib import Path
from ipysandbox import StartError, bootstrap
from ipysandbox.backends.base import StartRequest
from ipysandbox.backends.linux.backend import LinuxBackend
from ipysandbox.policy import resolve

command, effective = bootstrap.command, resolve({"limits": {"cpus": 1}}, cwd=Path(sys.argv[1]), environ=os.environ)
names = "from ipysandbox.backends.linux import landlock, launch, libc, seccomp; "

async def begin(worker, number):
    try:
        instance, sock = await worker.begin(number)
        sock.close()
        await instance.kill()
        await worker.ended(number)
        return "STARTED"
    except StartError as exc:
        return f"REFUSED {exc}"

async def start(sabotage, folder):
    bootstrap.command = lambda code, arguments: command(names + sabotage + "; " + code, arguments)
    backend = LinuxBackend(folder)
    room = backend.task_room(StartRequest("main", effective, folder), 1, [], [])
    try:
        await room.open()
        return [await begin(room.workers[0], number) for number in range(1, 7)]
    finally:
        await room.close()
        await backend.close()

with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    print(json.dumps(asyncio.run(start(sys.argv[2], Path(folder)))))
"""


def test_a_layer_that_fails_a_later_sandbox_of_a_worker_forbids_its_start(project: Path) -> None:
    if choice.choose(machine.probe()).tier != "namespaces":
        pytest.skip("the layers that are taken away here are those with namespaces")
    done = subprocess.run(
        [sys.executable, "-c", _START, project, _SABOTAGE], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    answers = dict(enumerate(json.loads(done.stdout), start=1))
    assert answers.pop(1) == answers.pop(6) == "STARTED"
    for number, (step, words) in BROKEN.items():
        assert answers[number].startswith("REFUSED"), step
        assert words in answers[number], (step, answers[number])
