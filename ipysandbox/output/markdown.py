"""Cleans Markdown so that no renderer finds HTML, an image to load, or a link that runs or leaves the page's folder.

Renderers disagree about where code and links end, so nothing here depends on that: what is dangerous is broken
everywhere, inside code by an invisible word joiner, elsewhere by what reads best.
"""

from __future__ import annotations

import re

from .latex import defuse_tex

_JOINER = "\u2060"
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})")
_INLINE = re.compile(r"(`[^`]+`)")
_IMAGE = re.compile(r"(?<!!)!+(?=\[)")
_LESS = re.compile(f"<(?!{_JOINER})")
# A destination with a scheme other than these, with an entity or escape that could hide one, or from the server's root.
_ELSEWHERE = r"\s*(?:<|&lt;)?\s*(?!https?://[^\s\\]|mailto:[^\s\\])(?:[/\\]|[^\s()<>/?#]{0,200}[:&\\])"
_LINK = re.compile(rf"\](?=\s{{0,20}}\({_ELSEWHERE}|:{_ELSEWHERE})", re.I)


def clean_markdown(text: str) -> str:
    """Markdown with HTML shown as text, images as links, and links that are neither relative nor to the web as text."""
    parts: list[str] = []
    fence = ""  # what opened the block of code that this line is in
    for line in defuse_tex(text).split("\n"):
        mark = _FENCE.match(line)
        code = bool(fence or mark)
        if fence and mark and mark[1].startswith(fence):
            fence = ""
        elif mark and not fence:
            fence = mark[1]
        pieces = ["", line] if code else _INLINE.split(line)
        parts.append("".join(_break(piece, inside=index % 2 == 1) for index, piece in enumerate(pieces)))
    # Over the whole text: a bracket and what follows it may stand on two lines.
    return _LINK.sub(f"]{_JOINER}", _IMAGE.sub("", "\n".join(parts)))


def _break(piece: str, *, inside: bool) -> str:
    """``piece`` without tags and images; ``inside`` code it keeps its looks."""
    if inside:
        return _IMAGE.sub(f"!{_JOINER}", _LESS.sub(f"<{_JOINER}", piece))
    return _IMAGE.sub("", _LESS.sub("&lt;", piece))
