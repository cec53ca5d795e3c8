"""How one task ended, as data that may travel: what the code returned stays encoded until somebody wants it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ipysandbox.errors import SandboxError
from ipysandbox.supervisor.limits import LimitHit

STATUSES = ("ok", "error", "limit", "refused", "died", "cancelled", "failed")

#: Bounds of what may be read back: of the head, and of the number of buffers that a value may have.
MOST_HEAD, MOST_BUFFERS = 4 << 20, 10_000
#: Characters of each text in a head: names, messages, tracebacks; and of what was printed, per stream.
MOST_TEXT, MOST_PRINTED = 64 << 10, 256 << 10
_VERSION = 1


@dataclass(frozen=True)
class Raised:
    """An exception that the code raised: text only, cleaned; ``module`` and ``name`` are of its class."""

    module: str
    name: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Outcome:
    """``status``: ``ok``, ``error`` (the code raised), ``limit``, ``refused`` (its value can't cross), ``died``,
    ``cancelled``, or ``failed`` (it did not run; ``text`` says why).

    ``value`` is the JSON of the tree that ``output.values.receive`` takes, ``buffers`` what it points into: hostile,
    and undecoded. ``usage`` holds ``wall`` and ``cpu`` in seconds, ``memory_peak`` in bytes (0: too short to be seen).
    """

    status: str
    value: bytes = field(default=b"", repr=False)
    buffers: tuple[bytes, ...] = field(default=(), repr=False)
    error: Raised | None = None
    limit: LimitHit | None = None
    #: Of ``refused``, ``died`` and ``failed``: why, in words. ``kind`` is that of the SandboxError to raise.
    text: str = ""
    kind: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    #: What the task printed: cleaned, redacted, cut.
    stdout: str = ""
    stderr: str = ""

    def to_wire(self) -> list[bytes]:
        """Frames: a head of JSON, the value, its buffers."""
        head = {
            "v": _VERSION,
            "status": self.status,
            "error": asdict(self.error) if self.error else None,
            "limit": self.limit.to_json() if self.limit else None,
            **{name: getattr(self, name) for name in ("text", "kind", "stdout", "stderr")},
            "usage": dict(self.usage),
        }
        return [json.dumps(head).encode("ascii"), self.value, *self.buffers]

    @classmethod
    def from_wire(cls, frames: Sequence[bytes | bytearray | memoryview]) -> Outcome:
        """The inverse, for frames from another process or machine. Raises SandboxError when they are none."""
        try:
            return _checked(frames)
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise SandboxError(f"not the outcome of a task: {type(exc).__name__}") from None


def _checked(frames: Sequence[bytes | bytearray | memoryview]) -> Outcome:
    if not 2 <= len(frames) <= 2 + MOST_BUFFERS or len(frames[0]) > MOST_HEAD:
        raise ValueError("frames")
    head = json.loads(bytes(frames[0]))
    if type(head) is not dict or head["v"] != _VERSION or head["status"] not in STATUSES:
        raise ValueError("head")
    texts = {name: _text(head[name], MOST_PRINTED) for name in ("text", "kind", "stdout", "stderr")}
    if type(head["usage"]) is not dict or len(head["usage"]) > 20:
        raise ValueError("usage")
    return Outcome(
        head["status"],
        bytes(frames[1]),
        tuple(bytes(frame) for frame in frames[2:]),
        error=_raised(head["error"]),
        limit=_limit(head["limit"]),
        usage={_text(key, 100): _number(value) for key, value in head["usage"].items()},
        **texts,
    )


def _raised(data: Any) -> Raised | None:
    names = ("module", "name", "message", "traceback")
    return None if data is None else Raised(**{name: _text(data[name], MOST_TEXT) for name in names})


def _limit(data: Any) -> LimitHit | None:
    if data is None:
        return None
    observed = data["observed"]
    return LimitHit(
        _text(data["name"], 100),
        _number(data["value"]),
        None if observed is None else _number(observed),
        _text(data["text"], MOST_TEXT),
    )


def _text(value: Any, most: int) -> str:
    if type(value) is not str or len(value) > most:
        raise ValueError("text")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("number")
    return float(value)
