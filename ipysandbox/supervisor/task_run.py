"""One task of an executor, from its call to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ipysandbox.backends.base import Usage
from ipysandbox.backends.linux.task_instance import MOST_KEPT, Task
from ipysandbox.guest.task import REQUEST
from ipysandbox.output import clean_text
from ipysandbox.output.redact import KnownSecrets, Redactor
from ipysandbox.policy.model import Limits

from . import limits as limit_rules
from . import task_wire as wire
from .limits import LimitHit
from .task_reply import NoReply, Reply, ReplyReader

#: Of what a sandbox that died has said last, as much is told.
_LAST_WORDS = 1500
#: Characters of one stream, marker included; cleaning may make text longer.
_MOST_SHOWN = MOST_KEPT + (8 << 10)
_MOST_TEXT = 60 << 10

Send = Callable[[int, int, bytes], Awaitable[None]]


@dataclass(eq=False)
class TaskRun:
    number: int
    #: The call, as ``executor.call`` packs it.
    call: memoryview
    limits: Limits
    #: Bytes of a value that the worker of a cluster has room for.
    room: int = wire.MOST_VALUE
    instance: Task | None = None
    hit: LimitHit | None = None
    cancelled: bool = False
    killed_by: str = ""
    began: float = 0.0
    usage: Usage = field(default_factory=Usage)
    peak_memory: int = 0
    #: Of the executor's writable folders, what was in them when it began.
    folder_bytes: int = 0
    folder_files: int = 0
    #: What it had written by then; and whether another task has run at the same time since it began.
    written: int = 0
    shared: bool = False

    @property
    def wall(self) -> float:
        """Seconds since its call was handed in; 0 while its sandbox starts."""
        return time.monotonic() - self.began if self.began else 0.0

    async def talk(self, sock: socket.socket, secrets: KnownSecrets, send: Send, turn: asyncio.Lock) -> Reply | None:
        """Hand the call in, and pass its value on as it comes; None where there was no whole answer. ``turn``: see
        ``ReplyReader``."""
        assert self.instance is not None
        asking = asyncio.ensure_future(self._ask(sock))
        reader = ReplyReader(sock, Redactor(secrets), turn)
        try:
            reply = self._within_bounds(await reader.read())
            if reply.kind == "ok":
                async for piece in reader.pieces(reply):
                    await send(wire.PIECE, self.number, piece)
            return reply
        except NoReply:
            return None
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            sock.close()

    def _within_bounds(self, reply: Reply) -> Reply:
        """Before a value's buffers are read: who sends them need not have held them, and whoever asked has to."""
        count, most = len(reply.tree) + sum(reply.sizes), min(self.room, self.limits.memory)
        if reply.kind != "ok" or count <= most:
            return reply
        if self.limits.memory <= self.room:
            whose = "that limits.memory lets a task hold"
        else:
            whose = "that the worker has room for: its threads share an eighth of its memory limit"
        text = f"the value has {limit_rules.size(count)}, more than the {limit_rules.size(most)} {whose}"
        return Reply("refused", texts={"message": text})

    async def _ask(self, sock: socket.socket) -> None:
        function = wire.OPTIONS.unpack_from(self.call)[0]
        sizes = function, len(self.call) - wire.OPTIONS.size - function
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # it has ended
            await loop.sock_sendall(sock, REQUEST.pack(*sizes))
            await loop.sock_sendall(sock, self.call[wire.OPTIONS.size :])
        self.call = memoryview(b"")

    def verdict(self, reply: Reply | None) -> dict[str, Any]:
        """How it went, as ``executor.outcome`` reads it. All inside has ended."""
        assert self.instance is not None
        limit = self.hit or limit_rules.enforced(self.limits, self.instance.enforced()) or self._over_output()
        if self.cancelled:
            return {"status": "cancelled"}
        if limit is not None:
            return {"status": "limit", "limit": limit}
        if self.killed_by:
            return {"status": "died", "text": f"the sandbox was ended by {self.killed_by}", "kind": "died"}
        if reply is None:
            return {"status": "died", "kind": "died", "text": self._died()}
        if reply.kind == "ok":
            return {"status": "ok", "sizes": [len(reply.tree), *reply.sizes]}
        assert reply.texts is not None
        texts = {name: text[-_MOST_TEXT:] for name, text in reply.texts.items()}
        if reply.kind == "refused":
            return {"status": "refused", "text": texts["message"], "kind": "value"}
        asked = limit_rules.from_error(self.limits, texts["name"], texts["message"], texts["module"])
        return {"status": "error" if asked is None else "limit", "error": texts, "limit": asked}

    def _over_output(self) -> LimitHit | None:
        """One that printed much and ended between two looks."""
        assert self.instance is not None
        return over_output(self.limits, self.instance)

    def _died(self) -> str:
        assert self.instance is not None
        status = self.instance.status
        how = "" if status is None else f" by signal {-status}" if status < 0 else f" with status {status}"
        return f"the sandbox of the task ended by itself{how}, without a result"

    def last_words(self, redactor: Redactor) -> str:
        assert self.instance is not None
        text = self.instance.err_kept[-_LAST_WORDS:].decode("utf-8", "replace")
        return redactor.text(clean_text(text)).strip()

    def printed(self, secrets: KnownSecrets) -> dict[str, str]:
        assert self.instance is not None
        redactor = Redactor(secrets)
        rows = (
            ("stdout", self.instance.out.kept, self.instance.out.count),
            ("stderr", self.instance.err_kept, self.instance.err_count),
        )
        found = {}
        for name, kept, count in rows:
            # A secret that is cut in two by the end of what was kept is held back.
            text = redactor.stream(name, clean_text(kept.decode("utf-8", "replace"))) if kept else ""
            if count > len(kept):
                text = f"{text[:_MOST_SHOWN]}\n… {count - len(kept):,} more bytes of {name} …\n"
            else:
                text = text[:_MOST_SHOWN] + "".join(mark for which, mark in redactor.release() if which == name)
            found[name] = text
        return found

    def figures(self, cpu: float) -> dict[str, float]:
        return {"wall": round(self.wall, 4), "cpu": round(cpu or self.usage.cpu, 4), "memory_peak": self.peak_memory}


def over_output(limits: Limits, instance: Task) -> LimitHit | None:
    printed = instance.out.count + instance.err_count
    return limit_rules.hit("output", limits.output, printed) if printed > limits.output else None


def encoded(outcome: dict[str, Any]) -> bytes:
    limit: LimitHit | None = outcome.get("limit")
    return json.dumps(
        {
            **dict.fromkeys(("text", "kind", "stdout", "stderr"), ""),
            "v": 1,
            "error": None,
            "usage": {},
            **outcome,
            "limit": None if limit is None else limit_rules.in_words_of_a_task(limit).to_json(),
        }
    ).encode()
