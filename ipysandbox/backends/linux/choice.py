"""Which layers hold which guarantee on a given machine: a pure function, tested by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ipysandbox.policy.model import GUARANTEES

from .cgroup import Facts
from .machine import Machine

__all__ = ["GUARANTEES", "Choice", "Gap", "Note", "choose", "refused"]

_REQUIRED = "use a machine with namespaces (`ipysandbox doctor` says what is missing), or take it out of `require`"


@dataclass(frozen=True)
class Gap:
    """A guarantee that nothing on this machine can hold: why, and what a person can do."""

    guarantee: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Note:
    """Where a guarantee is held, but in a weaker form than with namespaces: what, for people to decide by."""

    guarantee: str
    text: str


@dataclass(frozen=True)
class Choice:
    #: "namespaces", "confined" (Landlock, seccomp and limits alone), or "" where nothing can start.
    tier: str
    layers: Mapping[str, tuple[str, ...]]
    gaps: tuple[Gap, ...]
    notes: tuple[Note, ...] = ()

    @property
    def weaker(self) -> Mapping[str, str]:
        """What is weaker, by guarantee."""
        names = dict.fromkeys(note.guarantee for note in self.notes)
        return {name: "; ".join(note.text for note in self.notes if note.guarantee == name) for name in names}


def choose(machine: Machine) -> Choice:
    """Layers by guarantee, or the gaps that forbid a start. No guarantee is optional."""
    gaps = _missing(machine)
    if gaps:
        return Choice("", {}, gaps)
    choice = _confined(machine) if machine.namespaces_refused else _namespaces(machine)
    return replace(choice, layers={**choice.layers, **_group_layers(choice.layers, machine.cgroup)})


#: What a control group's controllers hold: guarantee, and the kernel's file for it by version.
_GROUP_LAYERS = {
    "memory": ("memory", {1: "memory.limit_in_bytes", 2: "memory.max"}),
    "cpu": ("cpu", {1: "cpu.cfs_quota_us", 2: "cpu.max"}),
    "pids": ("tasks", {1: "pids.max", 2: "pids.max"}),
}


def _group_layers(layers: Mapping[str, tuple[str, ...]], facts: Facts) -> dict[str, tuple[str, ...]]:
    """Layers that a control group adds, before what is there without one."""
    held = [_GROUP_LAYERS[name] for name in facts.controllers if name in _GROUP_LAYERS]
    return {
        guarantee: (f"cgroup v{facts.version} {files[facts.version]}", *layers[guarantee]) for guarantee, files in held
    }


def refused(choice: Choice, require: Iterable[str]) -> Gap | None:
    """Why nothing may start: a gap, or a weaker point in a guarantee that the policy requires in full."""
    if choice.gaps:
        return choice.gaps[0]
    for note in choice.notes:
        if note.guarantee in require:
            return Gap(note.guarantee, f"the policy requires it in full, but {note.text}", _REQUIRED)
    return None


def _missing(machine: Machine) -> tuple[Gap, ...]:
    """What both tiers stand on."""
    if machine.arch not in ("x86_64", "aarch64"):
        gap = (
            f"the system-call filter knows x86_64 and aarch64, not {machine.arch}",
            "use an x86_64 or aarch64 machine",
        )
        return tuple(Gap(name, *gap) for name in ("syscalls", "processes"))
    if machine.kernel < (5, 14):
        text = f"kernel {machine.kernel[0]}.{machine.kernel[1]} lacks what the file layers need"
        return (Gap("files.write", text, "use Linux 5.14 or newer"),)
    if machine.landlock_abi < 1:
        remedy = "boot with lsm=landlock,… on the kernel command line (CONFIG_SECURITY_LANDLOCK=y)"
        gap = ("Landlock is not enabled", remedy)
        names = ("files.read", "files.write", "processes") if machine.namespaces_refused else ("files.write",)
        return tuple(Gap(name, *gap) for name in names)
    if machine.namespaces_refused and not machine.user_notification:
        why, remedy = namespace_gap(machine)
        text = f"{why}, and seccomp can't hand calls to a monitor here"
        return tuple(Gap(name, text, remedy) for name in ("files.write", "processes"))
    return ()


def _namespaces(machine: Machine) -> Choice:
    files = ("mount namespace", f"Landlock ABI {machine.landlock_abi}")
    signals = ("Landlock",) if machine.landlock_abi >= 6 else ()
    return Choice(
        "namespaces",
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


def _confined(machine: Machine) -> Choice:
    """Without namespaces: what may be opened, and what may be asked for, is all that keeps code in."""
    landlock = f"Landlock ABI {machine.landlock_abi}"
    signals = f"{landlock} (signals, tracing)" if machine.landlock_abi >= 6 else "seccomp + monitor (signals)"
    return Choice(
        "confined",
        {
            "files.read": (landlock, "seccomp + monitor (listings, sizes, times)"),
            "files.write": (landlock, "seccomp + monitor (modes, times, owners)"),
            "network": ("seccomp (no network sockets)",),
            "processes": (signals, "seccomp") if machine.landlock_abi >= 6 else (signals, landlock, "seccomp"),
            "syscalls": ("seccomp", "no capabilities"),
            "memory": ("RLIMIT_DATA", "watchdog"),
            "cpu": ("watchdog", "cpu affinity"),
            "disk": ("RLIMIT_FSIZE", "watchdog"),
            "tasks": ("seccomp + monitor (counts)", "watchdog"),
            "devices": (landlock,),
            "environment": ("clean process",),
        },
        (),
        (
            Note("files.read", "that a file exists can be found out by trying to open it; nothing else of it can"),
            Note("files.read", "a hidden file's name is listed with those beside it; hidden folders can't be listed"),
            Note("files.write", "the project is read-only outside files.write: there is no overlay to write to"),
            Note("network", "no sockets at all: not even the sandbox's own loopback"),
            Note(
                "processes",
                "process numbers of the machine can be guessed at; nothing of them can be read or signalled",
            ),
            Note(
                "disk", "scratch files lie on the host's disk and are measured twenty times a second, not bounded by it"
            ),
        ),
    )


def namespace_gap(machine: Machine) -> tuple[str, str]:
    """Why there are no namespaces here, and what would bring them."""
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
