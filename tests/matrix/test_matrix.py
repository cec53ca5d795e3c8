"""What the command that fills SECURITY.md's table promises: it says what was held, and is content with nothing less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_MATRIX = Path(__file__).parent
_HERE = "root" if os.geteuid() == 0 else "user"
_MARKERS = ("<!-- Written by `python tests/matrix --write`. -->", "<!-- End of what it wrote. -->")

#: Stands for a collection of attacks; the command knows no more of one than what it writes.
_PROBES = """
import json, sys
from pathlib import Path
with open({log!r}, "a") as log:
    log.write("run\\n")
Path(sys.argv[sys.argv.index("--json") + 1]).write_text(Path(__file__).with_name("cases.py").read_text())
"""


def _row(kind: str, verdict: str, *reasons: str) -> dict[str, object]:
    return {"kind": kind, "family": "network", "case": "c1", "verdict": verdict, "reasons": reasons}


def _run(folder: Path, rows: list[dict[str, object]], *more: str) -> tuple[int, str]:
    probes = folder / "probes"
    probes.mkdir(exist_ok=True)
    (probes / "run_probes.py").write_text(_PROBES.format(log=str(folder / "log")))
    (probes / "cases.py").write_text(json.dumps(rows))
    document = folder / "document.md"
    document.write_text("\n".join(["Before.", *_MARKERS, "After.", ""]))
    command = [sys.executable, str(_MATRIX), "--only", _HERE, "--probes", str(probes), "--write", str(document), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, document.read_text() + done.stderr


def test_what_was_held_is_written_between_the_markers(tmp_path: Path) -> None:
    status, text = _run(tmp_path, [_row("escape", "held"), _row("escape", "skipped"), _row("benign", "passed")])
    assert status == 0, text
    before, _, rest = text.partition(_MARKERS[0])
    table, _, after = rest.partition(_MARKERS[1])
    assert before == "Before.\n"
    assert after.startswith("\nAfter.\n")
    for line in ("| network | 1/1 |", "| **attacks held** | 1/1 |", "| **ordinary code that works** | 1/1 |"):
        assert line in table
    assert "| not run: means nothing there | 1 |" in table
    assert "no part of this project" in table
    assert str(tmp_path) not in table


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([_row("escape", "held"), _row("escape", "not-held", "a socket")], "not held: c1: a socket"),
        ([_row("escape", "held"), _row("escape", "inconclusive")], "not held: c1: inconclusive"),
        ([_row("escape", "held"), _row("benign", "failed", "no figure")], "not held: c1: no figure"),
        ([_row("escape", "skipped")], "| **attacks held** | 0/0 |"),
        ([], "| **attacks held** | 0/0 |"),
    ],
)
def test_anything_less_fails_and_is_named(tmp_path: Path, rows: list[dict[str, object]], told: str) -> None:
    status, text = _run(tmp_path, rows)
    assert status == 1
    assert told in text


def test_an_environment_that_cant_be_had_is_named_with_the_reason(tmp_path: Path) -> None:
    status, text = _run(tmp_path, [_row("escape", "held")], "--only", "vm")
    assert status == 0
    assert "virtual machine, plain user: left out, no command that runs a virtual machine was given (--vm)" in text


def test_what_was_kept_is_not_run_again_unless_the_cases_differ(tmp_path: Path) -> None:
    for rows, runs in (
        ([_row("escape", "held")], 1),
        ([_row("escape", "held")], 1),
        ([_row("escape", "not-held", "x")], 2),
    ):
        status, _ = _run(tmp_path, rows, "--results", str(tmp_path / "results"))
        assert (tmp_path / "log").read_text().count("run") == runs
    assert status == 1


def test_the_projects_own_attacks_are_where_the_command_looks() -> None:
    code = f"""import sys; sys.path.insert(0, {str(_MATRIX)!r}); import inside
for groups in (*inside._HOSTILE.values(), inside._HOSTILE_ANYWHERE, inside._BENIGN):
    print(*(sum(groups.values(), [])), sep="\\n")"""
    named = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert named
    assert [path for path in named if not (_MATRIX.parents[1] / path).is_file()] == []
