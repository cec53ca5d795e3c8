"""`ipysandbox run FILE`: one cell in a fresh sandbox, its streams on ours, its outcome as exit status."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipysandbox import reach
from ipysandbox.audit import AuditLog, default_path, events
from ipysandbox.check.report import Finding, Report
from ipysandbox.cwd import absolute, current_folder
from ipysandbox.display import changes_line, failure, one_line, where, whole, without_colours, written_line
from ipysandbox.errors import NotAvailable, PolicyError, SandboxError
from ipysandbox.policy import find_project, resolve
from ipysandbox.sandbox import RunResult, Sandbox, SandboxByOptions, Script, refused

from . import status
from .answers import Questions, can_answer
from .check import checked
from .say import Console, say
from .source import STDIN, NotReadable, Source, read

_NAME = "run"
_STATUS = {
    "ok": status.OK,
    "error": status.FAILED,
    "refused": status.REFUSED,
    "limit": status.LIMIT,
    "interrupted": status.INTERRUPTED,
    "died": status.NOT_STARTED,
}


def run(args: argparse.Namespace) -> int:
    try:
        source = read(args.file)
    except NotReadable as exc:
        say(str(exc))
        return status.USAGE
    if source.problem:
        return _not_text(source, validate=not args.no_validate)
    # The only one of its process: none waits for a next.
    overrides: dict[str, object] = {"start.pool": 0}
    limits = {"wall": _seconds(args.timeout), "cpu": _seconds(args.cpu), "memory": args.memory}
    overrides |= {f"limits.{key}": value for key, value in limits.items() if value is not None}
    notebook = None if args.file == "-" else str(absolute(args.file))
    box = SandboxByOptions(
        args.policy,
        name=_NAME,
        validate=not args.no_validate,
        project=current_folder(),
        overrides=overrides,
        notebook=notebook,
        backend=args.backend,
    )
    if not args.no_validate:
        effective = resolve(args.policy, cwd=current_folder(), overrides=overrides, environ=os.environ)
        report = checked(source.text, effective)
        if report.refused:  # without the seconds that a sandbox takes to start
            _record_refusal(source.text, report, notebook)
            return _tell(refused(report, effective.notices), args, frozenset(effective.notices), Console())
    with Console() as console:
        return _run(box, source.text, args, console)


def _run(box: Sandbox, code: str, args: argparse.Namespace, console: Console) -> int:
    questions = Questions(box, console, show=not args.json) if can_answer(args.file) else None
    with box:
        standing = frozenset(box.notices)
        result = box.run(
            code,
            validate=not args.no_validate,
            on_output=None if args.json else console.show,
            on_input=questions,
            want_value=False,
            script=_script(args.file, tuple(args.arguments)),
        )
    return _tell(result, args, standing, console)


def _record_refusal(text: str, report: Report, notebook: str | None) -> None:
    """As a supervisor records it."""
    reach.require([default_path()])
    log = AuditLog()
    data = text.encode("utf-8", "surrogatepass")
    rules = [finding.rule for finding in report.findings if finding.severity == "refuse"][:50]
    submitted = {"number": 1, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(text)}
    verdict = {"number": 1, "verdict": "refused", "rules": rules}
    log.record(events.CELL_SUBMITTED, sandbox=_NAME, notebook=notebook, details=submitted)
    log.record(events.CHECK_VERDICT, sandbox=_NAME, notebook=notebook, severity="warning", details=verdict)
    result = {"number": 1, "status": "refused", "usage": {}}
    log.record(events.CELL_RESULT, sandbox=_NAME, notebook=notebook, details=result)


def _script(file: str, arguments: tuple[str, ...]) -> Script:
    """The file as the sandbox sees it. One outside the project is not there: of that, the name is all it gets."""
    if file == "-":
        return Script(STDIN, arguments)
    path, project = absolute(file), find_project(current_folder())
    if all(project in place.parents for place in (path, Path(os.path.realpath(path)))):
        return Script(os.path.relpath(path, current_folder()), arguments, str(path))
    return Script(path.name, arguments, path.name)


def _seconds(text: str | None) -> str | None:
    """The policy's spelling: a bare number is seconds."""
    return f"{text}s" if text and text.strip()[-1:].isdigit() else text


