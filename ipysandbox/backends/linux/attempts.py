"""Hears from a sandbox's monitor what was refused, and passes on what is well-formed."""

from __future__ import annotations

from collections.abc import Callable

from ipysandbox.backends.attempt import Attempt

#: Kept until somebody listens: a kernel that starts tries little.
_MOST_KEPT = 200
#: Characters; a process's name has 15 bytes (TASK_COMM_LEN).
_NAME, _DETAIL, _COMM = 32, 80, 16
_MOST_COUNT = 1 << 40


class Attempts:
    """The monitor is ours, but init writes to the same socket, and code that broke it could: all is checked."""

    def __init__(self) -> None:
        self._kept: list[Attempt] = []
        self._callback: Callable[[list[Attempt]], None] | None = None

    def on(self, callback: Callable[[list[Attempt]], None]) -> None:
        self._callback = callback
        kept, self._kept = self._kept, []
        if kept:
            callback(kept)

    def hear(self, rows: object) -> None:
        if not isinstance(rows, list):
            return
        found = [attempt for attempt in map(_attempt, rows[:_MOST_KEPT]) if attempt is not None]
        if self._callback is not None:
            self._callback(found)
        else:
            self._kept = [*self._kept, *found][:_MOST_KEPT]


def _attempt(row: object) -> Attempt | None:
    if not isinstance(row, list) or list(map(type, row)) != [str, str, int, str, int]:
        return None
    name, detail, pid, comm, count = row
    if not (0 <= pid < 1 << 32 and 0 < count < _MOST_COUNT):
        return None
    return Attempt(_plain(name, _NAME), _plain(detail, _DETAIL), pid, _plain(comm, _COMM), count)


def _plain(text: str, most: int) -> str:
    """Without control characters and marks that change how the rest is read."""
    return "".join(char if char.isprintable() else "?" for char in text[:most])
