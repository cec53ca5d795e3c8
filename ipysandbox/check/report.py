"""What the check found, and how it is said to the person who has to decide about it."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ipysandbox.policy.names import OWN_FILE

Severity = Literal["refuse", "note"]
Verdict = Literal["ok", "refused"]

#: Rules about text that is no Python, which nothing runs whether a policy allows it or not.
UNREADABLE = frozenset({"syntax", "null-byte", "surrogate"})
EXCERPT = 120  # characters of a source line that a report shows, around the column it talks about


@dataclass(frozen=True)
class Finding:
    """One thing the check wants said about one place of a cell.

    ``line`` and ``column`` count from 1, in characters, in the cell as it was written. ``name`` is the qualified name
    or syntax that the rule is about (``os.system``), ``excerpt`` the source line there (clipped, control characters
    made visible) and ``caret`` the offset in ``excerpt`` that ``column`` fell on.
    """

    rule: str
    severity: Severity
    line: int
    column: int
    name: str
    message: str
    hint: str
    excerpt: str = ""
    caret: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def render(self, where: str = "cell") -> str:
        """The finding as a compiler would print it; ``where`` is a file name or a cell's label."""
        word = "refused" if self.severity == "refuse" else "note"
        lines = [f"{visible(where)}:{self.line}:{self.column}: {word} [{self.rule}] {self.message}"]
        if self.excerpt:
            lines += [f"    {self.excerpt}", "    " + " " * self.caret + "^"]
        if self.hint:
            lines.append(f"    {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


@dataclass(frozen=True)
class Report:
    """The verdict on one cell; ``refused`` exactly when a finding has the severity ``refuse``."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        return self.verdict == "refused"

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "findings": [finding.to_json() for finding in self.findings]}

    def render(self, where: str = "cell") -> str:
        """All findings, then the verdict in one sentence."""
        refusals = [finding for finding in self.findings if finding.severity == "refuse"]
        if not refusals:
            last = f"{visible(where)}: ok"
        else:
            reasons = "1 reason" if len(refusals) == 1 else f"{len(refusals)} reasons"
            last = f"{visible(where)}: refused for {reasons}; nothing was run."
            if any(finding.rule not in UNREADABLE for finding in refusals):
                change = f"change the code{_allowing(refusals)}"
                last += f" The check reads code and explains, the sandbox is what holds: {change}."
        return "\n".join([*(finding.render(where) for finding in self.findings), last])

    def __str__(self) -> str:
        return self.render()


def _allowing(refusals: list[Finding]) -> str:
    """What to write to have it run all the same, where that can be had."""
    rules = [*dict.fromkeys(f'"{finding.rule}"' for finding in refusals if finding.rule not in (*UNREADABLE, "denied"))]
    return f", or write in {OWN_FILE}: [code] allow = [{', '.join(rules)}]" if rules else ""


def visible(text: str) -> str:
    """``text`` with everything that a terminal or a page would obey (controls, bidi, surrogates) written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if unicodedata.category(char)[0] not in "C" and char not in "\u2028\u2029" else _escape(char)
        for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def excerpt(line: str, column: int) -> tuple[str, int]:
    """A readable piece of ``line`` around ``column`` (from 0), and the place of the column in that piece."""
    line = line.rstrip("\r\n")
    start = max(0, min(column - EXCERPT // 2, len(line) - EXCERPT))
    stop = start + EXCERPT
    before = ("…" if start else "") + visible(line[start:column])
    after = visible(line[column:stop]) + ("…" if stop < len(line) else "")
    text = before + after
    stripped = text.lstrip(" ")
    return stripped, max(0, len(before) - (len(text) - len(stripped)))
