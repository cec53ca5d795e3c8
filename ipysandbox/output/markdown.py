"""Cleans Markdown so that no renderer finds HTML, an image to load, or a link other than http, https, mailto and #.

Renderers disagree about where code and links end, so nothing here depends on that: what is dangerous is broken
everywhere, inside code by an invisible word joiner, elsewhere by what reads best.
"""

from __future__ import annotations

import re

from .latex import defuse_tex

_JOINER = "\u2060"
_CODE = re.compile(
    r"(?:^|\n) {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:\n {0,3}(?P=fence)[`~]*[ \t]*(?=\n|\Z)|\Z)|`[^`\n]+`", re.S
)
_IMAGE = re.compile(r"!+(?=\[)")
_ALLOWED = r"(?!\s*(?:https?://[^\s\\]|mailto:[^\s\\]|#))"
_LINK = re.compile(rf"\](?=\({_ALLOWED})", re.I)
_DEFINITION = re.compile(rf"\](?=:{_ALLOWED})", re.I)


def clean_markdown(text: str) -> str:
    """Markdown with HTML shown as text, images as links, and links to anything but the web as text."""
    parts: list[str] = []
    at = 0
    text = defuse_tex(text)
    for code in _CODE.finditer(text):
        parts += (_break(text[at : code.start()], "&lt;", ""), _break(code.group(), f"<{_JOINER}", f"!{_JOINER}"))
        at = code.end()
    parts.append(_break(text[at:], "&lt;", ""))
    # Over the whole text: a bracket and its parenthesis may come from two parts.
    joined = _IMAGE.sub("", "".join(parts))
    return _DEFINITION.sub(f"]{_JOINER}", _LINK.sub(f"]{_JOINER}", joined))


def _break(part: str, less_than: str, bang: str) -> str:
    part = re.sub(f"<(?!{_JOINER})", less_than, part)
    return _IMAGE.sub(bang, part)
