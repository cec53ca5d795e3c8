"""Promises about policy files that are named: who wrote a cell may have written its first line, and the file too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipysandbox import policy
from ipysandbox.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Machine

WIDE = "[limits]\nmemory = '8GiB'\nwall = '1s'\n"


def memory(machine: Machine, given: object, cwd: Path | None = None) -> int:
    return machine.resolve(given, cwd=cwd).policy.limits.memory // 2**30


@pytest.fixture
def inner(machine: Machine) -> Path:
    """The folder of a notebook that is a project of its own, in a stranger's repository."""
    machine.write("nb/pyproject.toml")
    return machine.project / "nb"


@pytest.mark.parametrize("given", ["../evil.toml", "{project}/evil.toml", "~/study/evil.toml", "../src/../evil.toml"])
@pytest.mark.parametrize("as_path", [False, True])
def test_a_file_above_the_project_tightens_and_loosens_only_once_approved(
    machine: Machine, inner: Path, given: str, as_path: bool
) -> None:
    secret = machine.write(str(machine.home / "private/x"), "secret").parent
    file = machine.write("evil.toml", f"{WIDE}[files]\nread = ['.', '~/private']\n[output]\nwidgets = true")
    text = given.format(project=machine.project)
    named = Path(text) if as_path else text
    before = machine.resolve(named, cwd=inner)
    assert (before.policy.limits.memory, before.policy.limits.wall) == (4 * 2**30, 1)
    assert before.read == (inner,)
    assert not before.policy.output.widgets
    (notice,) = before.notices
    assert f"approve it: ipysandbox policy trust {inner.parent}/" in notice
    machine.trust(file)
    after = machine.resolve(named, cwd=inner)
    assert (after.policy.limits.memory, after.read, after.notices) == (8 * 2**30, (inner, secret), ())


def test_beside_a_notebook_without_any_marker_it_is_the_same(machine: Machine) -> None:
    machine.write(str(machine.home / "zip/evil.toml"), WIDE)
    machine.write(str(machine.home / "zip/nb/a.py"))
    assert memory(machine, "../evil.toml", machine.home / "zip/nb") == 4


def test_the_users_own_file_elsewhere_says_what_to_do(machine: Machine) -> None:
    file = machine.write(str(machine.home / "policies/fast.toml"), WIDE)
    (notice,) = machine.resolve(file).notices
    told = f"(approve it: ipysandbox policy trust {file}; or, if you wrote it, move it to {machine.home}/.jupyter)"
    assert notice.endswith(told)


def test_what_a_sandbox_wrote_is_no_policy_of_the_users(machine: Machine) -> None:
    out = machine.home / "out"
    out.mkdir()
    machine.user_policy(f"[files]\nwrite = ['results', '{out}']")
    for file in (out / "p.toml", machine.project / "results/p.toml"):
        machine.write(str(file), WIDE)
        assert memory(machine, file) == 4
        machine.trust(file)
        assert memory(machine, file) == 8
        # Written again by a sandbox, it is another one.
        machine.write(str(file), WIDE.replace("8", "9"))
        assert memory(machine, file) == 4


def test_no_sandbox_writes_where_the_users_policies_lie(machine: Machine) -> None:
    for folder in (machine.home / "settings", machine.project / "settings/jupyter"):
        folder.mkdir(parents=True)
        machine.environ["JUPYTER_CONFIG_DIR"] = str(folder)
        for written in (folder, folder.parent if folder.parent != machine.home else folder):
            with pytest.raises(PolicyError, match="holds your own policy"):
                machine.resolve({"files": {"write": [str(written)]}})


def test_in_a_configuration_folder_that_is_part_of_the_project_it_is_approved(machine: Machine) -> None:
    file = machine.write("settings/fast.toml", WIDE)
    machine.environ["JUPYTER_CONFIG_DIR"] = str(file.parent)
    assert memory(machine, file) == 4
    # From elsewhere it is the user's: no part of that project.
    assert memory(machine, file, machine.write(str(machine.home / "other/pyproject.toml")).parent) == 8


def test_the_configuration_folder_may_be_a_link(machine: Machine) -> None:
    machine.write(str(machine.home / "dotfiles/jupyter/fast.toml"), WIDE)
    (machine.home / ".jupyter").symlink_to("dotfiles/jupyter")
    assert memory(machine, "~/.jupyter/fast.toml") == 8
    assert memory(machine, "~/dotfiles/jupyter/fast.toml") == 8


def test_a_configuration_folder_that_is_a_link_into_the_project_is_the_projects(machine: Machine) -> None:
    machine.write("settings/fast.toml", WIDE)
    (machine.home / ".jupyter").symlink_to(machine.project / "settings")
    assert memory(machine, "~/.jupyter/fast.toml") == 4


def test_a_link_counts_by_the_file_and_by_its_own_name(machine: Machine) -> None:
    own = machine.write(str(machine.home / ".jupyter/fast.toml"), WIDE)
    theirs = machine.write(str(machine.home / "downloads/evil.toml"), WIDE)
    (own.parent / "evil.toml").symlink_to(theirs)
    (theirs.parent / "fast.toml").symlink_to(own)
    assert memory(machine, own.parent / "evil.toml") == 4
    assert memory(machine, theirs.parent / "fast.toml") == 4
    machine.trust(theirs)
    assert memory(machine, own.parent / "evil.toml") == 4


