"""`ipysandbox doctor`, `ps` and `kill`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote

from ipysandbox.display import one_line, table
from ipysandbox.supervisor.client import ControlClient, discover
from ipysandbox.supervisor.limits import size

from . import status


def doctor(args: argparse.Namespace) -> int:
    from ipysandbox.doctor import full, text

    report = full()
    print(json.dumps(report) if args.json else text(report))
    return status.OK if report["ok"] else status.FAILED


def ps(args: argparse.Namespace) -> int:
    states = [state for _, state in discover()]
    if args.json:
        print(json.dumps(states))
        return status.OK
    rows = [_row(supervisor, box) for supervisor in states for box in supervisor["sandboxes"]]
    rows += [_executor(supervisor, one) for supervisor in states for one in supervisor.get("executors", ())]
    if rows:
        print(table([("SANDBOX", "STATE", "PID", "CPU", "MEMORY", "PROCESSES", "NOTEBOOK OR PROJECT"), *rows]))
    else:
        print("No sandbox runs.")
    return status.OK


def _row(supervisor: dict[str, Any], box: dict[str, Any]) -> tuple[str, ...]:
    usage, cell = box["usage"], box["cell"]
    return (
        f"{supervisor['id']}/{box['name']}",
        f"busy {cell['elapsed']:.0f} s" if cell else str(box["state"]),
        str(box["pid"]),
        f"{usage['cpu']:.1f} s",
        size(usage["memory"]),
        str(usage["processes"]),
        str(box["notebook"] or box["project"]),
    )


def _executor(supervisor: dict[str, Any], one: dict[str, Any]) -> tuple[str, ...]:
    done = sum(one["done"].values())
    state = f"{one['running']} tasks, {one['waiting']} wait, {done} done"
    return f"{supervisor['id']}/{one['name']}", state, "", "", "", "", str(one["project"])


def kill(args: argparse.Namespace) -> int:
    wanted = args.name
    found: list[tuple[ControlClient, str, str]] = [
        (client, kind, one["name"])
        for client, state in discover()
        for kind in ("sandboxes", "executors")
        for one in state.get(kind, ())
        if wanted in (one["name"], f"{client.id}/{one['name']}")
    ]
    if not found:
        return _no(f"there is no sandbox named {one_line(wanted)!r} (see: ipysandbox ps)")
    if len(found) > 1:
        return _no(f"{len(found)} sandboxes have that name: {', '.join(f'{c.id}/{n}' for c, _, n in found)}")
    [(client, kind, name)] = found
    client.request("POST", f"/{kind}/{quote(name)}/kill", {"by": "command"})
    after = (
        "a notebook's next cell starts a new one" if kind == "sandboxes" else "its tasks died, and so do those to come"
    )
    print(f"Ended {client.id}/{name}; {after}.")
    return status.OK


def _no(text: str) -> int:
    print(f"ipysandbox: {text}", file=sys.stderr)
    return status.USAGE
