"""Cleans style sheets and style attributes: only known properties with plain values, only inside the output itself.

What comes out is written anew from pieces that match strict patterns (no escape, no comment, no at-rule but one, no
brace in a value), so it does not matter how a browser would have read the original.
"""

from __future__ import annotations

import functools
import hashlib
import re

from .words import words

ID_PREFIX = "sbx-"

MAX_SHEET = 2 << 20
_MAX_VALUE = 4000
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.S)
_BRACE = re.compile(r"[{}]")
_SCHEME = re.compile(r"@media\s*\(\s*prefers-color-scheme\s*:\s*(dark|light)\s*\)\s*", re.I)

_IDENT = r"[A-Za-z_][\w-]{0,127}"
_PSEUDO = (
    r"::?(?:before|after|marker|first-letter|first-line)|:(?:hover|focus|focus-visible|link|visited|checked|empty|open"
    r"|(?:first|last|only)-(?:child|of-type)|nth-(?:last-)?(?:child|of-type)\(\s*[0-9n+\- a-z]{1,16}\))"
)
_SIMPLE = rf"\.{_IDENT}|#{_IDENT}|{_PSEUDO}|\[type=\"?[a-z]+\"?\]"
_COMPOUND = re.compile(rf"(?:\*|[a-z][a-z0-9]{{0,15}})?(?:{_SIMPLE}|:not\((?:{_SIMPLE})\))*", re.A | re.I)
_COMBINATOR = re.compile(r"\s*([>+~])\s*|\s+")
_PAGE = re.compile(r"(?:\A|[\s>+~])(?:html|body|head)\b|:root|\.(?:jp|lm|cm|p)-", re.I | re.A)
_HASH_ID = re.compile(rf"#({_IDENT})", re.A)

_SIDES = words("top right bottom left block inline start end block-start block-end inline-start inline-end")
_PROPERTIES = (
    words(
        "align-content align-items align-self background background-clip background-color background-image",
        "background-origin background-position background-repeat background-size border-collapse border-color",
        "border-spacing border-style border-width box-shadow box-sizing caption-side clear clip-path color",
        "color-scheme column-count column-gap column-width columns content cursor direction display empty-cells",
        "flex flex-basis flex-direction flex-flow flex-grow flex-shrink flex-wrap float font font-family",
        "font-feature-settings font-size font-style font-variant font-variant-numeric font-weight gap grid",
        "grid-area grid-auto-columns grid-auto-flow grid-auto-rows grid-column grid-gap grid-row grid-template",
        "grid-template-areas grid-template-columns grid-template-rows height hyphens justify-content",
        "justify-items justify-self letter-spacing line-height list-style list-style-position list-style-type",
        "max-height max-width min-height min-width object-fit opacity order outline-color outline-style",
        "outline-width overflow overflow-wrap overflow-x overflow-y place-items position quotes row-gap",
        "tab-size table-layout text-align text-align-last text-decoration text-decoration-color",
        "text-decoration-line text-decoration-style text-indent text-overflow text-rendering text-shadow",
        "text-transform vertical-align visibility white-space white-space-collapse width word-break",
        "word-spacing word-wrap writing-mode",
    )
    | words(  # SVG's own
        "clip-rule dominant-baseline fill fill-opacity fill-rule filter marker-end marker-mid marker-start mask",
        "mix-blend-mode paint-order shape-rendering stop-color stop-opacity stroke stroke-dasharray",
        "stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit stroke-opacity stroke-width",
        "text-anchor baseline-shift",
    )
    | words("margin padding border outline border-radius")
    | {f"{box}-{side}" for box in ("margin", "padding", "border") for side in _SIDES}
    | {f"border-{side}-{part}" for side in _SIDES for part in ("color", "style", "width")}
    | {f"border-{a}-{b}-radius" for a in ("top", "bottom") for b in ("left", "right")}
)
_CUSTOM = re.compile(r"--[A-Za-z][\w-]{0,100}", re.A)
# One character or one quoted word at a time: no backtracking. No backslash, brace, colon, semicolon, angle bracket.
_VALUE = re.compile(
    r"(?:[\w\s.,%#+()-]|\*(?!/)|/(?!\*)|!(?=\s*important)|\"[^\"\\<>(){};@:\n]*\"|'[^'\\<>(){};@:\n]*')+"
)
_FUNCTION = re.compile(r"([\w-]*)\s*\(")
_FUNCTIONS = words(
    "rgb rgba hsl hsla hwb lab lch oklab oklch color color-mix light-dark var calc min max clamp",
    "linear-gradient radial-gradient conic-gradient repeating-linear-gradient repeating-radial-gradient repeat",
    "minmax fit-content cubic-bezier circle inset polygon",
) | {""}
_LOCAL_URL = re.compile(r"url\(\s*([\"']?)#([\w.:-]{1,128})\1\s*\)", re.A)
_MOVING = ("text-indent", "word-spacing", "letter-spacing")
_NEGATIVE = re.compile(r"(?<![\w-])-\s*[\d.(]|calc|var|min|max|clamp", re.A)


