"""Promises about reading a policy file: every error names file and line, and no file can hang or flood the reader."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.errors import PolicyError
from ipysandbox.policy.source import line_table, read_document

if TYPE_CHECKING:
    from .conftest import Machine


def test_lines_of_plain_dotted_and_quoted_keys() -> None:
    lines = line_table('a = 1\nb.c = 2\n\n["d".e]\n"f g" = 3\n\'h\' . i = 4\n"j\\u0041" = 5\n')
    assert lines["a",] == 1
    assert lines["b", "c"] == 2
    assert lines["d", "e"] == 4
    assert lines["d", "e", "f g"] == 5
    assert lines["d", "e", "h", "i"] == 6
    assert lines["d", "e", "jA"] == 7


def test_lines_inside_inline_tables() -> None:
    lines = line_table('[limits]\n# x\ngpu = { devices = ["a", "b"], memory_fraction = 0.5 }\nwall = "1s"\n')
    assert lines["limits", "gpu", "devices"] == 3
    assert lines["limits", "gpu", "devices", 1] == 3
    assert lines["limits", "gpu", "memory_fraction"] == 3
    assert lines["limits", "wall"] == 4


def test_lines_of_entries_of_a_list_over_many_lines() -> None:
    lines = line_table(
        '[files]\nread = [ # first ]\n  "a]",\n\n  \'b"\', "c",\n  # no\n  """d\n\\"""" ,\n  "e",\n]\nwrite = []\n'
    )
    assert [lines["files", "read", i] for i in range(5)] == [3, 5, 5, 7, 9]
    assert lines["files", "write"] == 11


def test_lines_after_strings_over_many_lines() -> None:
    lines = line_table('a = """\nx = 1\n"quoted"\n\\"""\n"""\nb = \'\'\'\n[c]\n\'\'\'\'\'\nd = 1\n')
    assert (lines["a",], lines["b",], lines["d",]) == (1, 6, 9)
    assert ("x",) not in lines


def test_lines_of_tables_in_an_array() -> None:
    lines = line_table("[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3\n")
    assert lines["a", 0, "b"] == 2
    assert lines["a", 1, "b"] == 4
    assert lines["a", 1, "c", "d"] == 6


def test_windows_line_ends_count_once() -> None:
    assert line_table("a = 1\r\n\r\n[b]\r\nc = 2\r\n")["b", "c"] == 4


names = st.text("abcdefg-_", min_size=1, max_size=6)
scalars = st.one_of(st.integers(), st.booleans(), st.sampled_from(['"x#]"', "'}'", '"""m\nn"""', "1.5", "2020-01-01"]))


@given(st.lists(st.tuples(names, scalars, st.integers(0, 3)), unique_by=lambda item: item[0], max_size=12))
def test_every_key_stands_where_the_table_says(pairs: list[tuple[str, object, int]]) -> None:
    text, expected = "", {}
    for name, value, blank in pairs:
        text += "\n" * blank
        expected[name] = text.count("\n") + 1
        text += f"{name} = {str(value).lower() if isinstance(value, bool) else value} # = [\n"
    lines = line_table(text)
    assert {name: lines[name,] for name in expected} == expected


@given(st.text("[]{}=.\"'#\\\n ab,", max_size=60))
def test_the_line_finder_ends_on_any_text(text: str) -> None:
    line_table(text)


def test_a_syntax_error_names_its_line(machine: Machine) -> None:
    machine.project_policy("[limits]\ncpu = \n")
    with pytest.raises(PolicyError, match="not valid TOML") as caught:
        machine.resolve()
    assert (caught.value.file, caught.value.line) == (str(machine.project / "ipysandbox.toml"), 2)


def test_an_error_in_pyproject_names_the_line_in_pyproject(machine: Machine) -> None:
    file = machine.write(
        "pyproject.toml", '[project]\nname = "x"\n\n[tool.ipysandbox.limits]\ncpu = "1s"\nwalll = "1s"\n'
    )
    with pytest.raises(PolicyError, match='unknown key "walll"') as caught:
        machine.resolve()
    assert (caught.value.file, caught.value.line) == (str(file), 6)


