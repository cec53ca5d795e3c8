"""Work on the supervisor's loop that nobody waits for, and what goes on there again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

#: The loop itself keeps only weak references to its tasks.
_running: set[asyncio.Task[Any]] = set()


def in_background(work: Coroutine[Any, Any, Any]) -> None:
    """Run ``work`` to its end; what it raises was told elsewhere, or concerns nobody."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_finished)


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()


class Alarm:
    """An ``asyncio.Event`` for one that waits, each time for so long at most. ``asyncio.wait_for`` makes a task for
    every wait, which is most of what a loop with nothing to do costs."""

    def __init__(self) -> None:
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._set = True
        self._ring()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    async def wait(self, seconds: float) -> bool:
        """Whether it is set, now or within so many seconds."""
        if not self._set:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(max(0.0, seconds), self._ring)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._set

    def _ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