@functools.lru_cache(maxsize=4096)
def clean_declarations(text: str, *, svg: bool = False) -> str:
    """The allowed declarations as ``a: b; c: d``; in ``svg``, ``url(#id)`` may refer to a part of the image."""
    kept = []
    for declaration in _COMMENT.sub(" ", text).split(";"):
        name, colon, value = declaration.partition(":")
        name, value = name.strip(), value.strip()
        if not name.startswith("--"):
            name = name.lower()
        if colon and (checked := clean_value(name, value, svg=svg)):
            kept.append(f"{name}: {checked}")
    return "; ".join(kept)


def clean_value(name: str, value: str, *, svg: bool = False) -> str:
    """The value if the property may have it, else nothing."""
    if name not in _PROPERTIES and not _CUSTOM.fullmatch(name):
        return ""
    if len(value) > _MAX_VALUE or not value:
        return ""
    if svg and (match := _LOCAL_URL.fullmatch(value)):
        return f"url(#{prefixed(match[2])})"
    if not _VALUE.fullmatch(value) or value.count("(") != value.count(")"):
        return ""
    if any(function.lower() not in _FUNCTIONS for function in _FUNCTION.findall(value)):
        return ""
    plain = value.lower().replace("!important", "").strip()
    # What could lift the output out of its place on the page, or over its neighbours.
    if name == "position" and plain not in ("static", "relative"):
        return ""
    if (name.startswith("margin") or name in _MOVING) and _NEGATIVE.search(plain):
        return ""
    if name == "content" and not (plain[:1] in "\"'" or plain in ("none", "normal")):
        return ""
    return " ".join(value.split())


def clean_sheet(text: str, *, svg: bool = False) -> tuple[str, str]:
    """The allowed rules of a style sheet, and the id that the element around the output must have ("" if none).

    A selector counts only below an id of the output itself; one that names none is put below the returned id.
    """
    if len(text) > MAX_SHEET:
        return "", ""
    rules = list(_rules(_COMMENT.sub(" ", text), svg))
    if not rules:
        return "", ""
    scope = ""
    if any(not selector.startswith(f"#{ID_PREFIX}") for _, selectors, _ in rules for selector in selectors):
        scope = ID_PREFIX + "c" + hashlib.sha256(repr(rules).encode()).hexdigest()[:12]
    written = []
    for media, selectors, body in rules:
        scoped = [s if s.startswith(f"#{ID_PREFIX}") else f"#{scope} {s}" for s in selectors]
        rule = f"{', '.join(scoped)} {{ {body} }}"
        written.append(f"@media (prefers-color-scheme: {media}) {{ {rule} }}" if media else rule)
    return "\n".join(written), scope


def prefixed(name: str) -> str:
    """An id as it is called in the page: never one that the page itself uses."""
    return name if name.startswith(ID_PREFIX) else ID_PREFIX + name


def _rules(text: str, svg: bool, media: str = "") -> list[tuple[str, list[str], str]]:
    rules: list[tuple[str, list[str], str]] = []
    start, depth, opened = 0, 0, 0
    for brace in _BRACE.finditer(text):
        if brace.group() == "{":
            depth += 1
            opened = brace.start() if depth == 1 else opened
            continue
        depth = max(0, depth - 1)
        if depth:
            continue
        prelude, body = text[start:opened].rpartition(";")[2].strip(), text[opened + 1 : brace.start()]
        start = brace.end()
        scheme = _SCHEME.fullmatch(prelude)
        if scheme and not media:
            rules += _rules(body, svg, scheme[1].lower())
        elif "{" not in body and (selectors := _clean_selectors(prelude, svg)):
            declarations = clean_declarations(body, svg=svg) if len(body) < 20_000 else ""
            if declarations:
                rules.append((media, selectors, declarations))
        opened = start
    return rules


def _clean_selectors(prelude: str, svg: bool) -> list[str]:
    if len(prelude) > 100_000:
        return []
    cleaned = [_clean_selector(selector.strip(), svg) for selector in prelude.split(",")]
    return [selector for selector in cleaned if selector]


def _clean_selector(selector: str, svg: bool) -> str:
    if not selector or len(selector) > 600 or _PAGE.search(selector) or ("*" in selector and not svg):
        return ""
    at, parts = 0, []
    while at < len(selector):
        compound = _COMPOUND.match(selector, at)
        if compound is None or compound.end() == at:
            return ""
        parts.append(_HASH_ID.sub(lambda m: "#" + prefixed(m[1]), compound.group()))
        at = compound.end()
        combinator = _COMBINATOR.match(selector, at)
        if combinator:
            parts.append(f" {combinator[1]} " if combinator[1] else " ")
            at = combinator.end()
        elif at < len(selector):
            return ""
    return "".join(parts).strip()
