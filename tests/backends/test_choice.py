"""Which layers hold what on which machine, and what a person is told where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipysandbox.backends.linux.choice import GUARANTEES, choose
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


@pytest.mark.parametrize(
    "machine",
    [
        replace(LAPTOP, kernel=(5, 14), landlock_abi=1),
        replace(LAPTOP, kernel=(6, 1), landlock_abi=2),
        LAPTOP,
        replace(LAPTOP, kernel=(6, 12), landlock_abi=6),
        replace(LAPTOP, kernel=(6, 18), landlock_abi=7, arch="aarch64"),
        replace(LAPTOP, root=True),
    ],
    ids=lambda m: f"{m.kernel[0]}.{m.kernel[1]}-abi{m.landlock_abi}-{m.arch}-{'root' if m.root else 'user'}",
)
def test_every_guarantee_has_a_layer_where_namespaces_and_landlock_are(machine: Machine) -> None:
    choice = choose(machine)
    assert not choice.gaps
    assert set(choice.layers) == set(GUARANTEES)
    assert all(choice.layers.values())


@pytest.mark.parametrize(
    ("machine", "guarantee", "reason", "remedy"),
    [
        (
            replace(LAPTOP, namespaces_refused="Permission denied", apparmor_restricts=True),
            "files.read",
            "AppArmor restricts user namespaces",
            "AppArmor profile",
        ),
        (
            replace(LAPTOP, namespaces_refused="Operation not permitted"),
            "network",
            "refuses user namespaces",
            "max_user_namespaces",
        ),
        (replace(LAPTOP, landlock_abi=0), "files.write", "Landlock", "lsm=landlock"),
        (replace(LAPTOP, kernel=(5, 10)), "files.write", "kernel 5.10", "5.14"),
        (replace(LAPTOP, arch="riscv64"), "syscalls", "riscv64", "x86_64"),
    ],
)
def test_a_missing_layer_is_named_with_its_reason_and_remedy(
    machine: Machine, guarantee: str, reason: str, remedy: str
) -> None:
    gaps = {gap.guarantee: gap for gap in choose(machine).gaps}
    assert reason in gaps[guarantee].reason
    assert remedy in gaps[guarantee].remedy


def test_roots_sandbox_runs_as_an_id_that_is_nobodys() -> None:
    whole = replace(LAPTOP, root=True)
    assert outside_ids(whole) == (0x7FFE0000, 0x7FFE0000)
    # Inside a container only a small range is mapped: the id must lie in it, and not be root or nobody.
    container = replace(LAPTOP, root=True, mapped_ids=((0, 65536),))
    assert outside_ids(container)[0] == 65000
