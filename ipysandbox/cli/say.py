"""Words of this command's own: what they name, others have named, and no name may steer a terminal or forge a line."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from ipysandbox.display import in_lines
from ipysandbox.questions import LastLine


def say(text: str) -> None:
    """A line of ours on stderr, and below it, set in, what else there is to say."""
    print(in_lines(f"ipysandbox: {text}"), file=sys.stderr)


class Console:
    """This command's streams while code prints on them: words of ours are seen, whatever colours the code left on."""

    def __init__(self) -> None:
        out = LastLine()
        # Both on one terminal, or both in files; else each has lines of its own.
        err = out if sys.stdout.isatty() == sys.stderr.isatty() else LastLine()
        self._last = {"stdout": out, "stderr": err}
        #: What was printed last, wherever.
        self.printed = LastLine()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: object, trace: TracebackType | None) -> None:
        """The colours end with the code, in the shell's prompt and in what is said of ``exc``."""
        if kind is not None:
            self.clear_way()
        for name, stream in (("stderr", sys.stderr), ("stdout", sys.stdout)):
            if stream.isatty():
                stream.write(self._last[name].colours_off())
                stream.flush()

    def show(self, kind: str, content: dict[str, Any]) -> None:
        """Outputs as a terminal can have them, as they come."""
        if kind == "stream":
            self.code("stderr" if content.get("name") == "stderr" else "stdout", str(content.get("text", "")))
        elif kind in ("display_data", "execute_result", "update_display_data"):
            text = content.get("data", {}).get("text/plain", "")
            self.code("stdout", f"{''.join(text)}\n")

    def code(self, name: str, text: str) -> None:
        """Text of the code's."""
        stream = sys.stderr if name == "stderr" else sys.stdout
        stream.write(text)
        stream.flush()
        self._last[name].feed(text)
        self.printed.feed(text)

    def ask(self, question: str, *, of_ours: bool) -> None:
        """``of_ours``: in words that a person must see as they are."""
        last = self._last["stdout"]
        sys.stdout.write((last.clear_way() if of_ours else "") + question)
        sys.stdout.flush()
        last.feed(question)

    def answered(self) -> None:
        """A person's line end is on the terminal too, and what was asked is no more."""
        for one in (*self._last.values(), self.printed):
            one.begin()

    def clear_way(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(self._last["stderr"].clear_way())
            sys.stderr.flush()

    def say(self, text: str) -> None:
        self.clear_way()
        say(text)
