"""Reads what a task's sandbox answers, as hostile as anything that comes out of one: every length has a bound."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ipysandbox.guest.task import MAGIC, RAISED, REFUSED, REPLY, SIZE, VALUE
from ipysandbox.output import clean_text
from ipysandbox.output.redact import Redactor

from . import task_wire as wire
from .wire import BadMessage, load

#: Bytes of a value's JSON, and of what describes an error; and how many buffers a value may have. While JSON is parsed
#: nothing else of this process runs, the watch over other tasks included: for a tenth of a second with these.
MOST_TREE, MOST_DESCRIPTION, MOST_BUFFERS = 8 << 20, 1 << 20, 10_000
#: Bytes of an answer that are looked into without leaving the event loop: some milliseconds of hostile text.
_HERE = 16 << 10
_TOO_LONG = (
    f"the value has more than {MOST_TREE >> 20} MiB of text, or of numbers one by one: make numbers an array "
    "(numpy.array), and give text as bytes (.encode()) or write it to a file in results/"
)
_CHUNK = 256 << 10
_T = TypeVar("_T")
_NAME = re.compile(r"[^\W\d][\w.<>]{0,199}")


class NoReply(Exception):
    """It ended before it was whole, or is none."""


@dataclass(frozen=True)
class Reply:
    """``tree``: the JSON of a value, redacted; its buffers, of ``sizes`` bytes, are still to be read."""

    kind: str
    tree: bytes = b""
    sizes: tuple[int, ...] = ()
    #: Of an error: module, name, message, traceback; of a refusal: message. Cleaned and redacted.
    texts: dict[str, str] | None = None


class ReplyReader:
    def __init__(
        self, sock: socket.socket, redactor: Redactor, turn: asyncio.Lock, most: int = wire.MOST_VALUE
    ) -> None:
        """``turn``: whoever holds it looks into a long answer; one at a time of those that share it."""
        self._sock, self._redactor, self._turn, self._most = sock, redactor, turn, most
        self._data = bytearray()

    async def read(self) -> Reply:
        """All but the buffers. Raises NoReply."""
        magic, kind, head_size, count = REPLY.unpack(await self._exactly(REPLY.size))
        if magic != MAGIC or kind not in (VALUE, RAISED, REFUSED) or count > MOST_BUFFERS:
            raise NoReply
        sizes = [SIZE.unpack_from(data)[0] for data in [await self._exactly(SIZE.size) for _ in range(count)]]
        if kind != VALUE and (count or head_size > MOST_DESCRIPTION):
            raise NoReply
        if head_size + sum(sizes) > self._most:
            return Reply("refused", texts={"message": f"the value has more than {self._most >> 20} MiB"})
        if head_size > MOST_TREE:
            return Reply("refused", texts={"message": _TOO_LONG})
        head = await self._exactly(head_size)
        try:
            if kind == VALUE:
                return Reply("ok", await self._aside(self._redacted, head), tuple(sizes))
            return await self._aside(self._told, kind, head)
        except BadMessage:
            raise NoReply from None

    async def _aside(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """``work`` on the last of ``arguments``: where that is long, in a thread and when it is its turn."""
        if len(arguments[-1]) <= _HERE:
            return work(*arguments)
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)

    def _told(self, kind: int, head: bytes) -> Reply:
        """Of what is no value."""
        texts = load(head)
        if kind == REFUSED:
            return Reply("refused", texts={"message": self._clean(texts, "message")})
        named = {name: self._named(texts, name) for name in ("module", "name")}
        return Reply("error", texts={**named, **{name: self._clean(texts, name) for name in ("message", "traceback")}})

    async def pieces(self, reply: Reply) -> AsyncIterator[bytes]:
        """The bytes of a value: its JSON, then its buffers. Raises NoReply."""
        left = sum(reply.sizes)
        first = bytes(self._data[:left])
        left -= len(first)
        yield reply.tree + first
        while left:
            data = await self._received(min(left, _CHUNK))
            left -= len(data)
            yield data

    async def _exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            self._data += await self._received(_CHUNK)
        found = bytes(self._data[:count])
        del self._data[:count]
        return found

    async def _received(self, most: int) -> bytes:
        try:
            data = await asyncio.get_running_loop().sock_recv(self._sock, most)
        except OSError:
            raise NoReply from None
        if not data:
            raise NoReply
        return data

    def _redacted(self, head: bytes) -> bytes:
        """Looked into as data, not as text: JSON can spell a secret in many ways."""
        tree = load(head)
        clean = self._redactor.value(tree)
        return head if clean is tree else json.dumps(clean).encode()

    def _clean(self, texts: dict[str, Any], name: str) -> str:
        text = texts.get(name)
        return self._redactor.text(clean_text(text)) if isinstance(text, str) else ""

    def _named(self, texts: dict[str, Any], name: str) -> str:
        text = texts.get(name)
        return self._redactor.text(text) if isinstance(text, str) and _NAME.fullmatch(text) else "unknown"
