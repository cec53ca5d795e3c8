"""Signals before Landlock keeps them inside: the monitor sends them to the sandbox's processes and to nobody else."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipysandbox.backends.linux import libc
from ipysandbox.backends.linux.emulate_signals import Signals
from ipysandbox.backends.linux.notify import Notification

from .hosts import Box, Host, recorded

#: A process with a thread and a child, all of which say so when SIGUSR1 comes; ``root`` of what may be signalled.
_INSIDE = """
import os, signal, sys, threading, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"%d heard\\n" % os.getpid()))
child = os.fork()
if child:
    thread = threading.Thread(target=lambda: time.sleep(600), daemon=True); thread.start()
    os.write(1, b"%d %d %d\\n" % (os.getpid(), child, thread.native_id))
else: os.setpgid(0, 0)
while True: time.sleep(0.05)
"""


class Inside:
    """Real processes: this one stands for the monitor, what it starts here for the sandbox."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _INSIDE], stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self.pid, self.child, self.thread = (int(word) for word in self._line().split())
        while os.getpgid(self.child) != self.child:
            select.select([], [], [], 0.01)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def heard(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 20)
        assert ready, "no signal came"
        return int(self._line().split()[0])

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    processes = Inside()
    yield processes
    processes.end()


@pytest.fixture
def outside() -> Iterator[int]:
    """A process of the same user that is not the sandbox's: its parent is not this process."""
    # Other tests collect orphans here; this one's must go elsewhere.
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 0)
    read, write = os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            os.close(write)
            signal.pause()
        os.write(write, b"%d" % pid)
        os._exit(0)
    os.waitpid(between, 0)  # only then is it an orphan; a wait for anybody could be answered by somebody else's end
    pid = int(os.read(read, 32))
    os.close(read)
    os.close(write)
    yield pid
    assert Path(f"/proc/{pid}/stat").exists(), "it was ended"
    os.kill(pid, signal.SIGKILL)


def _send(name: str, *args: int, caller: int) -> int:
    """The errno that the caller gets, or 0."""
    call = Notification(caller, name, tuple(a & (2**64 - 1) for a in (*args, *[0] * 6))[:6], lambda: True)
    try:
        Signals(os.getpid()).calls()[name](call)
    except OSError as exc:
        return exc.errno or -1
    return 0


