"""Each limit, driven from one process, from many, from a daemon and from C: the verdict, the overshoot, the time.

The bounds are for a loaded or emulated machine; ``python tests/benchmarks/limits.py`` prints figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import Sandbox
from ipysandbox.backends.linux import cgroup

from . import drives

MakeBox = Callable[..., Sandbox]

#: Of the limit, and seconds; an emulated machine takes seconds to deliver an interrupt.
_MOST_OVER = {
    "wall": 4.0,
    "cpu": 4.0,
    "memory": 0.5,
    "disk": 5.0,
    "processes": 0.05,
    "open_files": 0.0,
    # What a daemon prints after its cell has been ended is counted as that of finished cells.
    "output": 1.1,
}
_MOST_SECONDS = {"wall": 4.0, "cpu": 4.0, "memory": 4.0, "disk": 4.0}


@pytest.mark.parametrize("actor", drives.ACTORS)
@pytest.mark.parametrize("limit", drives.LIMITS)
def test_a_limit_holds_however_it_is_driven(project: Path, make_box: MakeBox, limit: str, actor: str) -> None:
    reading = drives.read(make_box, project, limit, actor)
    print(f"{limit} {actor}: {reading.overshoot:+.1%} {reading.seconds:.2f} s, state kept: {reading.state_kept}")
    assert reading.verdict == limit, (reading.result.notices, reading.result)
    assert reading.overshoot <= _MOST_OVER[limit]
    assert reading.seconds <= _MOST_SECONDS.get(limit, 0.0)


@pytest.mark.skipif(not cgroup.probe().version, reason=f"no control group: {cgroup.probe().reason}")
@pytest.mark.parametrize("actor", ["many", "daemon", "C"])
def test_with_a_control_group_memory_is_held_to_a_twentieth(project: Path, make_box: MakeBox, actor: str) -> None:
    reading = drives.read(make_box, project, "memory", actor)
    assert (reading.verdict, reading.state_kept) == ("memory", False)
    assert reading.overshoot < 0.05


@pytest.mark.parametrize("limit", ["wall", "cpu", "memory", "disk"])
def test_after_a_limit_the_next_cell_works(project: Path, make_box: MakeBox, limit: str) -> None:
    box = make_box(overrides={"limits.wall": "20s", f"limits.{limit}": drives.LIMITS[limit][0]})
    code = drives._code(limit, "C", int(drives.LIMITS[limit][1]))
    assert box.run(code).status == "limit"
    after = box.run("print('fine')")
    assert (after.status, after.stdout) == ("ok", "fine\n")
