"""Tries, from inside and before any code runs, what must not work and what must; the layers are believed only then.

Runs in init after its last restriction, so the program that is forked next is held by exactly what was tested. Each
layer is asked for by itself where that is possible: two that refuse the same must not stand for each other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import libc, rootfs, selftest_mounts
from .plan import Plan

#: TEST-NET-1 (RFC 5737): an address that is nobody's; without a route the answer is immediate.
_NOWHERE = ("192.0.2.1", 9)
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_AF_VSOCK, _AF_PACKET = 40, 17
_NAME = ".ipysandbox-selftest"
#: An ordinary connection of the loopback device takes microseconds.
_CONNECT_SECONDS = 5.0
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1  # netdevice(7)
_PR_GET_DUMPABLE, _PR_GET_SECUREBITS = 3, 27


@dataclass(frozen=True)
class Outside:
    """What exists outside, to be missed inside: seen by the monitor while it is still there."""

    #: Identity of each kind of namespace, as /proc/self/ns tells it.
    namespaces: Mapping[str, str]
    #: A process that this user may signal.
    pid: int
    #: Listens on the host's loopback, where there is one, until this is closed.
    listener: socket.socket

    @classmethod
    def seen(cls, pid: int) -> Outside:
        listener = socket.socket(socket.AF_INET)
        with contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
        return cls(_namespaces(), pid, listener)

    def close(self) -> None:
        self.listener.close()


def run(plan: Plan, outside: Outside, devices: Sequence[str], inherited: Sequence[int]) -> list[str]:
    """What did not hold, in words; empty when everything did.

    :param devices: of the network, as ``devices_that_are_up`` told before the filter refused that.
    :param inherited: the program's own descriptors, made outside.
    """
    tests = _Tests()
    _refusals(tests, plan, outside)
    _devices_refused(tests, inherited)
    _permissions(tests, plan)
    tests.failures += _posture(plan, outside, devices)
    tests.failures += selftest_mounts.failures(plan)
    return tests.failures


def again(plan: Plan, outside: Outside, devices: Sequence[str], inherited: Sequence[int]) -> list[str]:
    """The same for a sandbox of whose kind an earlier one has passed ``run``.

    Both are forks of one process, which has changed nothing since, and go through the same steps with the same plan; a
    step that the kernel refuses is a failure of the start by itself. So what is left to look at is what the kernel says
    of this process, and one thing that each layer must refuse.
    """
    tests = _Tests()
    tests.refused("reading a file that no rule opens (Landlock)", lambda: _read(rootfs.CLOSED), errno.EACCES)
    tests.refused("a network connection", lambda: _connect(_NOWHERE, socket.SOCK_DGRAM), errno.ENETUNREACH)
    tests.refused("a signal outside", lambda: os.kill(outside.pid, 0), errno.ESRCH)
    tests.refused("a new user namespace", lambda: libc.unshare(libc.CLONE_NEWUSER), errno.EPERM)
    for path in plan.absent:
        tests.refused(f"reading {path}", lambda path=path: os.stat(path), errno.ENOENT, errno.EACCES, errno.ENOTDIR)  # type: ignore[misc]
    _devices_refused(tests, inherited)
    tests.failures += _posture(plan, outside, devices)
    return tests.failures


class _Tests:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def refused(self, what: str, action: Callable[[], object], *errors: int) -> None:
        try:
            action()
        except OSError as exc:
            if exc.errno not in errors:
                self.failures.append(f"{what} failed for another reason than expected: {exc}")
        else:
            self.failures.append(f"{what} was not refused")

    def allowed(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as exc:
            self.failures.append(f"{what} was refused: {exc}")


def _refusals(tests: _Tests, plan: Plan, outside: Outside) -> None:
    refused = tests.refused
    gone = (errno.ENOENT, errno.EACCES, errno.ENOTDIR)
    for path in plan.absent:
        refused(f"reading {path}", lambda path=path: os.stat(path), *gone)  # type: ignore[misc]
    refused("reading a file that no rule opens (Landlock)", lambda: _read(rootfs.CLOSED), errno.EACCES)
    refused("writing to /usr", lambda: os.mkdir(f"/usr/{_NAME}"), errno.EROFS, errno.EACCES)
    refused("a network connection", lambda: _connect(_NOWHERE, socket.SOCK_DGRAM), errno.ENETUNREACH)
    address = outside.listener.getsockname()
    if address[1]:
        refused("a connection to the host", lambda: _connect(address, socket.SOCK_STREAM), errno.ECONNREFUSED)
    refused("a signal outside", lambda: os.kill(outside.pid, 0), errno.ESRCH)
    refused("making a device", lambda: os.mknod(f"/tmp/{_NAME}", 0o020600, 0), errno.EPERM)
    refused("a new user namespace", lambda: libc.unshare(libc.CLONE_NEWUSER), errno.EPERM)
    refused("mounting", lambda: libc.mount("none", "/tmp", "tmpfs"), errno.EPERM)
    refused("tracing", lambda: libc.syscall("ptrace", 0, 0, 0, 0), errno.EPERM)
    refused("a program for the kernel", lambda: libc.syscall("bpf", 0, None, 0), errno.EPERM)
    refused("calls through a ring", lambda: libc.syscall("io_uring_setup", 1, None), errno.EPERM)
    refused("a filter with a listener", lambda: libc.syscall("seccomp", 1, 8, None), errno.EPERM)
    for family in (_AF_VSOCK, _AF_PACKET):
        refused("an odd socket", lambda family=family: socket.socket(family).close(), errno.EAFNOSUPPORT)  # type: ignore[misc]


def _permissions(tests: _Tests, plan: Plan) -> None:
    tests.allowed("reading the project", lambda: os.close(os.open(plan.project, os.O_RDONLY | os.O_DIRECTORY)))
    tests.allowed("reading the interpreter", lambda: _read(sys.executable))
    for path in ("/tmp", plan.home):
        tests.allowed(f"writing to {path}", lambda path=path: _write(path))  # type: ignore[misc]
    tests.allowed("connecting to itself", _connect_to_itself)
    tests.allowed("a signal to itself", lambda: os.kill(os.getpid(), 0))


def _read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        file.read(1)


def _write(folder: str) -> None:
    path = f"{folder}/{_NAME}"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def _connect(address: tuple[str, int], kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.connect(address)


def _connect_to_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.settimeout(_CONNECT_SECONDS)
        client.connect(server.getsockname())


def _namespaces() -> dict[str, str]:
    return {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES}


def devices_that_are_up() -> list[str]:
    """Some kernels put idle tunnel devices into every new namespace (net.core.fb_tunnels_only_for_init_net)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return [name for _, name in socket.if_nameindex() if _flags_of(sock.fileno(), name) & _IFF_UP]


