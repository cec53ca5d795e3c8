"""The one line under a cell that failed at the sandbox's walls."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import Sandbox
from ipysandbox.hints import hint, may_apply, may_run_programs, output_hint

POLICY = {
    "project": "/home/me/study",
    "folder": "/home/me/study",
    "read": ["/home/me/study/src", "/data/shared"],
    "write": ["/home/me/study/results"],
    "hidden": [".env", "*.pem"],
    "policy": {
        "network": {"allow": []},
        "files": {"workspace": "overlay", "read": ["src", "/data/shared"], "write": ["results"]},
    },
}
FILES = {"workspace": "readonly", "read": ["src", "/data/shared"], "write": ["results"]}
READ_ONLY = {**POLICY, "policy": {"network": {"allow": []}, "files": FILES}}
#: Of a file outside the project, and of one inside.
OUTSIDE = "it is not in files.read. Copy it into the project, or write in ~/.jupyter/ipysandbox.toml: [files] read = "
INSIDE = "it is not in files.read. Write in ~/.jupyter/ipysandbox.toml: [files] read = "
ANEW = "; it counts from the next sandbox, which a notebook's next cell starts."


@pytest.fixture(autouse=True)
def usual_places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a sentence is looked at and no sandbox starts: a home, and in it the usual folder."""
    if not {"box", "make_box"} & set(request.fixturenames):
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.delenv("JUPYTER_CONFIG_DIR")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            "/home/me/a.csv",
            f'The sandbox can\'t see /home/me/a.csv: {OUTSIDE}["src", "/data/shared", "/home/me/a.csv"]{ANEW}',
        ),
        ("data/x.csv", f'The sandbox can\'t see data/x.csv: {INSIDE}["src", "/data/shared", "data/x.csv"]{ANEW}'),
        (
            "../other/x",
            f'The sandbox can\'t see ../other/x: {OUTSIDE}["src", "/data/shared", "/home/me/other/x"]{ANEW}',
        ),
        # What is hidden, and what no policy may name, nobody is told to show.
        ("/home/me/b/.env", "The sandbox can't see /home/me/b/.env: it is not in files.read."),
        ("/home", "The sandbox can't see /home: it is not in files.read."),
        ("/run/x.sock", "The sandbox can't see /run/x.sock: it is not in files.read."),
        ("src/.env", "The sandbox can't see src/.env: its name is hidden by files.hide."),
        ("/data/shared/keys/a.pem", "The sandbox can't see /data/shared/keys/a.pem: its name is hidden by files.hide."),
        ("/tmp/x.csv", "The sandbox can't see /tmp/x.csv: its /tmp is its own. Copy it into the project."),
        (
            "/home/sandbox/x.csv",
            "The sandbox can't see /home/sandbox/x.csv: its home is its own. Copy it into the project.",
        ),
        (
            "~/x.csv",
            "Python does not expand ~ in a path, and ~ in the sandbox is a home of its own: "
            "copy the file into the project and name it from there.",
        ),
        ("~typo.csv", f'The sandbox can\'t see ~typo.csv: {INSIDE}["src", "/data/shared", "~typo.csv"]{ANEW}'),
        ("src/typo.py", ""),
        ("/data/shared/typo.csv", ""),
        ("results/typo.csv", ""),
        ("/usr/share/typo", ""),
        (
            "/data/sharedother",
            f'The sandbox can\'t see /data/sharedother: {OUTSIDE}["src", "/data/shared", "/data/sharedother"]{ANEW}',
        ),
    ],
)
def test_a_path_is_judged_by_its_text_and_the_policy(path: str, line: str) -> None:
    assert hint("FileNotFoundError", f"[Errno 2] No such file or directory: {path!r}", POLICY) == line


