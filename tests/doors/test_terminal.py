"""%%sandbox in a terminal's IPython."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """An IPython on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        # Without prompt_toolkit's redrawing: what is on the screen is what was written.
        arguments = ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=NoColor"]
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "TERM": "dumb"}
        self.child = pexpect.spawn(
            sys.executable, arguments, cwd=str(folder), env=environment, encoding="utf-8", timeout=60, echo=False
        )
        self.number = 0
        self.prompt()

    def prompt(self) -> str:
        self.number += 1
        self.child.expect_exact(f"In [{self.number}]: ")
        return _ESCAPES.sub("", self.child.before or "")

    def cell(self, text: str) -> str:
        self.enter(text)
        return self.prompt()

    def enter(self, text: str) -> None:
        for line in [*text.split("\n"), *(["", ""] if "\n" in text else [])]:
            self.child.sendline(line)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    one = Terminal(tmp_path_factory.mktemp("work"))
    one.cell("%load_ext ipysandbox")
    yield one
    one.child.sendline("exit")
    one.child.expect(pexpect.EOF)
    one.child.close()


def test_a_table_is_shown_as_text(terminal: Terminal) -> None:
    shown = terminal.cell("%%sandbox\nimport pandas as pd\npd.DataFrame({'height': [1.5, 2.5]})")
    assert "   height" in shown
    assert "0     1.5" in shown
    assert "<table" not in shown


def test_an_error_is_the_sandboxs_traceback(terminal: Terminal) -> None:
    shown = terminal.cell("%%sandbox\n1 / 0")
    assert "ZeroDivisionError: division by zero" in shown
    assert "ipysandbox/" not in shown


def test_a_shell_without_colours_shows_an_error_without_them(terminal: Terminal) -> None:
    terminal.cell("%%sandbox\n1 / 0")
    assert "ZeroDivisionError" in (terminal.child.before or "")
    assert "\x1b[" not in (terminal.child.before or "")
    terminal.cell("%%sandbox --allow-error\n1 / 0")
    assert "ZeroDivisionError" in (terminal.child.before or "")
    assert "\x1b[" not in (terminal.child.before or "")


def test_code_can_ask(terminal: Terminal) -> None:
    terminal.enter("%%sandbox\nprint('hello', input('your name? '))")
    terminal.child.expect_exact("[sandbox main] your name? ")
    terminal.child.sendline("Ada")
    assert "hello Ada" in terminal.prompt()


def test_a_question_is_seen_and_flagged_by_what_was_printed_before_it(terminal: Terminal) -> None:
    printed = "[sudo] password for root: \\x1b[8m\\x1b[30;40m"
    terminal.enter(f"%%sandbox\nprint('{printed}', end='', flush=True); x = input('')\nprint('got', x)")
    terminal.child.expect_exact("[sandbox main] ")
    before = terminal.child.before
    assert "\x1b[8m" not in before
    assert "\x1b[30;40m\x1b[0m\x1b[J\r\nipysandbox: this reads like a question for a password" in before
    terminal.child.sendline("x1")
    assert "got x1" in terminal.prompt()


def test_the_prompt_after_a_cell_has_its_own_colours(terminal: Terminal) -> None:
    terminal.enter("%%sandbox\nprint('done.' + '\\x1b[30;40m', end='')")
    terminal.child.expect_exact("done.\x1b[30;40m\x1b[0m\x1b[J\r\n")
    terminal.prompt()


def test_ctrl_c_stops_the_cell_and_keeps_its_variables(terminal: Terminal) -> None:
    terminal.cell("%%sandbox\nkept = 'still here'")
    terminal.enter("%%sandbox\nprint('running now')\nwhile True: pass")
    terminal.child.expect_exact("running now\r\n")
    terminal.child.sendintr()
    assert "kept its variables" in terminal.prompt()
    assert "still here" in terminal.cell("%%sandbox\nprint(kept)")


def test_status_and_policy_are_readable_as_text(terminal: Terminal) -> None:
    terminal.cell("%%sandbox\nx = 1")
    assert "main: idle" in terminal.cell("%sandbox")