def _flags_of(sock: int, device: str) -> int:
    answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sh14x", os.fsencode(device), 0))
    flags: int = struct.unpack("16sh14x", answer)[1]
    return flags


def _devices_refused(tests: _Tests, inherited: Sequence[int]) -> None:
    for fd in inherited:
        tests.refused("asking a socket for the host's devices", lambda fd=fd: _flags_of(fd, "lo"), errno.EPERM)  # type: ignore[misc]


def _posture(plan: Plan, outside: Outside, devices: Sequence[str]) -> Iterator[str]:
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        if int(status[name], 16):
            yield f"{name} is {status[name]}"
    if status.get("NoNewPrivs") != "1":
        yield "new privileges can be gained"
    if status.get("Seccomp") != "2":
        yield "no system-call filter is active"
    if libc.prctl(_PR_GET_SECUREBITS) != libc.SECUREBITS:
        yield "user 0 could have rights again"
    if libc.prctl(_PR_GET_DUMPABLE):
        yield "the memory of the first process can be read"
    if os.getpid() != 1:
        yield "not in a process namespace of its own"
    if {os.getuid(), os.geteuid(), os.getgid(), os.getegid()} != {plan.inside_id}:
        yield f"runs as user {os.getuid()}, group {os.getgid()}"
    yield from (
        f"the {kind} namespace is the host's"
        for kind, name in _namespaces().items()
        if outside.namespaces[kind] == name
    )
    yield from (f"the network device {name} is up" for name in devices if name != "lo")
    for limit, value in plan.rlimits.items():
        if resource.getrlimit(getattr(resource, "RLIMIT_" + limit)) != (value, value):
            yield f"the limit {limit} is not set"
    if os.sched_getaffinity(0) != set(plan.cpus):
        yield "more processors can be used than the policy allows"
    if os.umask(0o022) != 0o022:
        yield "files are made with another mode than they should"
