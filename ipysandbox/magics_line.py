"""What ``%sandbox ACTION [NAME]`` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from .bootstrap import trusted_imports
from .display import one_line, table
from .display_tables import policy_text, record_text, status_text
from .errors import NotAvailable, SandboxError
from .magics_options import DEFAULT_NAME
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


def _status(magics: SandboxMagics, name: str | None) -> None:
    boxes = [held(magics, name)] if name else list(magics.held.values())
    if not boxes:
        print("No sandbox runs yet: write %%sandbox on top of a cell.")
    for one in boxes:
        print(status_text(one.box.status(), layers=len(boxes) == 1))
    if len(boxes) > 1:
        print("What holds each guarantee: %sandbox status NAME")


def _restart(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    one.box.restart()
    one.changes = ""
    print(f"The sandbox '{one.box.name}' was started anew; its variables are gone.")


def _stop(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    one.box.close()
    del magics.held[one.box.name]
    print(f"The sandbox '{one.box.name}' ended; its next cell starts a new one, with the options that it gives.")


def _interrupt(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    if one.box.status()["cell"] is None:
        print(f"The sandbox '{one.box.name}' runs no cell: there is nothing to interrupt.")
        return
    one.box.interrupt()
    print(f"Asked the sandbox '{one.box.name}' to interrupt its cell.")


def _policy(magics: SandboxMagics, name: str | None) -> None:
    if name or magics.held:
        print(policy_text(held(magics, name or next(iter(magics.held))).box.policy()))
        return
    with trusted_imports():
        from .policy import resolve

    print(policy_text(resolve(None, cwd=Path(magics.folder()), environ=os.environ).to_json()))


def _check(magics: SandboxMagics, name: str | None) -> None:
    one = held(magics, name)
    print(f"The last cell of '{one.box.name}', as the check reads it:")
    print(one.box.check(one.last_code)["text"])


def _diff(magics: SandboxMagics, name: str | None) -> None:
    changes = held(magics, name).box.diff()
    rows = [(change.kind, one_line(change.path), size(change.size) if change.size else "") for change in changes]
    print(table(rows) if rows else "No file of the project differs in the sandbox.")
    print("Not listed: what it wrote elsewhere (~, /tmp, beside the project) is its own, and goes with it.")


def _audit(magics: SandboxMagics, name: str | None) -> None:
    from .audit import iter_newest

    one = held(magics, name)
    records = iter_newest(sandbox=one.box.name, notebook=one.notebook)
    if one.notebook is None:  # a terminal's IPython: what other processes recorded of theirs has the same name
        pid = one.box.supervisor_pid
        records = (record for record in records if record.get("notebook") is None and record.get("pid") == pid)
    shown = list(islice(records, _RECORDS))
    where = "this session" if one.notebook is None else "this notebook"
    print(f"The last {len(shown)} records of '{one.box.name}' in {where}; of all: ipysandbox audit tail")
    for record in reversed(shown):
        print(record_text(record))


def _doctor(_magics: SandboxMagics, _name: str | None) -> None:
    with trusted_imports():
        from . import doctor
    print(doctor.text(doctor.full_apart()))


def _dashboard(magics: SandboxMagics, name: str | None) -> None:
    from .widgets import dashboard

    boxes = [held(magics, name)] if name else list(magics.held.values())
    in_notebook = getattr(magics.shell, "kernel", None) is not None
    if not (boxes and in_notebook and dashboard.show([one.box for one in boxes])):
        _status(magics, name)
    magics.follows = in_notebook


def _missing(action: str) -> Callable[[SandboxMagics, str | None], None]:
    def refuse(_magics: SandboxMagics, _name: str | None) -> None:
        raise NotAvailable(f"%sandbox {action} is not available in this version", hint=_INSTEAD[action])

    return refuse


#: Names that are kept for later versions.
_INSTEAD = {
    "commit": "What is to be kept the code writes to a folder of files.write, such as results/.",
    "discard": "%sandbox restart drops all changes, and the variables with them.",
}
MISSING = tuple(_INSTEAD)
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
    "dashboard": _dashboard,
    **{action: _missing(action) for action in MISSING},
}
ACTIONS = tuple(_DO)
