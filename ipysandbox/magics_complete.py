"""Completes ``%%sandbox`` and ``%sandbox`` lines: options, names of sandboxes, profiles, variables, actions; and the
code below ``%%sandbox`` by what the sandbox holds.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.error import UsageError

from .magics_line import ACTIONS, MISSING
from .magics_options import DEFAULT_NAME, cell_parser, parse
from .policy.profiles import PROFILES

if TYPE_CHECKING:
    from .magics import SandboxMagics

_IDENTIFIER = "ipysandbox"
#: What completes code: names with dots, keys, paths. Code in the sandbox says what is offered.
_INSERTED = re.compile(r"%{0,2}[\w.'\"/~\[\]()= +-]{1,200}")
_MOST = 500
_OPTIONS = [action for action in cell_parser()._actions if action.option_strings]
#: Offered where a value is free to choose.
_EXAMPLES = {"--timeout": ("30s", "5min"), "--cpu": ("60s", "10min"), "--memory": ("2GiB", "8GiB")}


def register(ipython: Any, magics: SandboxMagics) -> None:
    ipython.Completer.custom_matchers.append(_matcher(magics))


def unregister(ipython: Any) -> None:
    matchers = ipython.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != _IDENTIFIER]


def _matcher(magics: SandboxMagics) -> Any:
    """Ours alone on these lines: what else completes takes the words of an option for Python's."""

    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        if context.cursor_line and context.full_text.startswith("%%sandbox"):
            return _code(magics, context)
        words = context.text_until_cursor.split()
        complete = _LINES.get(words[0]) if words else None
        if complete is None:
            return {"completions": []}
        # The word at the cursor is what is completed; it is none when the cursor stands after a blank.
        symbol = "" if context.text_until_cursor[-1:].isspace() else words.pop()
        found = sorted(
            {word for word in complete(magics, words[1:], symbol) if word.startswith(symbol)} if words else ()
        )
        return {
            "completions": [SimpleCompletion(word, type="magic") for word in found],
            "matched_fragment": symbol,
            "suppress": bool(words),
            "ordered": True,
        }

    decorate: Callable[[Any], Any] = context_matcher(identifier=_IDENTIFIER, priority=200)
    return decorate(matcher)


def _code(magics: SandboxMagics, context: CompletionContext) -> SimpleMatcherResult:
    """The notebook's own variables are none of the sandbox's: what that has to offer, it offers alone."""
    line, _, code = context.full_text.partition("\n")
    try:
        held = magics.held.get(parse(cell_parser(), line.removeprefix("%%sandbox")).name)
    except UsageError:
        held = None
    before = "".join(code.splitlines(keepends=True)[: context.cursor_line - 1])
    cursor = len(before) + len(context.text_until_cursor)
    answer = held.box.completions(code, cursor) if held is not None else None
    if answer is None:
        return {"completions": []}
    start, found = answer
    fitting = [SimpleCompletion(text, type=kind) for text, kind in found if _INSERTED.fullmatch(text)]
    return {
        "completions": fitting[:_MOST],
        "matched_fragment": code[start:cursor],
        "suppress": True,
        "ordered": True,
    }


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


_LINES = {"%%sandbox": _cell, "%sandbox": _line}
