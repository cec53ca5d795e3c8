"""Draws the main results as bars into an SVG of its own, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from measure import Result, Row
from report import shown

_TITLES = {
    "start-pandas": "Fresh start to the first numpy and pandas result",
    "tasks": "A small numpy task, each in a fresh sandbox, two at a time: cost of a task",
    "memory": "Memory of each idle one with numpy and pandas loaded",
}
_WIDTH, _LABELS, _VALUES, _BAR, _STEP, _HEAD, _MARGIN = 860, 250, 80, 14, 22, 44, 20
#: It brings its own background, so that its text can be read whatever the page around it looks like.
_STYLE = """
.back { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; font: 13px system-ui, sans-serif; }
.title { font-weight: 600; font-size: 14px; } .note { fill: #59636e; font-size: 11px; }
.bar { fill: #8c959f; } .ours { fill: #1a7f64; } .spread { stroke: #1f2328; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117; stroke: #3d444d; } text { fill: #f0f6fc; } .note { fill: #9198a1; }
.bar { fill: #656c76; } .ours { fill: #2ea98a; } .spread { stroke: #f0f6fc; }
}
"""


def svg(facts: Mapping[str, str], results: Sequence[Result]) -> str:
    """One part for each result that is worth a picture; the bars of each have one scale, which begins at 0."""
    groups = {result.key: result for result in results if result.rows}
    parts: list[str] = []
    top = _MARGIN
    for key, title in _TITLES.items():
        if key in groups:
            lines, height = _part(groups[key], title, top)
            parts += lines
            top += height
    note = f"Medians; the fine lines hold the middle half of the samples. {facts['processor']}, {facts['system']}."
    parts.append(f'<text class="note" x="{_MARGIN}" y="{top + 6}">{escape(note)}</text>')
    height = top + _MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' role="img" aria-label="Benchmarks of ipysandbox and others">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def _part(result: Result, title: str, top: int) -> tuple[list[str], int]:
    rows = sorted(result.rows, key=lambda row: row.median)
    scale = (_WIDTH - _LABELS - _VALUES - 2 * _MARGIN) / max(row.quartiles[1] for row in rows)
    lines = [f'<text class="title" x="{_MARGIN}" y="{top + 14}">{escape(title)}</text>']
    for number, row in enumerate(rows):
        lines += _bar(row, result.unit, top + 28 + number * _STEP, scale)
    return lines, _HEAD + len(rows) * _STEP


def _bar(row: Row, unit: str, top: int, scale: float) -> list[str]:
    left = _MARGIN + _LABELS
    low, high = (left + value * scale for value in row.quartiles)
    end, middle = left + row.median * scale, top + _BAR / 2
    kind = "ours" if row.name.startswith("sandbox") else "bar"
    lines = [
        f'<text x="{left - 8}" y="{top + 12}" text-anchor="end">{escape(row.name)}</text>',
        f'<rect class="{kind}" x="{left}" y="{top}" width="{max(1.0, end - left):.1f}" height="{_BAR}" rx="2"/>',
    ]
    if high - low >= 1:
        lines.append(f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>')
    lines.append(f'<text x="{max(end, high) + 6:.1f}" y="{top + 12}">{shown(row.median, unit)}</text>')
    return lines
