"""Work on the supervisor's loop that nobody waits for."""

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
