"""Which of IPython's magics run Python that the check can read, and where in them it stands."""

from __future__ import annotations

import re

# Options that take a value, as in IPython's own parse_options strings.
_OPTIONS_WITH_VALUE = {"timeit": "nrpv", "time": "", "prun": "DlsT", "debug": "b", "memit": "rtic"}

LINE_CODE = frozenset(_OPTIONS_WITH_VALUE)
"""Line magics whose rest is a Python statement."""

CELL_CODE = frozenset({*LINE_CODE, "capture"})
"""Cell magics whose body is Python, read as a cell again (it may hold magics)."""

SHELL = frozenset(
    ["bash", "sh", "script", "system", "sx", "!", "python", "python2", "python3", "pypy", "perl", "ruby", "cmd"]
)
"""Cell magics that hand their body to another program."""

TEXT = frozenset(["html", "HTML", "latex", "markdown", "svg", "SVG", "javascript", "js", "writefile", "file"])
"""Cell magics whose body is shown or written, not run."""

_WORDS = """alias autosave bookmark cat cd clear conda config cp dhist dirs doctest_mode env history ldir less lf lk ll
    load loadpy logstart logstop ls lsmagic lx magic mamba man matplotlib micromamba mkdir more mv notebook page
    pastebin
    pdoc pfile pinfo pinfo2 pip popd
    precision psearch psource pushd pwd pycat pylab quickref recall reload_ext rep
    rerun reset rm rmdir run save sc set_env store sx system time timeit prun debug unalias unload_ext uv who who_ls
    whos xdel xmode load_ext"""
AUTOMAGIC = frozenset(_WORDS.split())
"""First words that make a one-line cell a line magic or an alias without a %, when it isn't Python otherwise."""

_ONE_LINE = re.compile(r"\s*([A-Za-z_]\w*)(?:[ \t]+(.*))?\s*\Z")


def automagic(cell: str) -> tuple[str, str] | None:
    """(name, rest) of a one-line cell such as ``pip install numpy`` that IPython runs as a magic."""
    match = _ONE_LINE.match(cell)
    if match and match[1] in AUTOMAGIC and len(cell.strip().splitlines()) == 1:
        return match[1], match[2] or ""
    return None


def statement(magic: str, line: str) -> str:
    """The Python statement in the line of ``magic`` (``-n 10 -r 3 f(x)`` → ``f(x)``)."""
    with_value = _OPTIONS_WITH_VALUE.get(magic)
    if with_value is None:
        return ""
    rest = line.lstrip()
    while re.match(r"-[A-Za-z-]", rest):
        option, _, rest = rest.partition(" ")
        if len(option) == 2 and option[1] in with_value:
            _, _, rest = rest.lstrip().partition(" ")
        rest = rest.lstrip()
    return rest
