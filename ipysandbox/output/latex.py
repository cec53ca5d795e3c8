"""Takes the commands out of TeX that MathJax or KaTeX would turn into links, styles, attributes or loads."""

from __future__ import annotations

import re

# MathJax reads a text on across <wbr>, comments and <br> (HTMLDomStrings, includeHtmlTags), and a page's own sanitizer
# may take out any other tag and leave what it stood between. So a tag may stand between any two signs of a command.
_TAGS = "(?:<[^<>]*>)*"
# MathJax: html, require, texhtml, bbox (takes CSS), autoload, \csname; KaTeX: \html*, \includegraphics, \url.
_NAMES = (
    "href url style class cssId data html include write action require input bbox csname special catcode texttip "
    "mathtip toggle unicode mmlToken"
).split()
_GOES_ON = frozenset(("html", "include", "write", "action"))  # \htmlClass, \includegraphics


def _spread(name: str) -> str:
    """``name`` as tags may cut it."""
    return _TAGS.join(name) + (r"\w*" if name in _GOES_ON else "")


_COMMAND = re.compile(rf"\\(?={_TAGS}(?:{'|'.join(map(_spread, _NAMES))})(?![A-Za-z]))", re.I | re.A)
_SPACED = r"\\ "  # TeX's explicit space: also right after another backslash, where a removed one would make a command
_MATH = re.compile(rf"\$|\\{_TAGS}(?:[(\[]|{_spread('begin')}|(?:{_spread('eq')}{_TAGS})?{_spread('ref')})")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# Of no use in TeX, and a letter or one of its signs to whoever reads the text as HTML.
_ENTITY = re.compile(r"&(?=#|[A-Za-z][A-Za-z0-9]*;)")


def defuse_tex(text: str, *, surely: bool = False) -> str:
    """``text`` with those commands as words, if it has mathematics that a page would typeset (a Windows path stays), or
    ``surely``. It may be markup. Where entities count, none may stand for a letter or for one of TeX's signs."""
    return _COMMAND.sub(_SPACED, text) if surely or _MATH.search(text) else text


def clean_latex(text: str) -> str:
    """TeX for ``text/latex``: no such commands, and nothing that an HTML parser could take for a tag or an entity."""
    return _TAG.sub("< ", _ENTITY.sub("& ", _COMMAND.sub(_SPACED, text)))
