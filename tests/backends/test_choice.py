"""Which layers hold what on which machine, and what a person is told where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipysandbox.backends.linux.cgroup import Facts
from ipysandbox.backends.linux.choice import GUARANTEES, choose, refused
from ipysandbox.backends.linux.machine import Machine, outside_ids

LAPTOP = Machine(
    kernel=(6, 8),
    arch="x86_64",
    landlock_abi=4,
    namespaces_refused="",
    root=False,
    mapped_ids=((0, 4294967295),),
    apparmor_restricts=False,
)


V1 = Facts(1, "v1", ("memory", "pids", "cpu"), {"memory": "/sys/fs/cgroup/memory"})
DELEGATED = Facts(2, "systemd scope", ("memory", "pids"))
SUBTREE = Facts(2, "subtree", ("memory", "pids", "cpu"), {"": "/sys/fs/cgroup"})
NO = "Operation not permitted"

#: Machines that matter: what they offer, the tier, and the layers that hold memory, tasks, signals and files there.
MACHINES = {
    "RHEL 9, kernel 5.14, ABI 1": (
        replace(LAPTOP, kernel=(5, 14), landlock_abi=1),
        ("namespaces", "RLIMIT_DATA", "RLIMIT_NPROC in its own user namespace", "process namespace", "overlay"),
    ),
    "Debian 12, kernel 6.1, delegated": (
        replace(LAPTOP, kernel=(6, 1), landlock_abi=2, cgroup=DELEGATED),
        ("namespaces", "cgroup v2 memory.max", "cgroup v2 pids.max", "process namespace", "overlay"),
    ),
    "Debian 12, hardened: no user namespaces": (
        replace(LAPTOP, kernel=(6, 1), landlock_abi=2, namespaces_refused=NO, cgroup=DELEGATED),
        ("confined", "cgroup v2 memory.max", "cgroup v2 pids.max", "seccomp + monitor (signals)", "Landlock ABI 2"),
    ),
    "cluster login node, cgroup v1 writable by root": (
        replace(LAPTOP, kernel=(6, 1), landlock_abi=2, root=True, cgroup=V1),
        ("namespaces", "cgroup v1 memory.limit_in_bytes", "cgroup v1 pids.max", "process namespace", "overlay"),
    ),
    "Ubuntu 24.04, AppArmor restricts": (
        replace(LAPTOP, kernel=(6, 8), landlock_abi=4, namespaces_refused="Permission denied", apparmor_restricts=True),
        ("confined", "RLIMIT_DATA", "watchdog", "seccomp + monitor (signals)", "Landlock ABI 4"),
    ),
    "kernel 6.12": (
        replace(LAPTOP, kernel=(6, 12), landlock_abi=6),
        ("namespaces", "RLIMIT_DATA", "RLIMIT_NPROC in its own user namespace", "Landlock", "overlay"),
    ),
    "kernel 6.18 on aarch64": (
        replace(LAPTOP, kernel=(6, 18), landlock_abi=7, arch="aarch64", cgroup=SUBTREE),
        ("namespaces", "cgroup v2 memory.max", "cgroup v2 pids.max", "Landlock", "overlay"),
    ),
    "pod: Docker's default profile, uid 1000": (
        replace(LAPTOP, kernel=(6, 18), landlock_abi=7, namespaces_refused=NO),
        ("confined", "RLIMIT_DATA", "watchdog", "Landlock ABI 7 (signals, tracing)", "Landlock ABI 7"),
    ),
    "root in a container": (
        replace(LAPTOP, kernel=(6, 18), landlock_abi=7, namespaces_refused=NO, root=True),
        ("confined", "RLIMIT_DATA", "watchdog", "Landlock ABI 7 (signals, tracing)", "Landlock ABI 7"),
    ),
    "WSL 2, kernel 6.6": (
        replace(LAPTOP, kernel=(6, 6), landlock_abi=3, cgroup=Facts(reason="not delegated")),
        ("namespaces", "RLIMIT_DATA", "RLIMIT_NPROC in its own user namespace", "process namespace", "overlay"),
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_guarantee_has_a_layer_on_the_machines_that_matter(name: str) -> None:
    machine, (tier, memory, tasks, processes, files) = MACHINES[name]
    choice = choose(machine)
    assert not choice.gaps
    assert choice.tier == tier
    assert set(choice.layers) == set(GUARANTEES)
    assert all(choice.layers.values())
    held = {"memory": memory, "tasks": tasks, "processes": processes, "files.write": files}
    assert {key: value for key, value in held.items() if value not in choice.layers[key]} == {}


@pytest.mark.parametrize(
    ("machine", "guarantee", "reason", "remedy"),
    [
        (replace(LAPTOP, landlock_abi=0), "files.write", "Landlock", "lsm=landlock"),
        (replace(LAPTOP, landlock_abi=0, namespaces_refused=NO), "files.read", "Landlock", "lsm=landlock"),
        (replace(LAPTOP, kernel=(5, 10)), "files.write", "kernel 5.10", "5.14"),
        (replace(LAPTOP, arch="riscv64"), "syscalls", "riscv64", "x86_64"),
        (
            replace(LAPTOP, namespaces_refused=NO, user_notification=False),
            "files.write",
            "can't hand calls to a monitor",
            "max_user_namespaces",
        ),
        (
            replace(LAPTOP, namespaces_refused=NO, user_notification=False, apparmor_restricts=True),
            "processes",
            "AppArmor restricts user namespaces",
            "AppArmor profile",
        ),
    ],
)
def test_a_missing_layer_is_named_with_its_reason_and_remedy(
    machine: Machine, guarantee: str, reason: str, remedy: str
) -> None:
    choice = choose(machine)
    assert (choice.tier, choice.layers) == ("", {})
    gaps = {gap.guarantee: gap for gap in choice.gaps}
    assert reason in gaps[guarantee].reason
    assert remedy in gaps[guarantee].remedy
    assert refused(choice, ()) == choice.gaps[0]


def test_what_is_weaker_without_namespaces_is_named_and_can_be_required() -> None:
    full, confined = choose(LAPTOP), choose(replace(LAPTOP, landlock_abi=7, namespaces_refused=NO))
    assert full.notes == ()
    assert {"files.read", "files.write", "network"} <= {note.guarantee for note in confined.notes}
    assert refused(full, GUARANTEES) is None
    assert refused(confined, ("cpu", "memory")) is None
    gap = refused(confined, ("cpu", "network"))
    assert gap is not None
    assert (gap.guarantee, "loopback" in gap.reason, "require" in gap.remedy) == ("network", True, True)


def test_roots_sandbox_runs_as_an_id_that_is_nobodys() -> None:
    whole = replace(LAPTOP, root=True)
    assert outside_ids(whole) == (0x7FFE0000, 0x7FFE0000)
    # Inside a container only a small range is mapped: the id must lie in it, and not be root or nobody.
    container = replace(LAPTOP, root=True, mapped_ids=((0, 65536),))
    assert outside_ids(container)[0] == 65000
