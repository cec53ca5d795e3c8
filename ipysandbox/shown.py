"""Shows one cell's outputs in the notebook as they come, and of its streams no more than a browser takes."""

from __future__ import annotations

import html
import re
import sys
import time
import uuid
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any

from .display import one_line, whole
from .output import amount
from .questions import LastLine
from .supervisor.limits import size

if TYPE_CHECKING:
    from .sandbox import FullOutput

#: Characters of streams that are passed on in all, however often they are written over.
_FLOW = 8 * amount.HEAD
#: Seconds between two looks at how much is not shown yet.
_TOLD = 1.0
#: Characters of an entry of the tail that more is joined to.
_ENTRY = 4096
#: Characters at the end of one text that can be of the tail, however often they are written over.
_LOOKED_AT = 1 << 20
#: Lines up to which a progress bar may go.
_ROWS = 64
_TOKEN = re.compile(r"\n|\r|\x1b\[([0-9]*)A|[^\n\r\x1b]+|\x1b")
_UP = re.compile(r"\x1b\[[0-9]*A")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]*)?\Z")


class Screen:
    """How much of one stream is seen where it is shown: what is written over an earlier text takes no more room."""

    def __init__(self) -> None:
        self.amount = 0
        self._rows, self._row, self._column = deque([0], _ROWS), 0, 0
        self._name = ""

    def feed(self, name: str, text: str) -> None:
        if name != self._name:  # an output of its own
            self._name = name
            self._rows, self._row, self._column = deque([0], _ROWS), 0, 0
            self.amount += amount.TURN
        if "\r" not in text and self._row == len(self._rows) - 1 and "\x1b" not in text:
            self._plain(text)
            return
        for token in _TOKEN.finditer(text):
            self._take(token)

    def _plain(self, text: str) -> None:
        """The quick way, for most text."""
        line, *more = text.split("\n") if text.count("\n") < _ROWS else ("", *text.rsplit("\n", _ROWS))
        self._write(len(line))
        self.amount += amount.of(text) - len(line)
        for row in more:
            self._rows.append(len(row))
            self._column = len(row)
        self._row = len(self._rows) - 1

    def _take(self, token: re.Match[str]) -> None:
        text = token.group()
        if text == "\n":
            self._column = 0
            if self._row == len(self._rows) - 1:
                self._rows.append(0)
                self.amount += 1 + amount.LINE
            self._row = min(self._row + 1, len(self._rows) - 1)
        elif text == "\r":
            self._column = 0
        elif token[1] is not None:
            self._row = max(0, self._row - int(token[1][:4] or 1))
        else:
            self._write(len(text))

    def _write(self, length: int) -> None:
        self._column += length
        self.amount += max(0, self._column - self._rows[self._row])
        self._rows[self._row] = max(self._column, self._rows[self._row])


def collapsed(text: str) -> str:
    """``text`` without what a progress bar in it wrote over again, to be seen as it was."""
    if text.count("\r") < 2 or _UP.search(text):
        return text
    return "\n".join(_collapsed_line(line) if line.count("\r") > 1 else line for line in text.split("\n"))


def _collapsed_line(line: str) -> str:
    before, *written = line.split("\r")
    *over, last = written
    if "\x1b" in line or "\b" in line:  # how wide that is can't be told
        return "\r".join((before, max(over, key=len), last))
    seen = last
    for text in reversed(over):
        seen += text[len(seen) :]
    return "\r".join((before, seen) if len(seen) == len(last) else (before, seen, last))


