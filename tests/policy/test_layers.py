"""Promises about who decides: the profile, the user, the project, the cell, and the administrator above all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipysandbox import policy
from ipysandbox.errors import PolicyError
from ipysandbox.policy.model import Files, Limits

if TYPE_CHECKING:
    from .conftest import Machine


def test_without_any_file_the_default_profile_holds(machine: Machine) -> None:
    effective = machine.resolve()
    assert effective.policy == policy.PROFILES["default"]
    assert effective.read == (machine.project,)
    assert effective.write == (machine.project / "results",)
    assert effective.notices == ()
    assert set(effective.sources.values()) == {"built-in default"}


def test_every_key_has_a_source(machine: Machine) -> None:
    file = machine.user_policy("[limits]\ncpu = '10s'")
    sources = machine.resolve(limits__wall="20s").sources
    assert sources["limits.cpu"] == f"user file {file}"
    assert sources["limits.wall"] == "cell option"
    assert sources["limits.memory"] == "built-in default"
    assert sources["files.hide"] == "built-in default"


def test_the_user_may_loosen_the_defaults(machine: Machine) -> None:
    machine.user_policy("[limits]\nmemory = '8GiB'\n[files]\nread = ['.', '~/lab']\n[environment]\nallow = ['LAB']")
    (machine.home / "lab").mkdir()
    machine.environ["LAB"] = "7"
    effective = machine.resolve()
    assert effective.policy.limits.memory == 8 * 2**30
    assert effective.read == (machine.project, machine.home / "lab")
    assert effective.environment == {"LAB": "7"}
    assert effective.notices == ()


def test_the_cell_has_the_last_word_below_the_administrator(machine: Machine) -> None:
    machine.user_policy("[limits]\nwall = '10s'")
    assert machine.resolve(limits__wall="20s").policy.limits.wall == 20
    assert machine.resolve(code__profile="off").policy.code.profile == "off"


def test_hidden_names_and_refused_calls_add_up_over_the_layers(machine: Machine) -> None:
    machine.user_policy("[files]\nhide = ['mine']\n[code]\ndeny = ['os.system']")
    machine.project_policy("[files]\nhide = ['theirs']\n[code]\ndeny = ['shutil.rmtree']")
    effective = machine.resolve(files__hide=["cell"])
    assert effective.hidden[-3:] == ("mine", "theirs", "cell")
    assert ".env" in effective.hidden
    assert effective.policy.code.deny == ("os.system", "shutil.rmtree")


def test_the_user_can_show_a_hidden_name_again(machine: Machine) -> None:
    machine.write("public.pem")
    machine.user_policy("[files]\nhide = ['!public.pem']\nread = ['public.pem']")
    assert machine.resolve().read == (machine.project / "public.pem",)


def test_the_strict_profile_is_tightened_by_files_but_not_loosened(machine: Machine) -> None:
    machine.user_policy("[limits]\nmemory = '8GiB'\nwall = '5s'")
    strict = machine.resolve("strict")
    assert strict.policy.limits.memory == policy.PROFILES["strict"].limits.memory
    assert strict.policy.limits.wall == 5
    assert (strict.write, strict.policy.files.workspace) == ((), "readonly")
    assert len(strict.notices) == 1
    assert "limits.memory 2GiB → 8GiB" in strict.notices[0]
    assert "strict" in strict.notices[0]


def test_strict_is_nowhere_looser_than_default() -> None:
    strict, default = policy.PROFILES["strict"], policy.PROFILES["default"]
    for name in ("cpu", "wall", "memory", "disk", "processes", "cpus", "output", "open_files"):
        assert strict.get(f"limits.{name}") < default.get(f"limits.{name}")
    assert set(strict.files.write) < set(default.files.write)
    assert strict.files.hide == default.files.hide


def test_a_mapping_is_shaped_like_the_file_and_stands_above_it(machine: Machine) -> None:
    machine.user_policy("[limits]\nwall = '10s'\ncpu = '10s'")
    effective = machine.resolve({"limits": {"wall": "30s"}})
    assert (effective.policy.limits.wall, effective.policy.limits.cpu) == (30, 10)
    assert effective.sources["limits.wall"] == "policy argument"


def test_a_policy_object_stands_for_itself(machine: Machine) -> None:
    machine.user_policy("[limits]\nwall = '10s'")
    machine.project_policy("[limits]\nwall = '5s'")
    given = policy.Policy(limits=Limits(memory=2**30), files=Files(read=("src",)))
    effective = machine.resolve(given)
    assert effective.policy == given
    assert effective.read == (machine.project / "src",)


@pytest.mark.parametrize(
    "bad",
    [
        policy.Policy(limits=Limits(wall=float("inf"))),
        policy.Policy(limits=Limits(wall=float("nan"))),
        policy.Policy(limits=Limits(memory=-1)),
        policy.Policy(limits=Limits(processes=2.5)),  # type: ignore[arg-type]
        policy.Policy(files=Files(workspace="whatever")),
        policy.Policy(backend="docker"),
    ],
)
def test_a_policy_object_is_checked_too(machine: Machine, bad: policy.Policy) -> None:
    with pytest.raises(PolicyError):
        machine.resolve(bad)


def test_a_policy_file_of_the_users_counts_in_full(machine: Machine) -> None:
    file = machine.write(str(machine.home / ".jupyter/mine.toml"), "[limits]\nmemory = '8GiB'")
    for given in (file, str(file), "../.jupyter/mine.toml", "~/.jupyter/mine.toml"):
        effective = machine.resolve(given)
        assert effective.policy.limits.memory == 8 * 2**30
        assert effective.notices == ()


def test_naming_a_file_of_the_project_does_not_make_it_trusted(machine: Machine) -> None:
    file = machine.write("evil.toml", "[limits]\nmemory = '64GiB'\nwall = '1s'")
    effective = machine.resolve("./evil.toml")
    assert (effective.policy.limits.memory, effective.policy.limits.wall) == (4 * 2**30, 1)
    assert f"ipysandbox policy trust {file}" in effective.notices[0]
    machine.trust(file)
    assert machine.resolve("./evil.toml").policy.limits.memory == 64 * 2**30


def test_a_link_in_the_project_to_another_file_is_the_projects(machine: Machine) -> None:
    target = machine.write(str(machine.home.parent / "evil.toml"), "[limits]\nmemory = '64GiB'")
    (machine.project / "mine.toml").symlink_to(target)
    assert machine.resolve("./mine.toml").policy.limits.memory == 4 * 2**30


def test_in_the_home_itself_a_named_file_is_approved_as_anywhere(machine: Machine) -> None:
    file = machine.write(str(machine.home / "mine.toml"), "[limits]\nmemory = '8GiB'")
    assert machine.resolve("./mine.toml", cwd=machine.home).policy.limits.memory == 4 * 2**30
    machine.trust(file)
    assert machine.resolve("./mine.toml", cwd=machine.home).policy.limits.memory == 8 * 2**30


ADMIN = """
[limits]
memory = "2GiB"
wall = "1h"
[files]
read = [".", "/usr/share"]
write = ["results"]
hide = ["payroll"]
[code]
profile = "default"
deny = ["os.system"]
allow = []
[environment]
allow = ["LAB"]
"""


def test_nobody_exceeds_the_administrator(machine: Machine) -> None:
    machine.administrator(ADMIN)
    machine.user_policy(
        "[limits]\nmemory = '8GiB'\n[files]\nread = ['.', '/usr']\nwrite = ['results', 'src']\n"
        "[code]\nallow = ['call.os-system']\nprofile = 'off'\n[environment]\nallow = ['LAB', 'OTHER']\n"
    )
    machine.environ.update(LAB="1", OTHER="2")
    effective = machine.resolve()
    assert effective.policy.limits.memory == 2 * 2**30
    assert effective.policy.limits.wall == 600
    assert [str(p) for p in effective.read] == [str(machine.project), "/usr/share"]
    assert effective.write == (machine.project / "results",)
    assert effective.hidden[-1] == "payroll"
    assert (effective.policy.code.profile, effective.policy.code.allow) == ("default", ())
    assert effective.policy.code.deny == ("os.system",)
    assert effective.environment == {"LAB": "1"}
    assert effective.sources["limits.memory"] == "administrator"
    told = " ".join(effective.notices)
    for key in ("limits.memory: 8GiB", "files.read", "files.write", "code.profile: off", "environment.allow"):
        assert key in told
    assert "limits.wall" not in told


def test_the_administrator_may_forbid_widgets(machine: Machine) -> None:
    machine.user_policy("[output]\nwidgets = true")
    assert machine.resolve().policy.output.widgets
    machine.administrator("[output]\nwidgets = false")
    effective = machine.resolve()
    assert not effective.policy.output.widgets
    assert "output.widgets: true" in " ".join(effective.notices)
    with pytest.raises(PolicyError, match="more than the administrator allows"):
        machine.resolve(output__widgets=True)


def test_a_ceiling_below_the_defaults_is_no_news(machine: Machine) -> None:
    machine.administrator("[limits]\nmemory = '1GiB'")
    effective = machine.resolve()
    assert effective.policy.limits.memory == 2**30
    assert effective.notices == ()


def test_a_cell_that_asks_for_more_than_the_ceiling_is_an_error(machine: Machine) -> None:
    machine.administrator("[limits]\nmemory = '1GiB'\n[code]\nprofile = 'default'")
    with pytest.raises(
        PolicyError, match=r"cell option: limits\.memory: 2GiB is more than the administrator allows"
    ) as e:
        machine.resolve(limits__memory="2GiB")
    assert "write 1GiB" in str(e.value.hint)
    with pytest.raises(PolicyError, match="more than the administrator allows"):
        machine.resolve(code__profile="off")
    assert machine.resolve(limits__memory="512MiB").policy.limits.memory == 2**29


@pytest.mark.parametrize("trusted", [False, True])
def test_an_approved_project_does_not_exceed_the_ceiling(machine: Machine, trusted: bool) -> None:
    machine.administrator("[limits]\nmemory = '5GiB'")
    file = machine.project_policy("[limits]\nmemory = '64GiB'")
    if trusted:
        machine.trust(file)
    assert machine.resolve().policy.limits.memory == (5 if trusted else 4) * 2**30


def test_a_policy_object_does_not_exceed_the_ceiling(machine: Machine) -> None:
    machine.administrator("[limits]\nmemory = '1GiB'")
    assert machine.resolve(policy.Policy()).policy.limits.memory == 2**30


def test_a_ceiling_on_reading_covers_the_data_set(machine: Machine) -> None:
    machine.administrator("[files]\nread = ['.', '/usr/share']")
    machine.user_policy("[data]\nsource_path = '/usr/lib'")
    effective = machine.resolve()
    assert effective.read == (machine.project,)
    assert "DATA_SOURCE_PATH" not in effective.environment
    assert any("data.source_path" in notice for notice in effective.notices)


def test_a_link_does_not_lead_around_the_ceiling(machine: Machine) -> None:
    shared, other = machine.etc.parent / "shared", machine.etc.parent / "other"
    shared.mkdir()
    other.mkdir()
    (shared / "way-out").symlink_to(other)
    machine.administrator(f"[files]\nread = ['.', '{shared}']")
    machine.user_policy(f"[files]\nread = ['{shared}/way-out']")
    with pytest.raises(PolicyError, match="by a link"):
        machine.resolve()


def test_a_broken_ceiling_stops_everything(machine: Machine) -> None:
    machine.administrator("[limits]\nmemory = 5")
    with pytest.raises(PolicyError):
        machine.resolve()
    machine.administrator("[files]\nhide = ['!.env']")
    with pytest.raises(PolicyError, match="a ceiling can't show"):
        machine.resolve()


def test_a_ceiling_that_can_not_be_looked_for_stops_everything(machine: Machine) -> None:
    machine.administrator("[limits]\nmemory = '1GiB'")
    (machine.etc / "loop").symlink_to("loop")
    with pytest.raises(PolicyError, match="can't be looked for"):
        policy.resolve(
            None, cwd=machine.project, environ=machine.environ, admin_files=[machine.etc / "loop/ipysandbox.toml"]
        )


def test_two_administrators_files_both_count(machine: Machine) -> None:
    first = machine.administrator("[limits]\nmemory = '1GiB'")
    second = machine.write(str(machine.etc / "more.toml"), "[limits]\ncpu = '5s'")
    effective = policy.resolve(None, cwd=machine.project, environ=machine.environ, admin_files=[first, second])
    assert (effective.policy.limits.memory, effective.policy.limits.cpu) == (2**30, 5)


@pytest.mark.parametrize("key", ["limits.gpu", "credentials", "files"])
def test_tables_can_be_given_as_options(machine: Machine, key: str) -> None:
    value: dict[str, Any] = {}
    assert machine.resolve_with({key: value}).notices == ()


def test_a_policy_object_may_hold_texts_with_units(machine: Machine) -> None:
    given = policy.Policy(limits=Limits(memory="8GiB", wall="5min"))  # type: ignore[arg-type]
    limits = machine.resolve(given).policy.limits
    assert (limits.memory, limits.wall) == (8 * 2**30, 300)


def test_a_policy_object_with_a_mapping_inside_is_told_how_to_write_it(machine: Machine) -> None:
    with pytest.raises(PolicyError, match="limits: must be Limits, not a table") as caught:
        machine.resolve(policy.Policy(limits={"memory": "8GiB"}))  # type: ignore[arg-type]
    assert "mapping shaped like the file" in str(caught.value.hint)
