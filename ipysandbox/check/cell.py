"""Turns a cell into the Python that IPython would run, keeping for every line the place it was written at."""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

from IPython.core.inputtransformer2 import TRANSFORM_LOOP_LIMIT, TransformerManager, cell_magic

Locate = Callable[[int, int], tuple[int, int]]
"""(line from 1, column from 0) of a text → (line from 1, column from 0) of the cell as it was written."""

TRANSFORM_BUDGET = 200_000
"""Characters that may be tokenised for one cell. IPython tokenises the whole cell again for each magic in it, at about
0.2 MB/s, so 500 magics in a large cell would keep the check busy for minutes. Magics on lines of their own, which are
nearly all, cost none of it."""

# Where IPython's splitlines() sees a line end and Python's parser does not: only there can IPython's reading of valid
# Python differ from Python's own.
_ODD_LINE_ENDS = re.compile(r"[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)")

_MAGIC_LINE = re.compile(r"\s*[!%?,;/]|[^#'\"]*=\s*[!%]|.*\?\s*$")
_BRACKETS = frozenset("()[]{}'\"")
_MAGIC_SIGNS = re.compile(r"[!%?]|^[ \t\x0c]*[,;/]", re.MULTILINE)


class TooCostly(Exception):
    """Reading the cell would take longer than a check may."""


@dataclass(frozen=True)
class PythonText:
    """Python source with its tree; ``locate`` leads back to the cell."""

    text: str
    tree: ast.Module
    locate: Locate


@dataclass(frozen=True)
class CellMagic:
    """A cell whose first line, at ``place``, is ``%%name line``; ``locate`` takes places of ``body``."""

    name: str
    line: str
    body: str
    place: tuple[int, int]
    locate: Locate


class LineMap:
    """Places of a transformed text in the text it was made from.

    Works in IPython's lines (``str.splitlines``), which are finer than Python's: both are needed to count as Python and
    an editor count.
    """

    def __init__(self, before: Sequence[str], after: Sequence[str], origin: Sequence[int]) -> None:
        self._before, self._after, self._origin = before, after, origin

    def locate(self, line: int, column: int) -> tuple[int, int]:
        index, within = self._piece_at(line, column)
        if index >= len(self._origin):
            return self._place_of(len(self._before) - 1, 0)
        source = self._origin[index]
        old, new = self._before[source], self._after[index]
        if old.rstrip().endswith(new.rstrip()):
            return self._place_of(source, within + len(old.rstrip()) - len(new.rstrip()))
        # A magic: its replacement has columns of its own, so point at where the original begins.
        return self._place_of(source, len(old) - len(old.lstrip()))

    def _piece_at(self, line: int, column: int) -> tuple[int, int]:
        """The piece of the transformed text, and the column in it, of a place counted in Python's lines."""
        starts = self._starts_after
        index = starts[line - 1] if 0 < line <= len(starts) else len(self._after)
        if index >= len(self._after):  # Python places an unexpected end behind the last line
            return len(self._after), 0
        while column >= len(self._after[index]) and not _ends_line(self._after[index]) and index + 1 < len(self._after):
            column -= len(self._after[index])
            index += 1
        return index, column

    def _place_of(self, index: int, column: int) -> tuple[int, int]:
        """The place, counted in Python's lines, of a column of a piece of the original."""
        line = bisect_right(self._starts_before, index)
        return line, column + sum(len(piece) for piece in self._before[self._starts_before[line - 1] : index])

    @cached_property
    def _starts_after(self) -> list[int]:
        return _line_starts(self._after)

    @cached_property
    def _starts_before(self) -> list[int]:
        return _line_starts(self._before)


def _line_starts(pieces: Sequence[str]) -> list[int]:
    """The index of the piece that each of Python's lines begins with."""
    return [0, *(index + 1 for index, piece in enumerate(pieces) if _ends_line(piece))]


def _ends_line(piece: str) -> bool:
    return piece.endswith(("\n", "\r"))


def read_cell(source: str, locate: Locate) -> PythonText | CellMagic:
    """The Python of ``source`` after IPython's transformation, or its cell magic.

    :raises SyntaxError: with ``lineno`` and ``offset`` (both from 1) already those of the cell as it was written.
    :raises TooCostly: see ``TRANSFORM_BUDGET``.
    :raises RecursionError, MemoryError: Python's parser gave up on the nesting.
    """
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    cleanups: Sequence[Callable[[list[str]], list[str]]] = manager.cleanup_transforms  # type: ignore[assignment]
    before = (source if source.endswith("\n") else source + "\n").splitlines(keepends=True)
    lines, origin = before, list(range(len(before)))
    for cleanup in cleanups:
        cleaned = cleanup(lines)
        # Cleanups drop lines at the top or change them in place.
        origin = origin[max(0, len(lines) - len(cleaned)) :]
        lines = cleaned
    if cell_magic(lines) is not lines:  # type: ignore[no-untyped-call]
        return _cell_magic(before, lines, origin, locate)

    joined = "".join(lines)
    if not _ODD_LINE_ENDS.search(joined):
        # Valid Python holds no magics, and the transformation leaves it alone.
        try:
            return _parsed(joined, _through(LineMap(before, lines, origin), locate))
        except SyntaxError:
            if not _MAGIC_SIGNS.search(joined):
                raise
        with suppress(SyntaxError):
            quick = _transform_by_line(manager, lines, origin)
            if quick is not None:
                text, places, tree = quick
                return PythonText("".join(text), tree, _through(LineMap(before, text, places), locate))
    try:
        with _quiet():  # IPython warns of lines that end in none of the usual ways
            lines, origin = _transform(manager, lines, origin)
    except SyntaxError as error:  # the tokeniser's, for indentation that can't be
        raise _located(error, _through(LineMap(before, lines, origin), locate)) from None
    return _parsed("".join(lines), _through(LineMap(before, lines, origin), locate))


