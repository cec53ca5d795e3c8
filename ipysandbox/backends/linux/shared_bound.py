"""What the supervisor knows of shared memory that no process's page tables show, from the monitor's count."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import processes

#: So old may an answer be that counts, and so late one that is waited for.
_ANSWER_SECONDS = 1.0


class SharedBound:
    """``told`` is never too little, but may be of memory that is there no more: before it ends anything, the monitor is
    asked to look at what is mapped, and what it says then counts (see shared_memory.py). ``ask`` sends that, and says
    whether it could."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask
        self.told = 0
        self._counted, self._answered = 0, 0.0
        #: When it was asked what it has not answered yet.
        self._asked = 0.0

    def hear(self, held: int, *, counted: bool) -> None:
        if counted:
            self._counted = self.told = held
            self._answered, self._asked = time.monotonic(), 0.0
        else:
            self.told = max(self.told, held)

    def bound(self, scratch: int, room: int) -> int:
        """Bytes in files in memory (``scratch`` of them), and in shared mappings as far as that is known; ``room``: so
        many are no reason to ask."""
        if not self.told:
            return scratch
        machine = max(scratch, processes.machine_shared())
        if min(scratch + self.told, machine) <= room:
            return min(scratch + min(self._counted, self.told), machine)
        now = time.monotonic()
        if not self._asked and self._ask():
            self._asked = now
        if self._asked and now > self._asked + _ANSWER_SECONDS:
            return min(scratch + self.told, machine)
        fresh = now <= self._answered + _ANSWER_SECONDS
        return min(scratch + (self._counted if fresh else 0), machine)
