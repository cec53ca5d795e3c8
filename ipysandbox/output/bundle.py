"""Cleans a MIME bundle: each known type by its own cleaner, everything else dropped with a note that names it."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from ipysandbox.policy.names import OWN_FILE

from .html import clean_html, html_to_text
from .images import RASTER, BadImage, check_image
from .isolate import isolate, needs_frame
from .latex import clean_latex
from .markdown import clean_markdown
from .redact import Redactor
from .svg import BadSvg, clean_svg
from .text import clean_characters, clean_text, clip
from .widgets import OFF, VIEW_MIME

MAX_TEXT = 4 << 20
MAX_TYPES = 32
MAX_JSON_NODES = 100_000
MAX_JSON_DEPTH = 48

_MOST_MIME = 400
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}", re.A)
_REASONS = (
    (re.compile("javascript|ecmascript"), "it would run in your browser"),
    (re.compile("vega|plotly|bokeh|holoviews|geo"), "it can run code or load data in your browser"),
)
_NO_SCRIPT = "<script> in HTML left out"
_IN_A_FRAME = f'[output] html = "isolate" in {OWN_FILE} shows plots that need scripts in a frame of their own'


class Bundle:
    """Cleans bundles and collects what was left out in ``notes``."""

    def __init__(
        self,
        *,
        html: str,
        notes: Callable[[str], None],
        redactor: Redactor,
        view: Callable[[object], dict[str, Any] | None] | None = None,
    ) -> None:
        self._html = html
        self._note = notes
        self._redactor = redactor
        #: Names the widget that a display shows, where widgets pass.
        self._view = view

    def clean(self, data: object, metadata: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The cleaned data and metadata; an empty bundle is replaced by a line of text that says what was left out."""
        if not isinstance(data, dict):
            return {"text/plain": "[an output that could not be read was left out]"}, {}
        cleaned: dict[str, Any] = {}
        dropped: list[str] = []
        for key in list(data)[:MAX_TYPES]:
            mime = self._mime(key)
            value = self._redact(mime, self._clean_one(mime, data[key])) if mime not in cleaned else None
            if value is not None:
                cleaned[mime] = value
            elif mime not in cleaned:
                dropped.append(mime)
        if "text/html" in dropped and "text/plain" not in cleaned and self._html == "text":
            text = clip(html_to_text(_joined(data.get("text/html")) or ""), MAX_TEXT)
            cleaned["text/plain"] = self._redactor.output(text)
        if not cleaned:
            cleaned["text/plain"] = f"[output left out: {', '.join(dropped[:5]) or 'it was empty'}]"
        return cleaned, _clean_metadata(metadata, cleaned)

    def _mime(self, key: object) -> str:
        """Redacted first: in lower case, as it is told, a secret would not be found in it any more."""
        return normal_mime(self._redactor.text(key) if isinstance(key, str) and len(key) < _MOST_MIME else None)

    def _clean_one(self, mime: str, value: object) -> Any:
        if mime == "application/json":
            return clean_json(value)
        if mime == VIEW_MIME:
            return self._widget(value)
        text = _joined(value)
        reason = self._reason(mime)
        if text is None or reason is not None:
            self._note(f"{mime} left out: {reason or 'its data is not text'}")
            return None
        if mime == "text/plain":
            return clip(clean_text(clip(text, MAX_TEXT * 4)), MAX_TEXT)
        if mime in ("text/markdown", "text/latex"):
            if len(text) > MAX_TEXT:
                self._note(f"{mime} of {len(text)} characters left out: the limit is {MAX_TEXT}")
                return None
            # What goes goes first: without it, what it stood between comes together.
            text = clean_characters(text)
            return clean_markdown(text) if mime == "text/markdown" else clean_latex(text)
        if mime == "text/html":
            return self._clean_html(text)
        try:
            if mime == "image/svg+xml":
                return clean_svg(text)
            if mime in RASTER or mime == "application/pdf":
                return check_image(mime, text)
        except (BadImage, BadSvg) as exc:
            self._note(f"{mime} left out: {exc}")
            return None
        self._note(f"{mime} left out: its type is not known")
        return None

    def _reason(self, mime: str) -> str | None:
        """Why such an output never passes; None for a type that may."""
        for pattern, why in _REASONS:
            if pattern.search(mime):
                return f"{why}; {_IN_A_FRAME}" if self._html == "sanitize" else why
        return None

    def _widget(self, value: object) -> dict[str, Any] | None:
        if self._view is None:
            self._note(OFF)
            return None
        return self._view(value)  # what is wrong with one was noted when its model came

    def _redact(self, mime: str, value: Any) -> Any:
        """``value`` without secrets; None, and a note, where they can't be taken out of it."""
        if not isinstance(value, str):
            return self._redactor.value(value)
        if mime == "text/plain":
            return self._redactor.output(value)
        if mime in RASTER or mime == "application/pdf":
            redacted = None if self._redactor.holds(value) or self._redactor.holds_in(b64decode(value)) else value
        elif mime in ("text/html", "text/markdown", "image/svg+xml"):
            redacted = self._redactor.markup(value)
        else:
            redacted = self._redactor.text(value)
        if redacted is None:
            self._note(f"{mime} left out: it holds a secret of this machine")
        return redacted

    def _clean_html(self, text: str) -> str | None:
        if self._html == "text":
            return None
        if self._html == "isolate" and needs_frame(text):
            redacted = self._redact(
                "text/html", text
            )  # a frame's content is packed: later nothing would be found in it
            cleaned, notes = isolate(redacted) if redacted is not None else (None, [])
        else:
            cleaned, notes = clean_html(text)
            if _NO_SCRIPT in notes:
                notes[notes.index(_NO_SCRIPT)] = f"{_NO_SCRIPT}; {_IN_A_FRAME}"
        for note in notes:
            self._note(note)
        return cleaned or None


