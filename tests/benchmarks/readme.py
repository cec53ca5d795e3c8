"""The README's table of figures: one row for what somebody may want to know, one column for each way to run code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from measure import Result, Row
from report import as_ratio, shown

_PLAIN, _PYTHON, _OURS = "plain kernel", "`python -c`", "sandbox"
_COLUMNS = {"python -c": _PYTHON}


@dataclass(frozen=True)
class _Line:
    """``group`` by key; ``ours`` and ``plain`` name its cases for those columns, the peers' have the peers' names."""

    text: str
    group: str
    ours: str
    plain: str = "plain ipykernel"
    #: Peers are given with the first of several lines about the same.
    peers: bool = True


_COLD = "plain ipykernel, cold"
_LINES = (
    _Line("start to the first `1 + 1`, from the pool", "start", "sandbox, from the pool", _COLD),
    _Line("the same, pool empty", "start", "sandbox, pool empty", _COLD, peers=False),
    _Line("start to the first numpy and pandas result, from the pool", "start-pandas", "sandbox, from the pool", _COLD),
    _Line("the same, pool empty", "start-pandas", "sandbox, pool empty", _COLD, peers=False),
    _Line("the same, first sandbox of a process", "start-pandas", "sandbox, first of a process", _COLD, peers=False),
    _Line("a small numpy task in a fresh sandbox, two at a time", "tasks", "sandbox: SandboxExecutor", ""),
    _Line("memory of each of 10 idle ones", "memory", "sandbox, 10", "plain ipykernel, 10"),
    _Line("memory of each of 300", "memory", "sandbox, 300", "", peers=False),
    _Line("a cell, there and back (Jupyter protocol)", "trip", "sandbox, Jupyter protocol"),
    _Line("`Sandbox.run`, value included", "trip", "Sandbox.run, value included"),
    _Line("10 MB in one print", "print-large", "sandbox, Jupyter protocol"),
    _Line("100,000 printed lines, 10 MB", "print-lines", "sandbox, Jupyter protocol"),
    _Line("the same, six secrets to redact", "print-lines-redacted", "6 secrets known", "no secrets known"),
    _Line("50 MB in writes of 10 bytes", "flood", "sandbox, Jupyter protocol"),
    _Line("the same: memory outside the sandbox", "flood-memory", "the supervisor", "plain ipykernel itself"),
    _Line("an array of 100 MB by `box.get`, against a copy of it", "value", "Sandbox.get", "numpy copy"),
    _Line("Python loop, 3 million steps", "loop", "sandbox"),
    _Line("numpy, 10 products of 1000 × 1000", "matmul", "sandbox"),
    _Line("20,000 × open and read a file of the project", "open", "sandbox"),
    _Line("the same in results/", "open-results", "sandbox"),
    _Line("the same in /tmp", "open-tmp", "sandbox"),
    _Line("50,000 × stat", "stat", "sandbox"),
    _Line("100 × run `/bin/true`", "spawn", "sandbox"),
)  # fmt: skip


def table(facts: Mapping[str, str], results: Sequence[Result], skipped: Mapping[str, str]) -> str:
    """Medians, and in brackets the ratio to the first column. Lines that were not measured are left out."""
    groups = {result.key: result for result in results}
    lines = [(line, groups[line.group]) for line in _LINES if line.group in groups]
    filled = [(line.text, _cells(line, group)) for line, group in lines]
    used = [name for name in (_PLAIN, _PYTHON, _OURS) if any(name in cells for _, cells in filled)]
    used += sorted({name for _, cells in filled for name in cells} - set(used))
    rows = [["", *used], [":--", *("--:" for _ in used)]]
    rows += [[text, *(cells.get(name, "") for name in used)] for text, cells in filled if _OURS in cells]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    growing = _growing(groups)
    return f"{text}\n\n" + (f"{growing}\n\n" if growing else "") + f"{_machine(facts, skipped)}\n"


def _cells(line: _Line, group: Result) -> dict[str, str]:
    suffix = ", 10" if line.group == "memory" else ""
    found: dict[str, Row] = {}
    for row in group.rows:
        peer = row.name.removesuffix(suffix)
        if row.name == line.plain:
            found[_PLAIN] = row
        elif row.name == line.ours:
            found[_OURS] = row
        elif (
            line.peers
            and not peer.startswith(("sandbox", "Sandbox", "%%", "plain", "the ", "encode"))
            and ":" not in peer
        ):
            found[_COLUMNS.get(peer, peer)] = row
    base = found.get(_PLAIN) or found.get(_PYTHON)
    cells = {}
    for name, row in found.items():
        ratio = "" if base is None or row is base else as_ratio(row.median / base.median)
        shown_ratio = f" (**{ratio}**)" if ratio and name == _OURS else f" ({ratio})" if ratio else ""
        cells[name] = shown(row.median, group.unit) + shown_ratio
    return cells


def _growing(groups: Mapping[str, Result]) -> str:
    """What changes with a number, in sentences."""
    said = []
    if (number := groups.get("tasks-number")) and number.rows:
        each = ", ".join(f"{shown(row.median, 's/task')} ({row.name})" for row in number.rows)
        said.append(f"Cost of a task of `SandboxExecutor` by their number: {each}.")
    for key, result in groups.items():
        if key == "paths" or key.startswith("paths-"):
            who = result.title.partition(": ")[2].partition(",")[0]
            each = ", ".join(f"{shown(row.median, 's')} ({row.name})" for row in result.rows)
            said.append(f"Start of {'a sandbox' if key == 'paths' else who} by paths to read: {each}.")
    if memory := groups.get("memory"):
        each = [row for row in memory.rows if row.name.startswith("sandbox")]
        if each:
            listed = ", ".join(f"{shown(row.median, 'B')} ({row.name.rpartition(' ')[2]})" for row in each)
            said.append(f"Memory of each idle sandbox, supervisor and zygote included, by their number: {listed}.")
    return "\n".join(said)


def _machine(facts: Mapping[str, str], skipped: Mapping[str, str]) -> str:
    left_out = "".join(f" {name}: {reason}." for name, reason in skipped.items())
    stated = "; ".join(f"{name}: {value}" for name, value in facts.items())
    return f"Measured on: {stated}." + (f" Not measured:{left_out}" if left_out else "")
