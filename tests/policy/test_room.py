"""A limit on memory can be met where it holds: at most three quarters of the machine's, or of the container's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipysandbox.policy.room import most_memory

from .conftest import Machine

GIB = 1 << 30


def files(root: Path, **contents: str) -> None:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def meminfo(size: int) -> str:
    return f"MemTotal:       {size >> 10} kB\nMemFree:        1024 kB\n"


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8),
        # What bounds a group bounds those inside.
        ({"proc/self/cgroup": "0::/pod/notebook\n", "sys/fs/cgroup/pod/memory.max": f"{4 * GIB}\n",
          "sys/fs/cgroup/pod/notebook/memory.max": "max\n"}, 4),
        # Version 1: "no limit" is a number too; a container sees its own group as the topmost.
        ({"proc/self/cgroup": "5:cpu:/a\n4:memory:/docker/c1\n0::/\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1 * GIB}\n"}, 1),
        ({"proc/self/cgroup": "4:memory:/docker/c1\n",
          "sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes": "9223372036854771712\n"}, 8),
    ],
)  # fmt: skip
def test_it_is_that_of_the_machine_or_of_the_narrowest_group_above(
    tmp_path: Path, given: dict[str, str], whole: int
) -> None:
    files(tmp_path, **{"proc/meminfo": meminfo(8 * GIB), **given})
    assert most_memory(tmp_path) == whole * GIB * 3 // 4


def test_where_the_system_does_not_say_nothing_is_bounded(tmp_path: Path) -> None:
    assert most_memory(tmp_path) is None


def test_on_a_small_machine_the_default_is_smaller_and_says_why(machine: Machine) -> None:
    files(machine.etc.parent, **{"proc/meminfo": meminfo(2 * GIB)})
    effective = machine.resolve()
    assert effective.policy.limits.memory == 3 * GIB // 2
    assert "three quarters of this machine's memory" in effective.sources["limits.memory"]
    assert effective.notices == ()


def test_who_asked_for_more_is_told(machine: Machine) -> None:
    files(machine.etc.parent, **{"proc/meminfo": meminfo(8 * GIB)})
    assert machine.resolve(limits__memory="5GiB").policy.limits.memory == 5 * GIB
    effective = machine.resolve(limits__memory="64GiB")
    assert effective.policy.limits.memory == 6 * GIB
    [notice] = effective.notices
    assert "64GiB (cell option) is more than three quarters of the memory here; 6GiB is used" in notice
