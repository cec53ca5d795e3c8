"""What a supervisor says about its sandboxes, rebuilt field by field so that only known, bounded values go out.

The supervisor is trusted, but names, usage and layers it reports may stem from what runs inside a sandbox.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 200
MAX_SENTENCE = 1000
MAX_SANDBOXES = 100
MAX_ENTRIES = 32
# The largest integer that a JavaScript number holds exactly.
MAX_NUMBER = 2.0**53

STATES = frozenset({"starting", "idle", "busy", "dead"})
USAGE = ("cpu", "memory", "memory_peak", "processes", "disk", "files", "output")
LIMITS = ("cpu", "wall", "memory", "disk", "processes", "cpus", "output", "open_files")

# Control, format (bidi overrides, zero width), surrogates, line separators: they make text read as something else.
_DECEIVING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def text(value: object, limit: int = MAX_TEXT) -> str:
    """At most `limit` characters of visible text; empty for anything that is no string."""
    if not isinstance(value, str):
        return ""
    shown = value if len(value) <= limit else value[: limit - 1] + "…"
    return "".join("\ufffd" if unicodedata.category(char) in _DECEIVING else char for char in shown)


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


def sandbox(value: object) -> dict[str, Any] | None:
    """One sandbox as the panel draws it; None for what isn't one."""
    if not isinstance(value, Mapping) or not text(value.get("name")):
        return None
    state = value.get("state")
    return {
        "name": text(value.get("name")),
        "state": state if isinstance(state, str) and state in STATES else "unknown",
        "notebook": text(value.get("notebook")) or None,
        "backend": text(value.get("backend")),
        "cell": _cell(value.get("cell")),
        "usage": numbers(value.get("usage"), USAGE),
        "limits": numbers(value.get("limits"), LIMITS),
        "guarantees": _guarantees(value.get("guarantees")),
        "weaker": _texts(value.get("weaker")),
    }


def sandboxes(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [found for found in map(sandbox, value[:MAX_SANDBOXES]) if found is not None]


def _cell(value: object) -> dict[str, float] | None:
    if not isinstance(value, Mapping):
        return None
    return {"number": number(value.get("number")) or 0.0, "elapsed": number(value.get("elapsed")) or 0.0}


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
