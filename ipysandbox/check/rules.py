"""The rules: what each one refuses or notes, why, and what to write instead.

A rule is a ``Rule`` in ``RULES``. Most are about a qualified name being mentioned at all (``names``) and need no code.
The others have a ``look`` function, registered with ``@rule``, that sees each node of the types it asked for and yields
a ``Hit`` per thing it objects to. Here are the registry and the rules without code; rules_calls.py has those about
calls and attributes, rules_code.py those about imports and about text that is run as code.
To add a rule, add it to one of the three and give it a case in tests/check.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ipysandbox.check.names import Names
from ipysandbox.check.report import Severity


class Context(Protocol):
    """What a rule may ask about the cell."""

    def names(self, node: ast.expr) -> Names:
        """Qualified names that the expression may stand for; empty where unknown."""

    def fold(self, node: ast.expr) -> tuple[object, ...] | None:
        """Every constant the expression may be, or None where the check can't tell."""

    def written(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that the cell binds a name to; the expression itself where it isn't a name."""

    def writable(self, node: ast.expr) -> bool:
        """Whether the expression is a path that certainly lies where the policy lets the code write."""

    def read_python(self, text: str, node: ast.AST, runner: str) -> None:
        """Check ``text``, which ``node`` gives to ``runner`` as Python."""

    def read_cell(self, text: str, node: ast.AST, runner: str) -> None:
        """Check ``text``, which ``node`` gives to ``runner`` as a notebook cell."""

    def read_magic(self, name: str, line: str, body: str | None, node: ast.AST) -> None:
        """Check a magic that ``node`` runs by name."""


@dataclass(frozen=True)
class Hit:
    """A rule's objection to ``node``; ``name`` is the qualified name meant, ``message`` replaces the rule's reason."""

    node: ast.AST
    name: str
    message: str = ""


Look = Callable[[ast.AST, Context], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """``id`` is stable: policies name it in ``code.allow`` and audit records keep it.

    ``calls`` spares time: calls are shown to ``look`` only where the cell mentions one of these names somewhere.
    """

    id: str
    severity: Severity
    reason: str
    hint: str
    names: frozenset[str] = frozenset()
    nodes: tuple[type[ast.AST], ...] = ()
    look: Look | None = None
    calls: frozenset[str] = frozenset()


RULES: dict[str, Rule] = {}


def mention(rule_id: str, names: str, reason: str, hint: str, severity: Severity = "refuse") -> None:
    """A rule about any of ``names`` being mentioned at all, called or not."""
    RULES[rule_id] = Rule(rule_id, severity, reason, hint, names=frozenset(names.split()))


def rule(
    rule_id: str,
    *nodes: type[ast.AST],
    reason: str,
    hint: str,
    severity: Severity = "refuse",
    calls: frozenset[str] = frozenset(),
) -> Callable[[Look], Look]:
    def register(look: Look) -> Look:
        RULES[rule_id] = Rule(rule_id, severity, reason, hint, nodes=nodes, look=look, calls=calls)
        return look

    return register


# Rules about a name being mentioned.

_SUFFIXES = ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
LIST_HINT = "Use subprocess.run([program, argument, …]): a list needs no shell."

mention("call.os-system", "os.system posix.system", "runs a command line in a shell", LIST_HINT)
mention("call.os-popen", "os.popen posix.popen os.popen2 os.popen3 os.popen4", "runs a shell command line", LIST_HINT)
mention(
    "call.os-exec",
    " ".join(f"{module}.exec{suffix}" for module in ("os", "posix") for suffix in _SUFFIXES),
    "replaces the kernel by another program, so every variable of the sandbox is lost",
    LIST_HINT,
)
mention(
    "call.os-spawn",
    " ".join(f"os.spawn{suffix}" for suffix in _SUFFIXES)
    + " os.posix_spawn os.posix_spawnp posix.posix_spawn posix.posix_spawnp _posixsubprocess.fork_exec",
    "starts a program by a call that little else uses",
    LIST_HINT,
)
mention("call.pty-spawn", "pty.spawn", "starts a program on a terminal of its own", LIST_HINT)
mention(
    "call.shell-output",
    "subprocess.getoutput subprocess.getstatusoutput commands.getoutput commands.getstatusoutput",
    "runs a command line in a shell",
    "Use subprocess.run([program, argument, …], capture_output=True, text=True).stdout.",
)
mention(
    "call.asyncio-shell",
    "asyncio.create_subprocess_shell asyncio.subprocess.create_subprocess_shell subprocess.create_subprocess_shell",
    "runs a command line in a shell",
    "Use asyncio.create_subprocess_exec(program, argument, …).",
)
mention(
    "call.load-library",
    "numpy.ctypeslib.load_library np.ctypeslib.load_library numpy.ctypeslib.ctypes",
    "loads a C library and calls into it, beside Python's own safeguards",
    "Use a package that wraps the library, or allow the rule if you trust this code.",
)


# Notes: worth a line, no reason to refuse.

mention(
    "call.pickle",
    """pickle.load pickle.loads pickle.Unpickler _pickle.loads cPickle.load cPickle.loads dill.load dill.loads
    cloudpickle.load cloudpickle.loads joblib.load pandas.read_pickle pd.read_pickle torch.load marshal.load
    marshal.loads shelve.open""",
    "runs whatever code the file or bytes contain",
    "Inside the sandbox that is contained; prefer Parquet, CSV, JSON or .npy for data.",
    severity="note",
)


def _text_rule(rule_id: str, severity: Severity, reason: str, hint: str) -> None:
    """A rule about the text of a cell, applied in engine.py before there is a tree."""
    RULES[rule_id] = Rule(rule_id, severity, reason, hint)


_text_rule("syntax", "refuse", "is not valid Python", "Correct it and run it again.")
_text_rule("size", "refuse", "is too large to be read", "Put data into a file and the code into several cells.")
_text_rule("nesting", "refuse", "is nested too deeply for Python's parser", "Break the expression into several.")
_text_rule("null-byte", "refuse", "holds a null byte, where some readers stop and others go on", "Remove it.")
_text_rule("surrogate", "refuse", "holds a lone surrogate, which is no character", "Remove it.")
_text_rule(
    "carriage-return",
    "note",
    "starts a new line for Python, where an editor may show one line (a lone carriage return)",
    "Replace it by a newline.",
)
_text_rule(
    "bidi",
    "note",
    "is a direction mark: the code may look different from what it does",
    "Remove it, or write an escape.",
)
_text_rule(
    "magic.shell", "note", "hands its text to another program, which the check doesn't read", "The sandbox holds it."
)
_text_rule(
    "magic.unknown", "note", "is a magic the check doesn't know, so its text was not read", "The sandbox holds it."
)
_text_rule("denied", "refuse", "is denied by the policy (code.deny)", "Remove it, or change code.deny in the policy.")
_text_rule("findings", "note", "further findings are not listed", "Correct these first.")
