"""Sees to it that ``%%sandbox`` holds for a whole cell, or that nothing of the cell runs.

IPython knows a cell magic by the first line alone. With code above it, pasted there by a slip, that code would run in
the notebook's own kernel before IPython complained about the line.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.core.inputtransformer2 import make_tokens_by_line

_MAGIC = re.compile(r"[ \t]*%%sandbox\b")
_NOTHING = re.compile(r"[ \t]*(#.*)?\r?\n?$")


def register(ipython: Any) -> None:
    # Before all others: one of IPython's own turns what it takes for a cell magic into a call.
    ipython.input_transformers_cleanup.insert(0, require_first)


def unregister(ipython: Any) -> None:
    transformers = ipython.input_transformers_cleanup
    transformers[:] = [one for one in transformers if one is not require_first]


def again(cell: str) -> int | None:
    """On which line of the whole cell, whose text below its first line this is, the line stands once more; None if it
    doesn't. Within another magic's text, or within one of several lines, it is none."""
    lines = cell.splitlines(keepends=True)
    found = [at for at, line in enumerate(lines) if _MAGIC.match(line)]
    first = next((at for at, line in enumerate(lines) if not _NOTHING.match(line)), 0)
    if not found or (first not in found and lines[first].lstrip().startswith("%%")):
        return None
    begins = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}
    return next((at + 2 for at in found if at in begins), None)


def require_first(lines: list[str]) -> list[str]:
    """Comments above the line go below it. Raises SyntaxError for code above it, and IPython runs nothing then."""
    first = next((at for at, line in enumerate(lines) if not _NOTHING.match(line)), len(lines))
    found = [at for at in range(first, len(lines)) if _MAGIC.match(lines[at])]
    if not found or lines[first].lstrip().startswith("%%"):
        above = [line for line in lines[:first] if line.strip()] if found and found[0] == first else []
        return [lines[first], *above, *lines[first + 1 :]] if above else lines
    begins = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}
    if begins.isdisjoint(found):  # within a text of several lines
        return lines
    raise SyntaxError(
        "%%sandbox has to be the first line of its cell: nothing of this cell was run. "
        "Move that line to the top, or put the code above it into a cell of its own."
    )
