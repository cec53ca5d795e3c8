"""What a supervisor says about its sandboxes, rebuilt field by field so that only known, bounded values go out.

The supervisor is trusted, but names, usage and layers it reports may stem from what runs inside a sandbox.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

MAX_TEXT = 200
MAX_SENTENCE = 1000
MAX_SANDBOXES = 100
MAX_ENTRIES = 32
MAX_ITEMS = 200
# The largest integer that a JavaScript number holds exactly.
MAX_NUMBER = 2.0**53

STATES = frozenset({"starting", "idle", "busy", "dead"})
USAGE = (
    *("cpu", "cpu_total", "memory", "memory_peak", "processes", "disk", "files", "output"),
    *("gpu", "gpu_allowed"),
)
LAST_USAGE = ("wall", "cpu", "memory_peak", "processes_peak", "disk", "output")
LIMITS = ("cpu", "wall", "memory", "disk", "processes", "cpus", "output", "open_files")

# Control, format (bidi overrides, zero width), surrogates, line separators: they make text read as something else.
_DECEIVING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def text(value: object, limit: int = MAX_TEXT) -> str:
    """At most `limit` characters of visible text; empty for anything that is no string."""
    if not isinstance(value, str):
        return ""
    shown = value if len(value) <= limit else value[: limit - 1] + "…"
    if shown.isprintable():  # which nothing of those is: most texts, at a tenth of the cost
        return shown
    return "".join("\ufffd" if unicodedata.category(char) in _DECEIVING else char for char in shown)


def lines(value: object, limit: int = MAX_SENTENCE) -> str:
    """As ``text``, of a message of several lines."""
    return "\n".join(text(line, limit) for line in value[:limit].split("\n")) if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """A finite number from 0 to 2**53; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        measured = float(value)
    except OverflowError:
        return MAX_NUMBER
    return min(max(measured, 0.0), MAX_NUMBER) if math.isfinite(measured) else None


def numbers(value: object, keys: tuple[str, ...]) -> dict[str, float]:
    """The known keys of a mapping that hold numbers."""
    if not isinstance(value, Mapping):
        return {}
    found = {key: number(value.get(key)) for key in keys}
    return {key: measured for key, measured in found.items() if measured is not None}


def tree(value: object, length: int = MAX_SENTENCE, depth: int = 6) -> Any:
    """Plain data of bounded size: texts visible, numbers finite, what is anything else left out as None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value, length)
    if isinstance(value, int | float):
        return number(value) if value >= 0 else -(number(-value) or 0.0)
    if depth > 0 and isinstance(value, Mapping):
        return {text(key): tree(item, length, depth - 1) for key, item in list(value.items())[:MAX_ITEMS]}
    if depth > 0 and isinstance(value, list):
        return [tree(item, length, depth - 1) for item in value[:MAX_ITEMS]]
    return None


def texts(value: object, length: int = MAX_SENTENCE) -> list[str]:
    return [text(one, length) for one in value[:MAX_ITEMS]] if isinstance(value, list) else []


def record(value: Mapping[str, Any]) -> dict[str, Any]:
    """One record of the audit trail, whose texts may be a sandbox's."""
    severity = value.get("severity")
    return {
        "seq": number(value.get("seq")) or 0.0,
        "time": text(value.get("time"), 40),
        "severity": severity if severity in ("info", "warning", "alert") else "info",
        "action": text(value.get("action"), 64),
        "sandbox": text(value.get("sandbox")) or None,
        "notebook": text(value.get("notebook"), MAX_SENTENCE) or None,
        "pid": number(value.get("pid")),
        "details": tree(value.get("details") or {}),
    }


def sandbox(value: object, opens: Callable[[str], str | None] = lambda _path: None) -> dict[str, Any] | None:
    """One sandbox as the panel draws it; None for what isn't one. ``opens``: where the page finds a notebook."""
    if not isinstance(value, Mapping) or not text(value.get("name")):
        return None
    state, notebook = value.get("state"), value.get("notebook")
    return {
        "name": text(value.get("name")),
        "state": state if isinstance(state, str) and state in STATES else "unknown",
        "notebook": text(notebook, MAX_SENTENCE) or None,
        "opens": opens(notebook) if isinstance(notebook, str) and len(notebook) <= MAX_SENTENCE else None,
        "project": text(value.get("project"), MAX_SENTENCE) or None,
        "started": number(value.get("started")),
        "backend": text(value.get("backend")),
        "cell": _cell(value.get("cell")),
        "last": _last(value.get("last")),
        "usage": numbers(value.get("usage"), USAGE),
        "limits": numbers(value.get("limits"), LIMITS),
        "guarantees": _guarantees(value.get("guarantees")),
        "weaker": _texts(value.get("weaker")),
    }


def sandboxes(value: object, opens: Callable[[str], str | None] = lambda _path: None) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    found = (sandbox(one, opens) for one in value[:MAX_SANDBOXES])
    return [one for one in found if one is not None]


def _cell(value: object) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    return {
        "number": number(value.get("number")) or 0.0,
        "elapsed": number(value.get("elapsed")) or 0.0,
        "asks": value.get("asks") is True,
    }


def _last(value: object) -> dict[str, Any] | None:
    """How the cell before ended."""
    if not isinstance(value, Mapping):
        return None
    limit = value.get("limit")
    return {
        "number": number(value.get("number")) or 0.0,
        "status": text(value.get("status"), 40),
        "limit": text(limit.get("text"), MAX_SENTENCE) if isinstance(limit, Mapping) else None,
        "usage": numbers(value.get("usage"), LAST_USAGE),
    }


def _guarantees(value: object) -> dict[str, list[str]]:
    if not isinstance(value, Mapping):
        return {}
    return {
        text(name): [text(layer) for layer in layers[:MAX_ENTRIES]]
        for name, layers in list(value.items())[:MAX_ENTRIES]
        if isinstance(layers, list)
    }


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {text(name): text(said, MAX_SENTENCE) for name, said in list(value.items())[:MAX_ENTRIES]}
