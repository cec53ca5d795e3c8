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
# Entities that could write a command of TeX in parts; renderers take numbers without the semicolon too.
_NUMBERED = re.compile(r"&#(?:0{0,9}([1-9]\d{0,6})|x0{0,9}([1-9a-f][\da-f]{0,5}))(?![\da-f]);?", re.I)
_NAMED = re.compile(r"&(?=(?:dollar|bsol|setminus|lpar|rpar|lsqb|lbrack|rsqb|rbrack|lcub|lbrace|rcub|rbrace);)")
_SIGNS = "\\$()[]{}"


def defuse_tex(text: str, *, surely: bool = False) -> str:
    """``text`` with those commands as words, if it has mathematics that a page would typeset (a Windows path stays), or
    ``surely``. It may be markup. Where entities count, none may stand for a letter or for one of TeX's signs."""
    return _COMMAND.sub(_SPACED, text) if surely or _MATH.search(text) else text


def without_entities(text: str, mark: str) -> str:
    """``text`` with each entity for a letter as that letter, and each for one of TeX's signs begun by ``mark``."""

    def numbered(match: re.Match[str]) -> str:
        character = chr(min(int(match[1]) if match[1] else int(match[2], 16), 0x10FFFF))
        if character.isascii() and character.isalpha():
            return character
        return mark + match[0][1:] if character in _SIGNS else match[0]

    return _NAMED.sub(mark, _NUMBERED.sub(numbered, text))


def clean_latex(text: str) -> str:
    """TeX for ``text/latex``: no such commands, and nothing that an HTML parser could take for a tag or one of them."""
    return _TAG.sub("< ", _COMMAND.sub(_SPACED, without_entities(text, "& ")))
