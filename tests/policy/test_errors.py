"""Promises about a policy that says something impossible: where, what, what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox import policy
from ipysandbox.errors import PolicyError
from ipysandbox.policy.schema import FIELDS, read_table

if TYPE_CHECKING:
    from .conftest import Machine

# text of the file, line of the error, what the message says, what the hint says
BAD: list[tuple[str, int, str, str]] = [
    ("[limits]\nmemroy = '1GiB'", 2, 'limits.memroy: unknown key "memroy"', 'did you mean "memory"?'),
    ("[limit]\nmemory = '1GiB'", 1, 'limit: unknown key "limit"', 'did you mean "limits"?'),
    ("memory = '1GiB'", 1, 'memory: unknown key "memory"', 'did you mean "limits.memory"?'),
    ("[limits]\nxyzzy = 1", 2, "unknown key", "known here: cpu, wall"),
    ("\"limits.memory\" = '1GiB'", 1, "unknown key", "without quotes"),
    (
        "[files]\nrequire = ['network']",
        2,
        'unknown key "require"',
        "require belongs at the top of the policy, above all",
    ),
    ("[limits]\nbackend = 'linux'", 2, 'unknown key "backend"', "backend belongs at the top"),
    ("[code]\nhide = ['x']", 2, 'unknown key "hide"', 'did you mean "files.hide"?'),
    ("limits.open-files = 10", 1, "unknown key", 'did you mean "open_files"?'),
    (
        "profile = 'strict'",
        1,
        'unknown key "profile"',
        'with --policy strict, or policy="strict" in Python, not in a file',
    ),
    ("[limits]\nmemory = 2000", 2, "2000 has no unit", 'write "2000MiB"'),
    ("[limits]\nmemory = 2GiB", 2, "2GiB is a text, and has to be in quotes", 'write memory = "2GiB"'),
    ("[limits]\nwall = 1.5 h  # long", 2, "1.5 h is a text", 'write wall = "1.5 h"'),
    ("limits = {cpu = 5min, wall = '1h'}", 1, "5min is a text", 'write cpu = "5min"'),
    ("[code]\nprofile = off", 2, "off is a text", 'write profile = "off"'),
    ("[limits]\nmemory = '2GiB' x = 3s", 2, "not valid TOML", "toml.io"),
    ("[code]\nallow = ['call.shel']", 2, 'unknown rule "call.shel"', 'did you mean "call.shell"?'),
    ("[code]\ndeny = ['import.ctype']", 2, 'unknown rule "import.ctype"', 'did you mean "import.ctypes"?'),
    ("[code]\nallow = ['magic.shel']", 2, 'unknown rule "magic.shel"', 'did you mean "magic.shell"?'),
    ("[limits]\ncpu = 300", 2, "limits.cpu: 300 has no unit", 'write "300s"'),
    ("[limits]\ncpu = '5m'", 2, 'unknown unit "m"', 'write "5min"'),
    ("[limits]\nwall = '1min'\ncpu = '99d'", 3, "99d is out of range", "from 50ms to 30d"),
    ("[limits]\nmemory = '4G'", 2, 'unknown unit "G"', 'write "4GiB"'),
    ("[limits]\nmemory = '1KiB'", 2, "1KiB is out of range", "from 256MiB"),
    ("[limits]\nmemory = -1", 2, "must be more than zero", "4GiB"),
    ("[start]\nmode = 'spawn'", 2, 'start.mode: unknown value "spawn"', "known: fork, exec"),
    ("[start]\nmod = 'exec'", 2, 'start.mod: unknown key "mod"', 'did you mean "mode"?'),
    ("[start]\npreload = ['./evil.py']", 2, "is no module's name", 'for example "numpy"'),
    ("[start]\npool = 99", 2, "99 is out of range", "from 0 to 8"),
    ("[limits]\nprocesses = '256'", 2, "must be a whole number", "for example"),
    ("[limits]\nprocesses = 2.5", 2, "must be a whole number", "for example"),
    ("[limits]\nprocesses = true", 2, "not a boolean", "for example"),
    ("[limits]\nprocesses = 0", 2, "0 is out of range", "from 16"),
    ("[limits]\nprocesses = 0x" + "f" * 5000, 2, "out of range", "from 16"),
    ("[limits]\ncpus = nan", 2, "out of range", "from 0.1"),
    ("[limits]\ncpus = inf", 2, "out of range", "from 0.1"),
    ("limits = 3", 1, "limits: must be a table, not a number", "write [limits]"),
    ("[[files]]\nread = ['.']", 1, "must be a table, not a list", "write [files]"),
    ("[files]\nread = 'src'", 2, "must be a list, not a text", 'write ["src"]'),
    ("[files]\nread = [\n 'src',\n 5,\n]", 4, "entries are texts, not a number", "for example"),
    ("[files]\nread = [\n 'src',\n '',\n]", 4, "empty path", '"."'),
    ("[files]\nread = ['a\\u001bb']".replace("'", '"'), 2, "no usable path", "rename"),
    ("[files]\nread = ['~bob/x']", 2, "another user's home", "whole path"),
    ("[files]\nread = [\n 'src',\n 'dta',\n]", 4, '"dta" does not exist', 'did you mean "data"?'),
    ("[files]\nread = ['data/*.csv']", 2, "does not exist", "patterns mean nothing here"),
    ("[files]\nhide = ['a/../b']", 2, "no name pattern", "*.pem"),
    ("[files]\nhide = ['**/x']", 2, "means nothing here", "any depth"),
    ("[files]\nworkspace = 'overlays'", 2, 'unknown value "overlays"', 'did you mean "overlay"?'),
    ("[files]\nworkspace = 1", 2, 'must be "overlay" or "readonly"', "overlay"),
    ("[files]\nwrite = ['.git']", 2, "hidden or protected", "results"),
    ("[files]\nwrite = ['src/.vscode/x']", 2, "hidden or protected", "results"),
    ("[files]\nwrite = ['/']", 2, "holds", "name"),
    ("[files]\nwrite = ['..']", 2, "holds", "name"),
    ("[files]\nwrite = ['~']", 2, "holds", "name"),
    ("[files]\nwrite = ['/etc/x']", 2, "belongs to the system", "below the project"),
    ("[files]\nwrite = ['file.txt']", 2, "not a folder", "rename"),
    ("[files]\nwrite = ['~/.jupyter']", 2, "holds your own policy", "name a folder inside"),
    ("[files]\nread = ['~']", 2, "holds your whole home folder", "folders inside"),
    ("[files]\nread = ['/']", 2, "holds your whole home folder", "folders inside"),
    ("[files]\nread = ['/proc/1']", 2, "belongs to the kernel", "copy"),
    ("[files]\nread = ['~/.ssh']", 2, "hidden by files.hide", "!.ssh"),
    ("[files]\nread = ['.env']", 2, "hidden by files.hide", "!.env"),
    ("[files]\nread = ['/nonexistent/x']", 2, "does not exist", "relative"),
    ("[files]\nhide = ['!*.pme']", 2, 'nothing hides "*.pme"', 'did you mean "!*.pem"?'),
    ("[code]\nprofile = 'of'", 2, 'unknown value "of"', 'did you mean "off"?'),
    ("[code]\ndeny = ['os system']", 2, "no rule or name", "os.system"),
    ("[environment]\nallow = ['LAB_*']", 2, "no name of a variable", "one by one"),
    ("[environment]\nallow = [\n 'LAB',\n 'GITHUB_TOKEN',\n]", 4, "GITHUB_TOKEN is never passed", "file it may read"),
    ("[data]\nsource_path = ['/data']", 2, "must be a path", "for example"),
    ("[data]\nsource_path = 'nowhere'", 2, "does not exist", "relative"),
    ("[output]\nwidgets = 'no'", 2, "must be true or false", "write"),
    # what later versions will do
    ("[network]\nallow = ['a.example:443']", 2, "network.allow: not available in this version", "only [] works"),
    ("[network]\nallow = ['https://a.example']", 2, "is no host", "without https://"),
    ("[credentials.openai]\nsource = 'env:X'", 1, "credentials are not available in this version", "remove"),
    ("[code]\nallow = ['call.os-sytem']", 2, 'unknown rule "call.os-sytem"', 'did you mean "call.os-system"?'),
    ("[credentials.openai]\nsorce = 'env:X'", 2, 'unknown key "sorce"', 'did you mean "source"?'),
    ("[credentials]\nopenai = 1", 2, "must be a table", "credentials.openai"),
    ("[limits]\ngpu = { devices = ['/dev/nvidia0'] }", 2, "is no graphics card", "nvidia-smi -L"),
    ("[limits.gpu]\nmemory_fraction = 1.9", 2, "1.9 is out of range", "from 0.01 to 1"),
    ("[limits.gpu]\ndevice = []", 2, "unknown key", 'did you mean "devices"?'),
    ("[output]\nhtml = 'isolated'", 2, 'unknown value "isolated"', 'did you mean "isolate"?'),
    ("[files]\nreview = 'all'", 2, "not available in this version", 'only "rest" works'),
    ("backend = 'docker'", 1, "not available in this version", 'only "linux" works'),
]


@pytest.mark.parametrize(("text", "line", "message", "hint"), BAD, ids=[f"{row[0][:50]!a}" for row in BAD])
def test_what_a_policy_can_not_mean_is_told_with_line_and_remedy(
    machine: Machine, text: str, line: int, message: str, hint: str
) -> None:
    machine.write(str(machine.home / ".ssh/id"))
    machine.write(".env")
    machine.write("file.txt")
    file = machine.user_policy(text)
    with pytest.raises(PolicyError) as caught:
        machine.resolve()
    assert (caught.value.file, caught.value.line) == (str(file), line)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


INERT = """
backend = "linux"
credentials = {}
[limits]
cpu = "300s"
gpu = { devices = [], memory_fraction = 0.5 }
[files]
review = "rest"
[network]
allow = []
[output]
html = "sanitize"
widgets = false
"""


def test_defaults_of_parts_to_come_may_be_written_down(machine: Machine) -> None:
    machine.user_policy(INERT)
    assert machine.resolve().notices == ()


def test_a_project_can_not_name_credentials(machine: Machine) -> None:
    machine.project_policy("[credentials.openai]\nsource = 'env:OPENAI_API_KEY'\n")
    with pytest.raises(PolicyError, match="a project can't name sources of credentials"):
        machine.resolve()


def test_lint_finds_all_problems_in_order_of_lines(machine: Machine) -> None:
    file = machine.project_policy(
        '[files]\nread = ["src", "nowhere"]\n[limits]\ncpu = 3\nmemroy = "1GiB"\n[environment]\nallow = ["HF_TOKEN"]\n'
    )
    problems = policy.lint(file)
    assert [p.line for p in problems] == [2, 4, 5, 7]
    assert str(problems[1]).startswith(f"{file}:4: limits.cpu: 3 has no unit")


def test_lint_is_silent_about_a_good_policy(machine: Machine) -> None:
    assert policy.lint(machine.project_policy('[files]\nread = ["src"]\nwrite = ["results"]\nhide = ["x"]\n')) == []


def test_lint_tells_a_broken_file_from_a_missing_one(machine: Machine) -> None:
    broken = policy.lint(machine.project_policy("[limits\n"))
    assert (len(broken), broken[0].line) == (1, 1)
    assert "can't be read" in policy.lint(machine.project / "nowhere.toml")[0].message


def test_further_problems_are_told_with_the_first(machine: Machine) -> None:
    machine.user_policy("[limits]\ncpu = 1\nwall = 1\n")
    with pytest.raises(PolicyError) as caught:
        machine.resolve()
    assert "also: " in str(caught.value.hint)
    assert "limits.wall" in str(caught.value.hint)
    assert '(write "1s"' in str(caught.value.hint)  # each with what to write instead


def test_a_path_that_is_not_there_is_told_with_a_key_that_is_unknown(machine: Machine) -> None:
    file = machine.project_policy("[files]\nread = ['srcs']\n[limits]\nmemmory = '1GiB'\n")
    inner = machine.project / "src"
    for marker in (".git", "srcs"):  # a project of its own, with a folder of that name: the file speaks of its own
        (inner / marker).mkdir()
    for folder in (machine.project, inner):
        with pytest.raises(PolicyError) as caught:
            machine.resolve(cwd=folder)
        assert [problem.message in str(caught.value) for problem in policy.lint(file)] == [True, True]


def test_a_key_below_a_table_of_pyproject_is_told_its_place(machine: Machine) -> None:
    machine.write("pyproject.toml", "[tool.ipysandbox.files]\nrequire = ['network']\n")
    with pytest.raises(PolicyError, match=r"directly below \[tool\.ipysandbox\]"):
        machine.resolve()


@pytest.mark.parametrize(
    ("write", "doubts"),
    [
        ("reslts", ['"reslts" does not exist yet and will be made', 'did you mean "results"?']),
        ("src/modle", ['"src/modle" does not exist yet', 'did you mean "src/model"?']),
        ("results", ['"results" does not exist yet']),
        ("src", []),
    ],
)
def test_a_folder_that_will_be_made_is_told_with_what_may_be_meant(
    machine: Machine, write: str, doubts: list[str]
) -> None:
    machine.write("src/model/x.py")
    file = machine.project_policy(f"[files]\nwrite = ['{write}']\n")
    assert policy.lint(file, environ=machine.environ) == []
    found = "\n".join(str(doubt) for doubt in policy.doubts(file, environ=machine.environ))
    assert all(text in found for text in doubts), found
    assert bool(found) == bool(doubts)
    assert ("did you mean" in found) == (len(doubts) == 2)
    assert not found or f"{file}:2: files.write: " in found


@pytest.mark.parametrize(
    "given_policy",
    ["strikt", {"limits": {"cpu": 1}}, {"nonsense": {}}, policy.Policy(limits=3)],  # type: ignore[arg-type]
)
def test_what_makes_no_sense_in_itself_is_told_without_a_look_at_any_file(given_policy: Any) -> None:
    with pytest.raises(PolicyError):
        policy.check_given(given_policy, {})
    with pytest.raises(PolicyError, match="fortnight"):
        policy.check_given(None, {"limits.wall": "1 fortnight"})
    policy.check_given("./mine.toml", {"limits.wall": "1min"})


def test_names_of_python_are_no_misspelt_rules(machine: Machine) -> None:
    names = ("os.system", "magic.from_file", "eval", "call.shell", "magic.shell", "dunder.globals")
    machine.project_policy(f"[code]\ndeny = {list(names)}")
    assert set(machine.resolve().policy.code.deny) == set(names)


def test_an_argument_is_named_as_its_caller_names_it() -> None:
    with pytest.raises(PolicyError, match=r'^timeout: "10 seconds" has an unknown unit "seconds"\nwrite "10s"$'):
        policy.check_given(None, {"limits.wall": "10 seconds"}, {"limits.wall": "timeout"})


def test_an_option_of_the_cell_is_checked_like_a_file(machine: Machine) -> None:
    with pytest.raises(PolicyError, match=r'cell option: limits\.wall: "5m" has an unknown unit'):
        machine.resolve(limits__wall="5m")
    with pytest.raises(PolicyError, match=r'cell option: limits\.wal: unknown key "wal"'):
        machine.resolve(limits__wal="5min")


@pytest.mark.parametrize(
    "given_policy", [{"limits": {"cpu": 1}}, {"nonsense": {}}, {1: 2}, {"limits": 3}, {"files": {"read": [3]}}]
)
def test_a_mapping_is_checked_like_a_file(machine: Machine, given_policy: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="policy argument"):
        machine.resolve(given_policy)


def test_a_misspelt_profile_is_told_the_right_spelling(machine: Machine) -> None:
    with pytest.raises(PolicyError, match='unknown policy "strikt"') as caught:
        machine.resolve("strikt")
    assert 'did you mean "strict"?' in str(caught.value.hint)


def test_a_policy_file_that_is_not_there_is_an_error(machine: Machine) -> None:
    with pytest.raises(PolicyError, match="does not exist"):
        machine.resolve("./mine.toml")


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(st.sampled_from(sorted(FIELDS)), anything)
def test_any_value_is_either_read_or_a_problem(key: str, value: object) -> None:
    table: dict[str, Any] = {}
    *parents, name = key.split(".")
    inner = table
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[name] = value
    wishes, problems = read_table(table, "test")
    assert (key in wishes.values) != bool(problems)
    assert all(str(p).replace("\n", "").isprintable() for p in problems)


@given(st.dictionaries(st.text(), anything, max_size=4))
def test_no_unknown_table_goes_unnoticed(table: dict[str, Any]) -> None:
    _, problems = read_table(table, "test")
    unknown = [name for name in table if name not in {key.split(".")[0] for key in FIELDS} | {"credentials"}]
    assert len([p for p in problems if "unknown key" in p.message]) >= len(unknown)
