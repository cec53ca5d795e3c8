"""Puts one layer's wishes on top of a policy: all of them if the layer is trusted, else only what is tighter."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .links import within
from .model import Policy
from .schema import FEWER, FIELDS, INNER_PATH, INNER_PATHS, LATER, MORE, MORE_HIDDEN, SMALLER
from .units import format_duration, format_size

# From a path as written to an absolute one, as text: nothing on the disk is looked up.
Locate = Callable[[str], str]

#: What a person can be expected to read before approving it: entries of lists, and characters, of all wishes together.
MOST_ENTRIES, MOST_TEXT = 500, 100_000
#: A list that is longer than this (characters) is shown with one entry a line.
_LINE = 120


@dataclass(frozen=True, slots=True)
class NotGranted:
    """A wish that would have loosened the policy; of a list, only the entries that weren't granted."""

    key: str
    had: Any
    wanted: Any

    @property
    def entries(self) -> tuple[str, ...]:
        """Each that is wanted of a list; none for a single value."""
        kind = "card " if self.key == "limits.gpu.devices" else ""
        return tuple(f"{kind}{entry}" for entry in self.wanted) if isinstance(self.wanted, tuple) else ()

    def __str__(self) -> str:
        """All of it: this is what a person sees before approving it."""
        if self.entries:
            return f"{self.key} + {', '.join(self.entries)}"
        return f"{self.key} {show(self.key, self.had)} → {show(self.key, self.wanted)}"

    def lines(self) -> list[str]:
        """The same, with one entry a line where that is long."""
        text = str(self)
        if len(self.entries) < 2 or len(text) <= _LINE:
            return [text]
        return [f"{self.summary()}:", *(f"  {entry}" for entry in self.entries)]

    def summary(self) -> str:
        """How much it is."""
        return f"{self.key} + {len(self.entries)} entries" if self.entries else f"{self.key}, another value"


def too_much(wishes: Sequence[NotGranted]) -> str:
    """Why nobody could read all of these wishes before approving them; empty if one can."""
    entries, text = sum(len(wish.entries) for wish in wishes), sum(len(str(wish)) for wish in wishes)
    if entries <= MOST_ENTRIES and text <= MOST_TEXT:
        return ""
    return (
        f"it asks for {entries} entries ({text // 1000} kB) more than you allow; "
        f"at most {MOST_ENTRIES} entries and {MOST_TEXT // 1000} kB can be approved"
    )


def merge(
    base: Policy, wishes: Mapping[str, Any], *, trusted: bool, locate: Locate
) -> tuple[Policy, tuple[str, ...], tuple[NotGranted, ...]]:
    """The policy with these wishes, the keys the layer decided, and the wishes that weren't granted.

    An untrusted layer gets the greatest policy that is as tight as both the base and its wishes. ``hide`` and ``deny``
    add to the base in either case; a trusted layer takes a hidden name out again with "!name".
    """
    policy, decided, refused = base, [], []
    for key, wanted in wishes.items():
        had = policy.get(key)
        granted = _joined(key, had, wanted) if trusted else meet(key, had, wanted, locate)
        if trusted or granted != had:
            decided.append(key)
            policy = policy.with_value(key, granted)
        missing = None if trusted else _missing(key, granted, wanted, locate)
        if missing not in (None, ()):
            refused.append(NotGranted(key, had, missing))
    return policy, tuple(decided), tuple(refused)


def meet(key: str, had: Any, wanted: Any, locate: Locate) -> Any:
    """The loosest value that is as tight as both; the same whichever comes first, but for spelling and order."""
    rule = FIELDS[key].tighter
    if rule == SMALLER:
        return min(had, wanted)
    if rule == LATER:
        return max(had, wanted, key=FIELDS[key].choices.index)
    if rule == FEWER:
        return tuple(entry for entry in had if entry in wanted)
    if rule == MORE:
        return _union(had, wanted)
    if rule == MORE_HIDDEN:
        return _union(had, [name for name in wanted if not name.startswith("!")])
    if rule == INNER_PATHS:
        return _inner_paths(had, wanted, locate)
    assert rule == INNER_PATH, key
    if had is None or wanted is None:
        return None
    return next(iter(_inner_paths((had,), (wanted,), locate)), None)


def show(key: str, value: Any) -> str:
    """A value as it would be written in the file."""
    if key in ("limits.cpu", "limits.wall"):
        return format_duration(value)
    if key in ("limits.memory", "limits.disk", "limits.output"):
        return format_size(value)
    if isinstance(value, (tuple, bool)):
        return json.dumps(value, ensure_ascii=False)
    return "nothing" if value is None else str(value)


def _joined(key: str, had: Any, wanted: Any) -> Any:
    return _union(had, wanted) if FIELDS[key].tighter in (MORE, MORE_HIDDEN) else wanted


def _union(had: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    # A pattern that is repeated moves to the end: the last one decides.
    return (*(entry for entry in had if entry not in wanted), *wanted)


def _inner_paths(had: Sequence[str], wanted: Sequence[str], locate: Locate) -> tuple[str, ...]:
    inner: dict[str, str] = {}
    for ours in had:
        for theirs in wanted:
            our_place, their_place = locate(ours), locate(theirs)
            if within(their_place, our_place):
                inner.setdefault(their_place, theirs)
            elif within(our_place, their_place):
                inner.setdefault(our_place, ours)
    return tuple(inner.values())


def _missing(key: str, granted: Any, wanted: Any, locate: Locate) -> Any:
    """What of a wish was not granted; something empty if all of it was."""
    rule = FIELDS[key].tighter
    if rule == INNER_PATHS:
        places = {locate(entry) for entry in granted}
        return tuple(entry for entry in wanted if locate(entry) not in places)
    if isinstance(wanted, tuple):
        return tuple(entry for entry in wanted if entry not in granted)
    if rule == INNER_PATH and granted is not None and wanted is not None and locate(granted) == locate(wanted):
        return None
    return None if granted == wanted else wanted


def locator(project: str, home: str) -> Locate:
    """How paths of a policy are meant: relative to the project, "~" is the user's home."""

    def locate(written: str) -> str:
        if written == "~" or written.startswith("~/"):
            written = home + written[1:]
        # normpath keeps a second leading slash, which means nothing on Linux.
        return "/" + os.path.normpath(os.path.join(project, written)).lstrip("/")

    return locate


def anywhere(home: str) -> Locate:
    """How paths of a policy are meant whose project nobody knows yet: none on the disk is in it."""

    def locate(written: str) -> str:
        if written.startswith(("/", "~")):
            return locator("/", home)(written)
        inside = os.path.normpath(written)
        outside = inside == ".." or inside.startswith("../")
        # No path holds a NUL.
        return f"\0out/{inside}" if outside else os.path.normpath(f"\0/{inside}")

    return locate
