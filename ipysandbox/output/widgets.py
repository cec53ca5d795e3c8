"""Lets ipywidgets' core models through, one sandbox's: ids are mapped, states built anew from known keys and kinds.

A widget is code of the page that reads a state which the sandbox writes. So no key passes that is not known, no text is
taken for HTML that was not sanitized, no model refers to another than this sandbox's own, and nothing that is drawn can
be nested or repeated without end.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ipysandbox.policy.names import OWN_FILE

from .css import clean_value
from .latex import defuse_tex
from .redact import Redactor
from .text import clean_characters, clip
from .widget_models import MODELS, Kind

Content = dict[str, Any]

TARGET = "jupyter.widget"
VIEW_MIME = "application/vnd.jupyter.widget-view+json"
OFF = f"widgets were left out: they are off ([output] widgets = true in {OWN_FILE} lets the usual ones pass)"
#: Models that live at a time (a progress bar is about ten), and bytes of their states together.
MOST_MODELS, MOST_STATE = 10_000, 32 << 20
#: Widgets that one display draws, how deep boxes are in boxes, and places in boxes altogether.
MOST_DRAWN, MOST_DEPTH, MOST_PLACES = 2000, 24, 20_000
MOST_TEXT, MOST_LABEL, MOST_ITEMS = 256 << 10, 20_000, 5000

_REFERENCE = "IPY_MODEL_"
_ID = re.compile(r"[\w.:-]{1,100}", re.A)
_LOOKS = frozenset(("", "primary", "success", "info", "warning", "danger"))
_CHOICES: dict[str, frozenset[str]] = {
    "look": _LOOKS,
    "direction": frozenset(("horizontal", "vertical")),
    "behavior": frozenset(("drag-tap", "drag-snap", "tap", "drag", "snap")),
}
_ICON = re.compile(r"[a-z0-9][a-z0-9 -]{0,60}|", re.A)
#: Python's and d3's format; a width of many digits would be padded to in the page.
_FORMAT = re.compile(r"(?:[^\d{}]?[<>=^])?[-+( ]?[$#]?0?\d{0,2},?(?:\.\d{1,2})?~?[a-zA-Z%]?", re.A)
_MOMENT = ("year", "month", "date", "hours", "minutes", "seconds", "milliseconds")
#: What people change in the page; all else a view only reads.
_FROM_PAGE = frozenset(("value", "index", "selected_index", "playing", "repeat"))
_CLASSES = frozenset(("widget-interact",))


class _Left(ValueError):
    """A value that does not pass."""


@dataclass(eq=False, slots=True)
class _Model:
    name: str
    kind: Kind
    inner: str
    outer: str = field(default_factory=lambda: secrets.token_hex(16))
    children: list[_Model] = field(default_factory=list)
    #: Bytes of each key's value.
    sizes: dict[str, int] = field(default_factory=dict)


class Gate:
    """``html`` cleans a text for a place that takes HTML. Nothing here raises on anything that JSON can hold."""

    def __init__(self, *, html: Callable[[str], str], notes: Callable[[str], None], redactor: Redactor) -> None:
        self._html, self._note, self._redactor = html, notes, redactor
        self._inner: dict[str, _Model] = {}
        self._outer: dict[str, _Model] = {}
        self._state = 0
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "flag": _flag,
            "no": lambda _value: False,
            "number": _number,
            "numbers": lambda value: _items(value, _number),
            "label": self._label,
            "labels": lambda value: _items(value, self._label),
            "typed": self._typed,
            "html": self._markup,
            "format": lambda value: _matching(_FORMAT, value),
            "icon": lambda value: _matching(_ICON, value),
            "icons": lambda value: _items(value, lambda icon: _matching(_ICON, icon)),
            "color": lambda value: _css("color", value),
            "colors": lambda value: _items(value, lambda color: _css("color", color)),
            "moment": _moment,
            "step": lambda value: value if value == "any" else _number(value),
            "rows": lambda value: min(max(_number(value), 1), 1000),
            "interval": lambda value: max(_number(value), 10),
            "classes": lambda value: [name for name in _items(value, str) or () if name in _CLASSES],
            "layout": lambda value: self._reference(value, "LayoutView"),
            "style": lambda value: self._reference(value, "StyleView"),
        }

    # -- out of the sandbox

    def opened(self, content: Content) -> Content | None:
        """``comm_open``: a new model."""
        if content.get("target_name") != TARGET:
            self._note(f"a comm to {_word(content.get('target_name'))} was left out: only widgets pass")
            return None
        state, inner = _state_of(content), content.get("comm_id")
        name = state.get("_model_name")
        kind = MODELS.get(name) if isinstance(name, str) else None
        if kind is None or state.get("_model_module") != kind.module:
            where = f"{_word(name)} of {_word(state.get('_model_module'))}"
            self._note(f"the widget {where} was left out: it is none of ipywidgets' models that pass")
            return None
        if not isinstance(inner, str) or not _ID.fullmatch(inner) or inner in self._inner:
            return None
        if len(self._inner) >= MOST_MODELS:
            self._note(f"more than {MOST_MODELS} widgets: the later ones were left out")
            return None
        model = _Model(str(name), kind, inner)
        cleaned = self._cleaned(model, state)
        if not self._counted(model, cleaned):
            return None
        self._inner[inner] = self._outer[model.outer] = model
        data = {"state": {"_model_name": name, **kind.fixed, **cleaned}, "buffer_paths": []}
        return {"comm_id": model.outer, "target_name": TARGET, "data": data}

    def said(self, content: Content) -> Content | None:
        """``comm_msg``: changes of a model. What else ipywidgets sends takes the keyboard's focus."""
        model = self._known(content)
        data = content.get("data")
        method = data.get("method") if isinstance(data, dict) else None
        if model is None or method not in ("update", "echo_update"):
            return None
        cleaned = self._cleaned(model, _state_of(content))
        if not cleaned or not self._counted(model, cleaned):
            return None
        return {"comm_id": model.outer, "data": {"method": method, "state": cleaned, "buffer_paths": []}}

    def closed(self, content: Content) -> Content | None:
        """``comm_close``."""
        model = self._known(content)
        if model is None:
            return None
        self._forget(model)
        return {"comm_id": model.outer, "data": {}}

    def view(self, value: object) -> Content | None:
        """What a display names as its widget."""
        model = self._inner.get(str(value.get("model_id"))) if isinstance(value, dict) else None
        if model is None or not _is_drawn(model):
            return None
        return {"version_major": 2, "version_minor": 0, "model_id": model.outer}

    def listed(self) -> Content:
        """Every model, as ``comm_info_reply`` tells it."""
        return {outer: {"target_name": TARGET} for outer in list(self._outer)}

    def forget_all(self) -> bool:
        """The sandbox is gone; whether it had any widgets."""
        had = bool(self._inner)
        self._inner.clear()
        self._outer.clear()
        self._state = 0
        return had

    # -- into the sandbox

    def inward(self, kind: str, content: Content) -> Content | None:
        """A message from the page as the sandbox may get it: for its own models, what people do with them."""
        model = self._outer.get(str(content.get("comm_id")))
        data = content.get("data")
        if model is None:
            return None
        if kind == "comm_close":
            self._forget(model)
            return {"comm_id": model.inner, "data": {}}
        if kind != "comm_msg" or not isinstance(data, dict):
            return None
        method, said = data.get("method"), data.get("content")
        if method == "request_state":
            return {"comm_id": model.inner, "data": {"method": method}}
        if method == "custom":
            event = said.get("event") if isinstance(said, dict) else None
            if not isinstance(event, str) or event not in model.kind.events:
                return None
            return {"comm_id": model.inner, "data": {"method": method, "content": {"event": event}}}
        state = {key: value for key, value in _state_of(content).items() if key in _FROM_PAGE}
        state = {key: value for key, value in state.items() if _fits_inward(model.kind.keys.get(key), value)}
        if method != "update" or not state:
            return None
        return {"comm_id": model.inner, "data": {"method": method, "state": state, "buffer_paths": []}}

    # -- states

    def _known(self, content: Content) -> _Model | None:
        inner = content.get("comm_id")
        return self._inner.get(inner) if isinstance(inner, str) else None

    def _forget(self, model: _Model) -> None:
        self._inner.pop(model.inner, None)
        self._outer.pop(model.outer, None)
        self._state -= sum(model.sizes.values())

    def _cleaned(self, model: _Model, state: Content) -> Content:
        cleaned: Content = {}
        for key, kind in model.kind.keys.items():
            if key not in state:
                continue
            value = state[key]
            try:
                if kind == "models":
                    cleaned[key] = self._children(model, value)
                elif value is None:
                    cleaned[key] = None
                elif kind.startswith("css:"):
                    cleaned[key] = _css(kind[4:], value)
                elif kind in _CHOICES:
                    cleaned[key] = _chosen(_CHOICES[kind], value)
                else:
                    cleaned[key] = self._kinds[kind](value)
            except _Left:
                continue
        return cleaned

    def _counted(self, model: _Model, cleaned: Content) -> bool:
        """Whether the states together stay within their bound with these values too."""
        sizes = {key: len(json.dumps(value)) for key, value in cleaned.items()}
        grown = sum(sizes.values()) - sum(model.sizes.get(key, 0) for key in sizes)
        if self._state + grown > MOST_STATE:
            self._note(f"the widgets' states are over {MOST_STATE >> 20} MiB: changes were left out")
            return False
        self._state += grown
        model.sizes |= sizes
        return True

    def _label(self, value: object) -> str:
        """A text that the page shows, where TeX in it is typeset."""
        return self._redactor.output(defuse_tex(clean_characters(_text(value, MOST_LABEL))))

    def _typed(self, value: object) -> str:
        """What stands in a field for people to write in."""
        return self._redactor.output(clean_characters(_text(value, MOST_TEXT)))

    def _markup(self, value: object) -> str:
        if not isinstance(value, str):
            raise _Left
        return self._html(value)

    # -- models that refer to others

    def _referred(self, value: object) -> _Model | None:
        known = isinstance(value, str) and value.startswith(_REFERENCE)
        return self._inner.get(str(value).removeprefix(_REFERENCE)) if known else None

    def _reference(self, value: object, view: str) -> str:
        model = self._referred(value)
        if model is None or model.kind.view != view:
            raise _Left
        return _REFERENCE + model.outer

    def _children(self, box: _Model, value: object) -> list[str]:
        """The references to those that pass; all of them are left out where too much would be drawn."""
        found = [self._referred(item) for item in value[:MOST_ITEMS]] if isinstance(value, list) else []
        before, box.children = box.children, [model for model in found if model is not None and _is_drawn(model)]
        # A new model is in no box yet: nothing but itself changes.
        affected = list(self._inner.values()) if box.inner in self._inner else [box]
        places = sum(len(model.children) for model in {*self._inner.values(), box})
        try:
            if places > MOST_PLACES:
                raise _Left
            measured: dict[_Model, tuple[int, int]] = {}
            for model in affected:
                if model.children:
                    _measure(model, 0, measured)
        except _Left:
            box.children = before
            self._note(
                f"a box of widgets was left out: more than {MOST_DRAWN} in it, or boxes more than {MOST_DEPTH} deep"
            )
            raise
        return [_REFERENCE + model.outer for model in box.children]


