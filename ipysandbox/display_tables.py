"""Turns what the control API, the policy and the audit trail say into text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .display import one_line, table
from .policy.units import format_duration
from .supervisor.limits import size


def status_text(state: Mapping[str, Any]) -> str:
    """One sandbox for people: what it does, uses, and may use. ``state`` is the control API's."""
    usage, limits = state["usage"], state["limits"]
    cell = state["cell"]
    doing = f"busy with cell {cell['number']} for {cell['elapsed']:.1f} s" if cell else str(state["state"])
    rows = [
        (
            "memory",
            size(usage["memory"]),
            f"of {size(limits['memory'])}",
            f"most so far {size(usage['memory_peak'])}",
        ),
        ("disk", size(usage["disk"]), f"of {size(limits['disk'])}", f"{usage['files']} files"),
        ("processes", str(usage["processes"]), f"of {limits['processes']}", ""),
        ("cpu", f"{usage['cpu']:.1f} s", f"of {format_duration(limits['cpu'])} a cell", f"on {limits['cpus']:g} CPUs"),
        ("time", "", f"{format_duration(limits['wall'])} a cell", ""),
    ]
    held_by = [(name, "held by " + " + ".join(layers)) for name, layers in state["guarantees"].items()]
    held_by += [(name, "weaker: " + text) for name, text in state["weaker"].items()]
    title = f"{one_line(state['name'])}: {doing} ({state['backend']}), project {one_line(state['project'])}"
    return "\n".join([title, _indented(table(rows)), *([_indented(table(held_by))] if held_by else [])])


def policy_text(policy: Mapping[str, Any]) -> str:
    """A resolved policy for people: each setting and where it comes from; variables by name only."""
    rows = []
    for section, keys in policy["policy"].items():
        for key, value in keys.items() if isinstance(keys, Mapping) else [("", keys)]:
            dotted = f"{section}.{key}" if key else section
            rows.append((dotted, policy["sources"].get(dotted, ""), _plain(value)))
    environment = policy["environment"]
    facts = [
        ("project", policy["project"] + (" (too wide: nothing of it is read)" if policy["project_is_home"] else "")),
        ("reads", ", ".join(policy["read"]) or "nothing"),
        ("writes", ", ".join(policy["write"]) or "nothing"),
        ("variables passed", ", ".join(environment["passed"]) or "none"),
        ("withheld as secret", ", ".join(environment["withheld"]) or "none"),
    ]
    return "\n".join([table(facts), "", table(rows), *(f"! {one_line(notice, 1000)}" for notice in policy["notices"])])


def record_text(record: Mapping[str, Any]) -> str:
    """One line of the audit trail for people; what came from a sandbox is escaped."""
    details = " ".join(f"{key}={_plain(value)}" for key, value in (record.get("details") or {}).items())
    severity = "" if record.get("severity") == "info" else f"{str(record.get('severity')).upper()} "
    return one_line(f"{record.get('time')} {record.get('sandbox') or '-'} {severity}{record['action']} {details}", 400)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plain(item)}" for key, item in value.items())
    return str(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
