"""Turns what the control API, the policy and the audit trail say into text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from .display import one_line, table, whole
from .policy.names import DEFAULT_HIDE
from .policy.units import format_duration
from .supervisor.limits import seconds, show, size

#: Characters of a hash that are shown.
_HASH = 12
#: A setting's value is broken into lines of this width.
_WIDTH = 100
#: Figures of records, by unit.
_BYTES = frozenset(("bytes", "memory", "memory_peak", "disk", "output"))
_SECONDS = frozenset(("seconds", "wall", "cpu"))
#: Of which one record tells the value and what was seen.
_LIMITS = frozenset(("wall", "cpu", "memory", "disk", "output", "gpu"))


def status_text(state: Mapping[str, Any], *, layers: bool = True) -> str:
    """One sandbox for people: what it does, uses, and may use; with its layers, what holds each guarantee.

    ``state`` is the control API's.
    """
    usage, limits = state["usage"], state["limits"]
    cell = state["cell"]
    doing = f"busy with cell {cell['number']} for {cell['elapsed']:.1f} s" if cell else str(state["state"])
    if cell and cell["asks"]:
        doing += ", waits for an answer"
    since = "in this cell" if cell else "since the last cell"
    rows = [
        (
            "memory",
            size(usage["memory"], limits["memory"]),
            f"of {size(limits['memory'], limits['memory'])}",
            f"most so far {size(usage['memory_peak'], limits['memory'])}",
        ),
        (
            "disk",
            size(usage["disk"], limits["disk"]),
            f"of {size(limits['disk'], limits['disk'])}",
            f"{usage['files']} files",
        ),
        ("processes", str(usage["processes"]), f"of {limits['processes']}", ""),
        (
            "cpu",
            f"{usage['cpu']:.1f} s",
            f"of {format_duration(limits['cpu'])} a cell",
            f"{since}; on {limits['cpus']:g} CPUs",
        ),
        ("time", "", f"{format_duration(limits['wall'])} a cell", ""),
    ]
    rows.append(_start_row(state["start"]))
    guarantees = state["guarantees"].items() if layers else ()
    held_by = [(name, "held by " + " + ".join(by)) for name, by in guarantees]
    held_by += [(name, "weaker: " + text) for name, text in (state["weaker"].items() if layers else ())]
    title = f"{one_line(state['name'])}: {doing} ({state['backend']}), project {one_line(state['project'])}"
    return "\n".join([title, _indented(table(rows)), *([_indented(table(held_by))] if held_by else [])])


def _start_row(start: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """How the next one starts, and what of the libraries for it could not be loaded."""
    pool = start["pool"]
    # A bound: where no control group counts, and a process hides its map, what it shares with others counts in full.
    waiting = f"{pool['ready']} ready, at most {size(pool['memory'])}" if pool["ready"] else "none ready"
    missing = "; ".join(f"{name} is not preloaded: {one_line(why)}" for name, why in start["not_loaded"].items())
    return ("next start", start["mode"], waiting, missing)


def policy_text(policy: Mapping[str, Any]) -> str:
    """A resolved policy for people: each setting and where it comes from; variables by name only."""
    rows = []
    for section, keys in policy["policy"].items():
        for key, value in keys.items() if isinstance(keys, Mapping) else [("", keys)]:
            dotted = f"{section}.{key}" if key else section
            text = _patterns(value) if dotted == "files.hide" else _plain(value)
            first, *more = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
            rows += [(dotted, policy["sources"].get(dotted, ""), first), *(("", "", line) for line in more)]
    environment = policy["environment"]
    facts = [
        ("project", policy["project"] + (" (too wide: nothing of it is read)" if policy["project_is_home"] else "")),
        *([("begins in", policy["folder"])] if policy["folder"] != policy["project"] else []),
        ("reads", ", ".join(policy["read"]) or "nothing"),
        ("writes", ", ".join(policy["write"]) or "nothing"),
        ("variables passed", ", ".join(environment["passed"]) or "none"),
        ("withheld, maybe secret", ", ".join(environment["withheld"]) or "none"),
    ]
    # First what is not as somebody wanted it.
    notices = [f"! {whole(notice)}" for notice in policy["notices"]]
    return "\n".join([*notices, *([""] if notices else []), table(facts), "", table(rows)])


def _patterns(patterns: list[str]) -> str:
    """Name patterns: those beside the built-in ones, which are a hundred."""
    own = [pattern for pattern in patterns if pattern not in DEFAULT_HIDE]
    without = [pattern for pattern in DEFAULT_HIDE if pattern not in patterns]
    built_in = f"{len(DEFAULT_HIDE) - len(without)} built-in patterns (`ipysandbox policy show --json` lists them)"
    return ", ".join([*own, built_in, *([f"without {', '.join(without)}"] if without else [])])


def record_text(record: Mapping[str, Any]) -> str:
    """One line of the audit trail for people; what came from a sandbox is escaped."""
    given = record.get("details") or {}
    details = " ".join(f"{key}={_short(key, value, str(given.get('limit')))}" for key, value in given.items())
    severity = "" if record.get("severity") == "info" else f"{str(record.get('severity')).upper()} "
    return one_line(f"{record.get('time')} {record.get('sandbox') or '-'} {severity}{record['action']} {details}", 400)


def _short(key: str, value: Any, limit: str = "") -> str:
    """With units; a hash is told apart by its beginning; --json has the whole. ``limit``: what the record's value and
    what was observed are of."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_short(name, item)}" for name, item in value.items())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if key in ("value", "observed") and limit in _LIMITS:
            return show(limit, value)
        if key in _BYTES:
            return size(value)
        if key in _SECONDS:
            return seconds(value) if value >= 1 else f"{1000 * value:.0f} ms"
    text = _plain(value)
    return text[:_HASH] if key in ("sha256", "policy") and len(text) == 64 else text


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plain(item)}" for key, item in value.items())
    return str(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
