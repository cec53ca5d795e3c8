"""The one line under a cell that failed at the sandbox's walls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import Sandbox
from ipysandbox.hints import hint, may_apply

POLICY = {
    "project": "/home/me/study",
    "read": ["/home/me/study/src", "/data/shared"],
    "write": ["/home/me/study/results"],
    "hidden": [".env", "*.pem"],
    "policy": {"network": {"allow": []}},
}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/home/me/.ssh/id", "The sandbox can't see /home/me/.ssh/id: it is not in files.read."),
        ("data/x.csv", "The sandbox can't see data/x.csv: it is not in files.read."),
        ("../other/x", "The sandbox can't see ../other/x: it is not in files.read."),
        ("src/.env", "The sandbox can't see src/.env: its name is hidden by files.hide."),
        ("/data/shared/keys/a.pem", "The sandbox can't see /data/shared/keys/a.pem: its name is hidden by files.hide."),
        ("/tmp/x.csv", "The sandbox can't see /tmp/x.csv: its /tmp is its own."),
        ("/home/sandbox/x.csv", "The sandbox can't see /home/sandbox/x.csv: its home is its own."),
        ("src/typo.py", ""),
        ("/data/shared/typo.csv", ""),
        ("results/typo.csv", ""),
        ("/usr/share/typo", ""),
        ("/data/sharedother", "The sandbox can't see /data/sharedother: it is not in files.read."),
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
    assert len(line) < 300


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
