"""`ipysandbox doctor`, `ps` and `kill`."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from ipysandbox.display import one_line, table
from ipysandbox.errors import SandboxError
from ipysandbox.supervisor.client import ControlClient, discover
from ipysandbox.supervisor.limits import size

from . import status
from .say import say


def doctor(args: argparse.Namespace) -> int:
    from ipysandbox.doctor import full, text

    report = full()
    print(json.dumps(report) if args.json else text(report))
    return status.OK if report["ok"] else status.FAILED


def ps(args: argparse.Namespace) -> int:
    states = discover(left_out=_left_out)
    if args.json:
        print(json.dumps([state for _, state in states]))
        return status.OK
    rows = [row for client, state in states for row in _rows(client, state)]
    if rows:
        print(table([("SANDBOX", "STATE", "PID", "CPU", "MEMORY", "PROCESSES", "NOTEBOOK OR PROJECT"), *rows]))
    else:
        print("No sandbox runs.")
    return status.OK


def _left_out(client: ControlClient, why: str) -> None:
    say(f"the supervisor {client.id} is left out: {one_line(why)}")


def _rows(client: ControlClient, state: dict[str, Any]) -> list[tuple[str, ...]]:
    try:
        rows = [_row(state, box) for box in state["sandboxes"]]
        return rows + [_executor(state, one) for one in state.get("executors", ())]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        _left_out(client, "this version does not understand its answer")
        return []


def _named(state: dict[str, Any], kind: str) -> list[str]:
    listed = state.get(kind)
    names = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [name for name in names if isinstance(name, str)]


def _row(supervisor: dict[str, Any], box: dict[str, Any]) -> tuple[str, ...]:
    usage, cell = box["usage"], box["cell"]
    return (
        f"{supervisor['id']}/{box['name']}",
        f"busy {cell['elapsed']:.0f} s" if cell else str(box["state"]),
        "-" if box["pid"] is None else str(box["pid"]),  # it has died or was ended; its name is kept
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
        (client, kind, name)
        for client, state in discover(left_out=_left_out)
        for kind in ("sandboxes", "executors")
        for name in _named(state, kind)
        if wanted in (name, f"{client.id}/{name}")
    ]
    if not found:
        return _no(f"there is no sandbox named {wanted!r} (see: ipysandbox ps)")
    if len(found) > 1:
        return _no(f"{len(found)} sandboxes have that name: {', '.join(one_line(f'{c.id}/{n}') for c, _, n in found)}")
    [(client, kind, name)] = found
    said = client.request("POST", f"/{kind}/{quote(name, safe='', errors='replace')}/kill", {"by": "command"})
    if not (isinstance(said, dict) and said.get("status") == "ok"):
        raise SandboxError(f"the supervisor {client.id} did not say that it has ended {one_line(name)}")
    after = (
        "a notebook's next cell starts a new one" if kind == "sandboxes" else "its tasks died, and so do those to come"
    )
    print(f"Ended {one_line(client.id)}/{one_line(name)}; {after}.")
    return status.OK


def _no(text: str) -> int:
    say(text)
    return status.USAGE