def parse(text: str) -> ast.Module:
    """``ast.parse`` without the warnings about the escapes in somebody else's strings."""
    with _quiet():
        return ast.parse(text)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _parsed(text: str, locate: Locate) -> PythonText:
    try:
        return PythonText(text, parse(text), locate)
    except SyntaxError as error:
        raise _located(error, locate) from None


def _located(error: SyntaxError, locate: Locate) -> SyntaxError:
    line, column = locate(error.lineno or 1, max(0, (error.offset or 1) - 1))
    return SyntaxError(error.msg, ("<cell>", line, column + 1, error.text))


def _through(inner: LineMap, outer: Locate) -> Locate:
    return lambda line, column: outer(*inner.locate(line, column))


def _cell_magic(before: list[str], lines: list[str], origin: list[int], locate: Locate) -> CellMagic:
    # The same cut as IPython.core.inputtransformer2.cell_magic.
    name, _, line = lines[0][2:].rstrip().partition(" ")
    whole = _through(LineMap(before, lines, origin), locate)
    first = lines[0]

    def body_place(number: int, column: int) -> tuple[int, int]:
        if _ends_line(first):
            return whole(number + 1, column)
        return whole(number, column + len(first) if number == 1 else column)

    return CellMagic(name, line, "".join(lines[1:]), whole(1, 0), body_place)


def _transform_by_line(
    manager: TransformerManager, lines: list[str], origin: list[int]
) -> tuple[list[str], list[int], ast.Module] | None:
    """What ``_transform`` gives, and the tree of it, where every magic begins a line of its own; None if not sure.

    IPython looks for one magic at a time and tokenises the whole cell for each. Here each line that may be one is
    transformed alone. The result is IPython's own if it parses and a statement begins at every line that was replaced:
    up to the first of them the text is the original, so its tokeniser sees a statement begin there too, and so on.
    Only a `?` at a line's end is sought at the end of a statement, which an open bracket or quote puts further down.
    """
    text: list[str] = []
    places: list[int] = []
    replaced: list[int] = []
    index = 0
    while index < len(lines):
        end = index + 1
        if lines[index].rstrip().endswith("?") and not _BRACKETS.isdisjoint(lines[index]):
            return None
        if _MAGIC_LINE.match(lines[index]):
            while lines[end - 1].endswith("\\\n") and end < len(lines):
                end += 1
            changed = manager.do_token_transforms(lines[index:end])  # type: ignore[no-untyped-call]
            if len(changed) != 1:
                return None
            if changed[0] != lines[index]:
                replaced.append(len(text))
                if len(replaced) > TRANSFORM_LOOP_LIMIT:
                    return None
            text += changed
        else:
            text.append(lines[index])
        places.append(origin[index])
        index = end
    if not replaced:
        return None
    tree = parse("".join(text))
    begins = _statement_starts(tree)
    if all((index + 1, len(text[index]) - len(text[index].lstrip())) in begins for index in replaced):
        return text, places, tree
    return None


def _statement_starts(tree: ast.Module) -> set[tuple[int, int]]:
    starts, waiting = set(), [tree.body]
    while waiting:
        for statement in waiting.pop():
            starts.add((statement.lineno, statement.col_offset))
            for name in ("body", "orelse", "finalbody"):
                waiting.append(getattr(statement, name, []))
            for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                waiting.append(branch.body)
    return starts


def _transform(manager: TransformerManager, lines: list[str], origin: list[int]) -> tuple[list[str], list[int]]:
    spent = 0
    for _ in range(TRANSFORM_LOOP_LIMIT):
        spent += sum(map(len, lines))
        if spent > TRANSFORM_BUDGET:
            raise TooCostly
        changed, new = manager.do_one_token_transform(lines)  # type: ignore[no-untyped-call]
        if not changed:
            return lines, origin
        # One piece of special syntax, of one or more lines, became one line.
        at = next((i for i, (a, b) in enumerate(zip(lines, new, strict=False)) if a != b), 0)
        removed = len(lines) - len(new)
        origin = origin[: at + 1] + origin[at + 1 + removed :]
        lines = new
    raise TooCostly  # IPython gives up here as well
