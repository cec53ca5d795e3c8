"""Plotly's and Bokeh's JavaScript as installed on the host, for frames that may not load it from where outputs say."""

from __future__ import annotations

import base64
import functools
import gzip
import html
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
_MOST_BYTES = 32 << 20  # of one library; the largest of Bokeh's has 1.5 million


def find_libraries(markup: str) -> tuple[dict[str, str], list[str]]:
    """Each library, packed, that ``markup`` names by its address on the maker's server, and what can't be had."""
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
    # Folium writes its map as a document in an attribute.
    inner = html.unescape(markup) if "srcdoc" in markup else ""
    remote = dict.fromkeys(match[1] for match in _REMOTE.finditer(markup + inner))
    left_out = [
        address
        for address in remote
        if not _ADDRESS.fullmatch(address) and _MATHJAX not in address and not address.startswith(_VEGA + "vega")
    ]
    if left_out:
        are = f"and {len(left_out) - 1} more are" if len(left_out) > 1 else "is"
        notes.append(f"a script in HTML left out: {left_out[0]} {are} not loaded; frames reach no network")
    if _VEGA in markup and "vegaEmbed" in markup:
        notes.append("Vega is missing in the output: install vl-convert-python, with which Altair writes it along")
    return found, list(dict.fromkeys(notes))[:_MOST]


def _plotly(version: str) -> tuple[str | None, str | None]:
    path = _inside("plotly", "package_data/plotly.min.js")
    head = _PLOTLY.search(_head(path)) if path else None
    have = head[1] if head else None
    return _same("plotly.js", version, have, path)


def _bokeh(part: str, version: str) -> tuple[str | None, str | None]:
    path = _inside("bokeh", f"server/static/js/{part}.min.js")
    try:
        have = importlib.metadata.version("bokeh") if path else None
    except importlib.metadata.PackageNotFoundError:
        have = None
    return _same(part, version, have, path)


def _same(name: str, wanted: str, have: str | None, path: Path | None) -> tuple[str | None, str | None]:
    """A library of another version is none: outputs are written for one."""
    packed = _packed(path, path.stat().st_mtime_ns) if path and have == wanted else None
    if packed is not None:
        return packed, None
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


def _head(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(2000).decode("utf-8", "replace")


def pack(text: bytes) -> str:
    """Text as a page can hold it without quoting, in the least room."""
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()


@functools.lru_cache(maxsize=8)
def _packed(path: Path, _changed: int) -> str | None:
    """Once for each file as it is: a second's work for the largest."""
    text = path.read_bytes()
    return pack(text) if len(text) <= _MOST_BYTES else None
