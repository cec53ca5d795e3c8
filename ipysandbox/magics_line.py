"""What ``%sandbox ACTION [NAME]`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import doctor
from .display import one_line, table
from .errors import NotAvailable, SandboxError
from .magics_options import DEFAULT_NAME
from .policy.units import format_duration
from .supervisor.limits import size

if TYPE_CHECKING:
    from .magics import Held, SandboxMagics

#: Records that ``%sandbox audit`` shows, the newest.
_RECORDS = 20


def run(magics: SandboxMagics, action: str, name: str | None) -> None:
    """Do it and print what there is to tell. Raises SandboxError."""
    _DO[action](magics, name)


def held(magics: SandboxMagics, name: str | None) -> Held:
    """A sandbox of this notebook by name (default: main)."""
    name = name or DEFAULT_NAME
    try:
        return magics.held[name]
    except KeyError:
        others = f"Sandboxes here: {', '.join(magics.held)}." if magics.held else "Run a cell with %%sandbox first."
        raise SandboxError(f"this notebook has no sandbox named {name!r}", hint=others) from None


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


def _status(magics: SandboxMagics, name: str | None) -> None:
    boxes = [held(magics, name)] if name else list(magics.held.values())
    if not boxes:
        print("No sandbox runs yet: write %%sandbox on top of a cell.")
    for one in boxes:
        print(status_text(one.box.status()))


def _restart(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    one.box.restart()
    one.changes = ""
    print(f"The sandbox '{one.box.name}' was started anew; its variables are gone.")


def _stop(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    one.box.close()
    del magics.held[one.box.name]
    print(f"The sandbox '{one.box.name}' ended.")


def _interrupt(magics: SandboxMagics, name: str | None) -> None:
    held(magics, name).box.interrupt()


def _policy(magics: SandboxMagics, name: str | None) -> None:
    if name or magics.held:
        print(policy_text(held(magics, name or next(iter(magics.held))).box.policy()))
        return
    from .policy import resolve

    print(policy_text(resolve(None, cwd=Path(magics.folder()), environ=os.environ).to_json()))


def _check(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    print(one.box.check(one.last_code)["text"])


def _diff(magics: SandboxMagics, name: str | None) -> None:
    changes = held(magics, name).box.diff()
    rows = [(change.kind, one_line(change.path), size(change.size) if change.size else "") for change in changes]
    print(table(rows) if rows else "No file of the project differs in the sandbox.")


def _audit(magics: SandboxMagics, name: str | None) -> None:
    from .audit import tail

    for record in reversed(tail(_RECORDS, sandbox=held(magics, name).box.name)):
        print(record_text(record))


def _doctor(_magics: SandboxMagics, _name: str | None) -> None:
    print(doctor.text(doctor.examine_apart()))


def _missing(action: str) -> Callable[[SandboxMagics, str | None], None]:
    def refuse(_magics: SandboxMagics, _name: str | None) -> None:
        raise NotAvailable(f"%sandbox {action} is not available in this version")

    return refuse


_DO: dict[str, Callable[[SandboxMagics, str | None], None]] = {
    "status": _status,
    "restart": _restart,
    "stop": _stop,
    "interrupt": _interrupt,
    "policy": _policy,
    "check": _check,
    "diff": _diff,
    "audit": _audit,
    "doctor": _doctor,
    **{action: _missing(action) for action in ("commit", "discard", "dashboard")},
}
ACTIONS = tuple(_DO)
