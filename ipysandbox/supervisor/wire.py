"""The Jupyter wire protocol, read defensively: signed frames in, bounded plain data out.

One side of the relay is hostile, so parsing never raises anything but ``BadMessage`` and never recurses without bound.
Source: https://jupyter-client.readthedocs.io/en/stable/messaging.html (protocol 5.4).
"""

from __future__ import annotations

import hmac
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import zmq

DELIMITER = b"<IDS|MSG>"
PROTOCOL = "5.4"
#: Delimiter, signature, and the four that it signs.
_PARTS = 6
#: libjson and ours recurse per level; no honest message comes near.
_MOST_DEPTH = 60
_MOST_BUFFERS = 10_000
#: Bytes of header, parent and metadata together.
_MOST_HEADERS = 1 << 20
#: A larger part is looked through before it is parsed: objects take many times the memory of the text that makes them,
#: and nothing else runs while the parser does. Honest large parts are one long string.
_LOOK_ABOVE = 1 << 20
_MOST_ITEMS = 200_000
#: Bytes that are copied together to be signed, which is quicker than one part after the other.
_SIGNED_AT_ONCE = 1 << 16
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None)
#: Of a text without escapes: whatever it is, this takes one look at each byte.
_STRING = re.compile(rb'"[^"]*"')


Buffer = bytes | memoryview


class BadMessage(ValueError):
    """Frames that are not a message of ours: wrong signature, no JSON, nested too deep."""


@dataclass
class Message:
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: dict[str, Any]
    content: dict[str, Any]
    idents: list[bytes] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    @property
    def type(self) -> str:
        return str(self.header.get("msg_type", ""))[:100]

    @property
    def id(self) -> str:
        return str(self.header.get("msg_id", ""))[:200]

    @property
    def parent_id(self) -> str:
        return str(self.parent.get("msg_id", ""))[:200]


def new_header(kind: str, session: str) -> dict[str, Any]:
    return {
        "msg_id": uuid.uuid4().hex,
        "msg_type": kind,
        "username": "sandbox",
        "session": session,
        "date": datetime.now(timezone.utc).isoformat(),
        "version": PROTOCOL,
    }


def sign(key: bytes, parts: Sequence[bytes]) -> bytes:
    if sum(map(len, parts)) <= _SIGNED_AT_ONCE:
        return hmac.digest(key, b"".join(parts), "sha256").hex().encode()
    mac = hmac.new(key, digestmod="sha256")
    for part in parts:
        mac.update(part)
    return mac.hexdigest().encode()


def pack(message: Message, key: bytes) -> list[Buffer]:
    """Frames of ``message``, signed with ``key``. NaN and infinity stay as JavaScript's parsers know them: null."""
    parts = [
        _ENCODER.encode(part).encode("utf-8", "replace")
        for part in (message.header, message.parent, message.metadata, message.content)
    ]
    return [*message.idents, DELIMITER, sign(key, parts), *parts, *message.buffers]


def without_copies(received: Sequence[zmq.Frame]) -> list[Buffer]:
    """Frames for ``unpack``: a value's buffers, which may be large, stay where libzmq has put them."""
    parts = 0
    frames: list[Buffer] = []
    for frame in received:
        if parts < _PARTS:
            frames.append(frame.bytes)
            parts += bool(parts or frames[-1] == DELIMITER)
        else:
            frames.append(frame.buffer)
    return frames


def unpack(frames: Sequence[Buffer], key: bytes, *, most: int | None = None) -> Message:
    """``most``: bytes of its content. Of a larger one that is not even looked at, in its place there is an error.

    Raises BadMessage.
    """
    at = _begin(frames)
    signature, *parts = (bytes(frame) for frame in frames[at + 1 : at + _PARTS])
    if most is not None and sum(map(len, parts)) > most:
        # Its signature would take as long. All that is believed of it is whose answer it says it is.
        if sum(map(len, parts[:3])) > _MOST_HEADERS:
            raise BadMessage("large headers")
        too_large = {"status": "error", "ename": "ValueError", "evalue": f"an answer of more than {most} bytes of text"}
        header, parent, metadata = (load(part) for part in parts[:3])
        return Message(header, parent, metadata, {**too_large, "traceback": []}, [*map(bytes, frames[:at])])
    if not hmac.compare_digest(signature, sign(key, parts)):
        raise BadMessage("wrong signature")
    header, parent, metadata, content = (load(part) for part in parts)
    return Message(header, parent, metadata, content, [*map(bytes, frames[:at])], list(frames[at + _PARTS :]))


def _begin(frames: Sequence[Buffer]) -> int:
    """Where the delimiter is."""
    try:
        at = list(frames[:16]).index(DELIMITER)
    except ValueError:
        raise BadMessage("no delimiter") from None
    if len(frames) < at + _PARTS or len(frames) > at + _PARTS + _MOST_BUFFERS:
        raise BadMessage(f"{len(frames)} frames")
    return at


def _items(part: bytes) -> int:
    return sum(part.count(mark) for mark in (b",", b"[", b"{"))


def load(part: bytes) -> dict[str, Any]:
    """A JSON object with bounds on what it may hold. Raises BadMessage."""
    # Counting is quick and counts what stands in strings too; taking those out first is done only where it matters.
    if len(part) > _LOOK_ABOVE and _items(part) > _MOST_ITEMS and _has_too_many(part):
        raise BadMessage("too many items")
    try:
        data = _DECODER.decode(part.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as exc:
        raise BadMessage(f"not JSON: {type(exc).__name__}") from None
    if not isinstance(data, dict):
        raise BadMessage("not an object")
    _check_depth(data)
    return data


def _has_too_many(part: bytes) -> bool:
    bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
    # An item has two strings at most, its key and itself.
    return bare.count(b'"') > 4 * _MOST_ITEMS or _items(_STRING.sub(b"", bare)) > _MOST_ITEMS


def _check_depth(data: dict[str, Any]) -> None:
    level: list[Any] = [data]
    for _ in range(_MOST_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise BadMessage("nested too deep")