@pytest.mark.parametrize(
    ("ename", "evalue"),
    [
        ("FileNotFoundError", "no path at all"),
        ("FileNotFoundError", r"[Errno 2] No such file or directory: '/\x1b[2J'"),
        ("ValueError", "[Errno 2] No such file or directory: '/x'"),
        ("FileNotFoundError", "[Errno 2] " + "x" * 1_000_000),
        ("FileNotFoundError", "[Errno 2] x: '" + "/y" * 100_000 + "'"),
    ],
)
def test_what_names_no_path_gets_no_line(ename: str, evalue: str) -> None:
    assert not may_apply(ename, evalue)
    assert hint(ename, evalue, POLICY) == ""


def test_a_line_stays_one_short_printable_line() -> None:
    line = hint("PermissionError", "[Errno 13] Permission denied: '/a\n\x1b[31m\u202e" + "b" * 2000 + "'", POLICY)
    assert line.isprintable()
    assert len(line) < 400


def test_a_network_error_has_one_line_unless_hosts_are_allowed() -> None:
    words = ("ConnectionError", "HTTPSConnectionPool(…): NameResolutionError(…)")
    assert hint(*words, POLICY) == "There is no network in the sandbox."
    assert hint(*words, {**POLICY, "policy": {"network": {"allow": ["example.org:443"]}}}) == ""


def test_a_failed_cell_says_what_it_could_not_see(make_box: Callable[..., Sandbox], project: Path) -> None:
    box = make_box()
    hidden = box.run("open('.env')")
    assert hidden.notices == ("The sandbox can't see .env: its name is hidden by files.hide.",)
    apart = project.parent / "apart.csv"  # the same whether it is there or not
    before = box.run(f"open({str(apart)!r})").notices
    apart.write_text("x")
    assert before == box.run(f"open({str(apart)!r})").notices
    assert f"The sandbox can't see {apart}" in before[0]
    assert box.run("open('data/typo.csv')").notices == ()
    assert box.run("1 / 0").notices == ()


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://example.org/')",
        "import socket; socket.create_connection(('192.0.2.1', 80), 5)",
    ],
)
def test_a_cell_that_wants_the_network_is_told_that_there_is_none(box: Sandbox, code: str) -> None:
    assert box.run(code).notices == ("There is no network in the sandbox.",)