def test_pyproject_without_our_table_is_no_policy(machine: Machine) -> None:
    machine.write("pyproject.toml", '[project]\nname = "x"\n[tool.other]\nlimits = 1\n')
    assert machine.resolve().notices == ()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = \x00", b"x = " + b"[" * 100_000, b"x = " + b"9" * 10_000])
def test_a_file_that_is_no_toml_is_an_error(machine: Machine, content: bytes) -> None:
    (machine.project / "ipysandbox.toml").write_bytes(content)
    with pytest.raises(PolicyError):
        machine.resolve()


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in folders")
def test_a_named_pipe_as_policy_does_not_hang(machine: Machine) -> None:
    os.mkfifo(machine.project / "ipysandbox.toml")
    with pytest.raises(PolicyError, match="not a regular file"):
        machine.resolve()


def test_a_folder_or_dead_link_as_policy_is_an_error(machine: Machine) -> None:
    policy = machine.project / "ipysandbox.toml"
    policy.mkdir()
    with pytest.raises(PolicyError):
        machine.resolve()
    policy.rmdir()
    policy.symlink_to("nowhere.toml")
    with pytest.raises(PolicyError, match="can't be read"):
        machine.resolve()


def test_a_policy_that_links_out_of_its_folder_is_refused(machine: Machine) -> None:
    secret = machine.home / "secret.toml"
    secret.write_text('password = "x"\n')
    (machine.project / "ipysandbox.toml").symlink_to(secret)
    with pytest.raises(PolicyError, match="is a link to"):
        machine.resolve()


def test_a_giant_policy_is_refused_unread(tmp_path: Path) -> None:
    big = tmp_path / "ipysandbox.toml"
    with big.open("wb") as file:
        file.truncate(10**12)
    started = time.monotonic()
    with pytest.raises(PolicyError, match="larger than"):
        read_document(big)
    assert time.monotonic() - started < 5


def test_two_policies_in_one_folder_are_refused(machine: Machine) -> None:
    machine.project_policy('[limits]\ncpu = "1s"\n')
    machine.write("pyproject.toml", '[tool.ipysandbox.limits]\ncpu = "2s"\n')
    with pytest.raises(PolicyError, match="two policies in one folder"):
        machine.resolve()


_LONG = ".".join(["a"] * 20_000)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"x = 1\n{_LONG} = 1\n", ":2: a key of more than 32 parts"),
        (f"[{_LONG}]\n", ":1: a key of more than 32 parts"),
        (f"[[ {_LONG.replace('.', ' . ')} ]]\n", ":1: a key of more than 32 parts"),
        ('x = """\n\\""""\n' + ".".join(["'a'", '"b"', "c"] * 99) + " = 1\n", ":3: a key of more than 32 parts"),
        (f"x = {{ {_LONG} = 1 }}\n", ":1: a key of more than 32 parts"),
        ("x = " + "[" * 33 + "]" * 33, ":1: nested too deep"),
        ("x = " + "{ a.a.a = " * 5_000 + "1" + "}" * 5_000, ":1: nested too deep"),
    ],
)
def test_a_shape_that_a_parser_would_choke_on_is_refused_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "ipysandbox.toml"
    file.write_text(text)
    with pytest.raises(PolicyError) as caught:
        read_document(file)
    assert f"{file}{error}" in str(caught.value)


def test_dots_and_brackets_that_make_no_key_are_nobodys_business(tmp_path: Path) -> None:
    table = {
        "sentence": "a.b" * 99 + "[" * 99,
        "literal": "{" * 99,
        "book": "\n" + "x.y.z\n[[[\n" * 99 + "\\",
        "list": [[1.5, 2.5]] * 99,
        "deep": {"er": [{"a": [0.5]}]},
    }
    lines = [
        f"# {'.'.join('comment')} {'[' * 99}",
        f"sentence = {json.dumps(table['sentence'])} # {'a.' * 99}",
        f"literal = '{table['literal']}'",
        f"book = '''\n{table['book']}'''",
        f"list = {table['list']}",
        "[[deep.er]]",
        "a = [ # [[[",
        "0.5 ]",
        ".".join(["x"] * 31) + " = 1",
    ]
    file = tmp_path / "ipysandbox.toml"
    file.write_text("\n".join(lines))
    document = read_document(file)
    assert document is not None
    assert {name: document.table[name] for name in ("sentence", "literal", "book", "list")} == {
        name: table[name] for name in ("sentence", "literal", "book", "list")
    }