class Tail:
    """The end of what streams say."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str, str]] = deque()
        self._amount = 0

    def add(self, name: str, text: str) -> None:
        text = text[-_LOOKED_AT:]
        if self._entries and self._entries[-1][0] == name and len(self._entries[-1][1]) < _ENTRY:
            before = self._entries.pop()[1]
            self._amount -= amount.of(before)
            text = before + text
        text = collapsed(text)[-2 * amount.TAIL :]
        self._entries.append((name, text))
        self._amount += amount.of(text)
        while len(self._entries) > 1 and self._amount - amount.of(self._entries[0][1]) > amount.TAIL:
            self._amount -= amount.of(self._entries.popleft()[1])

    def take(self) -> list[tuple[str, str]]:
        """The end, from the beginning of a line where there is one; then there is nothing."""
        entries, self._entries, self._amount = list(self._entries), deque(), 0
        room, found = amount.TAIL, []
        for name, text in reversed(entries):
            if room <= 0:
                break
            if amount.of(text) > room:
                text = _last_lines(text, room)
            room -= amount.of(text) + amount.TURN
            found.append((name, text))
        return found[::-1]


def _last_lines(text: str, room: int) -> str:
    text = text[-room:]
    fits = bisect_right(range(len(text)), room, key=lambda length: amount.of(text[-length:] if length else ""))
    text = text[len(text) - fits + 1 :] if fits <= len(text) else text
    return text[text.find("\n") + 1 :] or text


def _first_lines(text: str, room: int) -> str:
    text = text[: max(0, room)]
    fits = bisect_right(range(len(text)), room, key=lambda length: amount.of(text[:length]))
    text = text[: max(0, fits - 1)]
    return text[: text.rfind("\n") + 1] or _UNFINISHED.sub("", text)


class Shown:
    """What ``Sandbox.run`` calls for each output; ``finish`` once it is over. ``shell``: the notebook's."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._in_page = getattr(shell, "kernel", None) is not None
        #: What the code printed last.
        self.printed = LastLine()
        self._begin()

    def _begin(self) -> None:
        """Nothing is seen yet, or any more."""
        self._screen, self._flow = Screen(), 0
        self._tail: Tail | None = None
        #: Characters that came for the tail, those of them that were shown, and when that was told last.
        self._held = self._seen = 0
        self._told, self._marker = 0.0, ""

    def __call__(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            text = str(content.get("text", ""))
            self.printed.feed(text)
            self._stream("stderr" if content.get("name") == "stderr" else "stdout", text)
        elif kind == "clear_output":
            self._begin()
            self._shell.display_pub.clear_output(wait=bool(content.get("wait")))
        elif kind in ("display_data", "execute_result", "update_display_data"):
            if kind == "execute_result":
                self._show_tail()
            self.printed.feed(f"{''.join((content.get('data') or {}).get('text/plain', ''))}\n")
            self._shell.display_pub.publish(
                data=content.get("data") or {},
                metadata=content.get("metadata") or {},
                transient=content.get("transient") or {},
                update=kind == "update_display_data",
            )

    def finish(self, full: FullOutput | None) -> None:
        """Show the end of what was printed, and say how much is missing between and where all of it is."""
        if self._tail is None:
            self.clear_way()
            return
        self._show_tail()
        self.clear_way()
        missing = self._held - self._seen
        where = "" if full is None else f"; {'all' if full.whole else 'the first part'} of it: {full.path}"
        self._mark(f"… {size(missing) if missing else 'nothing'} not shown here{where} …", last=True)

    def clear_way(self) -> None:
        """On a terminal, before words of ours: no colours of the code's, and a line of their own."""
        way = self.printed.clear_way()
        if not self._in_page and sys.stdout.isatty():
            _write("stdout", way)

    def _stream(self, name: str, text: str) -> None:
        if self._tail is not None:
            self._hold(name, text)
            return
        text = collapsed(text)
        room = amount.HEAD - self._screen.amount
        self._screen.feed(name, text)
        self._flow += len(text)
        if self._screen.amount <= amount.HEAD and self._flow <= _FLOW:
            _write(name, text)
            return
        head = _first_lines(text, room)
        _write(name, head)
        self._tail = Tail()
        self._mark("… more is printed than is shown here; its end follows when the cell is done …")
        self._hold(name, text[len(head) :])

    def _hold(self, name: str, text: str) -> None:
        assert self._tail is not None
        self._held += len(text)
        self._tail.add(name, text)
        if time.monotonic() - self._told > _TOLD:
            self._mark(f"… {size(self._held)} more, not shown here; its end follows when the cell is done …")

    def _show_tail(self) -> None:
        for name, text in self._tail.take() if self._tail is not None else ():
            self._seen += len(text)
            _write(name, text)

    def _mark(self, text: str, *, last: bool = False) -> None:
        """Write the one line between what is shown of the beginning and of the end, or write it anew."""
        self._told = time.monotonic()
        if not self._in_page:  # a terminal writes nothing anew
            if last:
                publish_note(self._shell, text)
            return
        update = bool(self._marker)
        self._marker = self._marker or uuid.uuid4().hex
        publish_note(self._shell, text, display_id=self._marker, update=update)


def publish_note(shell: Any, text: str, *, display_id: str = "", update: bool = False, cut: bool = True) -> None:
    """One line of ours, told apart from what the code printed. ``cut``: where it is long."""
    line = f"ipysandbox: {one_line(text, 1000) if cut else whole(text)}"
    small = f'<small style="color: var(--jp-ui-font-color2, gray)">{html.escape(line)}</small>'
    transient = {"display_id": display_id} if display_id else {}
    shell.display_pub.publish(
        data={"text/plain": line, "text/html": small}, metadata={}, transient=transient, update=update
    )


def _write(name: str, text: str) -> None:
    if text:
        stream = sys.stderr if name == "stderr" else sys.stdout
        stream.write(text)
        stream.flush()
