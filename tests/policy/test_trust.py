"""Promises about a stranger's project that ships a policy: it only tightens, until the user approved that content."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipysandbox import policy
from ipysandbox.errors import PolicyError

if TYPE_CHECKING:
    from .conftest import Machine

GREEDY = """
[limits]
memory = "64GiB"
cpu = "5s"
[files]
read = [".", "~/.config", "/etc"]
write = ["results", "src"]
hide = ["!.env", "private"]
[environment]
allow = ["LAB"]
[code]
profile = "off"
allow = ["call.os-system"]
[data]
source_path = "~/secrets"
"""


def test_a_strangers_policy_can_not_widen_anything(machine: Machine) -> None:
    machine.project_policy(GREEDY)
    machine.environ["LAB"] = "1"
    (machine.home / "secrets").mkdir()
    effective = machine.resolve()
    default = policy.PROFILES["default"]
    assert effective.policy.limits.memory == default.limits.memory
    assert effective.policy.limits.cpu == 5
    assert effective.read == (machine.project,)
    assert effective.write == (machine.project / "results",)
    assert effective.hidden == (*default.files.hide, "private")
    assert effective.environment == {}
    assert (effective.policy.code.profile, effective.policy.code.allow) == ("default", ())


def test_what_was_not_granted_is_told_in_one_line_with_the_way_to_approve(machine: Machine) -> None:
    for folder in (".config", "secrets"):
        (machine.home / folder).mkdir()
    file = machine.project_policy(GREEDY)
    (notice,) = machine.resolve().notices
    assert "\n" not in notice
    for wish in (
        "limits.memory 4GiB → 64GiB",
        "files.read + ~/.config, /etc",
        "files.write + src",
        "files.hide + !.env",
    ):
        assert wish in notice
    assert "limits.cpu" not in notice
    assert f"ipysandbox policy trust {file}" in notice


def test_a_project_lets_code_ask_again_only_once_that_is_approved(machine: Machine) -> None:
    machine.user_policy('[output]\nstdin = "off"')
    file = machine.project_policy('[output]\nstdin = "visible"')
    effective = machine.resolve()
    assert effective.policy.output.stdin == "off"
    assert "output.stdin off → visible" in effective.notices[0]
    machine.trust(file)
    assert machine.resolve().policy.output.stdin == "visible"


def test_only_what_the_file_tightens_has_it_as_source(machine: Machine) -> None:
    file = machine.project_policy(GREEDY)
    sources = machine.resolve().sources
    assert sources["limits.cpu"] == f"project file {file}"
    assert sources["limits.memory"] == "built-in default"


def test_a_policy_that_only_tightens_needs_no_approval(machine: Machine) -> None:
    machine.project_policy("[limits]\ncpu = '5s'\n[files]\nread = ['src']\nwrite = []\nworkspace = 'readonly'")
    effective = machine.resolve()
    assert effective.notices == ()
    assert (effective.read, effective.write) == ((machine.project / "src",), ())


def test_a_project_lets_widgets_pass_only_once_that_is_approved(machine: Machine) -> None:
    file = machine.project_policy("[output]\nwidgets = true")
    effective = machine.resolve()
    assert not effective.policy.output.widgets
    assert "output.widgets false → true" in effective.notices[0]
    machine.trust(file)
    assert machine.resolve().policy.output.widgets


def test_the_difference_can_be_looked_at_before_approving(machine: Machine) -> None:
    file = machine.project_policy(GREEDY)
    for folder in (".config", "secrets"):
        (machine.home / folder).mkdir()
    digest, wishes = policy.loosens(file, environ=machine.environ)
    assert [wish.key for wish in wishes] == [
        "limits.memory",
        "files.read",
        "files.write",
        "files.hide",
        "environment.allow",
        "code.profile",
        "code.allow",
        "data.source_path",
    ]
    policy.trust(file, expect=digest, environ=machine.environ)
    assert policy.loosens(file, environ=machine.environ) == (digest, wishes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[files]\nread = ['~']", "holds your whole home folder"),
        ("[files]\nread = ['.', '~/nowhere']", "does not exist"),
        ("[files]\nwrite = ['/etc']", "belongs to the system"),
        ("[environment]\nallow = ['HF_TOKEN']", "HF_TOKEN is never passed"),
        ("[environment]\nallow = ['LAB']", "LAB is never passed to a sandbox: its value"),
    ],
)
def test_what_would_make_every_run_an_error_is_not_approved_nor_advised(machine: Machine, text: str, why: str) -> None:
    machine.environ["LAB"] = "ghp_" + "Zq3" * 8
    file = machine.project_policy(text)
    (notice,) = machine.resolve().notices
    assert "can't be approved as it is" in notice
    assert why in notice
    assert "policy trust" not in notice
    with pytest.raises(PolicyError, match=why):
        machine.trust(file)
    assert not policy.is_trusted(file, environ=machine.environ)
    assert why in str(policy.lint(file, environ=machine.environ)[0])
    assert machine.environ["LAB"] not in notice


def test_a_second_policy_named_from_the_project_asks_for_its_own_approval(machine: Machine) -> None:
    machine.project_policy("[limits]\nmemory = '8GiB'")
    other = machine.write("other.toml", "[limits]\ndisk = '2GiB'")
    notices = machine.resolve(other).notices
    assert [
        f"policy trust {machine.project / name}" in notice
        for name, notice in zip(("ipysandbox.toml", "other.toml"), notices, strict=True)
    ] == [True, True]


def test_only_the_projects_own_policy_waits_for_an_approval(machine: Machine) -> None:
    text = "[limits]\nmemory = '8GiB'"
    file, own = machine.project_policy(text), machine.user_policy(text.replace("8", "6"))
    assert [str(w) for w in policy.not_counted(file, environ=machine.environ)] == ["limits.memory 6GiB → 8GiB"]
    assert policy.not_counted(own, environ=machine.environ) == ()
    machine.trust(file)
    assert policy.not_counted(file, environ=machine.environ) == ()


def test_the_difference_is_against_what_the_user_allows(machine: Machine) -> None:
    machine.user_policy("[limits]\nmemory = '8GiB'")
    file = machine.project_policy("[limits]\nmemory = '6GiB'\ndisk = '2GiB'")
    assert [str(w) for w in policy.loosens(file, environ=machine.environ)[1]] == ["limits.disk 1GiB → 2GiB"]


def test_an_approved_policy_counts_in_full(machine: Machine) -> None:
    file = machine.project_policy("[limits]\nmemory = '64GiB'\n[files]\nread = ['.', '/etc']\nwrite = ['src']")
    assert not policy.is_trusted(file, environ=machine.environ)
    machine.trust(file)
    assert policy.is_trusted(file, environ=machine.environ)
    effective = machine.resolve()
    assert effective.policy.limits.memory == 64 * 2**30
    assert effective.read == (machine.project, Path("/etc"))
    assert effective.write == (machine.project / "src",)
    assert effective.notices == ()


def test_a_change_after_the_approval_takes_it_away(machine: Machine) -> None:
    file = machine.project_policy("[limits]\nmemory = '8GiB'")
    machine.trust(file)
    machine.project_policy("[limits]\nmemory = '16GiB'")
    effective = machine.resolve()
    assert effective.policy.limits.memory == 4 * 2**30
    assert "changed since you approved it" in effective.notices[0]


def test_a_change_between_looking_and_approving_approves_nothing(machine: Machine) -> None:
    file = machine.project_policy("[limits]\nmemory = '8GiB'")
    digest, _ = policy.loosens(file, environ=machine.environ)
    machine.project_policy("[limits]\nmemory = '64GiB'")
    with pytest.raises(PolicyError, match="changed since it was shown"):
        policy.trust(file, expect=digest, environ=machine.environ)
    assert not policy.is_trusted(file, environ=machine.environ)


def test_an_approval_is_for_one_place(machine: Machine) -> None:
    text = "[limits]\nmemory = '8GiB'"
    machine.trust(machine.project_policy(text))
    copy = machine.write(str(machine.home / "copy/ipysandbox.toml"), text)
    assert not policy.is_trusted(copy, environ=machine.environ)
    assert machine.resolve(cwd=copy.parent).policy.limits.memory == 4 * 2**30


def test_an_approval_can_be_withdrawn_even_when_the_file_is_gone(machine: Machine) -> None:
    file = machine.project_policy("[limits]\nmemory = '8GiB'")
    machine.trust(file)
    file.unlink()
    assert policy.untrust(file, environ=machine.environ)
    assert not policy.untrust(file, environ=machine.environ)
    machine.project_policy("[limits]\nmemory = '8GiB'")
    assert machine.resolve().policy.limits.memory == 4 * 2**30


def test_in_pyproject_only_our_table_is_approved(machine: Machine) -> None:
    ours = "[tool.ipysandbox.limits]\nmemory = '8GiB'\n"
    file = machine.write("pyproject.toml", ours + "[project]\nname = 'a'\n")
    machine.trust(file)
    machine.write("pyproject.toml", "[project]\nname = 'b'\n" + ours)
    assert machine.resolve().policy.limits.memory == 8 * 2**30
    machine.write("pyproject.toml", ours.replace("8", "9"))
    assert machine.resolve().policy.limits.memory == 4 * 2**30


def test_a_wrong_policy_can_not_be_approved(machine: Machine) -> None:
    with pytest.raises(PolicyError, match="memroy"):
        machine.trust(machine.project_policy("[limits]\nmemroy = '8GiB'"))
    with pytest.raises(PolicyError, match=r"no \[tool.ipysandbox\] table"):
        machine.trust(machine.write("pyproject.toml", "[project]\n"))


def test_the_list_of_approvals_is_outside_the_project_and_private(machine: Machine) -> None:
    machine.trust(machine.project_policy("[limits]\nmemory = '8GiB'"))
    store = machine.home / ".local/share/ipysandbox/trusted.json"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    assert list(json.loads(store.read_text())["trusted"]) == [str(machine.project / "ipysandbox.toml")]


def test_the_list_of_approvals_follows_xdg_data_home(machine: Machine) -> None:
    machine.environ["XDG_DATA_HOME"] = str(machine.home / "elsewhere")
    machine.trust(machine.project_policy("[limits]\nmemory = '8GiB'"))
    assert (machine.home / "elsewhere/ipysandbox/trusted.json").exists()
    assert machine.resolve().policy.limits.memory == 8 * 2**30


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 99, "trusted": {}}', '{"version": 1, "trusted": [1]}'])
def test_a_damaged_list_of_approvals_approves_nothing(machine: Machine, damage: str) -> None:
    machine.trust(machine.project_policy("[limits]\nmemory = '8GiB'"))
    (machine.home / ".local/share/ipysandbox/trusted.json").write_text(damage)
    with pytest.raises(PolicyError, match="list of approved policies can't be used"):
        machine.resolve()


def test_a_list_that_others_could_write_approves_nothing(machine: Machine) -> None:
    machine.trust(machine.project_policy("[limits]\nmemory = '8GiB'"))
    (machine.home / ".local/share/ipysandbox/trusted.json").chmod(0o666)
    with pytest.raises(PolicyError, match="others could have written it"):
        machine.resolve()


def test_a_name_made_to_fool_the_terminal_is_shown_harmless(machine: Machine) -> None:
    folder = machine.home / "a\x1b[2J\nb"
    machine.write(str(folder / "ipysandbox.toml"), "[limits]\nmemory = '8GiB'")
    (notice,) = machine.resolve(cwd=folder).notices
    assert notice.isprintable()


def approve_one(job: tuple[str, str]) -> None:
    file, home = job
    policy.trust(Path(file), environ={"HOME": home})


def test_approvals_at_the_same_time_are_all_remembered(machine: Machine) -> None:
    files = []
    for i in range(12):
        files.append(machine.write(str(machine.home / f"p{i}/ipysandbox.toml"), "[limits]\nmemory = '8GiB'"))
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(approve_one, [(str(file), str(machine.home)) for file in files])
    assert all(policy.is_trusted(file, environ=machine.environ) for file in files)


def test_every_entry_that_would_be_approved_is_shown(machine: Machine) -> None:
    names = [f"data/{n:03}" for n in range(40)]
    for name in names:
        (machine.project / name).mkdir()
    hosts = machine.home / "private"
    hosts.mkdir()
    entries = [*names, str(hosts)]
    machine.user_policy("[files]\nread = ['src']")
    file = machine.project_policy(f"[files]\nread = {json.dumps(entries)}\n[code]\nallow = ['call.os-system']")
    _, (read, allow) = policy.loosens(file, environ=machine.environ)
    (notice,) = machine.resolve().notices
    for shown in (str(read), notice):
        assert all(entry in shown for entry in entries)
    assert read.lines() == ["files.read + 41 entries:", *(f"  {entry}" for entry in entries)]
    assert allow.lines() == [str(allow)] == ["code.allow + call.os-system"]
    machine.trust(file)


@pytest.mark.parametrize(
    ("write", "why"),
    [
        ([f"a{n}" for n in range(501)], "501 entries"),
        ([f"{'a' * 200}/{'b' * 200}/{n}" for n in range(300)], "122 kB"),
    ],
)
def test_what_is_too_much_to_be_read_can_not_be_approved(machine: Machine, write: list[str], why: str) -> None:
    file = machine.project_policy(f"[files]\nwrite = {json.dumps(write)}")
    (notice,) = machine.resolve().notices
    assert "can't be approved as it is" in notice
    assert why in notice
    assert "policy trust" not in notice
    assert len(notice) < 1000
    with pytest.raises(PolicyError, match=why):
        machine.trust(file)
    with pytest.raises(PolicyError, match=why):
        policy.check_approvable(file, environ=machine.environ)
    assert not policy.is_trusted(file, environ=machine.environ)
