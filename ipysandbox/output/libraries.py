"""Plotly's and Bokeh's JavaScript as installed on the host, for frames that may not load it from where outputs say."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from pathlib import Path

_ADDRESS = re.compile(
    r"https://(?:cdn\.plot\.ly/plotly-(?P<plotly>[\w.-]{1,40}?)(?:\.min)?\.js"
    r"|cdn\.bokeh\.org/bokeh/(?:release|dev)/(?P<part>bokeh(?:-[a-z]{2,10})?)-(?P<bokeh>\d[\w.]{0,30}?)(?:\.min)?\.js)"
    r"(?![\w.])"
)
_REMOTE = re.compile(r"<script[^<>]{0,2000}?\ssrc\s*=\s*[\"']?(https?://[^\s\"'<>]{1,300})", re.I)
# Named by Plotly for formulas in titles, which are rare; Vega's loader writes its addresses in parts.
_MATHJAX = "/ajax/libs/mathjax/"
_VEGA = "https://cdn.jsdelivr.net/npm/"
_PLOTLY = re.compile(r"plotly\.js v(\d[\w.-]*)")
_MOST = 8
_PART = 32 << 20  # characters; Bokeh with everything has 5 million


def find_libraries(markup: str) -> tuple[dict[str, str], list[str]]:
    """The text of each library that ``markup`` names by its address on the maker's server, and what can't be had."""
    found: dict[str, str] = {}
    notes: list[str] = []
    for match in _ADDRESS.finditer(markup):
        address = match[0]
        if address in found or len(found) == _MOST:
            continue
        text, note = _plotly(match["plotly"]) if match["plotly"] else _bokeh(match["part"], match["bokeh"])
        if text is not None:
            found[address] = text
        if note:
            notes.append(note)
    for match in _REMOTE.finditer(markup):
        if not _ADDRESS.fullmatch(match[1]) and _MATHJAX not in match[1] and not match[1].startswith(_VEGA + "vega"):
            notes.append(f"a script in HTML left out: {match[1]} is not loaded; frames reach no network")
    if _VEGA in markup and "vegaEmbed" in markup:
        notes.append("Vega is missing in the output: install vl-convert-python, with which Altair writes it along")
    return found, list(dict.fromkeys(notes))[:_MOST]


def _plotly(version: str) -> tuple[str | None, str | None]:
    path = _inside("plotly", "package_data/plotly.min.js")
    text = _read(path) if path else None
    have = _PLOTLY.search(text[:2000]) if text else None
    return _same("plotly.js", version, have[1] if have else None, text)


def _bokeh(part: str, version: str) -> tuple[str | None, str | None]:
    path = _inside("bokeh", f"server/static/js/{part}.min.js")
    try:
        have = importlib.metadata.version("bokeh") if path else None
    except importlib.metadata.PackageNotFoundError:
        have = None
    return _same(part, version, have, _read(path) if path and have == version else None)


def _same(name: str, wanted: str, have: str | None, text: str | None) -> tuple[str | None, str | None]:
    """A library of another version is none: outputs are written for one."""
    if have == wanted and text is not None:
        return text, None
    package = name.partition(".")[0].partition("-")[0]
    what = f"its version here is {have}" if have else f"{package} is not installed here"
    return (
        None,
        f"{name} {wanted} is missing in the output: {what}; install here what wrote it",
    )


def _inside(package: str, name: str) -> Path | None:
    """A file of an installed package, which isn't imported for that."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder, name)).is_file():
            return path
    return None


@functools.lru_cache(maxsize=4)
def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if len(text) <= _PART else None
