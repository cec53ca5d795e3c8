"""Word lists for the allow-lists of this room."""

from __future__ import annotations


def words(*lines: str) -> frozenset[str]:
    """The words of ``lines``."""
    return frozenset(word for line in lines for word in line.split())
