"""Writes HTML anew as properly nested tags of known elements, in linear time, before a real parser sees it.

A tree builder repairs bad nesting, and the repair can be made to explode (unclosed formatting elements are opened again
in every paragraph, text in a table is moved in front of it) or to mean something else the second time. Here tags are
read as the HTML standard tokenizes them, what is unknown is dropped, and every element is closed in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .words import words

TAGS = words(
    "a abbr b big blockquote br caption center cite code col colgroup dd del details dfn div dl dt em",
    "figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img input ins kbd label legend li main mark",
    "meter nav ol p pre progress q rp rt ruby s samp section article aside address small span strike strong sub",
    "summary sup table tbody td tfoot th thead time tr tt u ul var wbr",
)
MAX_DEPTH = 120
MAX_FORMATTING = 8  # a tree builder may open that many again in each paragraph

_VOID = words("br col hr img input wbr")
_FORMATTING = words("a b big code em font i s small strike strong tt u")
# Their content is code, another language, or a document of its own: it goes with them.
_OPAQUE = words(
    "script svg math iframe object embed applet noscript noembed noframes template title textarea xmp plaintext",
    "select audio video canvas frameset portal fencedframe head",
)
_HARMLESS = words("html body head form button")
_TABLE_PARTS = words("caption col colgroup tbody td tfoot th thead tr")
_SECTIONS = words("tbody tfoot thead")
_HOLDS_ONLY_PARTS = _SECTIONS | {"table", "tr", "colgroup"}
_CELLS = words("caption table td th")
# An element that closes another one left open: what it closes, and what it never reaches across.
_CLOSES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol"}) | _CELLS),
    "dt": (frozenset({"dt", "dd"}), frozenset({"dl"}) | _CELLS),
    "dd": (frozenset({"dt", "dd"}), frozenset({"dl"}) | _CELLS),
    "td": (frozenset({"td", "th", "caption", "colgroup"}), frozenset({"table"})),
    "th": (frozenset({"td", "th", "caption", "colgroup"}), frozenset({"table"})),
    "tr": (frozenset({"tr", "caption", "colgroup"}), frozenset({"table"})),
    "a": (frozenset({"a"}), _CELLS),
    "rt": (frozenset({"rt", "rp"}), frozenset({"ruby"}) | _CELLS),
    "rp": (frozenset({"rt", "rp"}), frozenset({"ruby"}) | _CELLS),
    **{
        part: (_SECTIONS | {"caption", "colgroup"}, frozenset({"table"}))
        for part in (*_SECTIONS, "caption", "colgroup")
    },
}
_CLOSES_P = words(
    "address article aside blockquote center details div dl figcaption figure footer h1 h2 h3 h4 h5 h6 header",
    "hr main nav ol p pre section summary table ul li dt dd",
)
_HEADINGS = words("h1 h2 h3 h4 h5 h6")
_P_STOPS = _CELLS | words("div li blockquote section")

_WS = r"[ \t\r\n\f]"
_OPEN = re.compile(r"<(?:(/?)([A-Za-z][^ \t\r\n\f/>]*)(>)?|!--|[!?/])")
# The tokenizer states of section 13.2.5.32 to 13.2.5.38: a value is quoted, or unquoted up to white space or ">".
_NAME = re.compile(r"[ \t\r\n\f/]*([^ \t\r\n\f/>][^ \t\r\n\f/>=]*)")
_EQUALS = re.compile(rf"{_WS}*={_WS}*")
_UNQUOTED = re.compile(r"[^ \t\r\n\f>]*")
_TAG_END = re.compile(r"[ \t\r\n\f/]*>")
_COMMENT_END = re.compile(r"-->|--!>")
_KEPT_NAME = re.compile(r"[a-z][a-z-]{0,20}")
_ATTRIBUTE_NAME = re.compile(r"[a-z]{1,16}")
_REFERENCES_MAX = 500
_REFERENCES = re.compile(rf"(?:[^&]*&){{{_REFERENCES_MAX}}}[^&;]{{0,40}};?")
_VISIBLE = re.compile(r"[^ \t\r\n\f]")


@dataclass
class Balanced:
    """The markup written anew, the texts of its style sheets, and the names of what went."""

    text: str = ""
    sheets: list[str] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)


def balance(markup: str) -> Balanced:
    """``markup`` with only TAGS, nested properly and at most MAX_DEPTH deep, and without comments."""
    return _Balancer(markup.replace("\x00", "")).run()


class _Balancer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.out: list[str] = []
        self.stack: list[str] = []
        self.formatting = 0
        self.result = Balanced()
        self.endless: set[str] = set()  # opaque elements with no end tag in the rest: searched for once

    def run(self) -> Balanced:
        at = 0
        while match := _OPEN.search(self.source, at):
            self._text(self.source[at : match.start()])
            at = self._markup(match)
        self._text(self.source[at:])
        self._close_to(0)
        self.result.text = "".join(self.out)
        return self.result

    # ---- tokens

    def _markup(self, match: re.Match[str]) -> int:
        """Handles the token that begins at ``match`` and gives the position after it."""
        name = match[2]
        if name is None:
            return self._comment(match)
        attributes, at = ({}, match.end()) if match[3] else self._attributes(match.end())
        if at < 0:
            return len(self.source)  # an unfinished tag: parsers drop it, and with it all that follows
        name = name.lower()
        if match[1]:
            self._end(name)
        elif name == "style":
            content, at = self._raw(name, at)
            self.result.sheets.append(content)
        elif name in TAGS:
            self._start(name, attributes)
            at += _leading_lines(self.source, at) if name == "pre" else 0
        elif name in _OPAQUE:
            self.result.dropped.add(name)
            at = self._raw(name, at)[1]
        elif name not in _HARMLESS:
            self.result.dropped.add(name if _KEPT_NAME.fullmatch(name) else "unknown element")
        return at

    def _comment(self, match: re.Match[str]) -> int:
        if match.group() != "<!--":
            end = self.source.find(">", match.end())
            return len(self.source) if end < 0 else end + 1
        for short in (">", "->"):
            if self.source.startswith(short, match.end()):
                return match.end() + len(short)
        found = _COMMENT_END.search(self.source, match.end())
        return found.end() if found else len(self.source)

    def _attributes(self, at: int) -> tuple[dict[str, str], int]:
        """The attributes that follow a tag's name, and the position after the tag (-1 if it has no end)."""
        found: dict[str, str] = {}
        while not (end := _TAG_END.match(self.source, at)):
            name = _NAME.match(self.source, at)
            if name is None:
                return found, -1
            at, value = name.end(), ""
            if equals := _EQUALS.match(self.source, at):
                at = equals.end()
                quote = self.source[at : at + 1]
                if quote in ('"', "'"):
                    close = self.source.find(quote, at + 1)
                    if close < 0:
                        return found, -1
                    value, at = self.source[at + 1 : close], close + 1
                elif unquoted := _UNQUOTED.match(self.source, at):
                    value, at = unquoted.group(), unquoted.end()
            if value.count("&") <= _REFERENCES_MAX:
                found.setdefault(name[1].lower(), value)
        return found, end.end()

    def _raw(self, name: str, at: int) -> tuple[str, int]:
        """The text up to the end tag of ``name`` and the position after it; nothing if there is no end tag."""
        if name not in self.endless:
            found = re.compile(rf"</{name}(?=[ \t\r\n\f/>])[^>]*>?", re.I | re.A).search(self.source, at)
            if found:
                return self.source[at : found.start()], found.end()
            self.endless.add(name)
        return "", at

    # ---- structure

    def _text(self, text: str) -> None:
        if not text:
            return
        if self.stack and self.stack[-1] in _HOLDS_ONLY_PARTS:
            if not _VISIBLE.search(text):
                self.out.append(text)
                return
            self._open_cell()
        text = text.replace("<", "&lt;").replace(">", "&gt;")
        # html5ever takes quadratic time for many references in one text; a comment, which nh3 drops, ends a text.
        self.out.append(_REFERENCES.sub(r"\g<0><!---->", text) if text.count("&") > _REFERENCES_MAX else text)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _CLOSES:
            self._close_back(*_CLOSES[name])
        elif name in _CLOSES_P:
            self._close_back(frozenset({"p"}), _P_STOPS)
        if name in _HEADINGS and self.stack and self.stack[-1] in _HEADINGS:
            self._close_to(len(self.stack) - 1)
        if name == "input" and attributes.get("type", "").strip().lower() != "checkbox":
            return  # any other kind asks the reader to type something
        too_deep = len(self.stack) >= MAX_DEPTH or (name in _FORMATTING and self.formatting >= MAX_FORMATTING)
        if (too_deep and name not in _VOID) or not self._place(name):
            self.result.dropped.add(name)
            return
        self._open(name, attributes)

    def _place(self, name: str) -> bool:
        """Whether ``name`` may stand here, after opening the row or cell that it needs."""
        top = self.stack[-1] if self.stack else ""
        if name not in _TABLE_PARTS:
            if top in _HOLDS_ONLY_PARTS:
                self._open_cell()
            return True
        if name in ("td", "th"):
            if top == "table" or top in _SECTIONS:
                self._open("tr", {})
            return self.stack[-1:] == ["tr"]
        if name == "tr":
            return top == "table" or top in _SECTIONS
        return top == "table" or (name == "col" and top == "colgroup")

    def _open_cell(self) -> None:
        if self.stack[-1] == "colgroup":
            self._close_to(len(self.stack) - 1)
        if self.stack[-1] != "tr":
            self._open("tr", {})
        self._open("td", {})

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        written = "".join(
            f' {key}="{_quoted(value)}"' for key, value in attributes.items() if _ATTRIBUTE_NAME.fullmatch(key)
        )
        self.out.append(f"<{name}{written}>")
        if name not in _VOID:
            self.stack.append(name)
            self.formatting += name in _FORMATTING

    def _end(self, name: str) -> None:
        stops = frozenset({"table"}) if name in _TABLE_PARTS else _CELLS
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] == name:
                self._close_to(index)
                return
            if self.stack[index] in stops and name != "table":
                return

    def _close_back(self, closed: frozenset[str], stops: frozenset[str]) -> None:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] in closed:
                self._close_to(index)
                return
            if self.stack[index] in stops:
                return

    def _close_to(self, size: int) -> None:
        while len(self.stack) > size:
            name = self.stack.pop()
            self.formatting -= name in _FORMATTING
            self.out.append(f"</{name}>")


def _quoted(value: str) -> str:
    return value.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _leading_lines(source: str, at: int) -> int:
    """How many line ends follow: a parser drops the first of a ``<pre>`` each time it reads one."""
    end = at
    while source[end : end + 1] in ("\n", "\r"):
        end += 1
    return end - at
