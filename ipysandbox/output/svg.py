"""Cleans ``image/svg+xml`` by a strict XML pass: drawing elements only, references only into the image itself."""

from __future__ import annotations

import re
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from .css import clean_declarations, clean_sheet, prefixed
from .images import BadImage, check_data_url
from .latex import defuse_tex
from .text import clean_characters
from .words import words

MAX_SVG = 16 << 20
MAX_DEPTH = 200
MAX_DRAWN = 300_000  # elements after every <use> has been followed: a few nested ones can stand for billions

_NS = "http://www.w3.org/2000/svg"
_XLINK_HREF = "http://www.w3.org/1999/xlink href"
_ELEMENTS = words(
    "svg g defs symbol use path rect circle ellipse line polyline polygon text tspan textPath image style",
    "clipPath mask marker pattern linearGradient radialGradient stop switch filter feBlend feColorMatrix",
    "feComponentTransfer feComposite feFlood feFuncA feFuncB feFuncG feFuncR feGaussianBlur feMerge feMergeNode",
    "feMorphology feOffset feDropShadow",
)
_ATTRIBUTES = words(
    "class cx cy d dx dy fx fy fr gradientTransform gradientUnits height in in2 k1 k2 k3 k4 lengthAdjust",
    "markerHeight markerUnits markerWidth maskContentUnits maskUnits clipPathUnits method mode offset operator",
    "orient pathLength patternContentUnits patternTransform patternUnits points preserveAspectRatio",
    "primitiveUnits filterUnits r radius refX refY result rotate rx ry side spacing spreadMethod startOffset",
    "stdDeviation tableValues slope intercept amplitude exponent textLength transform type values version",
    "viewBox width x x1 x2 y y1 y2 z flood-color flood-opacity lighting-color",
)
_PRESENTATION = words(
    "alignment-baseline baseline-shift clip-path clip-rule color direction display dominant-baseline fill",
    "fill-opacity fill-rule filter font font-family font-size font-style font-variant font-weight",
    "letter-spacing marker-end marker-mid marker-start mask opacity overflow paint-order shape-rendering",
    "stop-color stop-opacity stroke stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin",
    "stroke-miterlimit stroke-opacity stroke-width text-anchor text-decoration text-rendering vector-effect",
    "visibility word-spacing writing-mode",
)
_ID = re.compile(r"[\w.:-]{1,200}", re.A)
_VALUE = re.compile(r"[^<>\\&:@{}]*")
_DOCTYPE = re.compile(r"<!DOCTYPE\s+svg\b[^\[<>]*>", re.I)


class BadSvg(ValueError):
    """The text is not an SVG image that can be shown; the message says why."""


def clean_svg(text: str) -> str:
    """The image written anew with what may be in it; raises BadSvg if it isn't well-formed or is too large to draw."""
    if len(text) > MAX_SVG:
        raise BadSvg(f"larger than {MAX_SVG >> 20} MiB")
    # matplotlib and others name the public DTD; without it there can be no entity beside XML's own five.
    source = _DOCTYPE.sub("", clean_characters(text), count=1)
    if "<!DOCTYPE" in source or "<!ENTITY" in source:
        raise BadSvg("it declares entities")
    writer = _Writer()
    try:
        writer.parser.Parse(source, True)
    except expat.ExpatError as exc:
        raise BadSvg(f"it is not well-formed XML ({expat.ErrorString(exc.code)})") from None
    if not writer.out or not writer.out[0].startswith("<svg"):
        raise BadSvg("its root is not <svg>")
    writer.check_size()
    root, *rest, end = writer.out
    sheet, scope = clean_sheet("\n".join(writer.sheets), svg=True)
    if scope:
        rest = [f'<g id="{scope}">', *rest, "</g>"]
    style = [f"<style>{escape(sheet)}</style>"] if sheet else []
    # A page that shows it inline typesets its texts with the rest.
    return "".join([root, *style, defuse_tex("".join(rest)), end])


