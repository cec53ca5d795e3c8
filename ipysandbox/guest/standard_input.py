"""``sys.stdin`` of a script: each line is asked for as ``input()`` asks, when it is read.

The kernel's own descriptor 0 is empty, and stays so for programs that the script starts.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO


class _Lines(io.RawIOBase):
    """What the lines are in bytes; of a longer one than was asked for, the rest is kept."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            try:
                self._rest = f"{self._ask()}\n".encode("utf-8", "replace")
            except EOFError:
                return 0
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def text(ask: Callable[[], str]) -> TextIO:
    """``ask``: returns a line without its end, and raises EOFError when there is none."""
    return io.TextIOWrapper(io.BufferedReader(_Lines(ask)), encoding="utf-8")
