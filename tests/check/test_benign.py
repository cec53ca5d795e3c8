"""Ordinary research cells pass the check without a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipysandbox.check import check

_TEXT = (Path(__file__).parent / "benign_cells.txt").read_text(encoding="utf-8")
CELLS = {
    **dict(re.findall(r"^#### (.+)\n((?:(?!####).*\n)*)", _TEXT, re.MULTILINE)),
    "empty": "",
    "blank": "\n  \n",
    "windows line ends": "x = 1\r\ny = 2\r\n",
}


def test_there_are_many_ordinary_cells() -> None:
    assert len(CELLS) >= 85


@pytest.mark.parametrize("name", CELLS)
def test_research_code_passes_without_a_finding(name: str) -> None:
    report = check(CELLS[name])
    assert report.verdict == "ok", str(report)
    assert not report.findings, str(report)
