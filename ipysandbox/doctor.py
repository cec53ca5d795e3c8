"""Says what this machine offers for sandboxes: each guarantee with the layers that hold it, or why none does."""

from __future__ import annotations

import json
import platform
import subprocess
import tempfile
from typing import Any

from . import bootstrap
from .display import table
from .errors import SandboxError

#: Probing asks the kernel a dozen questions; one that takes this long hangs (seconds).
_SECONDS = 20.0


def examine() -> dict[str, Any]:
    """The report as plain data. Forks, so call it in a process without threads; ``examine_apart`` serves the others."""
    if platform.system() != "Linux":
        reason = f"this version sandboxes on Linux only, not on {platform.system()}"
        remedy = "run the notebook on Linux, in WSL 2 or in a Linux virtual machine"
        return _report({}, {}, [{"guarantee": "all", "reason": reason, "remedy": remedy}])
    from .backends.linux.choice import choose
    from .backends.linux.machine import probe

    machine = probe()
    choice = choose(machine)
    facts = {
        "kernel": ".".join(map(str, machine.kernel)),
        "machine": machine.arch,
        "user": "root" if machine.root else "not root",
        "landlock": f"ABI {machine.landlock_abi}" if machine.landlock_abi else "none",
        "namespaces": f"refused: {machine.namespaces_refused}" if machine.namespaces_refused else "allowed",
        "python": platform.python_version(),
    }
    gaps = [{"guarantee": gap.guarantee, "reason": gap.reason, "remedy": gap.remedy} for gap in choice.gaps]
    return _report(facts, {name: list(layers) for name, layers in choice.layers.items()}, gaps)


def _report(facts: dict[str, str], guarantees: dict[str, list[str]], gaps: list[dict[str, str]]) -> dict[str, Any]:
    return {"ok": not gaps, "backend": "linux", "machine": facts, "guarantees": guarantees, "gaps": gaps}


def examine_apart() -> dict[str, Any]:
    """The same from a process of its own: a notebook's kernel has threads."""
    code = "import json; from ipysandbox.doctor import examine; print(json.dumps(examine()))"
    try:
        done = subprocess.run(
            bootstrap.command(code, []), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise SandboxError(f"the machine could not be examined: {exc}", hint="Try `ipysandbox doctor`.") from None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def text(report: dict[str, Any]) -> str:
    """The report as a table."""
    facts = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    rows = [("yes", name, " + ".join(layers)) for name, layers in report["guarantees"].items()]
    rows += [("NO", gap["guarantee"], gap["reason"]) for gap in report["gaps"]]
    lines = [facts, "", table([("HELD", "GUARANTEE", "BY"), *rows]), ""] if facts else [table(rows), ""]
    if report["ok"]:
        started = ", and one was: it passed its self-test and ran a cell" if "trial" in report else ""
        return "\n".join([*lines, f"Sandboxes can be started here with every guarantee{started}."])
    if report.get("trial"):
        return "\n".join([*lines, f"The layers are there, but a sandbox could not be started: {report['trial']}"])
    remedies = dict.fromkeys(f"What to do: {gap['remedy']}." for gap in report["gaps"])
    return "\n".join([*lines, "No sandbox can be started here: nothing runs with a guarantee missing.", *remedies])


def trial() -> str:
    """Start one sandbox in an empty folder and run a cell: what went wrong, or nothing. Some tenths of a second."""
    from .sandbox import Sandbox

    with tempfile.TemporaryDirectory(prefix="ipysandbox-doctor-") as folder:
        try:
            with Sandbox(project=folder, validate=False) as box:
                result = box.run("6 * 7")
        except SandboxError as exc:
            return str(exc)
    return (
        "" if result.status == "ok" and result.value == 42 else f"a first cell ended as {result.status}: {result.error}"
    )