WAYS: dict[str, Callable[[int, int], tuple[object, ...]]] = {
    "kill": lambda pid, _thread: ("kill", pid, signal.SIGUSR1),
    "kill by a thread's number": lambda _pid, thread: ("kill", thread, signal.SIGUSR1),
    "tkill": lambda _pid, thread: ("tkill", thread, signal.SIGUSR1),
    "tgkill": lambda pid, thread: ("tgkill", pid, thread, signal.SIGUSR1),
    "rt_sigqueueinfo": lambda pid, _thread: ("rt_sigqueueinfo", pid, signal.SIGUSR1, 0),
    "rt_tgsigqueueinfo": lambda pid, thread: ("rt_tgsigqueueinfo", pid, thread, signal.SIGUSR1, 0),
    "rubbish above the number": lambda pid, _thread: ("kill", 1 << 40 | pid, signal.SIGUSR1),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_it_comes_to_processes_inside(inside: Inside, way: str) -> None:
    assert _send(*WAYS[way](inside.pid, inside.thread), caller=inside.child) == 0  # type: ignore[arg-type]
    assert inside.heard() == inside.pid


@pytest.mark.parametrize("way", sorted(WAYS))
def test_it_comes_to_nobody_outside(inside: Inside, outside: int, way: str) -> None:
    for pid in (outside, os.getpid(), os.getppid(), 1):
        assert _send(*WAYS[way](pid, pid), caller=inside.pid) == errno.EPERM  # type: ignore[arg-type]


def test_groups_are_those_inside(inside: Inside, outside: int) -> None:
    assert _send("kill", 0, signal.SIGUSR1, caller=inside.child) == 0
    assert inside.heard() == inside.child
    assert _send("kill", -inside.pid, signal.SIGUSR1, caller=inside.child) == 0
    assert inside.heard() == inside.pid
    for group in (outside, 2**31 - 1):
        assert _send("kill", -group, signal.SIGKILL, caller=inside.pid) == errno.ESRCH


def test_everybody_means_all_others_inside(inside: Inside, outside: int) -> None:
    assert _send("kill", -1, signal.SIGUSR1, caller=inside.thread) == 0
    assert inside.heard() == inside.child


def test_a_thread_of_another_process_is_none_of_this(inside: Inside) -> None:
    assert _send("tgkill", inside.child, inside.thread, signal.SIGUSR1, caller=inside.pid) == errno.ESRCH


def test_who_has_ended_is_missed(inside: Inside) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name, arguments in (("kill", (gone.pid, 9)), ("tkill", (gone.pid, 9)), ("tgkill", (gone.pid, gone.pid, 9))):
        assert _send(name, *arguments, caller=inside.pid) == errno.ESRCH


def test_no_such_signal(inside: Inside) -> None:
    for number in (65, -1, 2**31 - 1):
        assert _send("kill", inside.pid, number, caller=inside.child) == errno.EINVAL
    assert _send("kill", inside.pid, 0, caller=inside.child) == 0


def test_by_a_descriptor_of_a_process(inside: Inside, outside: int) -> None:
    mine, foreign = os.pidfd_open(inside.pid), os.pidfd_open(outside)
    other = os.open("/dev/null", os.O_RDONLY)
    try:
        # The caller's descriptors are read: here it is this process itself.
        assert _send("pidfd_send_signal", mine, signal.SIGUSR1, 0, 0, caller=os.getpid()) == 0
        assert inside.heard() == inside.pid
        assert _send("pidfd_send_signal", foreign, signal.SIGKILL, 0, 0, caller=os.getpid()) == errno.EPERM
        assert _send("pidfd_send_signal", other, signal.SIGKILL, 0, 0, caller=os.getpid()) == errno.EBADF
        assert _send("pidfd_send_signal", 9999, signal.SIGKILL, 0, 0, caller=os.getpid()) == errno.EBADF
    finally:
        for fd in (mine, foreign, other):
            os.close(fd)


# -- a whole sandbox, as if this kernel's Landlock were that of Linux 5.19

OLD = """
from ipysandbox import bootstrap
old = "from ipysandbox.backends.linux import landlock; landlock.abi = lambda: 2; "
command = bootstrap.command
bootstrap.command = lambda code, arguments: command(old + code, arguments)
"""


@pytest.fixture(scope="module")
def old_host() -> Iterator[Host]:
    host = Host(OLD)
    yield host
    host.close()


def test_with_an_old_landlock_signals_and_lengths_stay_inside(old_host: Host, project: Path, outside: int) -> None:
    box = Box(old_host, "old", project)
    try:
        text = box.out(f"""
import ctypes, errno, fcntl, os, signal, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
x = (os.getcwd() + "/data/x.csv").encode()
sleeper = subprocess.Popen(["sleep", "60"]); sleeper.terminate()
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1)); signal.raise_signal(signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR1)
print(sleeper.wait(), heard, call(62, {outside}, 9), call(200, {outside}, 9), call(234, {outside}, {outside}, 9), call(62, {box.pid}, 9),
      call(424, call(434, {outside}, 0), 9, 0, 0), call(257, -100, x, 0o1000), call(257, -100, x, 3 | 0o1000), call(76, x, 0),
      call(72, os.pipe()[0], 8, {outside}))
""")  # noqa: E501
        assert text.split("\n")[0] == "-15 [1, 1] EPERM EPERM EPERM EPERM EPERM EPERM EPERM EPERM EPERM"
        assert (project / "data/x.csv").read_text() == "a,b\n1,2\n"
        names = ("kill", "tkill", "tgkill", "pidfd_send_signal")
        recorded("old", {(name, "not a process of this sandbox") for name in names})
    finally:
        box.close()


def test_who_is_meant_is_noticed_where_the_kernel_sends_them(inside: Inside, outside: int) -> None:
    seen = Signals(os.getpid()).seen()
    for pid, told in ((outside, True), (inside.pid, False), (inside.thread, False), (-1, False), (0, False)):
        answer = seen["kill"](Notification(inside.pid, "kill", (pid & (2**64 - 1), 9, 0, 0, 0, 0), lambda: True))
        assert answer.proceed
        assert (answer.tell is not None) == told, pid
    pidfd = os.pidfd_open(outside)
    try:
        answer = seen["pidfd_send_signal"](Notification(os.getpid(), "", (pidfd, 9, 0, 0, 0, 0), lambda: True))
        assert answer.tell == "not a process of this sandbox"
    finally:
        os.close(pidfd)


def test_the_handlers_forget_no_way_that_the_filter_sends_to_them() -> None:
    from ipysandbox.backends.linux import decisions

    assert set(Signals(1).calls()) == decisions.SIGNALS
    assert set(Signals(1).seen()) == decisions.CONFINED_SEEN
