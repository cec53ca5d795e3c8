"""Holds what threads and tasks print after the end of their cell, until a later cell of the notebook can show it."""

from __future__ import annotations

from . import limits as limit_rules

#: Characters that are held: the last ones.
_MOST = 64 << 10


class LateText:
    """One sandbox's. The text is cleaned, and counted towards the limit on output, before it comes here."""

    def __init__(self) -> None:
        self._text = ""
        self._size = self._displays = 0

    def add(self, text: str) -> None:
        self._size += len(text)
        self._text = (self._text + text[-_MOST:])[-_MOST:]

    def add_display(self) -> None:
        """Only counted: it belongs under its own cell, or nowhere."""
        self._displays += 1

    def take(self) -> str:
        """All of it between marks of ours; empty where there is none."""
        if not self._size and not self._displays:
            return ""
        head = "... printed since by what earlier cells started"
        if self._displays:
            head += f", without its displays ({self._displays})"
        if self._size > len(self._text):
            head += f", the last of {limit_rules.size(self._size)}"
        text = self._text if self._text.endswith("\n") or not self._text else f"{self._text}\n"
        self._forget()
        return f"{head}: ...\n{text}... until here ...\n"

    def take_notice(self) -> str:
        """How much that is, for a program that only collects what its cell prints; empty where there is none."""
        if not self._size and not self._displays:
            return ""
        size, displays = limit_rules.size(self._size), self._displays
        self._forget()
        also = f" and made displays ({displays})" if displays else ""
        return (
            f"What earlier cells started has printed {size}{also} since, which is not shown; "
            "a run with on_output shows what is printed so."
        )

    def _forget(self) -> None:
        self._text, self._size, self._displays = "", 0, 0
