"""Promises about a notebook whose cell prints more than a browser takes."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from ipysandbox.output import amount
from ipysandbox.shown import Screen, Tail, collapsed

from .conftest import Notebook

MIB = 1 << 20


def _marker(ran: Any) -> str:
    """What the one line between the beginning and the end says at last."""
    texts = [c["data"]["text/plain"] for kind, c in ran.messages if kind in ("display_data", "update_display_data")]
    return [text for text in texts if text.startswith("ipysandbox: … ")][-1]


def test_of_much_that_is_printed_a_notebook_shows_the_beginning_and_the_end(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox flood\nfor n in range(30_000): print(n, 'x' * 90)").ok()
    lines = ran.stdout.splitlines()
    assert len(ran.stdout) <= amount.HEAD + amount.TAIL
    assert lines[0] == "0 " + "x" * 90
    assert lines[-1] == "29999 " + "x" * 90
    numbers = [int(line.split()[0]) for line in lines]
    (gap,) = (at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1)
    assert len("\n".join(lines[:gap])) > amount.HEAD * 0.7
    assert len("\n".join(lines[gap:])) > amount.TAIL * 0.6
    made = [c for kind, c in ran.messages if kind == "display_data"]
    assert len(made) == 1  # all others write it anew
    found = re.fullmatch(r"ipysandbox: … (\S+) MiB not shown here; all of it: (\S+) …", _marker(ran))
    assert found is not None
    whole = Path(found[2]).read_text()
    assert whole.splitlines() == [f"{n} " + "x" * 90 for n in range(30_000)]
    assert abs(float(found[1]) * MIB - (len(whole) - len(ran.stdout))) < MIB / 10


def test_what_a_limit_cuts_is_named_too(notebook: Notebook, study: Path) -> None:
    (study / "little.toml").write_text('[limits]\noutput = "2MiB"\n')
    ran = notebook.run("%%sandbox little --policy little.toml\nfor _ in range(3): print('x' * 1_000_000, flush=True)")
    assert ran.ename == "LimitExceeded"
    assert "... output cut at 2.0 MiB ..." in ran.stdout
    path = _marker(ran).split()[-2]
    assert len(Path(path).read_text()) == 3_000_003
    assert any("All that the cell printed" in note and path in note for note in ran.notes)


def test_little_is_shown_as_it_is_and_without_a_word(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox flood\nfor n in range(5_000): print(n)").ok()
    assert ran.stdout.split() == [str(n) for n in range(5_000)]
    assert ran.displays == []


def test_a_progress_bar_goes_on_however_often_it_is_drawn(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sandbox flood\nimport sys\nfor n in range(200_000): sys.stderr.write(f'\\rstep {n} ' + 'x' * 60)\n"
        "print('done')"
    ).ok()
    assert ran.stdout == "done\n"
    assert _on_screen(ran.stderr) == ["step 199999 " + "x" * 60]
    assert ran.displays == []


def test_a_result_comes_after_what_was_printed_before_it(notebook: Notebook) -> None:
    ran = notebook.run("%%sandbox flood\nfor n in range(30_000): print(n, 'x' * 90)\n'the result'").ok()
    kinds = [(kind, c.get("text", "") or str(c.get("data", ""))) for kind, c in ran.messages]
    last_text = max(at for at, (kind, text) in enumerate(kinds) if kind == "stream" and "29999 " in text)
    (result,) = (at for at, (kind, text) in enumerate(kinds) if kind == "display_data" and "the result" in text)
    assert last_text < result


def test_what_is_cleared_counts_no_more(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sandbox flood\nfrom IPython.display import clear_output\n"
        "for n in range(30):\n    clear_output(wait=True)\n    print(n, 'x' * 100_000, flush=True)"
    ).ok()
    assert ran.displays == []
    assert ran.stdout.endswith("29 " + "x" * 100_000 + "\n")


def test_streams_that_take_turns_become_no_more_outputs_than_a_page_takes(notebook: Notebook) -> None:
    code = "import sys\nfor n in range(4_000):\n    print(n, flush=True)\n    print(n, file=sys.stderr, flush=True)"
    ran = notebook.run(f"%%sandbox flood\n{code}").ok()
    assert sum(kind == "stream" for kind, _ in ran.messages) < 1200
    assert "3999" in ran.stdout
    assert "not shown here; all of it: " in _marker(ran)


@pytest.mark.slow
def test_a_flood_of_small_writes_takes_little_of_the_notebooks_memory(notebook: Notebook) -> None:
    policy = Path(os.environ["JUPYTER_CONFIG_DIR"], "much.toml")
    policy.write_text('[limits]\noutput = "64MiB"\n')
    begin = f"%%sandbox much --policy {policy}\nimport os\n"
    notebook.run(f"{begin}print('warm')").ok()
    process = Path(f"/proc/{notebook.manager.provisioner.process.pid}")

    def memory(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (process / "status").read_text())
        assert found is not None
        return int(found[1]) << 10

    (process / "clear_refs").write_text("5")  # forget the peak so far
    before = memory("VmRSS")
    ran = notebook.run(f"{begin}for _ in range(5_000_000): os.write(1, b'123456789\\n')").ok()
    assert "not shown here; all of it: " in _marker(ran)
    grown = memory("VmHWM") - before
    assert grown < 64 * MIB + 20_000_000, grown


# -- what is seen of a text that writes over itself


def _on_screen(text: str) -> list[str]:
    """As a terminal shows it."""
    rows: list[list[str]] = [[]]
    row = column = 0
    for token in re.findall(r"\x1b\[\d*A|.", text, re.S):
        if token == "\n":
            row, column = row + 1, 0
            if row == len(rows):
                rows.append([])
        elif token == "\r":
            column = 0
        elif token[0] == "\x1b":
            row = max(0, row - int(token[2:-1] or 1))
        else:
            line = rows[row]
            line += [" "] * (column + 1 - len(line))
            line[column] = token
            column += 1
    return ["".join(line) for line in rows]


def _texts(letters: str, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice(letters) for _ in range(1 + draw.randrange(60))) for _ in range(500)]


@pytest.mark.parametrize("seed", range(4))
def test_collapsed_text_looks_the_same_whatever_comes_next(seed: int) -> None:
    for text in _texts("ab\r\r\n", seed):
        assert _on_screen("xyz" + collapsed(text) + "!") == _on_screen("xyz" + text + "!")


@pytest.mark.parametrize("seed", range(4))
def test_a_screen_knows_how_much_is_seen(seed: int) -> None:
    for text in _texts("abc\r\n", seed):
        screen = Screen()
        for at in range(0, len(text), 7):
            screen.feed("stdout", text[at : at + 7])
        rows = _on_screen(text)
        assert screen.amount == amount.TURN + sum(map(len, rows)) + (len(rows) - 1) * (1 + amount.LINE)


def test_bars_below_each_other_take_two_lines_however_often_they_are_drawn() -> None:
    screen = Screen()
    for n in range(100_000):
        screen.feed("stderr", f"\router {n}\n\rinner {n}\x1b[A")
    assert screen.amount < amount.TURN + 200
    assert collapsed("\router 1\n\rinner 1\x1b[A\router 2") == "\router 1\n\rinner 1\x1b[A\router 2"


def test_a_tail_is_the_end_whatever_it_is_made_of() -> None:
    long, empty, short = ["x" * 10_000_000 + "\n"], ["\n"] * 500_000, ["x" * 9 + "\n"] * 100_000
    for parts in (long, empty, short):
        tail = Tail()
        for part in (*parts, "last\n"):
            tail.add("stdout", part)
        text = "".join(text for _, text in tail.take())
        assert text.endswith("last\n")
        assert amount.of(text) <= amount.TAIL
        assert tail.take() == []
