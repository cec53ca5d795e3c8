"""The check never raises and never hangs: what it can't read is refused with a finding that says so."""

from __future__ import annotations

import json
import time
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from ipysandbox.check import Report, cell, check

UNREADABLE = [
    ("null-byte", "x = 1\0\nimport os"),
    ("null-byte", "%%bash\nls\0"),
    ("surrogate", "x = '\ud800'"),
    ("size", "x" * 5_000_000),
    ("size", "x = '" + "a" * (5 << 20) + "'"),
    ("size", "\n" * 4_000_000),
    ("size", "\x0c" * 4_000_000),
    ("size", "x=1;" * 250_000),
    ("size", "f'''" + "{x}" * 300_000 + "'''"),
    ("size", "x = 1\n" + "x = !ls \\\n  -l\n" * 3000),
    ("nesting", "-" * 100_000 + "1"),
    ("nesting", "not " * 20_000 + "1"),
    ("nesting", "eval('" + "-" * 100_000 + "1')"),
    ("syntax", "(" * 100_000),
    ("syntax", "this is no python"),
    ("syntax", "def f(:"),
    ("syntax", "x = 'a"),
    ("syntax", "if x:\n        a\n    b\n  c"),
    ("syntax", "print 'x' y"),
    ("syntax", "\ufeff\ufeffx"),
]


@pytest.mark.parametrize(("rule", "source"), UNREADABLE, ids=[f"{n}-{u[0]}" for n, u in enumerate(UNREADABLE)])
def test_what_cannot_be_read_is_refused_and_explained(rule: str, source: str) -> None:
    report = check(source)
    assert report.verdict == "refused"
    assert rule in {finding.rule for finding in report.findings if finding.severity == "refuse"}
    assert all(finding.message and finding.line >= 1 and finding.column >= 1 for finding in report.findings)
    assert len(str(report)) < 20_000


@pytest.mark.parametrize(
    "source",
    [
        "x = 1" + " + 1" * 900,
        "x" + ".a" * 900,
        "x" + "()" * 500,
        "a" + "[0]" * 500,
        "if 1: pass\n" + "elif 1: pass\n" * 500,
        "x = " + "[" * 90 + "]" * 90,
        "a = b\n" * 5000 + "b = a\na()",
        "eval(x)\n" * 5000,
        "if c:\n    eval = 1\neval(x)\n" * 2000,
        "from os import *\n" * 500 + "system('a')\n" * 500,
        "x = [" + "os.system," * 2000 + "]\nx[0]()",
        "".join(f"a{n} = a{n + 1}\n" for n in range(3000)) + "a0('x')",
        "x = 'a' + x\n" * 1000 + "exec(x)",
        "lambda: " * 80 + "1",
        "f = lambda: f\n" + "f = f()\n" * 500,
        "exec('x = 1')\n" * 2000,
        "x" + ".a" * 100_000,  # Python 3.10 parses these two, later ones find them too deep
        "x = 1" + " + 1" * 50_000,
        "!ls\nx = '" + "([{" * 300_000 + "'",
        "!ls\nx = '" + "= % ? " * 150_000 + "'",
        "!ls " + "= ?" * 300_000,
    ],
    ids=lambda source: source[:20],
)
def test_large_and_twisted_code_is_read_in_good_time(source: str) -> None:
    began = time.process_time()
    assert isinstance(check(source), Report)
    assert time.process_time() - began < 20  # seconds; far above what it takes, far below a hang


def test_a_line_of_a_megabyte_hides_nothing() -> None:
    source = "x = '" + "a" * 1_000_000 + "'; import os; os.system('id')"
    (finding,) = check(source).findings
    assert (finding.rule, finding.line, finding.column) == ("call.os-system", 1, 1_000_020)


def test_only_a_hundred_findings_are_listed_and_the_rest_counted() -> None:
    report = check("eval(x)\n" * 1000)
    assert len(report.findings) == 101
    assert report.findings[-1].message == "900 further findings are not listed" or any(
        finding.message == "900 further findings are not listed" for finding in report.findings
    )
    assert check("import pickle\n" + "pickle.loads(x)\n" * 1000 + "eval(x)").verdict == "refused"


def test_code_in_code_in_code_is_followed_and_then_refused() -> None:
    source = "os.system('id')"
    for _ in range(4):
        source = f"exec({source!r})"
    assert "call.os-system" in {finding.rule for finding in check(source).findings}
    for _ in range(8):
        source = f"exec({source!r})"
    assert check(source).verdict == "refused"


def test_no_warning_about_the_cell_reaches_the_caller() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check("x = '\\d'\n1 is 1").verdict == "ok"


def test_the_cell_is_not_run() -> None:
    check("raise SystemExit\n%time raise SystemExit\n!exit 1")
    check("__import__('sys').modules['marker_of_this_test'] = 1")
    import sys

    assert "marker_of_this_test" not in sys.modules


_PIECES = st.sampled_from(
    [
        *(
            "!ls",
            "%time x",
            "%%time",
            "x = !ls",
            "x = %time y",
            "f?",
            "?f",
            "f??",
            "/f x",
            ",f a",
            ";f a",
            ">>> ",
            "... ",
        ),
        *(
            "In [1]: ",
            "'''",
            '"""',
            "'",
            '"',
            'f"{',
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ":",
            ",",
            ";",
            "=",
            "+",
            ".",
            "#",
            "\\",
        ),
        *(
            "if x:",
            "else:",
            "def f():",
            "try:",
            "for x in y:",
            "    ",
            "\t",
            "x",
            "eval",
            "os.system",
            "0",
            "await x",
            "@",
        ),
        *(
            "import os",
            "from os import *",
            "exec('x')",
            "return",
            "match x:",
            "case 1:",
            "async def f():",
            "lambda x: x",
        ),
        *(":=", "*", "**", "global x", "del x", "ｅval"),
    ]
)
_BETWEEN = st.sampled_from(["\n", "\n", "\n    ", "\\\n", "\r", "\x0c", "\x85", " ", "\0"])
_CELLS = st.lists(st.one_of(_PIECES, _BETWEEN), max_size=25)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(_CELLS.map("".join), st.text(max_size=80)))
def test_no_text_makes_the_check_raise(source: str) -> None:
    report = check(source, deny=("requests", "open"), allow=("call.eval",))
    json.dumps(report.to_json())
    assert str(report)
    assert (report.verdict == "refused") == any(finding.severity == "refuse" for finding in report.findings)
    lines = source.count("\n") + source.count("\r") + 1
    assert all(1 <= finding.line <= lines + 1 for finding in report.findings)


@pytest.mark.filterwarnings("ignore:.make_tokens_by_line")
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(_CELLS.map("".join))
def test_what_is_read_is_what_ipython_would_run(source: str) -> None:
    try:
        read = cell.read_cell(source.replace("\0", ""), lambda line, column: (line, column))
        run = TransformerManager().transform_cell(source.replace("\0", ""))  # type: ignore[no-untyped-call]
    except (SyntaxError, cell.TooCostly):
        return
    if isinstance(read, cell.PythonText):
        assert read.text == run
    else:
        assert f"get_ipython().run_cell_magic({read.name!r}, {read.line!r}, {read.body!r})\n" == run
