"""Processes that are stopped while what they write is counted go on as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ipysandbox.backends.linux.processes import state
from ipysandbox.backends.linux.still import held_still

_SAYS_WHEN_IT_GOES_ON = """
import signal
signal.signal(signal.SIGCONT, lambda *_: print("on", flush=True))
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", _SAYS_WHEN_IT_GOES_ON], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


def _wait_until_stopped(pid: int) -> None:
    assert os.waitpid(pid, os.WUNTRACED)[0] == pid


def test_a_process_stops_meanwhile_and_goes_on(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    with held_still([child.pid]):
        _wait_until_stopped(child.pid)
        assert state(child.pid) == b"T"
    assert child.stdout.readline() == "on\n"
    assert state(child.pid) != b"T"


def test_it_goes_on_after_an_error(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    with pytest.raises(ZeroDivisionError), held_still([child.pid]):
        raise ZeroDivisionError
    assert child.stdout.readline() == "on\n"


def test_one_that_was_stopped_before_stays_so(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGSTOP)
    _wait_until_stopped(child.pid)
    with held_still([child.pid]):
        pass
    assert state(child.pid) == b"T"


def test_one_that_has_ended_is_passed_over(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    with held_still([child.pid]):
        pass
    assert state(child.pid) == b""
