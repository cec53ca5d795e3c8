"""How a task's init is made: by a process that goes on, and sees none of the sandbox's mounts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipysandbox.backends.linux import launch
from ipysandbox.backends.linux.watch import Watch


def _never(*_arguments: Any) -> Any:
    raise AssertionError("it came to the program")


def test_whatever_fails_in_the_copy_it_never_goes_on_as_the_process_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_kept: int) -> None:
        raise OSError(9, "not to be closed")

    monkeypatch.setattr(launch, "close_all_but", fails)
    monkeypatch.setattr(launch.selftest.Outside, "seen", lambda _pid: launch.selftest.Outside({}, 0, socket.socket()))
    us, told = os.getpid(), socket.socketpair()
    plan: Any = SimpleNamespace()
    begun = launch.begin(plan, {}, launch.Report(told[0]), [], told[0].fileno(), _never, None)
    if os.getpid() != us:
        os._exit(77)
    if begun is None:
        pytest.skip(f"no namespaces can be had here: {told[1].recv(1000)!r}")
    assert os.waitstatus_to_exitcode(os.waitpid(begun.init, 0)[1]) == 1
    begun.handover.close()
    os.close(begun.alive)


def test_who_does_not_see_the_sandboxs_mounts_covers_nothing(tmp_path: Path) -> None:
    file = tmp_path / "of the host"
    file.write_text("kept")
    ours, theirs = socket.socketpair()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as init:
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        watch = Watch(init.pid, launch.Report(theirs), socket.socketpair()[0], proc, inside=False)
        ours.sendall(json.dumps({"cover": [str(file)]}).encode() + b"\n")
        watch.step(5)
        assert json.loads(ours.recv(1000)) == {"event": "covered", "failed": [str(file)]}
        watch.close()
        os.close(proc)
    assert file.read_text() == "kept"
