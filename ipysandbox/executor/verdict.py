"""Turns the outcome of a task into what its caller gets: the value, or an exception to catch."""

from __future__ import annotations

import builtins
import json
from typing import Any

from ipysandbox.errors import (
    LimitExceeded,
    RemoteError,
    SandboxDied,
    TaskError,
    ValueRefused,
    from_json,
)
from ipysandbox.output import values

from .outcome import Outcome, Raised

#: Not rebuilt: those that steer loops, and those that are made of more than a message.
_NEVER = (StopIteration, StopAsyncIteration, UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)
_GROUPS = ("ExceptionGroup", "BaseExceptionGroup")
#: Python's own exceptions, by name; what only ends programs (SystemExit, KeyboardInterrupt) is none of them.
BUILTIN = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in _NEVER and name not in _GROUPS
}


def value_of(outcome: Outcome) -> Any:
    """What the task returned, rebuilt from plain data. Raises the SandboxError or the built-in exception that it ended
    with, and ValueRefused for a value that can't be accepted."""
    if outcome.status != "ok":
        raise error_of(outcome)
    try:
        tree = json.loads(outcome.value)
    except (ValueError, RecursionError):
        raise ValueRefused("the sandbox sent a value that can't be accepted: it is no JSON") from None
    return values.receive(tree, outcome.buffers)


def error_of(outcome: Outcome) -> Exception:
    """The exception for an outcome without a value."""
    error: Exception
    if outcome.status == "limit" and outcome.limit is not None:
        limit = outcome.limit
        error = LimitExceeded(limit.text)
        error.name, error.value, error.observed = limit.name, limit.value, limit.observed
    elif outcome.status == "error" and outcome.error is not None:
        error = _rebuilt(outcome.error)
    elif outcome.status in ("refused", "died", "failed"):
        error = from_json({"kind": outcome.kind, "message": outcome.text})
    else:
        error = SandboxDied(f"the task has no result ({outcome.status})")
    if outcome.error is not None:
        error.__cause__ = RemoteError(outcome.error.traceback)
    return error


def _rebuilt(raised: Raised) -> Exception:
    kind = BUILTIN.get(raised.name) if raised.module == "builtins" else None
    if kind is not None:
        return kind(raised.message)
    name = raised.name if raised.module == "builtins" else f"{raised.module}.{raised.name}"
    error = TaskError(f"{name}: {raised.message}" if raised.message else name)
    error.module, error.ename = raised.module, raised.name
    return error
