"""Promises about paths: what is read and written is inside the project, whatever links a stranger put there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st

from ipysandbox.errors import PolicyError
from ipysandbox.policy.links import within
from ipysandbox.policy.paths import without_inner

if TYPE_CHECKING:
    from .conftest import Machine


def test_a_results_folder_that_links_outside_is_refused_by_name(machine: Machine) -> None:
    (machine.project / "results").symlink_to(machine.home / ".ssh")
    with pytest.raises(PolicyError) as caught:
        machine.resolve()
    assert '"results" is a link to' in caught.value.message
    assert f'is a link to "{str(machine.home)[:60]}' in caught.value.message  # a long path is cut


def test_a_results_folder_that_links_into_the_project_is_refused_too(machine: Machine) -> None:
    (machine.project / "results").symlink_to("src")
    with pytest.raises(PolicyError, match="written through a link") as caught:
        machine.resolve()
    assert 'name "src" in files.write' in str(caught.value.hint)


def test_a_results_folder_that_does_not_exist_yet_is_fine(machine: Machine) -> None:
    assert machine.resolve().write == (machine.project / "results",)
    assert not (machine.project / "results").exists()


def test_a_file_in_place_of_the_results_folder_is_an_error(machine: Machine) -> None:
    machine.write("results")
    with pytest.raises(PolicyError, match="not a folder"):
        machine.resolve()


@pytest.mark.parametrize("target", ["/etc", "../..", "../../other", "../src/../../x", "/nonexistent/autofs/x"])
def test_a_read_path_that_leaves_by_a_link_is_refused(machine: Machine, target: str) -> None:
    (machine.project / "data/link").symlink_to(target)
    for given in ("data/link", "data/link/deeper"):
        with pytest.raises(PolicyError, match='"data/link" is a link to'):
            machine.resolve({"files": {"read": [given]}})


def test_a_chain_of_links_that_ends_outside_is_refused(machine: Machine) -> None:
    (machine.project / "one").symlink_to("two")
    (machine.project / "two").symlink_to("data/three")
    (machine.project / "data/three").symlink_to(machine.home)
    with pytest.raises(PolicyError, match='"data/three" is a link to'):
        machine.resolve({"files": {"read": ["one"]}})


def test_a_loop_of_links_is_an_error(machine: Machine) -> None:
    (machine.project / "one").symlink_to("two")
    (machine.project / "two").symlink_to("one")
    with pytest.raises(PolicyError, match="loop of links"):
        machine.resolve({"files": {"read": ["one"]}})


def test_a_link_inside_the_project_is_read_as_what_it_points_to(machine: Machine) -> None:
    (machine.project / "current").symlink_to("data")
    (machine.project / "data/v2").mkdir()
    assert machine.resolve({"files": {"read": ["current/v2"]}}).read == (machine.project / "data/v2",)


def test_an_untrusted_policy_can_not_use_a_link_to_leave_what_the_user_reads(machine: Machine) -> None:
    (machine.project / "private").mkdir()
    (machine.project / "src/link").symlink_to("../private")
    machine.user_policy("[files]\nread = ['src']")
    machine.project_policy("[files]\nread = ['src/link']")
    with pytest.raises(PolicyError, match="by a link"):
        machine.resolve()


def test_paths_outside_that_an_untrusted_policy_names_are_not_even_looked_at(machine: Machine) -> None:
    watched = machine.home / "watched"
    watched.mkdir()
    before = os.stat(watched / ".").st_atime_ns
    machine.project_policy(f"[files]\nread = ['src', '{watched}/x', '/nonexistent/y']")
    assert machine.resolve().read == (machine.project / "src",)
    assert os.stat(watched / ".").st_atime_ns == before


def test_the_users_own_links_outside_the_project_are_followed(machine: Machine) -> None:
    (machine.home / "disk/set").mkdir(parents=True)
    (machine.home / "sets").symlink_to("disk")
    assert machine.resolve({"files": {"read": ["~/sets/set"]}}).read == (machine.home / "disk/set",)


def test_an_absolute_path_into_the_project_is_the_same_as_a_relative_one(machine: Machine) -> None:
    given = {"files": {"read": [str(machine.project / "src"), "src", "./src/../src/"]}}
    assert machine.resolve(given).read == (machine.project / "src",)


def test_paths_inside_others_are_not_listed_twice(machine: Machine) -> None:
    given = {"files": {"read": ["src", ".", "data"], "write": ["results/a", "results"]}}
    effective = machine.resolve(given)
    assert effective.read == (machine.project,)
    assert effective.write == (machine.project / "results",)


def test_a_single_file_can_be_read(machine: Machine) -> None:
    file = machine.write("data/x.csv", "1")
    assert machine.resolve({"files": {"read": ["data/x.csv"]}}).read == (file,)


def test_pipes_and_sockets_are_no_read_paths(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(machine.project / "pipe")
    monkeypatch.chdir(machine.project)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        for name in ("pipe", "sock"):
            with pytest.raises(PolicyError, match="neither a file nor a folder"):
                machine.resolve({"files": {"read": [name]}})


def test_a_write_path_outside_must_exist_and_be_the_users_wish(machine: Machine) -> None:
    with pytest.raises(PolicyError, match="does not exist"):
        machine.resolve({"files": {"write": ["~/out"]}})
    (machine.home / "out").mkdir()
    assert machine.resolve({"files": {"write": ["~/out"]}}).write == (machine.home / "out",)


def test_a_write_path_that_reaches_the_home_by_a_link_is_refused(machine: Machine) -> None:
    (machine.home.parent / "alias").symlink_to(machine.home)
    with pytest.raises(PolicyError, match="whole home folder"):
        machine.resolve({"files": {"write": [str(machine.home.parent / "alias")]}})


def test_a_folder_without_rights_is_an_error_not_a_crash(machine: Machine) -> None:
    if os.getuid() == 0:
        pytest.skip("root may look into every folder")
    locked = machine.project / "locked"
    locked.mkdir()
    locked.chmod(0)
    with pytest.raises(PolicyError, match="can't be looked at"):
        machine.resolve({"files": {"read": ["locked/x"]}})
    locked.chmod(0o700)


def test_a_data_set_is_readable_and_named_to_the_code(machine: Machine) -> None:
    data = machine.home / "sets/flowers"
    data.mkdir(parents=True)
    machine.user_policy("[data]\nsource_path = '~/sets/flowers'")
    effective = machine.resolve()
    assert effective.read == (machine.project, data)
    assert effective.environment == {"DATA_SOURCE_PATH": str(data)}


def test_a_file_name_that_is_no_text_does_not_break_the_policy(machine: Machine) -> None:
    odd = Path(os.fsdecode(os.fsencode(machine.home) + b"/od\xffd"))
    (odd / ".git").mkdir(parents=True)
    effective = machine.resolve(cwd=odd)
    assert effective.project == odd
    assert len(effective.digest()) == 64


@hypothesis.given(
    st.lists(st.lists(st.sampled_from(["a", "a-b", "a.b", "b", "~", " "]), max_size=4).map(lambda p: Path("/", *p)))
)
def test_of_paths_inside_each_other_the_outermost_stay_in_their_order(paths: list[Path]) -> None:
    unique = [*dict.fromkeys(paths)]
    kept = [p for p in unique if not any(p != other and within(str(p), str(other)) for other in unique)]
    assert [*without_inner(paths)] == kept
