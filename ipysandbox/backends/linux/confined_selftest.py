"""The self-test of a sandbox without namespaces: what must be refused is tried, and so is what must still work."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Callable

from . import landlock, libc
from .confined_plan import ConfinedPlan

_NAME = ".ipysandbox-selftest"
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EAFNOSUPPORT)


def run(plan: ConfinedPlan, outside: int, answered: Callable[[], int]) -> list[str]:
    """What did not hold, in words; empty when everything did.

    ``outside``: a process that is not the sandbox's; ``answered``: how many calls the monitor has answered so far.
    """
    failures: list[str] = []

    def refused(what: str, action: Callable[[], object], *errors: int) -> None:
        try:
            action()
        except OSError as exc:
            if exc.errno not in (errors or _REFUSED):
                failures.append(f"{what} failed for another reason than expected: {exc}")
        else:
            failures.append(f"{what} was not refused")

    def allowed(what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as exc:
            failures.append(f"{what} was refused: {exc}")

    for path in plan.absent:
        # Each layer by itself: what Landlock answers, what the monitor does, what the filter does.
        refused(f"opening {path}", lambda path=path: os.close(os.open(path, os.O_RDONLY)), errno.EACCES)  # type: ignore[misc]
        refused(f"asking about {path}", lambda path=path: os.stat(path), errno.ENOENT)  # type: ignore[misc]
        refused(f"listing {path}", lambda path=path: os.listdir(path), errno.ENOENT)  # type: ignore[misc]
        refused(f"a handle on {path}", lambda path=path: os.close(os.open(path, 3)), errno.EPERM)  # type: ignore[misc]
    refused("reading another process", lambda: _read(f"/proc/{outside}/cmdline"))
    refused("writing to the project", lambda: _make(f"{plan.project}/{_NAME}"))
    refused("changing the project's mode", lambda: os.chmod(plan.project, 0o755))
    refused("changing the project's times", lambda: os.utime(plan.project))
    refused("making a device", lambda: os.mknod(f"{plan.temporary}/{_NAME}", 0o020600, 0))
    refused("a signal outside", lambda: os.kill(outside, 0))
    refused("limits of another process", lambda: libc.syscall("prlimit64", outside, 7, None, None))
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        refused(f"a socket of {family.name}", lambda family=family: socket.socket(family).close())  # type: ignore[misc]
    refused("a new user namespace", lambda: libc.unshare(libc.CLONE_NEWUSER))
    refused("signals sent by descriptors", lambda: fcntl.fcntl(0, fcntl.F_SETOWN, outside))
    refused("asking a socket for devices", _ask_for_device, errno.ENOTTY)
    refused("a pair of datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    refused("a process in a namespace of its own", lambda: libc.syscall("clone", libc.CLONE_NEWUSER | 17, None))
    refused("tracing", lambda: libc.syscall("ptrace", 16, outside, 0, 0))
    if _is_shown(plan):
        allowed("listing the project", lambda: os.listdir(plan.project))
    allowed("writing a temporary file", lambda: _use(f"{plan.temporary}/{_NAME}"))
    before = answered()
    allowed("another process", lambda: os.waitpid(os.fork() or os._exit(0), 0))
    if answered() == before:
        failures.append("a process was made that the monitor did not count")
    allowed("a signal to itself", lambda: os.kill(os.getpid(), 0))
    return failures + _posture(plan)


def again(plan: ConfinedPlan, outside: int) -> list[str]:
    """The same where an earlier sandbox of one plan has passed ``run``; ``selftest.again`` says why that is enough."""
    failures = []
    tries: list[Callable[[], object]] = [
        lambda: os.kill(outside, 0),
        lambda: socket.socket(socket.AF_INET).close(),
        lambda: libc.unshare(libc.CLONE_NEWUSER),
        *(lambda path=path: os.close(os.open(path, os.O_RDONLY)) for path in plan.absent),
    ]
    for number, action in enumerate(tries):
        try:
            action()
        except OSError as exc:
            if exc.errno in _REFUSED:
                continue
        failures.append(f"the try {number} was not refused")
    return failures + _posture(plan)


def _is_shown(plan: ConfinedPlan) -> bool:
    """A project that is too wide, a home as a whole, is not read at all."""
    ways = [path.rstrip("/") + "/" for path, rights in plan.rules if rights & landlock.READ_DIR]
    return any(f"{plan.project}/".startswith(way) for way in ways)


def _make(path: str) -> None:
    os.mkdir(path)
    os.rmdir(path)  # should it have worked, nothing is left


def _ask_for_device() -> None:
    pair = socket.socketpair()
    try:
        fcntl.ioctl(pair[0], 0x8910, struct.pack("16si20x", b"", 1))  # SIOCGIFNAME
    finally:
        for sock in pair:
            sock.close()


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _use(path: str) -> None:
    """Everything that is done to a file of one's own, the parts that the monitor does included."""
    with open(path, "w") as file:
        file.write("x")
    try:
        os.chmod(path, 0o600)
        os.utime(path, (1, 1))
        _read(path)
        if os.stat(path).st_mtime != 1:
            raise OSError(errno.EIO, "its time did not change")
    finally:
        os.unlink(path)


def _posture(plan: ConfinedPlan) -> list[str]:
    """What the kernel itself tells about this process."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    held = {"NoNewPrivs": "1", "Seccomp": "2"}
    failures = [f"{name} is {status.get(name)}" for name, value in held.items() if status.get(name) != value]
    # Not the bounding set: only root can empty that, and no_new_privs makes it mean nothing.
    sets = ("CapEff", "CapPrm", "CapInh", "CapAmb")
    for limit, value in plan.rlimits.items():
        if resource.getrlimit(getattr(resource, "RLIMIT_" + limit)) != (value, value):
            failures.append(f"the limit {limit} is not set")
    if os.sched_getaffinity(0) != set(plan.cpus):
        failures.append("more processors can be used than the policy allows")
    return failures + [f"{name} is {status[name]}" for name in sets if int(status[name], 16)]
