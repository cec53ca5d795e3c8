"""Which layers hold which guarantee on a given machine: a pure function, tested by table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .machine import Machine

GUARANTEES = (
    "files.read",
    "files.write",
    "network",
    "processes",
    "syscalls",
    "memory",
    "cpu",
    "disk",
    "tasks",
    "devices",
    "environment",
)


@dataclass(frozen=True)
class Gap:
    """A guarantee that nothing on this machine can hold: why, and what a person can do."""

    guarantee: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Choice:
    layers: Mapping[str, tuple[str, ...]]
    gaps: tuple[Gap, ...]


def choose(machine: Machine) -> Choice:
    """Layers by guarantee, or the gaps that forbid a start. Every guarantee is required in this version."""
    blocked = _namespace_gap(machine)
    if machine.arch not in ("x86_64", "aarch64"):
        gap = (
            f"the system-call filter knows x86_64 and aarch64, not {machine.arch}",
            "use an x86_64 or aarch64 machine",
        )
        return Choice({}, tuple(Gap(name, *gap) for name in ("syscalls", "processes")))
    if blocked:
        return Choice({}, tuple(Gap(name, *blocked) for name in ("files.read", "files.write", "network", "processes")))
    if machine.kernel < (5, 14):
        text = f"kernel {machine.kernel[0]}.{machine.kernel[1]}"
        return Choice({}, (Gap("files.write", f"{text} lacks what the file layers need", "use Linux 5.14 or newer"),))
    if machine.landlock_abi < 1:
        remedy = "boot with lsm=landlock,… on the kernel command line (CONFIG_SECURITY_LANDLOCK=y)"
        return Choice({}, (Gap("files.write", "Landlock, the second layer under files, is not enabled", remedy),))
    files = ("mount namespace", f"Landlock ABI {machine.landlock_abi}")
    signals = ("Landlock",) if machine.landlock_abi >= 6 else ()
    return Choice(
        {
            "files.read": files,
            "files.write": (*files, "overlay"),
            "network": ("network namespace", "seccomp"),
            "processes": ("process namespace", "ipc namespace", "seccomp", *signals),
            "syscalls": ("seccomp", "no capabilities"),
            "memory": ("RLIMIT_DATA", "watchdog"),
            "cpu": ("watchdog", "cpu affinity"),
            "disk": ("sized tmpfs", "RLIMIT_FSIZE", "watchdog"),
            "tasks": ("RLIMIT_NPROC in its own user namespace",),
            "devices": ("mount namespace", "nodev"),
            "environment": ("clean process",),
        },
        (),
    )


def _namespace_gap(machine: Machine) -> tuple[str, str] | None:
    if not machine.namespaces_refused:
        return None
    if machine.apparmor_restricts:
        return (
            "AppArmor restricts user namespaces on this machine (kernel.apparmor_restrict_unprivileged_userns=1)",
            "ask the administrator for an AppArmor profile with `userns,` for this Python, "
            "or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        )
    return (
        f"the kernel refuses user namespaces to this user ({machine.namespaces_refused})",
        "ask the administrator: sysctl user.max_user_namespaces > 0 and, on Debian, "
        "kernel.unprivileged_userns_clone=1; in a container, give it a seccomp profile that allows unshare and mount",
    )
