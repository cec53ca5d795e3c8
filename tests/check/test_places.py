"""A finding points at the line and column of the cell as it was written, whatever IPython makes of it."""

from __future__ import annotations

import pytest

from ipysandbox.check import check

PLACES = [
    ("plain", "import os\nx = 1; os.system('a')\n", 2, 8),
    ("below empty lines", "\n\n\nos.system('a')", 4, 1),
    ("indented cell", "    x = 1\n    os.system('a')", 2, 5),
    ("below a magic", "%matplotlib inline\nx = 1\nos.system('a')", 3, 1),
    ("below a continued shell line", "!echo a \\\n  b \\\n  c\nos.system('a')", 4, 1),
    ("below an assigned shell line", "x = !ls\nos.system('a')", 2, 1),
    ("below help", "\nprint?\nos.system('a')", 3, 1),
    ("in a block with magics", "if x:\n    !ls\n    os.system('a')", 3, 5),
    ("below a continued magic in a block", "if x:\n    !ls \\\n      -l\n    os.system('a')", 4, 5),
    ("in a timed line", "x = 1\n%timeit os.system('a')", 2, 1),
    ("in a timed line of a block", "if x:\n    %time os.system('a')", 2, 5),
    ("in a timed cell", "%%time\nx = 1\nos.system('a')", 3, 1),
    ("in a timed cell below empty lines", "\n\n%%time\nx = 1\n\n  \nos.system('a')", 7, 1),
    ("in an indented timed cell", "  %%time\n  os.system('a')", 2, 3),
    ("in a timed cell with magics", "%%time\n!ls \\\n -l\nif x:\n    os.system('a')", 5, 5),
    ("in a cell magic in a cell magic", "%%capture\n\n%%time\nx = 1\nos.system('a')", 5, 1),
    ("in the setup of a timed cell", "\n%%timeit os.system('a')\nx", 2, 1),
    ("after prompts", ">>> x = 1\n>>> os.system('a')", 2, 5),
    ("after IPython's prompts", "In [1]: x = 1\n   ...: os.system('a')", 2, 9),
    ("in a triple-quoted text", "exec('''\nos.system(1)\n''')", 1, 1),
    ("after a form feed", "x = 1\n\x0cos.system('a')", 2, 2),
    ("after odd line ends", "s = '''\x85\u2028'''\nos.system('a')", 2, 1),
    ("after Windows line ends", "x = 1\r\n\r\nos.system('a')\r\n", 3, 1),
    ("after a lone carriage return", "# a\ros.system('a')", 2, 1),
    ("after wide characters", "s = 'ä€😀'; os.system('a')", 1, 12),
    ("in a text of several lines", "x = '''\n!ls\n%time\n'''; os.system('a')", 4, 6),
    ("below a magic in a text", "!ls\nx = '''\n!ls\n'''\nos.system('a')", 5, 1),
]


@pytest.mark.parametrize(("cell", "line", "column"), [place[1:] for place in PLACES], ids=[p[0] for p in PLACES])
def test_finding_points_at_the_cell_as_written(cell: str, line: int, column: int) -> None:
    findings = [finding for finding in check(cell).findings if finding.rule == "call.os-system"]
    assert [(finding.line, finding.column) for finding in findings] == [(line, column)]


def test_excerpt_is_the_written_line_with_the_caret_below_the_column() -> None:
    report = check("%%time\nx = 1\nif x:  os.system('a')")
    (finding,) = report.findings
    assert finding.excerpt == "if x:  os.system('a')"
    assert finding.excerpt[finding.caret :] == "os.system('a')"
    lines = str(report).splitlines()
    assert lines[0].startswith("cell:3:8: refused [call.os-system] os.system ")
    assert lines[2].index("^") == lines[1].index("os.system")
    assert report.render("a.py").startswith("a.py:3:8:")


@pytest.mark.parametrize(
    ("cell", "line", "column"),
    [
        ("x = 1\ny = (", 2, 5),
        ("%%time\nx = 1\ny = )", 3, 5),
        ("!ls\n\nfor:", 3, 4),
        ("if x:\n        a\n    b\n", 3, 0),
        ("\n\nx = 'a", 3, 5),
    ],
)
def test_syntax_error_is_placed_in_the_cell_as_written(cell: str, line: int, column: int) -> None:
    (finding,) = check(cell).findings
    assert (finding.rule, finding.severity, finding.line) == ("syntax", "refuse", line)
    assert column in (0, finding.column)  # 0: which column Python names depends on its version
    assert finding.message


def test_long_and_strange_lines_are_shown_short_and_harmless() -> None:
    cell = "x = '\x1b]0;title\x07\u202e" + "a" * 500_000 + "'; os.system('a')"
    report = check(cell)
    text = str(report)
    assert len(text) < 2000
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "os.system('a')" in text
    assert "\\x1b]0;title\\x07\\u202e" in text
