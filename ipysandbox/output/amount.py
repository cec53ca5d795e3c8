"""How much of a cell's streams a notebook shows, and how much a text is for a browser."""

from __future__ import annotations

#: What a notebook shows of one cell's streams: so much from their beginning, and so much of their end.
HEAD, TAIL = 1 << 20, 64 << 10
#: What a line, and a change between stdout and stderr, costs a browser, in characters.
LINE, TURN = 31, 1000


def of(text: str) -> int:
    """Characters, and more for each line."""
    return len(text) + LINE * text.count("\n")


class Amount:
    """Of all that streams say, one after the other."""

    def __init__(self) -> None:
        self.total = 0
        self._name = ""

    def add(self, name: str, text: str) -> int:
        """The total with this."""
        self.total += of(text) + TURN * (name != self._name)
        self._name = name
        return self.total