@pytest.mark.parametrize(
    ("ename", "evalue", "namespaces", "line"),
    [
        ("PermissionError", "[Errno 13] Permission denied: 'src/x.csv'", False, "but for results: this machine gives"),
        (
            "PermissionError",
            "[Errno 1] Operation not permitted: 'src/x.csv'",
            False,
            "this machine gives it no namespaces",
        ),
        ("PermissionError", "[Errno 13] Permission denied: 'src/x.csv'", True, ""),
        ("PermissionError", "[Errno 13] Permission denied: 'results/x.csv'", False, ""),
        ("PermissionError", "[Errno 13] Permission denied: 'src/.env'", False, "its name is hidden by files.hide"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'src/typo'", False, ""),
        (
            "OSError",
            "[Errno 30] Read-only file system: '/usr/x'",
            True,
            "can't write /usr/x: it writes results/, its own",
        ),
        (
            "OSError",
            "[Errno 30] Read-only file system: '/data/x'",
            False,
            "it writes results/, its own ~ and $TMPDIR. For more",
        ),
        ("OSError", "[Errno 30] Read-only file system: '/data/shared/x'", True, "can't write /data/shared/x"),
        ("OSError", "[Errno 30] Read-only file system: '/dev/shm/x'", True, ""),
        ("OSError", "[Errno 30] Read-only file system: '/tmp/x'", True, ""),
        ("OSError", "[Errno 30] Read-only file system: 'src/x'", True, ""),
    ],
)
def test_a_write_that_is_refused_is_told_why_the_project_is_read_only(
    ename: str, evalue: str, namespaces: bool, line: str
) -> None:
    found = hint(ename, evalue, POLICY, namespaces=namespaces)
    assert line in found
    assert bool(found) == bool(line)


def test_a_write_outside_the_project_is_told_what_may_be_written() -> None:
    words = ("OSError", "[Errno 30] Read-only file system: '/home/me/abc.csv'")
    line = "The sandbox can't write /home/me/abc.csv: it writes {}its own ~ (/home/sandbox) and /tmp; "
    line += "more with files.write."  # its folder is the home, which no policy may give
    assert hint(*words, POLICY) == line.format("results/, ")
    assert hint(*words, {**POLICY, "write": []}) == line.format("")
    five = [f"/home/me/study/{name}" for name in "abc"] + ["/d", "/e"]
    assert hint(*words, {**POLICY, "write": five}) == line.format("a/, b/, c/, 2 more folders, ")


@pytest.mark.parametrize(
    ("code", "is_write"),
    [
        ("open('/home/me/out/x', 'w')", True),
        ('open("/home/me/out/x", mode="ab")', True),
        ("np.save('/home/me/out/x', a)", True),
        ("Path('/home/me/out/x').write_text('')", True),
        ("frame.to_parquet('/home/me/out/x')", True),
        ("open('/home/me/out/x')", False),
        ("open('/home/me/out/x', 'rb')", False),
        ("pd.read_csv('/home/me/out/x').to_numpy()", False),
    ],
)
def test_a_file_that_was_to_be_written_is_told_where_it_may_be(code: str, is_write: bool) -> None:
    words = ("FileNotFoundError", "[Errno 2] No such file or directory: '/home/me/out/x'")
    trace = ["Traceback (most recent call last)", "Cell In[1], line 2", f"      1 open('y', 'w')\n----> 2 {code}"]
    found = hint(*words, POLICY, traceback=trace)
    written = (
        "The sandbox can't write /home/me/out/x: it writes results/, its own ~ (/home/sandbox) and /tmp. For more, "
        f'write in ~/.jupyter/ipysandbox.toml: [files] write = ["results", "/home/me/out"]{ANEW}'
    )
    assert (found == written) is is_write
    assert is_write or "files.read" in found


def test_the_folder_that_pandas_does_not_find_is_one_to_write_to() -> None:
    line = hint("OSError", "Cannot save file into a non-existent directory: '/home/me/out'", POLICY)
    assert line.startswith("The sandbox can't write /home/me/out: it writes results/")
    assert '[files] write = ["results", "/home/me/out"]' in line
    assert hint("OSError", "Cannot save file into a non-existent directory: 'results/x'", POLICY) == ""


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("built-in default", "or write in ~/.jupyter/ipysandbox.toml: [files] read = "),
        ("user file /etc/me/ipysandbox.toml", "or write in /etc/me/ipysandbox.toml: [files] read = "),
        (
            "project file /p/pyproject.toml",
            "or add it to files.read in /p/pyproject.toml and approve that (ipysandbox policy trust)",
        ),
        ("policy argument", "or add it to files.read of the policy argument."),
        ("built-in strict", "Copy it into the project."),
    ],
)
def test_what_decides_on_files_read_is_what_is_to_be_changed(source: str, advice: str) -> None:
    words = ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/x'")
    assert advice in hint(*words, {**POLICY, "sources": {"files.read": source}})


def test_following_the_advice_shows_the_file_and_makes_the_folder_writable(
    make_box: Callable[..., Sandbox],
) -> None:
    settings = Path(os.environ["JUPYTER_CONFIG_DIR"], "ipysandbox.toml")
    with tempfile.TemporaryDirectory(prefix=".ipys-", dir=Path.home()) as folder:  # /tmp is each sandbox's own
        before = settings.read_text()
        try:
            _follow_the_advice(make_box(), Path(folder), settings)
        finally:
            settings.write_text(before)


def _follow_the_advice(box: Sandbox, folder: Path, settings: Path) -> None:
    apart, out = folder / "apart.csv", folder / "out"
    apart.write_text("seen")
    out.mkdir()
    read, write = f"print(open({str(apart)!r}).read())", f"open({str(out / 'x')!r}, 'w').write('kept')"
    advice = [box.run(code).notices[-1] for code in (read, write)]
    found = [re.search(r"write in (.*?): (\[files\]) (.*); it counts", line) for line in advice]
    assert all(found), advice
    files = {line[1] for line in found if line}
    assert files == {str(settings)}
    settings.write_text("\n".join(["[files]", *(line[3] for line in found if line)]))
    box.start()
    assert box.run(read).stdout == "seen\n"
    assert box.run(write).error is None
    assert (out / "x").read_text() == "kept"


