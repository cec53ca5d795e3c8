"""Cleans Markdown so that no renderer finds HTML, an image to load, or a link that runs or leaves the page's folder.

Renderers disagree about where code and links end, so nothing here depends on that: what is dangerous is broken
everywhere, inside code by an invisible word joiner, elsewhere by what reads best.
"""

from __future__ import annotations

import re

from .latex import defuse_tex, without_entities

_JOINER = "\u2060"
_FENCE = re.compile(r" {0,3}(`{3,})[^`]*\Z")
_INLINE = re.compile(r"(`[^`]+`)")
_IMAGE = re.compile(r"(?<!!)!+(?=\[)")
_LESS = re.compile(f"<(?!{_JOINER})")
# A destination with a scheme other than these, with an entity or escape that could hide one, or from the server's root.
_ELSEWHERE = r"\s*(?:(?:<|&lt;)\s*)?(?!https?://[^\s\\]|mailto:[^\s\\])(?:[/\\]|[^\s()<>/?#]{0,200}[:&\\])"
_LINK = re.compile(rf"\](?=\s{{0,20}}\({_ELSEWHERE}|:{_ELSEWHERE})", re.I)


def clean_markdown(text: str) -> str:
    """Markdown with HTML shown as text, images as links, and links that are neither relative nor to the web as text."""
    parts: list[str] = []
    block: list[str] = []  # the lines of a block of code that has not been closed yet
    fence = ""
    plain = without_entities(text, "&amp;")
    for line in defuse_tex(plain, surely=plain != text).split("\n"):
        mark = _FENCE.match(line)
        if not fence and not mark:
            parts.append(_clean_line(line))
            continue
        block.append(line)
        if not fence and mark:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            parts += [_break(code, inside=True) for code in block]
            block, fence = [], ""
    parts += map(_clean_line, block)  # no end: where it ends depends on the renderer
    # Over the whole text: a bracket and what follows it may stand on two lines.
    return _LINK.sub(f"]{_JOINER}", _IMAGE.sub("", "\n".join(parts)))


def _clean_line(line: str) -> str:
    pieces = enumerate(_INLINE.split(line))
    return "".join(_break(piece, inside=index % 2 == 1) for index, piece in pieces)


def _break(piece: str, *, inside: bool) -> str:
    """``piece`` without tags and images; ``inside`` code it keeps its looks."""
    if inside:
        return _IMAGE.sub(f"!{_JOINER}", _LESS.sub(f"<{_JOINER}", piece))
    return _IMAGE.sub("", _LESS.sub("&lt;", piece))
