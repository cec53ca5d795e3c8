"""Tries, from inside and before any code runs, what must not work; the layers are believed only when they refuse.

Runs in init after its last restriction, so the program that is forked next is held by exactly what was tested.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable, Sequence

from . import libc

#: TEST-NET-1 (RFC 5737): an address that is nobody's; without a route the answer is immediate.
_NOWHERE = ("192.0.2.1", 9)


def run(absent: Sequence[str], project: str) -> list[str]:
    """What was not refused, in words; empty when everything held."""
    failures: list[str] = []

    def refused(what: str, action: Callable[[], object], *errors: int) -> None:
        try:
            action()
        except OSError as exc:
            if exc.errno not in errors:
                failures.append(f"{what} failed for another reason than expected: {exc}")
        else:
            failures.append(f"{what} was not refused")

    for path in absent:
        refused(f"reading {path}", lambda path=path: os.stat(path), errno.ENOENT, errno.EACCES, errno.ENOTDIR)  # type: ignore[misc]
    refused("writing to /usr", lambda: os.mkdir("/usr/.ipysandbox-selftest"), errno.EROFS, errno.EACCES)
    refused("making a device", lambda: os.mknod("/tmp/.selftest", 0o020600, 0), errno.EPERM)
    refused("a new user namespace", lambda: libc.unshare(libc.CLONE_NEWUSER), errno.EPERM)
    refused("mounting", lambda: libc.mount("none", "/tmp", "tmpfs"), errno.EPERM)
    refused("tracing", lambda: libc.syscall("ptrace", 0, 0, 0, 0), errno.EPERM)
    refused("a network connection", _connect, errno.ENETUNREACH, errno.EACCES, errno.EPERM, errno.EAFNOSUPPORT)
    refused("a signal outside", lambda: os.kill(1 << 21, 0), errno.ESRCH, errno.EPERM)
    failures += _posture()
    if not os.path.isdir(project):
        failures.append(f"the project folder {project} is not there")
    return failures


def _connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(_NOWHERE)


def _posture() -> list[str]:
    """What the kernel itself tells about this process."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    failures = [
        f"{name} is {status[name]}"
        for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
        if int(status[name], 16)
    ]
    if status.get("NoNewPrivs") != "1":
        failures.append("new privileges can be gained")
    if status.get("Seccomp") != "2":
        failures.append("no system-call filter is active")
    if os.getpid() != 1:
        failures.append("not in a process namespace of its own")
    ctypes.set_errno(0)
    return failures