class _Writer:
    """Receives expat's events and writes what is allowed; nothing is recursive, nothing is kept as a tree."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.open: list[tuple[str, str]] = []  # element and id
        self.skipped = 0  # depth inside an element that goes with its content
        self.style: list[str] | None = None
        self.sheets: list[str] = []
        self.elements = 0
        # Per id (the whole image is ""): the elements directly in it, and the ids inside it or used by it.
        self.holders = [""]
        self.sizes: dict[str, int] = {"": 0}
        self.uses: dict[str, list[str]] = {"": []}
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def check_size(self) -> None:
        """Refuses references in a circle, and those that stand for more than MAX_DRAWN elements."""
        totals: dict[str, int] = {}
        stack = [("", False)]
        entered: set[str] = set()
        while stack:
            name, done = stack.pop()
            targets = [target for target in self.uses.get(name, []) if target in self.sizes]
            if done:
                totals[name] = self.sizes[name] + sum(totals[target] for target in targets)
                if totals[name] > MAX_DRAWN:
                    raise BadSvg(f"it draws more than {MAX_DRAWN} elements")
            elif name not in entered:
                entered.add(name)
                stack.append((name, True))
                for target in targets:
                    if target not in totals:
                        if target in entered:
                            raise BadSvg("it refers to itself in a circle")
                        stack.append((target, False))

    def _start(self, qualified: str, attributes: dict[str, str]) -> None:
        namespace, _, name = qualified.rpartition(" ")
        if self.skipped or namespace not in (_NS, "") or name not in _ELEMENTS or self.style is not None:
            self.skipped += 1
            return
        if len(self.open) >= MAX_DEPTH:
            raise BadSvg(f"it is nested more than {MAX_DEPTH} deep")
        own = attributes.get("id", "")
        own = prefixed(own) if _ID.fullmatch(own) else ""
        self.open.append((name, own))
        if own:
            self.uses[self.holders[-1]].append(own)
            self.holders.append(own)
            self.sizes.setdefault(own, 0)
            self.uses.setdefault(own, [])
        if name == "style":
            self.style = []
            return
        self.elements += 1
        if self.elements > MAX_DRAWN:
            raise BadSvg(f"it has more than {MAX_DRAWN} elements")
        self.sizes[self.holders[-1]] += 1
        written = [f'xmlns="{_NS}"'] if len(self.open) == 1 else []
        if own:
            written.append(f'id="{own}"')
        for key, value in attributes.items():
            if checked := self._attribute(name, key, value):
                written.append(checked)
        self.out.append(f"<{name}{''.join(' ' + part for part in written)}>")

    def _attribute(self, element: str, key: str, value: str) -> str:
        if key in ("href", _XLINK_HREF):
            return self._reference(element, value)
        if key == "style":
            cleaned = clean_declarations(value, svg=True)
            return f"style={quoteattr(cleaned)}" if cleaned else ""
        if key in _PRESENTATION:
            cleaned = clean_declarations(f"{key}: {value}", svg=True)
            return f"{key}={quoteattr(cleaned.partition(': ')[2])}" if cleaned else ""
        if key in _ATTRIBUTES and _VALUE.fullmatch(value) and "url(" not in value.lower():
            return f"{key}={quoteattr(value)}"
        return ""

    def _reference(self, element: str, value: str) -> str:
        target = value.strip()
        if element == "image":
            try:
                return f'href="{check_data_url(target)}"'
            except BadImage:
                return ""
        if not (target.startswith("#") and _ID.fullmatch(target[1:])):
            return ""
        name = prefixed(target[1:])
        if element == "use":
            self.uses[self.holders[-1]].append(name)
        return f'href="#{name}"'

    def _end(self, _qualified: str) -> None:
        if self.skipped:
            self.skipped -= 1
            return
        name, own = self.open.pop()
        if own:
            self.holders.pop()
        if name == "style":
            self.sheets.append("".join(self.style or []))
            self.style = None
            return
        self.out.append(f"</{name}>")

    def _text(self, data: str) -> None:
        if self.skipped or not self.open:
            return
        if self.style is not None:
            self.style.append(data)
        elif self.open[-1][0] in ("text", "tspan", "textPath"):
            self.out.append(escape(data))
