"""The options of ``%%sandbox`` and ``%sandbox``, with their help texts."""

from __future__ import annotations

import argparse
import builtins
import keyword
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from .arguments import Suggesting
from .policy.units import BadValue, duration_unit, parse_duration, parse_size, size_unit

DEFAULT_NAME = "main"
#: What a line says before its comment: a # that begins a word outside of quotes.
_COMMENT = re.compile(r"""((?:[^"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')*?)(?:(?<=\s)|\A)\#""")
#: Of the options that take a number with a unit: which unit a word means, if any.
_UNITS = {"--timeout": duration_unit, "--cpu": duration_unit, "--memory": size_unit}
_NUMBER = re.compile(r"[0-9.]{1,20}", re.ASCII)
#: Names that Python and IPython use in a notebook themselves, beside those that begin with _.
_TAKEN = frozenset({*dir(builtins), *keyword.kwlist, "get_ipython", "display", "In", "Out", "exit", "quit", "open"})
_F = TypeVar("_F", bound=Callable[..., Any])


def duration(text: str) -> str:
    """A duration as written in a policy; a bare number is seconds."""
    return _checked(text if text.strip()[-1:].isalpha() else f"{text.strip()}s", parse_duration)


def size(text: str) -> str:
    """A size as written in a policy."""
    return _checked(text, parse_size)


def _checked(text: str, parse: Callable[[object], float]) -> str:
    try:
        parse(text)
    except BadValue as exc:
        raise argparse.ArgumentTypeError(f"{exc.message}: {exc.hint}" if exc.hint else exc.message) from None
    return text


def _sandbox(text: str) -> str:
    if "," in text:  # a piece of a list with blanks in it
        raise argparse.ArgumentTypeError(f"{text!r}: variables are listed without spaces, as in -i a,b")
    return text


def _names(text: str) -> list[str]:
    if text.endswith(","):  # the shell's way of splitting took the rest for a sandbox's name
        raise argparse.ArgumentTypeError(f"{text!r} ends in a comma: write the names without spaces, as in a,b")
    # As Python reads a name in code: letters of other widths and styles are the plain ones.
    found = [unicodedata.normalize("NFKC", name.strip()) for name in text.split(",") if name.strip()]
    for name in found:
        if not name.isidentifier():
            raise argparse.ArgumentTypeError(f"{name!r} is no name for a variable")
    return found


def _outputs(text: str) -> list[str]:
    """Names that a value from a sandbox may have in the notebook: whoever wrote the cell may have written them too."""
    found = _names(text)
    for name in found:
        if name.startswith("_") or name in _TAKEN:
            raise argparse.ArgumentTypeError(
                f"the notebook keeps the name {name!r} for Python and IPython, so nothing was run; "
                "give the variable a name of its own, without _ in front"
            )
    return found


def parse(parser: argparse.ArgumentParser, line: str) -> argparse.Namespace:
    """The line's options; a comment at its end is none. Raises IPython's UsageError."""
    comment = _COMMENT.match(line)
    try:
        words = shlex.split(comment[1] if comment else line)
    except ValueError as exc:
        raise UsageError(f"%sandbox: {exc}") from None
    _refuse_units_apart(words)
    return parser.parse_args(words)


def _refuse_units_apart(words: Sequence[str]) -> None:
    """A number and its unit in two words: the second would be the name of a sandbox."""
    for at in range(1, len(words)):
        given = words[at - 1] if "=" in words[at - 1] else "=".join(words[max(0, at - 2) : at])
        option, _, number = given.partition("=")
        unit_of = _UNITS.get(option)
        unit = unit_of(words[at]) if unit_of is not None and _NUMBER.fullmatch(number) else None
        if unit is not None:
            raise UsageError(
                f"%%sandbox {option} {number} {words[at]}: number and unit are one word: {option} {number}{unit}"
            )


def helped(*parsers: argparse.ArgumentParser) -> Callable[[_F], _F]:
    """Give a magic the help of these parsers as its docstring, which is what ``?`` and Shift-Tab show."""

    def decorate(function: _F) -> _F:
        # IPython's parser begins its help as documents in reStructuredText do.
        function.__doc__ = "\n".join(parser.format_help().removeprefix("::\n\n  ") for parser in parsers)
        return function

    return decorate


class _Parser(Suggesting, MagicArgumentParser):
    """Its errors are IPython's UsageError."""


def _parser(description: str) -> _Parser:
    return _Parser("sandbox", description=description)  # type: ignore[no-untyped-call]


def cell_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "Run this cell in a sandbox: it can't reach your files, credentials, network or browser session.\n\n"
        "It reads the project's folder (secrets hidden) and writes to results/; IPython syntax works in it. "
        "An error in it is raised here as SandboxError."
    )
    parser.usage = "%%sandbox [NAME] [options]"
    add = parser.add_argument
    add(
        "name",
        nargs="?",
        type=_sandbox,
        default=DEFAULT_NAME,
        metavar="NAME",
        help="which sandbox: variables stay in it between cells (default: main)",
    )
    add(
        "--policy",
        "-p",
        metavar="P",
        help="default, strict, network, or a policy file; kept for later cells until %%sandbox stop",
    )
    add("--fresh", action="store_true", help="start a new sandbox first: earlier variables are gone")
    add("-i", "--input", type=_names, action="extend", default=[], metavar="A,B", help="variables to copy in before")
    add("-o", "--output", type=_outputs, action="extend", default=[], metavar="X,Y", help="variables to copy out after")
    add("--timeout", type=duration, metavar="T", help="most time for this cell, such as 30s or 5min")
    add("--cpu", type=duration, metavar="T", help="most processor time for this cell, all its processes summed")
    add(
        "--memory",
        type=size,
        metavar="M",
        help="most memory for the sandbox, such as 2GiB; kept for later cells until %%sandbox stop",
    )
    add("--backend", metavar="B", help="how to isolate: linux is what this version has")
    add("--allow-error", action="store_true", help="show what went wrong and go on, instead of raising it")
    add("--check-only", action="store_true", help="say what the check finds; nothing is run")
    return parser


def line_parser(actions: Sequence[str], missing: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = _parser(
        "Look after the sandboxes of this notebook.\n\n"
        "status      what runs, what it uses, its limits\n"
        "restart     start it anew with the same options: variables are lost\n"
        "stop        end it and everything inside; its options are forgotten\n"
        "interrupt   as Ctrl-C would, from another thread\n"
        "policy      what it may do, and where each setting comes from\n"
        "check       what the check says about the last cell\n"
        "diff        files of the project that differ in it\n"
        "audit       what was recorded about it in this notebook, the newest 20\n"
        "doctor      which guarantees this machine can hold, by which layers\n"
        "dashboard   meters and buttons in a notebook that has no panel beside it; from then on\n"
        "            a cell that takes longer than 3 s says in one line what it uses\n\n"
        "commit and discard are not available in this version."
    )
    parser.usage = "sandbox [ACTION] [NAME]"
    parser.unavailable = frozenset(missing)
    parser.add_argument(
        "action", nargs="?", default="status", choices=actions, metavar="ACTION", help="default: status"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which sandbox (status: all of them; otherwise main)")
    return parser
