"""Makes one record: bounded, JSON, on one line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Literal

Severity = Literal["info", "warning", "alert"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "alert")

MAX_LINE = 64 * 1024
"""Bytes of a record with its newline, and of the one write(2) that appends it."""

MAX_STRING = 4096
"""Characters of a string in a record; PATH_MAX on Linux is 4096 bytes. Longer ones end with an ellipsis."""

MAX_DEPTH = 6
MAX_ITEMS = 200  # of one list or mapping
MAX_VALUES = 2000  # of one record

_SHORTER = (MAX_STRING, 256, 32)  # string lengths tried until a record fits in MAX_LINE
_ACTION = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*\Z")


def make(
    action: str, *, sandbox: str | None, notebook: str | None, severity: Severity, details: Mapping[str, Any], pid: int
) -> dict[str, Any]:
    """A record without its place in the log (time and seq).

    :raises ValueError: ``action`` or ``severity`` is not one: a mistake of the caller, not of its data.
    """
    if len(action) > 64 or not _ACTION.match(action):
        raise ValueError(f"{action!r:.80} is not an action: lower-case words joined by dots, at most 64 characters")
    if severity not in SEVERITIES:
        raise ValueError(f"{severity!r:.80} is not a severity: one of {', '.join(SEVERITIES)}")
    return {
        "time": "",
        "seq": 0,
        "action": action,
        "sandbox": None if sandbox is None else _clip(sandbox, MAX_STRING),
        "notebook": None if notebook is None else _clip(notebook, MAX_STRING),
        "pid": pid,
        "severity": severity,
        "details": details,
    }


def encode(record: dict[str, Any], seq: int) -> tuple[dict[str, Any], bytes]:
    """The record as it is written, now, with the number ``seq``; and its line, at most ``MAX_LINE - 1`` bytes."""
    record = {**record, "time": timestamp(datetime.now(timezone.utc)), "seq": seq}
    details = record["details"]
    for length in _SHORTER:
        record["details"] = _Bounded(length).mapping(details, 0)
        line = _line(record)
        if len(line) < MAX_LINE:
            return record, line
    record["details"] = {"…": f"details of more than {MAX_LINE} bytes left out"}
    return record, _line(record)


def timestamp(moment: datetime) -> str:
    """UTC, ISO 8601, microseconds: always of the same length, so that texts compare as times do."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def _line(record: dict[str, Any]) -> bytes:
    # ASCII: control characters, bidi marks and lone surrogates arrive as escapes, whoever prints the log. DEL is ASCII.
    return json.dumps(record, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f").encode("ascii") + b"\n"


def _clip(text: str, length: int) -> str:
    clipped = text[:length]  # a slice of a subclass of str is a plain str
    return clipped + "…" if len(text) > length else clipped


class _Bounded:
    """Copies a value into plain JSON types of bounded size."""

    def __init__(self, string: int) -> None:
        self.string = string
        self.left = MAX_VALUES

    def mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if len(found) >= MAX_ITEMS or self.left <= 0:
                found["…"] = f"{len(value) - len(found)} more"
                break
            found[_clip(key if isinstance(key, str) else str(self.value(key, MAX_DEPTH)), 256)] = self.value(
                item, depth
            )
        return found

    def value(self, value: object, depth: int) -> Any:
        self.left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _clip(value, self.string)
        if isinstance(value, int):
            return int(value) if -(2**63) <= value < 2**63 else type(value).__name__
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if depth >= MAX_DEPTH:
            return type(value).__name__
        if isinstance(value, Mapping):
            return self.mapping(value, depth + 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.sequence(list(value), depth + 1)
        return type(value).__name__

    def sequence(self, value: list[object], depth: int) -> list[Any]:
        found: list[Any] = []
        for item in value:
            if len(found) >= MAX_ITEMS or self.left <= 0:
                found.append(f"… {len(value) - len(found)} more")
                break
            found.append(self.value(item, depth))
        return found
