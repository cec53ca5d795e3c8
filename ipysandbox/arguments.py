"""Argument parsers that know what was probably meant: of the command line and of the magics."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from .display import whole


def meant(word: str, known: Iterable[str]) -> str:
    """The words " (did you mean …?)", or nothing when no known word is near."""
    close = difflib.get_close_matches(word.partition("=")[0], list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


class Suggesting(argparse.ArgumentParser):
    """Says which option or choice is nearest to one that there is not, and lists none that this version lacks."""

    #: Choices that are there to be refused in words of their own.
    unavailable: frozenset[str] = frozenset()
    #: What to say of an option that there is not, and that is not near to any.
    of_unknown = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, extra = super().parse_known_args(args, namespace)
        # Here and not one parser further up, which does not know this one's options.
        if extra:
            options = [word for word in extra if word[:1] == "-"]
            near = next((near for word in options if (near := self._near(word))), self.of_unknown if options else "")
            self.error(f"unrecognized arguments: {' '.join(extra)}{near}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        """Of an argument that is quoted in it, nothing steers the terminal or begins a line."""
        super().error(whole(message))

    def _near(self, option: str) -> str:
        # One or two letters are near to anything.
        is_short = len(option.partition("=")[0].lstrip("-")) < 3
        return "" if is_short else meant(option, self._option_string_actions)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = meant(str(value), map(str, action.choices))
        if not hint or any(f"mean {name}?" in hint for name in self.unavailable):
            hint = f" (choose from {', '.join(str(name) for name in action.choices if name not in self.unavailable)})"
        raise argparse.ArgumentError(action, f"invalid choice: {str(value)!r}{hint}")