def test_a_cell_that_writes_outside_the_project_is_told(box: Sandbox) -> None:
    for code in ("open('/data.csv', 'w')", "import os; os.makedirs('/data.csv')"):
        assert box.run(code).notices[0].startswith("The sandbox can't write /data.csv: it writes results/, its own ~ (")


def test_a_project_that_its_policy_makes_read_only_is_said_to_be() -> None:
    found = hint("OSError", "[Errno 30] Read-only file system: 'src/x'", READ_ONLY)
    assert found == "The project is read-only in this sandbox but for results: its policy says so (files.workspace)."


def test_without_namespaces_an_address_has_the_line_too() -> None:
    found = hint("OSError", "[Errno 97] Address family not supported by protocol", POLICY, namespaces=False)
    assert found == "There is no network in the sandbox; without namespaces, no loopback either."


@pytest.mark.parametrize(
    ("read", "name", "line"),
    [
        (["/p/data"], "helpers", "it is not in files.read."),
        (["/p/data"], "helpers.inner", "it is not in files.read."),
        (["/p/data", "/p/helpers.py"], "helpers", ""),
        (["/p/data", "/p/helpers"], "helpers", ""),
        (["/p"], "helpers", ""),
    ],
)
def test_a_module_out_of_sight_is_told_as_a_file_is(read: list[str], name: str, line: str) -> None:
    found = hint(
        "ModuleNotFoundError", f"No module named '{name}'", {**POLICY, "project": "/p", "folder": "/p", "read": read}
    )
    assert found == (line and f"If helpers is a module of the project, the sandbox can't see it: {line}")


INSTALL = (
    "There is no network in the sandbox, and its environment is read-only: install packages with `%pip install …` "
    "in a cell without `%%sandbox`; they are there in the sandbox too."
)


@pytest.mark.parametrize(
    ("code", "printed", "line"),
    [
        (
            "%pip install x",
            "[Errno -2] Name or service not known\nERROR: No matching distribution found for x",
            INSTALL,
        ),
        ("!python -m pip install x", "ERROR: No matching distribution found for x", INSTALL),
        (
            "!curl http://example.org",
            "curl: (6) Could not resolve host: example.org",
            "There is no network in the sandbox.",
        ),
        ("!pip list", "No matching distribution found", ""),
        ("!echo hello", "hello", ""),
    ],
)
def test_a_program_that_wants_the_network_is_told_that_there_is_none(code: str, printed: str, line: str) -> None:
    assert may_run_programs(code)
    assert output_hint(code, printed) == line


def test_ordinary_code_runs_no_programs() -> None:
    assert not may_run_programs("if a != b:\n    print('100 % of it')  # 50 %!\nx = 'a!'")


def test_code_made_to_be_slow_to_look_through_is_not() -> None:
    code = "!" * 1_000_000 + "pip " * 200_000
    began = time.perf_counter()
    output_hint(code, "No matching distribution found")
    may_run_programs("x" * 4_000_000)
    lines = ["-" * 1_000_000, "write_" * 200_000, ".to_" * 200_000, "\n".join(["----> 1 " + "write_" * 1000] * 100)]
    for trace in lines:
        hint("FileNotFoundError", "[Errno 2] No such file or directory: '/home/me/x'", POLICY, traceback=trace)
    assert time.perf_counter() - began < 5  # it is a fraction of a second; what is quadratic takes hours


def test_pip_in_a_cell_is_told(box: Sandbox) -> None:
    result = box.run("%pip install surely-no-such-package")
    assert "Retrying" not in result.stdout + result.stderr  # which takes 8 s
    assert result.notices == (INSTALL,)


def test_a_module_of_the_project_that_is_not_read_is_told(make_box: Callable[..., Sandbox]) -> None:
    box = make_box(policy={"files": {"read": ["data"]}})
    assert box.run("import helpers").notices == (
        "If helpers is a module of the project, the sandbox can't see it: it is not in files.read.",
    )
