"""Writes records out for other programs: JSON lines, or a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

FORMATS = ("jsonl", "csv")
_COLUMNS = ("time", "seq", "severity", "action", "sandbox", "notebook", "pid", "details")
#: A spreadsheet takes a cell that begins so for a formula, and would run what a sandbox wrote.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def exported(records: Iterable[dict[str, Any]], form: str) -> Iterator[str]:
    """Text of the export, a record at a time; ``form`` is one of FORMATS. Everything but ASCII is escaped in JSON."""
    if form == "jsonl":
        for record in records:
            yield json.dumps(record) + "\n"
        return
    yield _row(_COLUMNS)
    for record in records:
        yield _row([_cell(record.get(name)) for name in _COLUMNS])


def _cell(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    # One line, and nothing that a reader shows as something else: as the log writes it.
    text = text if text.isascii() and text.isprintable() else json.dumps(text)[1:-1].replace("\x7f", "\\u007f")
    return f"'{text}" if text.startswith(_FORMULA) else text


def _row(cells: Iterable[str]) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(cells)
    return file.getvalue()
