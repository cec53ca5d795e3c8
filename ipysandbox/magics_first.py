"""Sees to it that ``%%sandbox`` holds for a whole cell, or that nothing of the cell runs.

IPython knows a cell magic by the first line alone. With code above it, pasted there by a slip, that code would run in
the notebook's own kernel before IPython complained about the line. With a ``?`` behind it IPython shows help, and runs
what stands around it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager, make_tokens_by_line

from .magics_line import ACTIONS

_FIRST = re.compile(r"[ \t\ufeff]*(?=%%sandbox\b)")
#: The line also behind a prompt that nobody stripped, or behind what is no letter (``!``, ``?``, what can't be seen).
_LIKE_IT = re.compile(r"(?:\s*(?:\[\w+\] )?In \[\d+\]:)?[^\w\"'#]*%%sandbox\b", re.IGNORECASE)
_NOTHING = re.compile(r"[ \t]*(#.*)?\r?\n?$")
#: What IPython takes for no cell magic, whatever follows, because it asks for the help of one.
_QUESTION = re.compile(r"%%\w+\?")
#: A command about sandboxes, and what it is to do.
_COMMAND = re.compile(r"[ \t]*%[ \t]*sandbox(?![\w?])[ \t]*(\S*)")
_HELP = re.compile(r"%%sandbox\?\??\s*$|\?\??\s*%%sandbox\s*$")


def register(ipython: Any) -> None:
    # After all others: prompts are stripped and indentation is gone, so lines are what IPython goes by.
    ipython.input_transformers_cleanup.append(require_first)


def unregister(ipython: Any) -> None:
    transformers = ipython.input_transformers_cleanup
    transformers[:] = [one for one in transformers if one is not require_first]


def again(cell: str) -> int | None:
    """On which line of the whole cell, whose text below its first line this is, the line stands once more; None if it
    doesn't. Within another magic's text, or within one of several lines, it is none."""
    lines = cell.splitlines(keepends=True)
    found = [at for at, line in enumerate(lines) if _FIRST.match(line)]
    first = next((at for at, line in enumerate(lines) if not _NOTHING.match(line)), 0)
    if not found or (first not in found and lines[first].lstrip().startswith("%%")):
        return None
    begins = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}
    return next((at + 2 for at in found if at in begins), None)


def require_first(lines: list[str]) -> list[str]:
    """Comments above the line go below it. Raises SyntaxError for code above it, or around a question for its help;
    IPython runs nothing then."""
    first = next((at for at, line in enumerate(lines) if not _NOTHING.match(line)), len(lines))
    line = lines[first] if first < len(lines) else ""
    above, below = lines[:first], lines[first + 1 :]
    magic = _FIRST.sub("", line, count=1)
    if _HELP.match(magic) and all(_NOTHING.match(other) for other in below):
        return [magic]
    command = _COMMAND.match(line)
    if command and command[1] not in ACTIONS and not all(_NOTHING.match(other) for other in below):
        raise SyntaxError(
            "%sandbox with one % is a command about sandboxes, and the code below it would run in the notebook's own "
            "kernel: nothing of this cell was run. Write %%sandbox to run it in a sandbox, or %sandbox status for the "
            "command."
        )
    if _FIRST.match(line) and not _QUESTION.match(magic):
        return [magic, *(comment for comment in above if comment.strip()), *below]
    found = _count(lines)
    if not found or _is_another_magics(lines) or found == _count_in_texts(lines):
        return lines
    if _HELP.match(magic):
        raise SyntaxError(
            "%%sandbox with a question mark shows its help and sends no code to a sandbox: nothing of this cell was "
            "run. Remove the question mark, or put the code into a cell of its own."
        )
    raise SyntaxError(
        "%%sandbox has to be the first line of its cell: nothing of this cell was run. "
        "Move that line to the top, or put the code above it into a cell of its own."
    )


def _is_another_magics(lines: list[str]) -> bool:
    return bool(lines) and lines[0].startswith("%%") and not _QUESTION.match(lines[0])


def _count(lines: Iterable[str]) -> int:
    return sum(_LIKE_IT.match(line) is not None for line in lines)


def _count_in_texts(lines: list[str]) -> int:
    """Of those, the ones within texts of several lines, as IPython sees them: a quotation mark in ``!echo '`` begins
    none, and what ``!`` goes on to by a backslash is none."""
    python = TransformerManager().do_token_transforms(lines)  # type: ignore[no-untyped-call]
    tokens = itertools.chain(*make_tokens_by_line(python))
    return sum(_count(token.string.splitlines()[1:]) for token in tokens)
