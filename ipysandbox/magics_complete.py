"""Completes ``%%sandbox`` and ``%sandbox`` lines: options, names of sandboxes, profiles, variables, actions."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import TryNext

from .magics_line import ACTIONS, MISSING
from .magics_options import DEFAULT_NAME, cell_parser
from .policy.profiles import PROFILES

if TYPE_CHECKING:
    from .magics import SandboxMagics

_KEYS = ("%%sandbox", "%sandbox")
_OPTIONS = [action for action in cell_parser()._actions if action.option_strings]
#: Offered where a value is free to choose.
_EXAMPLES = {"--timeout": ("30s", "5min"), "--cpu": ("60s", "10min"), "--memory": ("2GiB", "8GiB")}


def register(ipython: Any, magics: SandboxMagics) -> None:
    for key, complete in zip(_KEYS, (_cell, _line), strict=True):
        ipython.set_hook("complete_command", _hook(magics, complete), str_key=key)


def unregister(ipython: Any) -> None:
    for key in _KEYS:
        ipython.strdispatchers["complete_command"].strs.pop(key, None)


def _hook(
    magics: SandboxMagics, complete: Callable[[SandboxMagics, list[str], str], Iterable[str]]
) -> Callable[[Any, Any], list[str]]:
    def hook(_shell: Any, event: Any) -> list[str]:
        words = event.text_until_cursor.split()
        # The word at the cursor is what is completed; it is none when the cursor stands after a blank.
        if words and not event.text_until_cursor[-1:].isspace():
            words.pop()
        found = sorted(set(complete(magics, words[1:], event.symbol)))
        if not found:
            raise TryNext
        return found

    return hook


def _cell(magics: SandboxMagics, words: list[str], symbol: str) -> Iterable[str]:
    last = words[-1] if words else ""
    action = next((action for action in _OPTIONS if last in action.option_strings), None)
    if action is not None and action.nargs != 0:
        return _values(magics, action.option_strings, symbol)
    used = set(words)
    free = [word for action in _OPTIONS if not used & set(action.option_strings) for word in action.option_strings]
    long = [word for word in free if word.startswith("--") or symbol == "-"]
    return [*long, *([] if symbol.startswith("-") else {DEFAULT_NAME, *magics.held})]


def _values(magics: SandboxMagics, option: Sequence[str], symbol: str) -> Iterable[str]:
    if "--policy" in option:
        return [*PROFILES, *glob.glob(glob.escape(symbol) + "*.toml")]
    if "--backend" in option:
        return ["linux"]
    if "--input" in option:
        return magics.variables()
    return _EXAMPLES.get(next(word for word in option if word.startswith("--")), ())


def _line(magics: SandboxMagics, words: list[str], _symbol: str) -> Iterable[str]:
    return (
        [action for action in ACTIONS if action not in MISSING] if not words else magics.held if len(words) == 1 else ()
    )
