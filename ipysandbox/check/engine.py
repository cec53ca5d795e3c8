"""Runs the rules over a cell and everything in it that is code again: magics, eval("…"), run_cell("…")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ipysandbox.check import magics, rules_calls, rules_code
from ipysandbox.check.cell import CellMagic, Locate, PythonText, TooCostly, parse, read_cell
from ipysandbox.check.literals import PathReader
from ipysandbox.check.names import BUILTINS, Names, Resolver
from ipysandbox.check.report import Finding, Report, excerpt, visible
from ipysandbox.check.rules import RULES, Hit, Look, Rule
from ipysandbox.check.scopes import Scope, survey

MAX_SOURCE = 4 * 1024 * 1024
"""Characters of a cell. Nobody writes such a cell by hand, and data has files."""

MAX_TOKENS = 250_000
"""Words and signs of a cell outside its strings and comments: a tree of that many takes about 0.2 GB and 1 s."""

MAX_LINES = 100_000
MAX_FINDINGS = 100
MAX_LEVELS = 8  # of code in code: eval("eval('…')"), %%time in %%time
MAX_NESTED = 1000  # texts in one cell that are read as code

_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NULL = re.compile("\0")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(
    r"(?<![fFtT])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\\\n]*'|\"[^\"\\\n]*\")|\#[^\n]*|\w+|[^\w\s]", re.DOTALL
)


def check(
    source: str,
    *,
    profile: str = "default",
    deny: Sequence[str] = (),
    allow: Sequence[str] = (),
    writable: Sequence[str] = ("results",),
) -> Report:
    """Read one cell and say whether it may run.

    A tripwire that explains, not the boundary: it finds what an honest or careless author writes, and plain disguises.

    :param source: the cell as it was written, IPython syntax included.
    :param profile: ``off`` applies no rule at all; any other name applies every rule.
    :param deny: qualified names (``requests``, ``requests.get``, ``open``) that are refused as well.
    :param allow: rule ids (``call.os-system``) and qualified names (``os.system``, ``ctypes``) that no rule is applied
        to. What is denied stays denied.
    :param writable: folders, relative to where the code begins or absolute, in which ``shutil.rmtree`` is accepted.

    Never raises: what can't be read is refused with a finding that says so.
    """
    if profile == "off":
        return Report("ok")
    state = _Check(source, frozenset(allow), _denied(deny), tuple(writable))
    state.cell(source, lambda line, column: (line, column), 0)
    return state.report()


@dataclass
class _Check:
    """One call of ``check``: its settings and what was found so far."""

    source: str
    allow: frozenset[str]
    deny: frozenset[str]
    writable: tuple[str, ...]
    found: dict[tuple[str, int, int, str], Finding] = field(default_factory=dict)
    left_out: int = 0
    refused: bool = False
    nested: int = 0
    inside: str = ""  # who was given the text being read
    _lines: list[str] | None = None

    # Texts.

    def cell(self, text: str, locate: Locate, level: int) -> None:
        """Check a notebook cell: the whole one, the body of a magic, or a text given to run_cell."""
        if not self.readable(text, locate, level):
            return
        try:
            read = read_cell(text, locate)
        except SyntaxError as error:
            word = magics.automagic(text)
            if word is not None:
                self.magic(word[0], word[1], None, lambda *_: locate(1, 0), level)
            else:
                self.add("syntax", (error.lineno or 1, max(0, (error.offset or 1) - 1)), "", f"{error.msg}")
        except TooCostly:
            self.add("size", locate(1, 0), "", "holds too many magics for its length to be read in reasonable time")
        except (RecursionError, MemoryError):
            self.add("nesting", locate(1, 0), "")
        else:
            if isinstance(read, CellMagic):
                place = read.place
                self.magic(read.name, read.line, read.body, lambda *_: place, level, read.locate)
            elif isinstance(read, PythonText):
                self.tree(read, level)

    def python(self, text: str, locate: Locate, level: int) -> None:
        """Check a text given to eval, exec or compile. What isn't Python there fails when it runs, and does nothing."""
        if not self.readable(text, locate, level):
            return
        try:
            tree = parse(text)
        except (SyntaxError, ValueError):
            return
        except (RecursionError, MemoryError):
            self.add("nesting", locate(1, 0), "")
            return
        self.tree(PythonText(text, tree, locate), level)

    def readable(self, text: str, locate: Locate, level: int) -> bool:
        """Whether the text can go to the parser; says what is odd about it."""
        self.nested += 1
        if level > MAX_LEVELS or self.nested > MAX_NESTED:
            self.add("nesting", locate(1, 0), "", "holds code in code in code, more than is read")
            return False
        if len(text) > MAX_SOURCE:
            size = f"has {len(text):,} characters, more than the {MAX_SOURCE:,} that are read"
            self.add("size", locate(1, 0), "", size)
            return False
        ok = True
        for rule, pattern in (("null-byte", _NULL), ("surrogate", _SURROGATE)):
            match = pattern.search(text)
            if match:
                self.add(rule, locate(*_place(text, match.start())), repr(match[0])[1:-1])
                ok = RULES[rule].id in self.allow and ok
        if not ok or _NULL.search(text) or _SURROGATE.search(text):
            return False
        if len(text) > MAX_LINES and len(text.splitlines()) > MAX_LINES:
            self.add("size", locate(1, 0), "", f"has more than the {MAX_LINES:,} lines that are read")
            return False
        if len(text) > MAX_TOKENS and sum(1 for _ in _TOKEN.finditer(text)) > MAX_TOKENS:
            dense = f"holds more than {MAX_TOKENS:,} words and signs outside strings, too many to be read"
            self.add("size", locate(1, 0), "", dense)
            return False
        if not text.isascii():
            self.each(text, "bidi", _BIDI, locate)
        self.each(text, "carriage-return", _LONE_RETURN, locate)
        return True

    def each(self, text: str, rule: str, pattern: re.Pattern[str], locate: Locate) -> None:
        for count, match in enumerate(pattern.finditer(text)):
            if count == 5:  # of a kind: the reader has understood
                break
            self.add(rule, locate(*_place(text, match.start())), visible(match[0]))

    def magic(
        self, name: str, line: str, body: str | None, locate: Locate, level: int, body_locate: Locate | None = None
    ) -> None:
        """Check what a magic runs. ``body`` is None for a line magic; ``locate`` leads to the magic's first line."""
        if body is None:
            if name in magics.LINE_CODE:
                self.cell(magics.statement(name, line), lambda *_: locate(1, 0), level + 1)
            return
        if name in magics.CELL_CODE:
            setup = magics.statement(name, line)
            if setup:
                self.cell(setup, lambda *_: locate(1, 0), level + 1)
            self.cell(body, body_locate or locate, level + 1)
        elif name in magics.SHELL:
            self.add("magic.shell", locate(1, 0), f"%%{name}", f"%%{name} {RULES['magic.shell'].reason}")
        elif name not in magics.TEXT:
            self.add("magic.unknown", locate(1, 0), f"%%{name}", f"%%{name} {RULES['magic.unknown'].reason}")

    # Trees.

    def tree(self, python: PythonText, level: int) -> None:
        _Reading(self, python, level).run()

    # Findings.

    def add(self, rule: str, place: tuple[int, int], name: str, message: str = "") -> None:
        settings = RULES[rule]
        line, column = place
        key = (rule, line, column, name)
        if self.allowed(rule, name) or key in self.found or self.full(settings, name):
            return
        self.refused = self.refused or settings.severity == "refuse"
        text, caret = excerpt(self.line(line), column)
        words = message or (f"{name} {settings.reason}" if name else f"the cell {settings.reason}")
        if self.inside:
            words += f" (in the text given to {self.inside})"
        self.found[key] = Finding(
            rule, settings.severity, line, column + 1, visible(name), visible(words), settings.hint, text, caret
        )

    def allowed(self, rule: str, name: str) -> bool:
        return rule != "denied" and (rule in self.allow or _covered(name, self.allow))

    def full(self, rule: Rule, name: str) -> bool:
        """Whether there is no room for one more finding; it is counted then, and not placed, which takes time."""
        if len(self.found) < MAX_FINDINGS:
            return False
        if not self.allowed(rule.id, name):
            self.left_out += 1
            self.refused = self.refused or rule.severity == "refuse"
        return True

    @contextmanager
    def within(self, runner: str) -> Iterator[None]:
        """Findings made meanwhile say that they are about a text given to ``runner``."""
        before, self.inside = self.inside, runner
        try:
            yield
        finally:
            self.inside = before

    def line(self, number: int) -> str:
        if self._lines is None:
            self._lines = _LINE_END.split(self.source[:MAX_SOURCE])
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def report(self) -> Report:
        if self.left_out:
            last = max(self.found.values(), key=lambda finding: (finding.line, finding.column))
            message = f"{self.left_out} further findings are not listed"
            self.found[("findings", last.line, last.column, "")] = Finding(
                "findings", "note", last.line, last.column, "", message, RULES["findings"].hint
            )
        findings = sorted(self.found.values(), key=lambda f: (f.line, f.column, f.rule))
        return Report("refused" if self.refused else "ok", tuple(findings))


