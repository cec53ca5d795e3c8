"""What ipysandbox itself says in a terminal is seen as it is, whatever colours code left on and however files are
named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

_BLACK = "\x1b[30;40m"
_WARNING = "ipysandbox: this reads like a question for a password"
#: Of a hostile name: the title is set, the screen cleared, and a line of ours forged.
_NAME = "a\x1b]0;PWN\x07\x1b[2J\nipysandbox: all is well\udcff\x9b2J"
_ESCAPED = r"a\x1b]0;PWN\x07\x1b[2J\nipysandbox: all is well\udcff\x9b2J"


def _run(study: Path, code: str) -> pexpect.spawn:
    (study / "cell.py").write_text(code)
    arguments = ["-m", "ipysandbox", "run", "--no-validate", "cell.py"]
    return pexpect.spawn(
        sys.executable, arguments, cwd=str(study), encoding="utf-8", timeout=60, echo=False, codec_errors="replace"
    )


@pytest.mark.parametrize(
    "code",
    [
        "print('[sudo] password for root: \\x1b[8m', end='', flush=True); x = input('')",
        f"print('[sudo] password for root: {_BLACK}', end='', flush=True); x = input('')",
        f"print('[sudo] password for root:{_BLACK}', flush=True); x = input('> ')",
        f"import sys; print('pass{_BLACK}word: ', end='', file=sys.stderr, flush=True); x = input()",
    ],
    ids=["concealed", "black", "line-above", "stderr"],
)
def test_a_question_is_seen_on_a_line_of_its_own_and_flagged_by_what_was_printed(study: Path, code: str) -> None:
    child = _run(study, f"{code}\nprint('got', x)")
    child.expect_exact("[sandbox] ")
    question = f"{child.before}[sandbox] "
    words = question.index(_WARNING)
    assert re.search(r"\n(\x1b\[0m\x1b\[J)?\Z", question[:words])
    assert "\x1b[8m" not in question
    assert ("\x1b[0m" in question[:words]) == (_BLACK in question)
    assert _BLACK not in question[words:]
    child.sendline("x1")
    child.expect_exact("got x1")
    child.expect(pexpect.EOF)


def test_an_ordinary_question_below_printed_lines_is_not_flagged(study: Path) -> None:
    child = _run(study, "print('No password is needed.\\nReady. ', end='')\nprint('got', input('go on? '))")
    child.expect_exact("Ready. \r\n[sandbox] go on? ")
    assert _WARNING not in child.before
    child.sendline("y")
    child.expect_exact("got y")
    child.expect(pexpect.EOF)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", "ipysandbox: written: results/evil.py"),
        ("\n1 / 0", "ZeroDivisionError"),
        ("\nwhile True: pass", "KeyboardInterrupt"),
    ],
)
def test_notes_are_seen_below_what_code_left_and_colours_end_with_it(study: Path, end: str, said: str) -> None:
    code = "import os\nos.makedirs('results', exist_ok=True)\nopen('results/evil.py', 'w').write('1')\n"
    child = _run(study, f"{code}print('done.\\x1b[8m{_BLACK}', end='', flush=True){end}")
    child.expect_exact(f"done.{_BLACK}")
    if "while" in end:
        child.sendintr()
    child.expect(pexpect.EOF)
    rest = child.before
    assert rest.startswith("\x1b[0m\x1b[J\r\n")
    assert said in rest


def test_the_shells_prompt_has_its_colours_back_where_nothing_is_said(study: Path) -> None:
    child = _run(study, f"print('done.{_BLACK}', end='')")
    child.expect_exact(f"done.{_BLACK}")
    child.expect(pexpect.EOF)
    assert child.before == "\x1b[0m"


def test_where_output_is_no_terminal_it_stays_as_the_code_wrote_it(cli: Cli, study: Path) -> None:
    (study / "cell.py").write_text(f"print('done.{_BLACK}', end='')")
    assert cli("run", "cell.py").stdout == f"done.{_BLACK}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of a hostile name, each in another way no code or policy."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / f"{_NAME}1.py").symlink_to("nowhere")
    (folder / f"{_NAME}2.py").write_bytes(b"x = '\xff'")
    (folder / f"{_NAME}3.py").mkdir()
    (folder / f"{_NAME}4.ipynb").write_text("{}")
    (folder / f"{_NAME}5.py").write_text("import os; os.system('true')")
    (folder / f"{_NAME}6.toml").write_text("[limits]\nmemory = 2GiB\n")
    (folder / f"{_NAME}7.toml").write_text("[limits]\nmemory = '900GiB'\n")
    (folder / f"{_NAME}8.toml").write_text("[limits]\nmemory = 'x'\nprocesses = 'y'\n")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *(("check", str(number)) for number in range(1, 6)),
        *(("run", str(number)) for number in range(1, 6)),
        ("run", "--no-validate", "2"),
        *(("policy", "lint", number) for number in ("6", "7", "8", "9")),
        *(("policy", "trust", "--yes", number) for number in ("6", "7", "8", "9")),
        *(("policy", "untrust", number) for number in ("6", "9")),
        *(("policy", "show", "--policy", number) for number in ("6", "7", "8", "9")),
        ("kill", "9"),
        ("run", "--backend", "9"),
        ("check", "--policy", "9", "5"),
        ("policy", "9"),
        ("audit", "tail", "--action", "9"),
        ("audit", "tail", "--since", "9"),
        ("9",),
        ("doctor", "9"),
    ],
    ids=" ".join,
)
def test_a_name_neither_steers_the_terminal_nor_begins_a_line(
    cli: Cli, hostile: Path, command: tuple[str, ...]
) -> None:
    names = {path.name[len(_NAME)]: path.name for path in hostile.iterdir()}
    names["9"] = f"{_NAME}9.toml"
    done = cli(*(names.get(word, word) for word in command), cwd=hostile, JUPYTER_CONFIG_DIR=str(hostile / "none"))
    said = done.stdout + done.stderr
    assert "all is well" in said
    assert all(char.isprintable() or char == "\n" for char in said), said
    assert not [line for line in said.split("\n") if line.startswith("ipysandbox: all is well")]


def test_an_error_of_a_policys_name_is_shown_escaped_in_a_terminal_and_a_notebook(hostile: Path) -> None:
    from ipysandbox import PolicyError, Sandbox

    with pytest.raises(PolicyError) as caught:
        Sandbox(policy=hostile / f"{_NAME}6.toml", project=hostile).start()
    assert _ESCAPED in str(caught.value)
    shown = caught.value._render_traceback_()
    assert all(map(str.isprintable, shown))
    assert not any(line.startswith("ipysandbox: all") for line in shown)


def test_a_folders_name_in_doctors_words_is_escaped(cli: Cli, hostile: Path) -> None:
    folder = hostile / f"{_NAME}3.py"
    (folder / "ipysandbox.toml").write_text("[limits]\nmemory = 2GiB\n")
    done = cli("doctor", cwd=folder, PATH=f"{os.environ['PATH']}:{folder}")
    assert "ipysandbox.toml:2" in done.stdout
    assert all(char.isprintable() or char == "\n" for char in done.stdout)
