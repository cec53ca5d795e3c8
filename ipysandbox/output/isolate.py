"""Puts HTML that runs scripts into a frame of its own, which has no origin and can load and send nothing.

Two frames, one in the other, in one ``srcdoc``. A frame can always navigate itself, whatever its own policy says: what
holds it is the policy of the document around it (``frame-src``, CSP Level 3), so the outer one, which is only ours, is
there to forbid that. What a policy has no word for (WebRTC, name look-ups, frames inside) is taken away by
``frame.js``, the only script that may stand in the inner one as text; it runs before anything of the output does.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import re
from pathlib import Path

from .libraries import find_libraries, pack
from .text import clean_characters

MAX_FRAME = 16 << 20  # characters of one output, before the libraries that it names
MAX_HEIGHT = 1200  # CSS pixels that a frame grows to by itself; beyond, it scrolls and can be drawn larger
_DATA = "application/octet-stream"  # no script to a browser
_HEIGHT = 450  # where nothing tells another: plotly's own

_SCRIPTED = re.compile(r"<script[\s/>]|<[^<>]{1,20000}[\s\"'/]on[a-z]{3,30}\s*=|<i?frame[\s/>]|<canvas[\s/>]", re.I)
_STYLED_HEIGHT = re.compile(r"[\s;\"']height:\s*([1-9]\d{1,3})(?:\.\d+)?px", re.I)

# Said for each front end that asks: what is on for every frame unless it is named here.
_OFF = ("browsing-topics", "focus-without-user-activation", "gamepad", "picture-in-picture", "storage-access")

# Sets a frame's height to what its output says it needs, within bounds; in the notebook's page, and not needed there
# for anything else. A frame inside can send what it likes: one whole number is read of it, thirty times.
_GROW = """<script>(() => {
  if (window.ipysandboxFrames) return;
  const seen = (window.ipysandboxFrames = new WeakMap());
  addEventListener("message", ({ data, source }) => {
    const height = data && data.ipysandboxHeight;
    if (!Number.isInteger(height) || !source) return;
    for (const frame of document.querySelectorAll("iframe.ipysandbox-frame")) {
      const times = seen.get(frame) || 0;
      if (times >= 30 || !frame.contentWindow || frame.contentWindow[0] !== source) continue;
      seen.set(frame, times + 1);
      frame.style.height = `${Math.min(Math.max(height, 30), MOST)}px`;
    }
  });
})();</script>""".replace("MOST", str(MAX_HEIGHT))


def needs_frame(markup: str) -> bool:
    """Whether ``markup`` does more than show: the rest is as well served by the sanitizer, in the page's own style."""
    return _SCRIPTED.search(markup) is not None


def isolate(markup: str) -> tuple[str | None, list[str]]:
    """``markup`` as a frame, or None when it is too large for one, and what will be missing in it."""
    if len(markup) > MAX_FRAME:
        return None, [f"HTML of {len(markup)} characters left out: the limit of a frame is {MAX_FRAME}"]
    markup = clean_characters(markup)
    libraries, notes = find_libraries(markup)
    parts = [("", pack(markup.encode("utf-8", "replace"))), *libraries.items()]
    data = "".join(f'<script type="{_DATA}" data-for="{html.escape(name)}">{part}</script>' for name, part in parts)
    inner = _document(f"{data}<script>{_script()}</script>")
    outer = _document(_frame(inner, "width: 100%; height: 100vh"))
    height = min(_height(markup), MAX_HEIGHT)
    look = f"width: 100%; height: {height}px; min-height: 30px; resize: vertical; background: white"
    return _frame(outer, look, 'class="ipysandbox-frame" ') + _GROW, notes


@functools.cache
def policy() -> str:
    """The content security policy of both frames."""
    ours = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return "; ".join(
        [
            "default-src 'none'",
            # Text of the output runs from blob: addresses, by the one script that is let in by its hash. So neither
            # `javascript:` addresses nor <script type=speculationrules> are followed.
            f"script-src-elem 'sha256-{ours}' blob: data:",
            "script-src 'unsafe-eval' blob: data:",
            "script-src-attr 'unsafe-inline'",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "font-src data:",
            "media-src data: blob:",
            *(f"{kind}-src 'none'" for kind in ("child", "connect", "frame", "manifest", "object", "worker")),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types default ipysandbox",
        ]
    )


@functools.cache
def _script() -> str:
    return Path(__file__).with_name("frame.js").read_text(encoding="utf-8")


def _document(body: str) -> str:
    return (
        f'<!doctype html><html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        f'<meta name="referrer" content="no-referrer"><meta http-equiv="x-dns-prefetch-control" content="off">'
        # As tall as what is in it: a page that asks for the whole window would be as tall as its frame.
        f"<style>html, body {{ margin: 0; height: auto !important; min-height: 0 !important }}"
        f" iframe {{ display: block }}</style>"
        f"</head><body>{body}</body></html>"
    )


def _frame(document: str, style: str, more: str = "") -> str:
    off = "; ".join(f"{feature} 'none'" for feature in _OFF)
    return (
        f'<iframe {more}sandbox="allow-scripts" allow="{off}" referrerpolicy="no-referrer" '
        f'style="border: 0; {style}" srcdoc="{html.escape(document)}"></iframe>'
    )


def _height(markup: str) -> int:
    found = [int(number) for number in _STYLED_HEIGHT.findall(markup[:MAX_FRAME])[:100]]
    return max(found, default=_HEIGHT)