class _Reading:
    """The rules' view (``rules.Context``) of one tree."""

    def __init__(self, check: _Check, python: PythonText, level: int) -> None:
        self._check, self._python, self._level = check, python, level
        self._lines: list[str] | None = None
        self.survey = survey(python.tree, Scope("module", None))
        self._resolver = Resolver(self.survey)
        self.names, self.fold, self.written = self._resolver.names, self._resolver.fold, self._resolver.written
        self._paths = PathReader(self._resolver)

    def run(self) -> None:
        """Apply every rule that can have something to say about this tree."""
        nodes, names, seen = self.survey.nodes, self.names, set[str]()
        # Inner expressions come last in the survey: asked first, no answer needs to go deep.
        for node in reversed(nodes):
            if isinstance(node, ast.expr):
                seen.update(names(node))
        rules = {kind: _useful(rules, seen, kind) for kind, rules in _BY_NODE.items()}
        mentions = not seen.isdisjoint(_BY_NAME)
        for node in nodes:
            for rule, look in rules.get(type(node), ()):
                for hit in look(node, self):
                    self.report(rule, hit)
            if not isinstance(node, ast.expr):
                for place, name in rules_code.imported(node, self):
                    self.mentioned(place, (name,))
            elif mentions:
                self.mentioned(node, names(node))
            if self._check.deny:
                self.look_for_denied(node)

    def mentioned(self, place: ast.AST, names: Names) -> None:
        for name in names:
            rule = _BY_NAME.get(name)
            if rule is not None:
                self.report(rule, Hit(place, name))

    def look_for_denied(self, node: ast.AST) -> None:
        deny = self._check.deny
        for place, name in rules_code.imported(node, self):
            if _covered(name, deny):
                self.report(RULES["denied"], Hit(place, name))
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            for name in self.names(node):
                if name in deny or (isinstance(node, ast.Name) and _covered(name, deny)):
                    self.report(RULES["denied"], Hit(node, name))

    def report(self, rule: Rule, hit: Hit) -> None:
        if self._check.full(rule, hit.name):
            return
        self._check.add(rule.id, self.place(hit.node), hit.name.removeprefix("builtins."), hit.message)

    def place(self, node: ast.AST) -> tuple[int, int]:
        line: int = getattr(node, "lineno", 1)
        column: int = getattr(node, "col_offset", 0)
        if self._lines is None:
            self._lines = _LINE_END.split(self._python.text)
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        if not text.isascii():  # the parser counts columns in UTF-8 bytes
            column = len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
        return self._python.locate(line, column)

    # What is left of rules.Context.

    def writable(self, node: ast.expr) -> bool:
        return self._paths.inside(node, self._check.writable)

    def read_python(self, text: str, node: ast.AST, runner: str) -> None:
        with self._check.within(runner):
            place = self.place(node)
            self._check.python(text, lambda *_: place, self._level + 1)

    def read_cell(self, text: str, node: ast.AST, runner: str) -> None:
        with self._check.within(runner):
            place = self.place(node)
            self._check.cell(text, lambda *_: place, self._level + 1)

    def read_magic(self, name: str, line: str, body: str | None, node: ast.AST) -> None:
        with self._check.within(f"%{name}"):
            place = self.place(node)
            self._check.magic(name, line, body, lambda *_: place, self._level + 1)


