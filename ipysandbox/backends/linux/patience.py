"""Looks at processes that can keep whoever looks waiting.

What /proc tells of a process's address space (maps, smaps_rollup, map_files) is read under a lock of it, mmap_lock,
which its own threads can hold for most of the time: by mprotect over gigabytes, again and again. Such a look is taken
in a thread, and nothing else waits for it.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")
#: So long (seconds) is waited for an answer, however little time there is. A busy machine takes some of it.
_LEAST_SECONDS = 0.03
#: In all, however often there is time for it: who makes one wait must not slow down what else there is to do.
_LONGEST_SECONDS = 0.25
#: A process that has not answered for so long (seconds) could hold anything.
_MOST_SECONDS = 3.0
#: One for each sandbox, as far as they do not answer; made as they are needed.
_threads = concurrent.futures.ThreadPoolExecutor(1024, "look")


@dataclass(frozen=True)
class _Asked(Generic[_T]):
    pid: int
    answer: concurrent.futures.Future[_T]
    began: float
    seen: int


class Patient(Generic[_T]):
    """One look at a time. While one has no answer there is no other."""

    def __init__(self) -> None:
        self._asked: _Asked[_T] | None = None

    def ask(self, pid: int, look: Callable[[], _T], until: float, seen: int = 0) -> _T | None:
        """What ``look`` finds; None where there is no answer until then (monotonic), or none to the one before it.
        ``seen``: something to remember meanwhile."""
        if self._asked is not None:
            return None
        began = time.monotonic()
        answer = _threads.submit(look)
        done, _ = concurrent.futures.wait([answer], max(_LEAST_SECONDS, until - began))
        if done:
            return answer.result()
        self._asked = _Asked(pid, answer, began, seen)
        return None

    def late(self, until: float = 0.0) -> tuple[int, _T, int] | None:
        """Once, the process that did not answer in time, what was found of it since, and what had been seen. ``until``:
        wait for that, but not again for one that is not worth it any more."""
        asked = self._asked
        if asked is None:
            return None
        left = min(until, asked.began + _LONGEST_SECONDS) - time.monotonic()
        if not concurrent.futures.wait([asked.answer], max(0.0, left)).done:
            return None
        self._asked = None
        return asked.pid, asked.answer.result(), asked.seen

    @property
    def hidden(self) -> int:
        """A process that keeps itself from being looked at, if there is one."""
        if self._asked is None or time.monotonic() - self._asked.began < _MOST_SECONDS:
            return 0
        return self._asked.pid
