"""Records what code in a sandbox tried and was refused, in bounded number: a flood must not drown the trail."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from ipysandbox.audit import events
from ipysandbox.backends.attempt import Attempt

from .trail import Trail

#: Records a minute, and of one kind: what is tried all the time must not hide what is tried once. The rest is counted.
MOST_RECORDS, MOST_OF_A_KIND = 240, 60
_WINDOW_SECONDS = 60.0


class Attempts:
    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._since, self._left_out = float("-inf"), 0
        self._written: Counter[tuple[str, str]] = Counter()

    def note(self, attempts: Sequence[Attempt]) -> None:
        now = time.monotonic()
        if now - self._since >= _WINDOW_SECONDS:
            self.sum_up()
            self._since = now
            self._written.clear()
        for attempt in attempts:
            kind = attempt.name, attempt.detail
            if self._written[kind] >= MOST_OF_A_KIND or self._written.total() >= MOST_RECORDS:
                self._left_out += attempt.count
            else:
                self._written[kind] += 1
                self._record(attempt)

    def sum_up(self) -> None:
        """Record how many were left out."""
        if self._left_out:
            self._trail.after(events.SYSCALL_REFUSED, severity="warning", name="…", count=self._left_out)
            self._left_out = 0

    def _record(self, attempt: Attempt) -> None:
        if attempt.name == "connect":
            action, what = events.NETWORK_REFUSED, {"address": attempt.detail}
        else:
            action, what = events.SYSCALL_REFUSED, {"name": attempt.name, "detail": attempt.detail}
        self._trail.after(action, severity="warning", **what, pid=attempt.pid, comm=attempt.comm, count=attempt.count)
