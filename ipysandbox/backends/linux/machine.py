"""What this machine offers for isolation: read once, with no decision taken."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import cgroup, landlock, libc, syscalls


@dataclass(frozen=True)
class Machine:
    kernel: tuple[int, int]
    arch: str
    landlock_abi: int
    #: Empty when a process of this user can make every namespace; otherwise what the kernel answered.
    namespaces_refused: str
    root: bool
    #: Smallest uid range that this user namespace maps, as (first, length) rows of /proc/self/uid_map.
    mapped_ids: tuple[tuple[int, int], ...]
    #: Ubuntu 23.10 and later: AppArmor takes the rights away inside new user namespaces.
    apparmor_restricts: bool
    #: seccomp can hand a stopped call to another process (kernel 5.0).
    user_notification: bool = True
    cgroup: cgroup.Facts = field(default_factory=cgroup.Facts)


def probe() -> Machine:
    """Ask the kernel. Forks one short-lived child; call it before starting threads."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    kernel = (int(release[1]), int(release[2])) if release else (0, 0)
    has_calls = bool(syscalls.numbers())
    return Machine(
        kernel=kernel,
        arch=platform.machine(),
        landlock_abi=landlock.abi() if has_calls else 0,
        namespaces_refused=_try_namespaces() if has_calls else "unknown architecture",
        root=os.geteuid() == 0,
        mapped_ids=_mapped_ids(),
        apparmor_restricts=_sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1",
        user_notification=has_calls and _can_notify(),
        cgroup=cgroup.probe(),
    )


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _can_notify() -> bool:
    action = ctypes.c_uint32(0x7FC00000)  # SECCOMP_RET_USER_NOTIF
    try:
        libc.syscall("seccomp", 2, 0, ctypes.string_at(ctypes.addressof(action), 4))  # SECCOMP_GET_ACTION_AVAIL
    except OSError:
        return False
    return True


def _mapped_ids() -> tuple[tuple[int, int], ...]:
    rows = Path("/proc/self/uid_map").read_text().split("\n")
    return tuple((int(f[0]), int(f[2])) for f in (row.split() for row in rows) if len(f) == 3)


def _try_namespaces() -> str:
    """Make all namespaces in a child, and mount in them: where AppArmor confines, only that is refused."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b""
        try:
            flags = libc.CLONE_NEWUSER | libc.CLONE_NEWNS | libc.CLONE_NEWPID | libc.CLONE_NEWNET
            libc.unshare(flags | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS | libc.CLONE_NEWCGROUP)
            libc.mount(None, "/", None, libc.MS_REC | libc.MS_PRIVATE)
            libc.mount("probe", "/tmp", "tmpfs", libc.MS_NOSUID)
        except OSError as exc:
            answer = str(exc.strerror).encode()
        os.write(write, answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return answer.decode("utf-8", "replace")


def outside_ids(machine: Machine) -> tuple[int, int]:
    """The host uid and gid that a sandbox runs as.

    An ordinary user's sandbox is that user. For root it is an id that belongs to nobody: limits on processes don't bind
    uid 0, and much of /proc and /sys asks only for the owner. The id is the highest of the mapped range below the
    16-bit "nobody", or one from far above any account where the range is whole.
    """
    if not machine.root:
        return os.getuid(), os.getgid()
    wanted = 0x7FFE0000
    for first, length in machine.mapped_ids:
        if first <= wanted < first + length:
            return wanted, wanted
    first, length = max(machine.mapped_ids, key=lambda row: row[1])
    identifier = min(first + length - 1, 65000)
    return identifier, identifier