def test_without_a_configuration_folder_every_file_waits(machine: Machine) -> None:
    file = machine.write(str(machine.home / ".jupyter/fast.toml"), WIDE)
    machine.environ["JUPYTER_NO_CONFIG"] = "1"
    (notice,) = machine.resolve(file).notices
    assert notice.endswith(f"(approve it: ipysandbox policy trust {file})")


def test_a_policy_beside_the_administrators_counts_in_full(machine: Machine) -> None:
    assert memory(machine, machine.write(str(machine.etc / "large.toml"), WIDE)) == 8


def give_away(path: Path) -> None:
    os.chown(path, 12345, 12345)


def let_all_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def let_a_group_write(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)
    if os.geteuid() == 0:
        os.chown(path, -1, 12345)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    ("change", "why"),
    [(give_away, "belongs to another user"), (let_all_write, "others may write"), (let_a_group_write, "others may")],
)
@pytest.mark.parametrize("name", ["fast.toml", "ipysandbox.toml"])
def test_a_file_that_others_could_have_written_waits_for_an_approval(
    machine: Machine, name: str, change: Callable[[Path], None], why: str, folder: bool
) -> None:
    if change is not let_all_write and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    file = machine.write(str(machine.home / ".jupyter" / name), WIDE)
    given = None if name == "ipysandbox.toml" else file
    assert memory(machine, given) == 8
    assert policy.not_counted(file, environ=machine.environ) == ()
    change(file.parent if folder else file)
    effective = machine.resolve(given)
    assert (effective.policy.limits.memory, effective.policy.limits.wall) == (4 * 2**30, 1)
    (notice,) = effective.notices
    assert why in notice
    assert f"policy trust {file}" in notice
    assert [wish.key for wish in policy.not_counted(file, environ=machine.environ)] == ["limits.memory"]
    machine.trust(file)
    assert memory(machine, given) == 8


def test_before_it_is_approved_all_is_shown_that_it_would_mean_in_any_project(machine: Machine) -> None:
    """The folder it lies in, and what lies there, is no project of its own."""
    machine.write(str(machine.home / "lab/.git/HEAD"))
    private = machine.home / "lab/private"
    private.mkdir()
    for place in ("fast.toml", "lab/fast.toml"):
        file = machine.write(
            str(machine.home / place), f"[files]\nread = ['.', 'data', '../up', '~/lab/private', '{private}/x', '~']"
        )
        _, (read,) = policy.loosens(file, environ=machine.environ)
        assert read.entries == ("../up", "~/lab/private", f"{private}/x", "~")


def test_an_approved_project_nearby_hides_nothing_of_what_a_file_asks_for(machine: Machine) -> None:
    machine.trust(machine.project_policy("[limits]\nmemory = '64GiB'"))
    file = machine.write("other.toml", WIDE)
    assert [wish.key for wish in policy.loosens(file, environ=machine.environ)[1]] == ["limits.memory"]


def test_relative_paths_are_those_of_the_project_that_it_is_used_in(machine: Machine) -> None:
    file = machine.write(str(machine.home / "policies/mine.toml"), "[files]\nread = ['data']\nwrite = ['src']")
    machine.trust(file)
    effective = machine.resolve(file)
    assert (effective.read, effective.write) == ((machine.project / "data",), (machine.project / "src",))


def test_what_could_not_be_used_where_it_is_named_is_not_advised(machine: Machine) -> None:
    file = machine.write(str(machine.home / "policies/mine.toml"), "[files]\nread = ['.', '/nowhere']")
    (notice,) = machine.resolve(file).notices
    assert "can't be approved as it is" in notice
    with pytest.raises(PolicyError, match="/nowhere"):
        machine.trust(file)


def test_what_was_approved_for_one_project_does_not_count_in_another(machine: Machine) -> None:
    other = machine.home / "other"
    (machine.home / "lab").mkdir()
    file = machine.write(str(other / "ipysandbox.toml"), WIDE + "[files]\nread = ['.', '~/lab']")
    machine.trust(file)
    assert machine.resolve(cwd=other).read == (other, machine.home / "lab")
    (machine.project / "link.toml").symlink_to(file)
    for named in (file, "./link.toml"):
        effective = machine.resolve(named)
        assert (effective.policy.limits.memory, effective.policy.limits.wall) == (4 * 2**30, 1)
        assert effective.read == (machine.project,)
    assert "the policy of another project" in machine.resolve(file).notices[0]
    # One that lies in the project, or around it, speaks here.
    around = machine.write("ipysandbox.toml", WIDE)
    machine.trust(around)
    (machine.project / "src/pyproject.toml").touch()
    assert memory(machine, "../ipysandbox.toml", machine.project / "src") == 8


def test_a_projects_policy_in_the_home_never_speaks_of_the_home(machine: Machine) -> None:
    file = machine.write(str(machine.home / "ipysandbox.toml"), WIDE + "[files]\nread = ['.', 'private']")
    (machine.home / "private").mkdir()
    (machine.project / "private").mkdir()
    machine.trust(file)
    assert machine.resolve(file).read == (machine.project,)
    assert memory(machine, file) == 4


def test_what_is_built_in_code_is_the_users_own(machine: Machine) -> None:
    assert memory(machine, {"limits": {"memory": "8GiB"}}) == 8
    assert memory(machine, policy.Policy().with_value("limits.memory", 8 * 2**30)) == 8
