"""The errors a caller can meet, told apart by whose move is next: the code's, the policy's, the sandbox's or ours."""

from __future__ import annotations

from typing import Any


class SandboxError(Exception):
    """Base of every error of this package; also raised by a magic when the code in the sandbox raised.

    ``kind`` is a stable word that crosses the control API, so that a door raises the class the supervisor meant.
    """

    kind = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n{hint}")
        self.message = message
        self.hint = hint

    #: The sandbox's own traceback, shown in place of one of ours, which would only lead into this package.
    traceback: tuple[str, ...] = ()

    def _render_traceback_(self) -> list[str]:
        """What IPython shows when a cell raises this."""
        from .display import whole

        return list(self.traceback) or [whole(line) for line in f"{type(self).__name__}: {self}".split("\n")]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "message": self.message, "hint": self.hint}


class PolicyError(SandboxError):
    """A policy can't be read or asks for something that has no meaning; nothing was run."""

    kind = "policy"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        from .display import whole

        # Whoever made the file chose its name.
        named = whole(file) if file else ""
        where = f"{named}:{line}: " if file and line else f"{named}: " if file else ""
        super().__init__(where + message, hint=hint)
        self.file = file
        self.line = line

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "file": self.file, "line": self.line}


class NotAvailable(SandboxError):
    """Asked for something that this version, or this machine, does not have."""

    kind = "not-available"


class StartError(SandboxError):
    """A sandbox could not be started with every guarantee that its policy asks for; nothing was run."""

    kind = "start"


class SandboxDied(SandboxError):
    """The sandbox, or the supervisor that owned it, ended by itself; its variables are lost."""

    kind = "died"


class SandboxClosed(SandboxError, RuntimeError):
    """The sandbox was closed by its owner; ``start`` makes a new one. A RuntimeError too, as an executor that was shut
    down raises it everywhere."""

    kind = "closed"


class CheckRefused(SandboxError):
    """The check read the code and refused it before anything ran."""

    kind = "refused"


class LimitExceeded(SandboxError):
    """A limit of the policy ended the cell, or the task: its key, its value, and what was seen (seconds, bytes or a
    count; None where the kernel refused it)."""

    kind = "limit"
    name = ""
    value: float = 0.0
    observed: float | None = None


class SandboxInterrupted(SandboxError):
    """Somebody interrupted the cell."""

    kind = "interrupted"


class TaskError(SandboxError):
    """A task of an executor raised an exception of a class that is not rebuilt here: ``ename`` of ``module``."""

    kind = "task"
    module = ename = ""


class RemoteError(SandboxError):
    """The traceback of a task, as text; the cause of what the task raised."""

    kind = "remote"

    def __str__(self) -> str:
        return f'\n"""\n{self.message}"""'


class ValueRefused(SandboxError):
    """A value is of a type that can't cross the boundary safely, or larger than allowed."""

    kind = "value"


_KINDS: dict[str, type[SandboxError]] = {
    cls.kind: cls
    for cls in (
        SandboxError,
        NotAvailable,
        StartError,
        SandboxDied,
        SandboxClosed,
        CheckRefused,
        LimitExceeded,
        SandboxInterrupted,
        TaskError,
        RemoteError,
        ValueRefused,
    )
}


def from_json(data: Any) -> SandboxError:
    """The error a control API reply describes (the inverse of ``to_json``); of what is no such description, one that
    says so."""
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return SandboxError("an unknown error")
    message, hint, kind = data["message"], data.get("hint"), data.get("kind")
    hint = hint if isinstance(hint, str) else None
    if kind == "policy":
        # The message already names file and line: pass them as attributes only.
        error = PolicyError(message, hint=hint)
        file, line = data.get("file"), data.get("line")
        error.file, error.line = file if isinstance(file, str) else None, line if isinstance(line, int) else None
        return error
    return (_KINDS.get(kind, SandboxError) if isinstance(kind, str) else SandboxError)(message, hint=hint)
