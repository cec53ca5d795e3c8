"""Promises about the resolved policy: it can be shown, and its digest changes with what isolates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.policy.model import Policy
from ipysandbox.policy.profiles import PROFILES
from ipysandbox.policy.schema import FIELDS, read_table

if TYPE_CHECKING:
    from .conftest import Machine


def test_the_display_survives_json(machine: Machine) -> None:
    shown = machine.resolve().to_json()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["policy"]["limits"]["memory"] == "4GiB"
    assert set(shown["sources"]) == {*FIELDS, "credentials"}


@pytest.mark.parametrize("name", PROFILES)
def test_a_shown_policy_reads_back_the_same(name: str) -> None:
    original = PROFILES[name]
    wishes, problems = read_table(original.to_mapping(), "test")
    assert problems == []
    rebuilt = Policy()
    for key, value in wishes.values.items():
        rebuilt = rebuilt.with_value(key, value)
    assert rebuilt == original


@given(st.integers(256 * 2**20, 2**46), st.floats(0.05, 86400), st.integers(16, 10**6))
def test_shown_limits_read_back_the_same(memory: int, wall: float, processes: int) -> None:
    policy = Policy().with_value("limits.memory", memory).with_value("limits.wall", wall)
    policy = policy.with_value("limits.processes", processes)
    wishes, problems = read_table(policy.to_mapping(), "test")
    assert problems == []
    assert all(wishes.values[key] == policy.get(key) for key in ("limits.memory", "limits.wall", "limits.processes"))


SAME = [{"limits.cpu": "1s"}, {"limits.wall": "1s"}, {"code.profile": "off"}, {"output.html": "text"}]
SAME += [{"start.pool": 0}, {"start.preload": []}]
OTHER = [
    {"limits.memory": "1GiB"},
    {"limits.processes": 100},
    {"files.read": ["src"]},
    {"files.write": []},
    {"files.hide": ["x"]},
    {"files.workspace": "readonly"},
    {"output.stdin": "off"},
    {"environment.allow": ["LAB"]},
    {"data.source_path": "data"},
    {"output.widgets": True},
    {"output.html": "isolate"},
    {"start.mode": "exec"},
]


@pytest.mark.parametrize("options", SAME, ids=str)
def test_what_is_decided_per_cell_leaves_the_digest(machine: Machine, options: dict[str, object]) -> None:
    assert machine.resolve_with(options).digest() == machine.resolve().digest()


@pytest.mark.parametrize("options", OTHER, ids=str)
def test_what_isolates_changes_the_digest(machine: Machine, options: dict[str, object]) -> None:
    machine.environ["LAB"] = "1"
    assert machine.resolve_with(options).digest() != machine.resolve().digest()


def test_values_of_variables_do_not_change_the_digest(machine: Machine) -> None:
    digests = set()
    for value in ("1", "2"):
        machine.environ["LAB"] = value
        digests.add(machine.resolve({"environment": {"allow": ["LAB"]}}).digest())
    assert len(digests) == 1
