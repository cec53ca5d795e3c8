"""Shows results: a table for the terminal, Markdown for the README, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from measure import Result, Row
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_COLUMNS = ("", "median", "half of them within", "95 %", "ratio")


def show(console: Console, result: Result) -> None:
    table = Table(*_COLUMNS, title=result.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for number, column in enumerate(table.columns):
        column.justify = "right" if number else "left"
    for row in result.rows:
        table.add_row(*_cells(row, result.unit), style="dim" if row is result.rows[0] else None)
    console.print(table)
    for name, reason in result.left_out.items():
        console.print(f"  {name}: {reason}\n", highlight=False)


def markdown(facts: Mapping[str, str], results: Sequence[Result], skipped: Mapping[str, str]) -> str:
    """One table; the baseline of each part is the row whose ratio is 1."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "| :-- | --: | --: | --: | --: |"]
    for result in results:
        lines.append(f"| **{result.title}** | | | | |")
        lines += [f"| {' | '.join(_cells(row, result.unit))} |" for row in result.rows]
        lines += [f"| {name} | {reason} | | | |" for name, reason in result.left_out.items()]
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += [f"- {name}: {reason}, left out" for name, reason in skipped.items()]
    return "\n".join(lines) + "\n"


def as_json(facts: Mapping[str, str], results: Sequence[Result], skipped: Mapping[str, str]) -> str:
    groups = [
        {
            "key": result.key,
            "title": result.title,
            "unit": result.unit,
            "cases": [_plain(row) for row in result.rows],
            "left_out": dict(result.left_out),
        }
        for result in results
    ]
    return json.dumps({"facts": dict(facts), "skipped": dict(skipped), "groups": groups}, indent=1) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "median": row.median,
        "quartiles": row.quartiles,
        "p95": row.p95,
        "ratio": row.ratio,
        "samples": row.samples,
    }


def _cells(row: Row, unit: str) -> tuple[str, ...]:
    low, high = row.quartiles
    p95 = "" if row.p95 is None else shown(row.p95, unit)
    return row.name, shown(row.median, unit), f"{shown(low, unit)} – {shown(high, unit)}", p95, as_ratio(row.ratio)


def as_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def shown(value: float, unit: str) -> str:
    """``unit`` is a group's: what a sample is."""
    if unit == "B":
        return f"{value / 1e6:.1f} MB"
    milliseconds = value * 1000
    if milliseconds < 10:
        return f"{milliseconds:.2f} ms"
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"
