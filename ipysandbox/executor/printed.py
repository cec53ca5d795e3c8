"""Shows what tasks print, as an executor of processes would: on the caller's streams, but a bounded amount of it."""

from __future__ import annotations

import sys
import threading

from .outcome import Outcome

#: Characters of one executor that are shown.
MOST_SHOWN = 1 << 20


class Printed:
    def __init__(self) -> None:
        self._left = MOST_SHOWN
        self._turn = threading.Lock()

    def show(self, outcome: Outcome) -> None:
        """Of one task all at once, when it has ended: tasks don't mix their lines."""
        for text, stream in ((outcome.stdout, sys.stdout), (outcome.stderr, sys.stderr)):
            if not text:
                continue
            with self._turn:
                shown, before = text[: max(0, self._left)], self._left
                self._left -= len(text)
                if self._left < 0 <= before:
                    shown += "\n… what else the tasks of this executor print is not shown …\n"
            if shown and stream is not None:
                try:
                    stream.write(shown)
                    stream.flush()
                except (OSError, ValueError):  # closed by the caller, whose business that is
                    pass