_MODULES = (rules_calls, rules_code)  # importing them registered their rules
_BY_NAME: dict[str, Rule] = {name: rule for rule in RULES.values() for name in rule.names}
_BY_NODE: dict[type[ast.AST], list[Rule]] = {}
for _rule in RULES.values():
    for _kind in _rule.nodes:
        _BY_NODE.setdefault(_kind, []).append(_rule)


def _useful(rules: list[Rule], seen: set[str], kind: type[ast.AST]) -> list[tuple[Rule, Look]]:
    """The rules for nodes of ``kind`` that a tree mentioning the names ``seen`` can break."""
    return [
        (rule, rule.look)
        for rule in rules
        if rule.look is not None and (kind is not ast.Call or not rule.calls or not rule.calls.isdisjoint(seen))
    ]


def _covered(name: str, names: frozenset[str]) -> bool:
    """Whether ``name`` or a module it is in is among ``names``."""
    while name:
        if name in names:
            return True
        name = name.rpartition(".")[0]
    return False


def _denied(deny: Sequence[str]) -> frozenset[str]:
    """The qualified names meant by ``code.deny``: ``open`` is ``builtins.open``."""
    return frozenset(deny) | {f"builtins.{name}" for name in deny if name in BUILTINS}


def _place(text: str, offset: int) -> tuple[int, int]:
    """(line from 1, column from 0) of an offset, counting lines as Python does."""
    before = _LINE_END.split(text[:offset])
    return len(before), len(before[-1])