def normal_mime(name: object) -> str:
    """A MIME type in lower case without parameters; "unknown/unknown" for what is none."""
    base = name.partition(";")[0].strip().lower() if isinstance(name, str) and len(name) < _MOST_MIME else ""
    return base if _MIME.fullmatch(base) else "unknown/unknown"


def clean_json(value: object) -> Any:
    """``value`` rebuilt from JSON's types, cut at MAX_JSON_DEPTH and MAX_JSON_NODES; text in it cleaned."""
    left = MAX_JSON_NODES

    def rebuild(node: object, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > MAX_JSON_DEPTH:
            return "…"
        if isinstance(node, str):
            return clean_text(clip(node, MAX_TEXT))
        if isinstance(node, bool) or node is None:
            return node
        if isinstance(node, int):
            return node if abs(node) < 2**63 else f"{'-' * (node < 0)}an integer of {node.bit_length()} bits"
        if isinstance(node, float):
            return node if math.isfinite(node) else repr(node)
        if isinstance(node, dict):
            items = list(node.items())[: max(0, left)]
            return {clean_text(clip(str(key), 1000)): rebuild(item, depth + 1) for key, item in items}
        if isinstance(node, list):
            return [rebuild(item, depth + 1) for item in node[: max(0, left)]]
        return "…"

    return rebuild(value, 0)


def _joined(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return None


def _clean_metadata(metadata: object, data: Mapping[str, Any]) -> dict[str, Any]:
    """What front ends read to size a picture or open a tree; every other key could mean something to some extension."""
    if not isinstance(metadata, dict):
        return {}
    cleaned: dict[str, Any] = {}
    for key in list(metadata)[:MAX_TYPES]:
        mime, about = normal_mime(key), metadata[key]
        if mime not in data or not isinstance(about, dict):
            continue
        kept: dict[str, Any] = {}
        for side in ("width", "height"):
            size: Any = about.get(side)
            if type(size) in (int, float) and 0 < size <= 20_000:
                kept[side] = size
        for flag in ("unconfined", "expanded"):
            if type(about.get(flag)) is bool:
                kept[flag] = about[flag]
        if about.get("needs_background") in ("light", "dark"):
            kept["needs_background"] = about["needs_background"]
        if kept:
            cleaned[mime] = kept
    return cleaned
