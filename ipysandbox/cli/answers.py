"""Answers ``input()`` of a script in a sandbox from this command's standard input, a line at a time."""

from __future__ import annotations

import os
import select
import stat

from ipysandbox.errors import SandboxError
from ipysandbox.questions import worded
from ipysandbox.sandbox import Sandbox

from .say import Console

#: How often a wait for the next line looks whether the code still waits for it: a limit may have ended it.
_LOOK_SECONDS = 1.0
#: Longest line that is passed on at once, in bytes; the rest of a longer one answers the next question.
_MOST_LINE = 1 << 20
#: What ipykernel takes for the end of input, and raises as EOFError.
_END = "\x04"


def can_answer(file: str) -> bool:
    """Is there a standard input with answers on it? Not where it is /dev/null, closed, or the code itself."""
    if file == "-":
        return False
    try:
        info = os.fstat(0)
        return not (stat.S_ISCHR(info.st_mode) and info.st_rdev == os.stat(os.devnull).st_rdev)
    except OSError:
        return False


class Questions:
    """What ``Sandbox.run`` calls for each question. A line is read only once the code has asked for it."""

    def __init__(self, box: Sandbox, console: Console, *, show: bool) -> None:
        self._box, self._console, self._show = box, console, show
        self._held = b""

    def __call__(self, prompt: str, _is_password: bool) -> str:
        if self._show:
            # At a terminal a person reads it, who must see that it isn't this machine that asks.
            at_terminal = os.isatty(0)
            question = worded(prompt, "sandbox", self._console.printed) if at_terminal else prompt
            self._console.ask(question, of_ours=at_terminal)
        line = self._line()
        if self._show and line and at_terminal:
            self._console.answered()
        return _END if not line else line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")

    def _line(self) -> bytes:
        """The next line with its end; empty at the end of input, or when nobody waits for it any more."""
        while b"\n" not in self._held and len(self._held) < _MOST_LINE:
            if not select.select([0], [], [], _LOOK_SECONDS)[0]:
                if not self._asked():
                    return b""
                continue
            data = os.read(0, 1 << 16)
            if not data:
                break
            self._held += data
        end = self._held.find(b"\n", 0, _MOST_LINE) + 1 or _MOST_LINE
        line, self._held = self._held[:end], self._held[end:]
        return line

    def _asked(self) -> bool:
        try:
            return self._box.status()["cell"] is not None
        except SandboxError:
            return False
