"""Says what this machine offers for sandboxes: each guarantee with its layers and status, and what to do for each gap.

The report (``--json``) has this shape, which only grows; every text is for people:

    version     1
    ok          whether a sandbox with the current policy can be started here: `ipysandbox doctor` exits with 1 if not
    backend     "linux"
    tier        "namespaces", "confined" (Landlock, seccomp and limits alone), or "" where nothing can start
    machine     {fact: text}
    guarantees  {guarantee: [layer, …]}: those that are held
    status      {guarantee: "held" | "weaker" | "missing"}
    gaps        [{"guarantee", "reason", "remedy"}]: what forbids a start
    notes       [{"guarantee", "text"}]: where one is held in a weaker form
    advice      [{"cause", "why", "steps": […]}]: what would make it stronger, or possible
    stalled     [path, …]: of the home, PATH, sys.path and the current folder, those that do not answer
    policy      {"project", "problem"}: the current folder's; an empty problem is none
    trial       "" or absent, or why a sandbox that was started did not work
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import bootstrap, reach
from .cwd import current_folder
from .display import in_lines, table, whole
from .errors import SandboxError

if TYPE_CHECKING:
    from .backends.linux.choice import Choice

#: All of it takes a second or two; what takes this long hangs (seconds).
_SECONDS = 60.0
_WORDS = {"held": "yes", "weaker": "weaker", "missing": "NO"}


def examine() -> dict[str, Any]:
    """The report as plain data, without a trial. Forks: call it in a process without threads."""
    if platform.system() != "Linux":
        gap = {
            "guarantee": "all",
            "reason": f"this version sandboxes on Linux only, not on {platform.system()}",
            "remedy": "run the notebook on Linux, in WSL 2 or in a Linux virtual machine",
        }
        return _report(gaps=[gap])
    from .backends.linux import choice, machine, remedies

    offers = machine.probe()
    chosen = choice.choose(offers)
    around = remedies.surroundings()
    advice = [remedies.remedy(cause, around) for cause in remedies.causes(offers, around)]
    report = _report(
        tier=chosen.tier,
        facts=_facts(offers),
        guarantees={name: list(layers) for name, layers in chosen.layers.items()},
        gaps=[{"guarantee": gap.guarantee, "reason": gap.reason, "remedy": gap.remedy} for gap in chosen.gaps],
        notes=[{"guarantee": note.guarantee, "text": note.text} for note in chosen.notes],
        advice=[{"cause": one.cause, "why": one.why, "steps": list(one.steps)} for one in advice],
    )
    report["stalled"] = _stalled()
    report["policy"] = _policy(chosen)
    report["ok"] = not report["gaps"] and not report["policy"]["problem"]
    return report


def _facts(offers: Any) -> dict[str, str]:
    groups = offers.cgroup
    return {
        "kernel": ".".join(map(str, offers.kernel)),
        "machine": offers.arch,
        "user": "root" if offers.root else "not root",
        "landlock": f"ABI {offers.landlock_abi}" if offers.landlock_abi else "none",
        "namespaces": f"refused: {offers.namespaces_refused}" if offers.namespaces_refused else "allowed",
        "cgroup": f"v{groups.version} by {groups.how}" if groups.version else f"none: {groups.reason}",
        "python": platform.python_version(),
    }


def _report(
    *,
    tier: str = "",
    facts: dict[str, str] | None = None,
    guarantees: dict[str, list[str]] | None = None,
    gaps: list[dict[str, str]] | None = None,
    notes: list[dict[str, str]] | None = None,
    advice: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    weaker = {note["guarantee"] for note in notes or ()}
    status = {name: "weaker" if name in weaker else "held" for name in guarantees or ()}
    status.update({gap["guarantee"]: "missing" for gap in gaps or ()})
    return {
        "version": 1,
        "ok": not gaps,
        "backend": "linux",
        "tier": tier,
        "machine": facts or {},
        "guarantees": guarantees or {},
        "status": status,
        "gaps": gaps or [],
        "notes": notes or [],
        "advice": advice or [],
        "stalled": [],
        "policy": {"project": "", "problem": ""},
    }


def _stalled() -> list[str]:
    """The places that Python and shells look into by themselves, as far as they do not answer."""
    places = [os.path.expanduser("~"), str(current_folder()), *os.environ.get("PATH", "").split(os.pathsep), *sys.path]
    return reach.stalled(place for place in places if os.path.isabs(place))


def _policy(chosen: Choice) -> dict[str, str]:
    """Whether the policy of the current folder can be read, makes sense, and requires no more than there is."""
    from .backends.linux.choice import refused
    from .policy import resolve

    try:
        effective = resolve(cwd=current_folder(), environ=os.environ)
    except SandboxError as exc:
        return {"project": str(current_folder()), "problem": str(exc)}
    weaker = refused(chosen, effective.policy.require)
    problem = f"require: {weaker.guarantee}: {weaker.reason}\n{weaker.remedy}" if weaker else ""
    return {"project": str(effective.project), "problem": problem}


def without_cards(devices: Sequence[str]) -> str:
    """Why this machine can't give a sandbox these graphics cards; empty if it can. Forks, as ``examine`` does."""
    if platform.system() != "Linux":
        return f"this version sandboxes on Linux only, not on {platform.system()}"
    from .backends.linux import choice, gpu, machine

    namespaces = choice.choose(machine.probe()).tier == "namespaces"
    why = gpu.why_not(devices) if namespaces else gpu.needs_namespaces()
    return why.message if why else ""


