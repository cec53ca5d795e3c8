"""Takes the commands out of TeX that MathJax or KaTeX would turn into links, styles, attributes or loads."""

from __future__ import annotations

import re

# MathJax: html, require, texhtml, bbox (takes CSS), autoload, \csname; KaTeX: \html*, \includegraphics, \url.
_COMMAND = re.compile(
    r"\\(?=(?:href|url|style|class|cssId|data|html\w*|require|include\w*|input|bbox|csname|special|write\w*|catcode"
    r"|texttip|mathtip|toggle|unicode|action\w*|mmlToken)(?![A-Za-z]))",
    re.I | re.A,
)
_SPACED = r"\\ "  # TeX's explicit space: also right after another backslash, where a removed one would make a command
_MATH = re.compile(r"\$|\\[(\[]|\\begin")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def defuse_tex(text: str, *, surely: bool = False) -> str:
    """``text`` with those commands as words, if it has mathematics that a page would typeset (a Windows path stays), or
    ``surely``. Where entities count, none may stand for a letter or for one of TeX's signs."""
    return _COMMAND.sub(_SPACED, text) if surely or _MATH.search(text) else text


def clean_latex(text: str) -> str:
    """TeX for ``text/latex``: no such commands, and no ``<`` that an HTML parser could take for a tag."""
    return _TAG.sub("< ", _COMMAND.sub(_SPACED, text))
