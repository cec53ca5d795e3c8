"""Promises about which folder is the project, and which files speak about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipysandbox import policy

if TYPE_CHECKING:
    from .conftest import Machine


@pytest.mark.parametrize("marker", ["ipysandbox.toml", "pyproject.toml", ".git"])
def test_the_nearest_folder_with_a_marker_is_the_project(machine: Machine, marker: str) -> None:
    inner = machine.project / "part"
    deep = inner / "a/b"
    deep.mkdir(parents=True)
    (inner / marker).touch()
    assert policy.find_project(deep, environ=machine.environ) == inner


def test_without_marker_the_folder_itself_is_the_project(machine: Machine) -> None:
    folder = machine.home / "loose/deep"
    folder.mkdir(parents=True)
    assert policy.find_project(folder, environ=machine.environ) == folder


@pytest.mark.parametrize("marker", ["ipysandbox.toml", "pyproject.toml", ".git"])
def test_the_home_and_what_is_above_is_never_a_project_by_its_markers(machine: Machine, marker: str) -> None:
    folder = machine.home / "loose"
    folder.mkdir()
    for above in (machine.home, machine.home.parent):
        (above / marker).write_text("broken [" if marker != ".git" else "")
    effective = machine.resolve(cwd=folder)
    assert effective.project == folder


def test_a_shared_temporary_folder_is_never_a_project_by_its_markers(machine: Machine) -> None:
    shared = machine.home.parent / "tmp"
    folder = shared / "mine"
    folder.mkdir(parents=True)
    shared.chmod(0o1777)
    (shared / "ipysandbox.toml").write_text("broken [")
    assert machine.resolve(cwd=folder).project == folder


def test_a_project_reached_through_a_link_is_its_real_folder(machine: Machine) -> None:
    link = machine.home / "link"
    link.symlink_to(machine.project)
    effective = machine.resolve(cwd=link / "src")
    assert effective.project == machine.project
    assert effective.read == (machine.project,)


@pytest.mark.parametrize("where", ["home", "above", "root", "shared"])
def test_a_folder_too_wide_for_a_project_gives_nothing_to_read(machine: Machine, where: str) -> None:
    shared = machine.home.parent / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    cwd = {"home": machine.home, "above": machine.home.parent, "root": Path("/"), "shared": shared}[where]
    effective = machine.resolve({"files": {"write": []}}, cwd=cwd)
    assert (effective.project, effective.project_is_home, effective.read) == (cwd, True, ())
    assert "too wide for a project" in effective.notices[0]


def test_folders_named_inside_the_home_can_be_read_there(machine: Machine) -> None:
    machine.user_policy("[files]\nread = ['study/data']")
    effective = machine.resolve(cwd=machine.home)
    assert (effective.project_is_home, effective.read) == (True, (machine.project / "data",))


def test_the_real_home_counts_even_when_home_is_set_elsewhere(machine: Machine) -> None:
    import pwd

    real = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    machine.environ["HOME"] = str(machine.home)
    assert machine.resolve({"files": {"write": []}}, cwd=Path(real)).project_is_home


def test_a_policy_above_the_project_counts_and_speaks_of_its_own_folder(machine: Machine) -> None:
    machine.project_policy("[limits]\ncpu = '5s'\n[files]\nread = ['part/src']")
    part = machine.project / "part"
    (part / "src").mkdir(parents=True)
    (part / ".git").mkdir()
    effective = machine.resolve(cwd=part)
    assert effective.project == part
    assert effective.policy.limits.cpu == 5
    assert effective.read == (part / "src",)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, ".jupyter"),
        ({"JUPYTER_CONFIG_DIR": "HOME/conf"}, "conf"),
        ({"JUPYTER_PLATFORM_DIRS": "1"}, ".config/jupyter"),
        ({"JUPYTER_PLATFORM_DIRS": "1", "XDG_CONFIG_HOME": "HOME/xdg"}, "xdg/jupyter"),
    ],
)
def test_the_users_file_is_in_jupyters_configuration_folder(
    machine: Machine, environ: dict[str, str], folder: str
) -> None:
    machine.environ.update({k: v.replace("HOME", str(machine.home)) for k, v in environ.items()})
    machine.write(str(machine.home / folder / "ipysandbox.toml"), "[limits]\ncpu = '7s'")
    assert machine.resolve().policy.limits.cpu == 7


def test_without_a_variable_for_the_home_the_password_database_is_asked(machine: Machine) -> None:
    del machine.environ["HOME"]
    assert machine.resolve().project == machine.project


def test_code_begins_in_the_folder_that_it_is_run_for_with_a_results_folder_there(machine: Machine) -> None:
    (machine.project / ".git").mkdir(exist_ok=True)
    folder = machine.project / "notebooks/old"
    folder.mkdir(parents=True)
    effective = machine.resolve(cwd=folder)
    assert (effective.project, effective.folder) == (machine.project, folder)
    assert effective.write == (folder / "results",)
    assert effective.writable_names() == ("results", str(folder / "results"))
    named = machine.resolve({"files": {"write": ["results"]}}, cwd=folder)  # somebody has said which
    assert (named.folder, named.write) == (folder, (machine.project / "results",))
    assert named.writable_names()[0] == "../../results"
    assert effective.digest() != machine.resolve(cwd=folder.parent).digest()


@pytest.mark.parametrize(("where", "read"), [("secrets/plots", ["."]), ("notebooks", ["src"])])
def test_code_begins_in_the_project_where_its_own_folder_is_not_shown(
    machine: Machine, where: str, read: list[str]
) -> None:
    (machine.project / ".git").mkdir(exist_ok=True)
    folder = machine.project / where
    folder.mkdir(parents=True)
    effective = machine.resolve({"files": {"read": read, "hide": ["secrets"]}}, cwd=folder)
    assert effective.folder == machine.project
    assert effective.write == (machine.project / "results",)


def test_results_do_not_go_where_programs_act_on_what_is_new(machine: Machine) -> None:
    (machine.project / ".git").mkdir(exist_ok=True)
    folder = machine.project / ".github/workflows"
    folder.mkdir(parents=True)
    assert machine.resolve(cwd=folder).write == (machine.project / "results",)