def full() -> dict[str, Any]:
    """``examine``, and where nothing stands against it a trial: what a machine offers is one thing, a sandbox that has
    passed its own self-test is another."""
    report = examine()
    if report["ok"]:
        report["trial"] = trial()
        report["ok"] = not report["trial"]
    return report


def full_apart(*, tried: bool = True) -> dict[str, Any]:
    """The same from a process of its own: a notebook's kernel has threads. Without a trial unless ``tried``."""
    name = "full" if tried else "examine"
    code = f"import json; from ipysandbox.doctor import {name}; print(json.dumps({name}()))"
    try:
        done = subprocess.run(
            bootstrap.command(code, []), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise SandboxError(f"the machine could not be examined: {exc}", hint="Try `ipysandbox doctor`.") from None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def text(report: dict[str, Any]) -> str:
    """The report as a table, what to do, and one sentence at the end."""
    facts = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    rows = [(_WORDS[report["status"][name]], name, " + ".join(layers)) for name, layers in report["guarantees"].items()]
    rows += [(_WORDS["missing"], gap["guarantee"], gap["reason"]) for gap in report["gaps"]]
    parts = [facts, table([("HELD", "GUARANTEE", "BY"), *rows])]
    parts.append("\n".join(f"Weaker: {note['guarantee']}: {note['text']}." for note in report["notes"]))
    parts.append("\n".join(f"Does not answer, and is left out: {whole(path)}" for path in report["stalled"]))
    lead = "What to do" if report["gaps"] else "To hold more"
    parts += [_advice_text(lead, one) for one in report["advice"]]
    if not report["advice"]:
        parts.append("\n".join(dict.fromkeys(f"What to do: {gap['remedy']}." for gap in report["gaps"])))
    return "\n\n".join([part for part in parts if part] + [_verdict(report)])


def _advice_text(lead: str, advice: dict[str, Any]) -> str:
    steps = [f"  - {step.rstrip()}".replace("\n", "\n      ") for step in advice["steps"]]
    return "\n".join([f"{lead} ({advice['cause']}): {advice['why']}", *steps])


def _verdict(report: dict[str, Any]) -> str:
    if report["gaps"]:
        return "No sandbox can be started here: nothing runs with a guarantee missing."
    if report["policy"]["problem"]:
        return f"No sandbox can be started with this policy: {in_lines(report['policy']['problem'])}"
    if report.get("trial"):
        return f"The layers are there, but a sandbox could not be started: {in_lines(report['trial'])}"
    started = ", and one was: it passed its self-test and ran a cell" if "trial" in report else ""
    if report["notes"]:
        return f"Sandboxes can be started here, weaker in what is named above{started}."
    return f"Sandboxes can be started here with every guarantee{started}."


def trial() -> str:
    """Start a sandbox with the current folder's policy and run a cell: what went wrong, or nothing."""
    from .sandbox import Sandbox

    try:
        with Sandbox(validate=False, overrides={"start.pool": 0}) as box:
            result = box.run("6 * 7")
    except SandboxError as exc:
        return str(exc)
    return (
        "" if result.status == "ok" and result.value == 42 else f"a first cell ended as {result.status}: {result.error}"
    )