def _measure(model: _Model, depth: int, measured: dict[_Model, tuple[int, int]]) -> tuple[int, int]:
    """How many widgets are drawn for ``model``, and how many levels. Boxes that hold themselves have no end."""
    if model not in measured:
        if depth > MOST_DEPTH:
            raise _Left
        drawn, levels = 1, 0
        for child in model.children:
            more, below = _measure(child, depth + 1, measured)
            drawn, levels = drawn + more, max(levels, below)
            if drawn > MOST_DRAWN:
                raise _Left
        measured[model] = drawn, levels + 1
    if depth + measured[model][1] > MOST_DEPTH:
        raise _Left
    return measured[model]


def _is_drawn(model: _Model) -> bool:
    return model.kind.view not in ("LayoutView", "StyleView")


def _state_of(content: Content) -> Content:
    data = content.get("data")
    state = data.get("state") if isinstance(data, dict) else None
    return state if isinstance(state, dict) else {}


def _word(value: object) -> str:
    """A name for a note, of what the sandbox says."""
    return " ".join(clean_characters(value[:60]).split()) if isinstance(value, str) and value.strip() else "no name"


def _text(value: object, most: int) -> str:
    if not isinstance(value, str):
        raise _Left
    return clip(value, most)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Left
    return value


def _number(value: object) -> Any:
    """As the page's numbers are: an integer beyond would be another one there."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Left
    if (isinstance(value, float) and not math.isfinite(value)) or abs(value) > 2**53:
        raise _Left
    return value


def _items(value: object, clean: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(value, list):
        raise _Left
    cleaned, total = [], 0
    for item in value[:MOST_ITEMS]:
        cleaned.append(clean(item))
        total += len(cleaned[-1]) if isinstance(cleaned[-1], str) else 0
        if total > MOST_TEXT:
            raise _Left
    return cleaned


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _Left
    return value


def _chosen(choices: frozenset[str], value: object) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _Left
    return value


def _css(name: str, value: object) -> str:
    cleaned = clean_value(name, value) if isinstance(value, str) and len(value) <= 400 else ""
    if not cleaned and value != "":
        raise _Left
    return cleaned


def _moment(value: object) -> dict[str, Any]:
    """A date, a time, or both, by its numbers."""
    if not isinstance(value, dict):
        raise _Left
    parts = {name: _number(value[name]) for name in _MOMENT if name in value}
    if not all(0 <= number < 10_000 for number in parts.values()):
        raise _Left
    return parts


def _fits_inward(kind: str | None, value: object) -> bool:
    """Whether a value of the page's is one that such a key can have: bounded, and of plain parts."""
    if kind is None or kind in ("html", "models", "layout", "style"):
        return False
    if kind == "moment" and value is not None:
        try:
            return _moment(value) == value
        except _Left:
            return False
    parts = value if isinstance(value, list) else [value]
    return len(parts) <= MOST_ITEMS and all(
        len(part) <= MOST_TEXT if isinstance(part, str) else part is None or isinstance(part, (int, float))
        for part in parts
    )
