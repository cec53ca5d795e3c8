"""Cleans ``text/html`` for a page that holds the user's session: an allow-list of elements, attributes, URLs and CSS.

Three steps. ``balance`` (markup.py) writes the tags anew, so that the parser meets no foreign content, no raw text and
no nesting it would have to repair; nh3, which parses as browsers do, keeps what is allowed; style sheets come back
last, scoped to the output. The second step is repeated until it changes nothing, so a browser reads what was judged.
"""

from __future__ import annotations

import html
import re

import nh3

from .css import clean_declarations, clean_sheet, prefixed
from .images import BadImage, check_data_url
from .latex import defuse_tex
from .markup import TAGS, balance
from .text import clean_characters, clean_text

MAX_HTML = 1 << 20  # some seconds of the worst markup, and more than a page shows with ease

_GLOBAL = {"align", "class", "dir", "hidden", "id", "lang", "style", "title", "valign"}
_SIZE = {"width", "height"}
_TABLE = _SIZE | {
    "bgcolor",
    "border",
    "cellpadding",
    "cellspacing",
    "colspan",
    "frame",
    "nowrap",
    "rowspan",
    "rules",
    "scope",
}
_ATTRIBUTES: dict[str, set[str]] = {tag: set(_GLOBAL) for tag in TAGS} | {"table": _GLOBAL | _TABLE}
for _tag in ("tr", "td", "th", "thead", "tbody", "tfoot"):
    _ATTRIBUTES[_tag] |= _TABLE
for _tag, _more in {
    "a": {"href"},
    "img": _SIZE | {"alt", "src"},
    "input": {"checked", "disabled"},
    "label": {"for"},
    "details": {"open"},
    "ol": {"start", "type", "reversed"},
    "ul": {"type"},
    "li": {"value"},
    "col": {"span", "width"},
    "colgroup": {"span", "width"},
    "font": {"color", "face", "size"},
    "hr": {"width", "size"},
    "progress": {"value", "max"},
    "meter": {"value", "max", "min", "low", "high", "optimum"},
    "time": {"datetime"},
}.items():
    _ATTRIBUTES[_tag] = _ATTRIBUTES[_tag] | _more

_ID = re.compile(r"[\w.:-]{1,200}", re.A)
_LINK = re.compile(r"(?:https?://|mailto:)[^\s<>\"'`\\\x00-\x20]{1,2000}", re.I)
_PLAIN = re.compile(r"[\w #%.,;:+()/-]{0,200}")
_INVISIBLE = re.compile("[\x00-\x20\x7f-\xa0]+")
# Classes that notebook front ends style: an output that wears one could pose as a dialog or cover the page.
_HOST_CLASS = re.compile(
    r"(?:jp|lm|p|cm|bp\d*|ui|fa|modal|dropdown|navbar|jupyter|widget|monaco|vscode|notebook|cell|prompt|output"
    r"|CodeMirror)(?:-|_|$)",
    re.I,
)
_HANDLER = re.compile(r"(?<=[\s/\"'])(on[a-z]{3,}\s*)=|^(on[a-z]{3,}\s*)=", re.I)
_SAME_PAGE_TARGET = re.compile(r"(<a [^<>]*href=\"#[^\"<>]*\"[^<>]*?) target=\"_blank\"")
_ROUNDS = 4


class _Filter:
    """Decides about one attribute at a time, as nh3 parsed it."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, _tag: str, name: str, value: str) -> str | None:
        if name == "src":
            return self._source(value)
        if name == "style":
            return clean_declarations(value) or None
        if name in ("id", "for"):
            return prefixed(value) if _ID.fullmatch(value) else None
        if name == "class":
            return (
                " ".join(word for word in value.split() if _ID.fullmatch(word) and not _HOST_CLASS.match(word)) or None
            )
        if name == "href":
            return self._link(value)
        if name in ("title", "alt"):
            # Neither may look like markup to a reader that goes by patterns, nor break out if the page copies it.
            text = value[:2000].replace("<", "‹").replace(">", "›")
            return _HANDLER.sub(lambda m: f"{m[1] or m[2]}＝", text)
        return value if _PLAIN.fullmatch(value) else None

    def _source(self, value: str) -> str | None:
        try:
            return check_data_url(value)
        except BadImage as exc:
            self.notes.append(f"an image in HTML left out: {exc}")
            return None

    def _link(self, value: str) -> str | None:
        link = _INVISIBLE.sub("", value)
        if link.startswith("#"):
            return "#" + prefixed(link[1:]) if _ID.fullmatch(link[1:]) else None
        if _LINK.fullmatch(link):
            return link
        self.notes.append("a link in HTML left out: only http, https, mailto and # are kept")
        return None


def clean_html(markup: str) -> tuple[str | None, list[str]]:
    """The cleaned HTML, or None when it can't be kept, and what was left out. Cleaning its result changes nothing."""
    if len(markup) > MAX_HTML:
        return None, [f"HTML of {len(markup)} characters left out: the limit is {MAX_HTML}"]
    balanced = balance(clean_characters(markup))
    notes = [f"<{name}> in HTML left out" for name in sorted(balanced.dropped)]
    decide = _Filter()
    cleaner = nh3.Cleaner(
        tags=set(TAGS),
        clean_content_tags=set(),
        attributes=_ATTRIBUTES,
        attribute_filter=decide,
        strip_comments=True,
        link_rel="noopener noreferrer",
        url_schemes={"http", "https", "mailto", "data"},
        set_tag_attribute_values={"input": {"type": "checkbox"}, "a": {"target": "_blank"}},
    )
    body = cleaner.clean(balanced.text)
    for _ in range(_ROUNDS):
        again = cleaner.clean(balance(body).text)
        if again == body:
            break
        body = again
    else:
        return None, [*notes, "HTML left out: parsers would not agree on its structure"]
    sheet, scope = clean_sheet("\n".join(balanced.sheets))
    if scope:
        body = f'<div id="{scope}">{body}</div>'
    body = _SAME_PAGE_TARGET.sub(r"\1", defuse_tex(clean_characters(body)))
    notes += dict.fromkeys(decide.notes)
    return (f"<style>{sheet}</style>{body}" if sheet else body), notes


def html_to_text(markup: str) -> str:
    """What a reader would see of ``markup``, without any element."""
    text = nh3.clean(balance(clean_characters(markup[:MAX_HTML])).text, tags=set())
    return clean_text(html.unescape(text)).strip()
