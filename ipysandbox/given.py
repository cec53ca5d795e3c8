"""Looks at what a caller hands in, so that a wrong type is told by the argument's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real

from .errors import PolicyError


def settings(argument: str, given: object) -> dict[str, object]:
    """A mapping of single settings; empty for None. Raises PolicyError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        example = '{"memory": "512MiB"}' if argument == "limits" else '{"limits.wall": "30s"}'
        what = "has a name that is no text" if isinstance(given, Mapping) else f"is of type {type(given).__name__}"
        raise PolicyError(f"{argument} {what}", hint=f"give settings by name, as {example}")
    return dict(given)


def duration(argument: str, given: object) -> str:
    """Seconds, or a text with a unit, as the policy has it. Raises PolicyError."""
    if isinstance(given, str):
        return given
    if isinstance(given, bool) or not isinstance(given, Real):
        problem = f"is of type {type(given).__name__}"
    elif not math.isfinite(given):
        problem = f"is {float(given)}"
    else:
        return f"{float(given):g}s"
    raise PolicyError(f"{argument} {problem}", hint='give seconds, as 30, or a text with a unit, as "30s"')
