"""Sends a cell's outputs on no faster than a notebook takes them: streams that wait are joined, the rest is paced.

A Jupyter server drops what comes faster than 1000 messages a second (``iopub_msg_rate_limit``, over three seconds), the
notebook's own outputs too. Nothing is lost here: what waits is bounded, since all of it counts towards the limit on
output.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from .wire import Message

#: Messages in a second, and so many at once after a rest: with both, three seconds hold half of what a server takes.
_RATE, _BURST = 400.0, 400
#: Characters of a stream's message that no more are joined to.
_JOINED = 1 << 20
#: From so many that wait on, streams that take turns are joined too: then of each only its own order is kept.
_CROWDED = 1000
_VISIBLE = ("stream", "display_data", "execute_result", "error")

Send = Callable[[str, dict[str, Any], Message], Awaitable[None]]


@dataclass
class _Waiting:
    kind: str
    content: dict[str, Any]
    request: Message
    #: A stream's text, as it came.
    parts: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def whole(self) -> dict[str, Any]:
        return {**self.content, "text": "".join(self.parts)} if self.kind == "stream" else self.content

    def takes(self, kind: str, content: dict[str, Any], request: Message) -> bool:
        """Whether a stream's text can be joined to this one."""
        return (
            kind == self.kind == "stream"
            and content["name"] == self.content["name"]
            and request is self.request
            and self.size < _JOINED
        )


class Outflow:
    """What one sandbox shows, on its way out. ``run`` is to be running; ``send`` passes one message on."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: deque[_Waiting] = deque()
        #: What goes first: of what was cleared, the updates (they may be of another cell's display) and other cells'.
        self._first: OrderedDict[object, _Waiting] = OrderedDict()
        #: The updates in the queue, by their display: only the newest is seen.
        self._updates: dict[str, _Waiting] = {}
        self._tokens, self._since = float(_BURST), time.monotonic()
        #: Until nothing waits: somebody needs all of it now.
        self._hurried = False
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, kind: str, content: dict[str, Any], request: Message, *, paced: bool) -> None:
        """Send this after all that came before. ``paced``: outputs other than streams have to wait as well, and what
        would be seen for no time at all is left out."""
        if paced:
            if self._clears(kind, content, request):
                self._forget_cleared(request)
            elif self._is_said_already(kind, content, request):
                return
        elif kind != "stream":
            self._hurried = True
        if kind != "stream" or not self._joins(kind, content, request):
            waiting = _Waiting(kind, content, request)
            if kind == "stream":
                waiting.add(content["text"])
            elif kind == "update_display_data":
                self._updates[_display_id(content)] = waiting
            self._queue.append(waiting)
        self._empty.clear()
        self._wake.set()

    def _joins(self, kind: str, content: dict[str, Any], request: Message) -> bool:
        for back in (1, 2) if len(self._queue) > _CROWDED else (1,):
            if len(self._queue) < back or self._queue[-back].kind != "stream":
                return False
            if self._queue[-back].takes(kind, content, request):
                self._queue[-back].add(content["text"])
                return True
        return False

    def _last_clearing(self, request: Message) -> _Waiting | None:
        last = self._queue[-1] if self._queue else None
        return last if last is not None and last.kind == "clear_output" and last.request is request else None

    def _clears(self, kind: str, content: dict[str, Any], request: Message) -> bool:
        """Whether this is shown in place of all that waits: a clearing, or what comes after one that waited for it."""
        if kind == "clear_output":
            return not content.get("wait")
        return kind in _VISIBLE and self._last_clearing(request) is not None and len(self._queue) > 1

    def _forget_cleared(self, request: Message) -> None:
        clearing = self._last_clearing(request)
        for waiting in self._queue:
            if waiting.kind == "update_display_data":
                self._first[_display_id(waiting.content)] = waiting
            elif waiting.request is not request:
                self._first[id(waiting)] = waiting
        self._queue.clear()
        self._updates.clear()
        if clearing is not None:
            self._queue.append(clearing)

    def _is_said_already(self, kind: str, content: dict[str, Any], request: Message) -> bool:
        """Whether it adds nothing to what waits, or was put in the place of an update that does."""
        if kind == "clear_output":
            return self._last_clearing(request) is not None
        if kind in ("display_data", "execute_result"):
            self._updates.pop(_display_id(content), None)  # updates from now on are for this one too
        elif kind == "update_display_data" and _display_id(content) in self._updates:
            self._updates[_display_id(content)].content = content
            return True
        return False

    async def run(self) -> None:
        """Send for ever."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue or self._first:
                    if not self._hurried and (pause := self._pause()):
                        await asyncio.sleep(pause)
                        continue
                    self._tokens -= 1
                    waiting = self._next()
                    await self._send(waiting.kind, waiting.whole(), waiting.request)
                self._hurried = False
                self._empty.set()
        finally:
            self._empty.set()  # nobody is to wait for what will not be sent

    def _next(self) -> _Waiting:
        if self._first:
            return self._first.popitem(last=False)[1]
        waiting = self._queue.popleft()
        if waiting.kind == "update_display_data" and self._updates.get(_display_id(waiting.content)) is waiting:
            del self._updates[_display_id(waiting.content)]
        return waiting

    def _pause(self) -> float:
        """Seconds until the next may go."""
        now = time.monotonic()
        self._tokens = min(float(_BURST), max(self._tokens, 0.0) + (now - self._since) * _RATE)
        self._since = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / _RATE

    async def drained(self) -> None:
        """Returns when nothing waits."""
        await self._empty.wait()

    def hurry(self) -> int:
        """Send what waits at once, since nobody wants to wait for it any more. How many outputs were left out: more
        than a burst of others than streams is not sent."""
        if not self._queue:
            return 0
        self._hurried = True
        kept: deque[_Waiting] = deque()
        streams: dict[tuple[str, str], _Waiting] = {}
        left_out = 0
        for waiting in self._queue:
            if len(kept) < _BURST:
                kept.append(waiting)
            elif waiting.kind != "stream":
                left_out += waiting.kind != "clear_output"
            else:
                key = waiting.request.id, waiting.content["name"]
                if key in streams:
                    streams[key].parts += waiting.parts
                else:
                    streams[key] = waiting
                    kept.append(waiting)
        self._queue = kept
        self._updates.clear()
        return left_out


def _display_id(content: dict[str, Any]) -> str:
    """Every update has one, else it would say nothing."""
    return str((content.get("transient") or {}).get("display_id") or "")