def _not_text(source: Source, *, validate: bool) -> int:
    if not validate:
        say(source.problem)
        return status.USAGE
    say(f"{source.problem}: refused by the check, nothing was run")
    return status.REFUSED


def _tell(result: RunResult, args: argparse.Namespace, standing: frozenset[str], console: Console) -> int:
    """Notes, then what went wrong, and last what that has to do with the sandbox. ``standing``: the policy's notes."""
    error = failure(result, _NAME)
    code = _STATUS[result.status]
    if result.error is not None and result.error.ename == "SystemExit" and result.error.evalue in ("", "0", "None"):
        # The script ended itself and said that all is well.
        error, code = None, status.OK
    if isinstance(error, PolicyError):
        code = status.USAGE
    if args.json:
        print(json.dumps(_as_json(result, code)), flush=True)
    if error is not None:
        _say_trace(result, error, console)
    if not args.quiet:
        written = written_line(result.written, result.written_total)
        changes = changes_line(result.changes, result.changes_total)
        told = (notice for notice in result.notices if notice != result.hint)
        for note in filter(None, (*told, _pictures_line(result.outputs), written, changes)):
            # What the policy says is what a person may approve: none of it is left out.
            console.say(whole(note) if note in standing else one_line(note, 1000))
    if error is not None:
        _say_error(result, error, args.file, console)
    # With a limit, and where the sandbox died, it stands there already, or speaks of a next cell, and there is none.
    is_told = result.status in ("limit", "died") and result.hint in str(error)
    if result.hint and not is_told and not args.quiet:
        console.say(result.hint)
    return code


def _pictures_line(outputs: list[dict[str, Any]]) -> str:
    """What a terminal does not show is said, or it would be lost in silence."""
    pictures = sum(any(kind.startswith("image/") for kind in output.get("data", {})) for output in outputs)
    if not pictures:
        return ""
    what = "a picture" if pictures == 1 else f"{pictures} pictures"
    return f"{what} can't be shown in a terminal; save it in a folder of files.write (plt.savefig), or take --json"


def _trace(result: RunResult, error: SandboxError) -> Sequence[str]:
    # Where it was stopped; but not that variables are kept, which are gone with this command.
    if result.status in ("interrupted", "limit"):
        return where(result)
    # The code's own: what that has to do with the sandbox is said last, below the notes.
    return result.error.traceback if result.status == "error" and result.error is not None else error.traceback


def _say_trace(result: RunResult, error: SandboxError, console: Console) -> None:
    trace = _trace(result, error)
    if trace:
        text = "\n".join(trace)
        coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        console.clear_way()
        console.code("stderr", f"{text if coloured else without_colours(text)}\n")


def _say_error(result: RunResult, error: SandboxError, file: str, console: Console) -> None:
    if _trace(result, error) and result.status != "limit":
        return
    if result.status == "refused" and result.findings:
        report = Report("refused", tuple(Finding(**finding) for finding in result.findings))
        console.clear_way()
        print(report.render(STDIN if file == "-" else file), file=sys.stderr)
    elif isinstance(error, (PolicyError, NotAvailable)):
        console.say(str(error))
    else:
        console.say(error.message)  # the hint speaks of the next cell, and there is none


def _as_json(result: RunResult, code: int) -> dict[str, Any]:
    return {
        "exit_status": code,
        "status": result.status,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "error": dataclasses.asdict(result.error) if result.error else None,
        "limit": dataclasses.asdict(result.limit) if result.limit else None,
        "usage": dict(result.usage),
        "outputs": result.outputs,
        "findings": [dict(finding) for finding in result.findings],
        "notices": list(result.notices),
        "changes": [dataclasses.asdict(change) for change in result.changes],
        "changes_total": result.changes_total,
        "written": list(result.written),
        "written_total": result.written_total,
    }
