"""Counts what cells print and show, cuts what is too much, and says when the limit on output is reached."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import limits as limit_rules
from .cells import Cell
from .relay import Passes
from .wire import Message

if TYPE_CHECKING:
    from ipysandbox.policy.model import Limits

    from .managed import Managed

#: The protocol's own bytes around an output.
_MESSAGE_OVERHEAD = 1 << 20
#: Up to this size a message is read even if the limit is lower, so that the beginning of it can be shown.
_ALWAYS_PARSED = 32 << 20
#: What an output counts at least, in bytes: each is an object in the notebook, however little it says.
_LIGHTEST, _LIGHTEST_OTHER = dict.fromkeys(("stream", "comm_msg", "comm_close"), 256), 1024
_NOTHING = Passes(0)
_DISPLAYS = ("display_data", "execute_result")


class OutputBudget:
    """One sandbox's: each cell has its own, and threads of finished cells share one that grows back."""

    def __init__(self, box: Managed) -> None:
        self._box = box
        self._late, self._late_since = 0, time.monotonic()
        box.relay.admits = self._admits
        box.relay.on_unread = self._on_unread
        box.relay.on_output = self._on_output
        box.relay.on_grown = self._on_grown
        box.relay.keeps_text = self._keeps_text
        box.relay.on_text = self._on_text

    def reset(self) -> None:
        """A new sandbox has no finished cells."""
        self._late = 0

    def _admits(self, size: int) -> bool:
        """Whether a message of ``size`` bytes is parsed at all: one that alone is over the limit is not."""
        cell = self._box.cell
        limits = cell.limits if cell else self._box.limits
        if size <= max(limits.output, _ALWAYS_PARSED) + _MESSAGE_OVERHEAD:
            return True
        if cell is not None and cell.text is not None:
            cell.text.lacks()
        self._too_much(limits, size)
        return False

    def _on_unread(self) -> tuple[Message, str] | None:
        """A message was too large to be read: as if it had been cut at its beginning, and all that follows with it."""
        cell: Cell | None = self._box.cell
        if cell is None or cell.output > cell.limits.output:
            return None
        cell.output = cell.limits.output + 1
        return cell.request, _mark(cell.limits)

    def _on_output(self, request: Message, message: Message) -> Passes:
        """Count an output of the running cell, or of an earlier one whose threads go on; cut what is too much."""
        passes = self._count(
            request, message, max(_weight(message.content), _LIGHTEST.get(message.type, _LIGHTEST_OTHER))
        )
        if message.type in _DISPLAYS and passes.upto is None and self._nobody_hears(request):
            self._box.cells.late.add_display()
        return passes

    def _on_grown(self, request: Message, message: Message, cleaned: dict[str, Any]) -> bool:
        """Count what cleaning has added: a frame brings a library of millions of characters, named in a few."""
        if not self._box.cleaner.packs:
            return True
        grown = _weight(cleaned) - _weight(message.content)
        return grown <= _LIGHTEST_OTHER or self._count(request, message, grown).upto is None

    def _cell(self, request: Message) -> Cell | None:
        running: Cell | None = self._box.cell
        return running if running is not None and request.id == running.request.id else None

    def _count(self, request: Message, message: Message, weight: int) -> Passes:
        cell = self._cell(request)
        if cell is None and request.id == self._box.cells.cut:
            return _NOTHING  # it was too much before, and the next cell has no part in it
        if cell is None:
            return Passes() if self._on_late_output(weight) else _NOTHING
        before = cell.output
        cell.output += weight
        room = cell.limits.output - before
        if weight <= room:
            return Passes()
        if room < 0:
            return _NOTHING
        self._too_much(cell.limits, before + weight)
        if cell.text is not None:
            cell.text.cut()
        if message.type != "stream":
            return _NOTHING
        return Passes(room, _mark(cell.limits))

    def _keeps_text(self, request: Message) -> bool:
        cell = self._cell(request)
        return cell is not None and cell.text is not None and cell.text.wants

    def _on_text(self, request: Message, content: Mapping[str, str]) -> None:
        cell = self._cell(request)
        if cell is not None and cell.text is not None:
            cell.text.add(content["name"], content["text"])
        if self._nobody_hears(request):
            self._box.cells.late.add(content["text"])

    def _nobody_hears(self, request: Message) -> bool:
        """Our own doors listen while their cell runs; a client of Jupyter's shows what comes later where it belongs."""
        return self._cell(request) is None and "ipysandbox" in request.metadata

    def _on_late_output(self, weight: int) -> bool:
        """Of a thread of a finished cell: an interrupt would not reach it, whatever cell is running by now."""
        limits = self._box.limits
        # What such threads may print grows back with time, and with nothing else: cells may be short.
        now = time.monotonic()
        grown = (now - self._late_since) * limits.output / limits.wall
        before, self._late_since = max(0, self._late - int(grown)), now
        self._late = before + weight
        if self._late <= limits.output:
            return True
        if before > limits.output:
            return False
        hit = limit_rules.hit("output", limits.output, self._late)
        running: Cell | None = self._box.cell
        if running is not None and running.hit is None:
            running.hit = hit
        self._box.watch.end_between_cells(hit)
        return False

    def _too_much(self, limits: Limits, observed: int) -> None:
        hit = limit_rules.hit("output", limits.output, observed)
        cell = self._box.cell
        if cell is None:
            self._box.watch.end_between_cells(hit)
        elif cell.hit is None:
            self._box.watch.stop(cell, hit, soft=True)


def _mark(limits: Limits) -> str:
    # In ASCII: one letter beyond makes a string of Python take twice the memory, and this one may be long.
    return f"\n... output cut at {limit_rules.size(limits.output)} ...\n"


def _weight(content: dict[str, Any]) -> int:
    """Bytes of an output, near enough for a limit: text counts by characters, nested data by its strings."""
    total, level = 0, [content]
    while level:
        item = level.pop()
        for key, value in item.items():
            total += len(key)
            if isinstance(value, str):
                total += len(value)
            elif isinstance(value, dict):
                level.append(value)
            elif isinstance(value, list):
                total += sum(len(v) for v in value if isinstance(v, str)) + 8 * len(value)
                level += [v for v in value if isinstance(v, dict)]
    return total
