"""`ipysandbox policy show`, `lint`, `trust` and `untrust`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from ipysandbox import approving
from ipysandbox.cwd import absolute, current_folder
from ipysandbox.display import in_lines, one_line, whole
from ipysandbox.display_tables import policy_text
from ipysandbox.errors import PolicyError
from ipysandbox.policy import (
    NotGranted,
    cards,
    check_approvable,
    doubts,
    in_one_line,
    lint,
    loosens,
    not_counted,
    policies_in_force,
    project_policy,
    resolve,
)

from . import status
from .say import say


def show(args: argparse.Namespace) -> int:
    effective = resolve(args.policy, cwd=current_folder(), environ=os.environ).to_json()
    print(json.dumps(effective) if args.json else policy_text(effective))
    return status.OK


def lint_files(args: argparse.Namespace) -> int:
    files: Mapping[Path, Path | None] = {Path(file): None for file in args.files} or {
        **policies_in_force(current_folder(), environ=os.environ)
    }
    if not files:
        raise _none_here()
    problems = [
        problem for path, project in files.items() for problem in lint(path, project=project, environ=os.environ)
    ]
    for problem in problems:
        print(in_lines(str(problem)), file=sys.stderr)
    if problems:
        return status.USAGE
    named = "" if args.files else f" in {one_line(', '.join(map(str, files)), 1000)}"
    print(f"No problem found{named}.")
    for path, project in files.items():
        _tell_doubts(path, project)
        wishes = not_counted(absolute(path), environ=os.environ)
        if wishes:
            asks = f"{whole(str(path))} asks for more than you allow by default"
            print(f"{asks}; this does not count before `{_trust(path)}`:")
            _list(wishes)
    return status.OK


def approve(args: argparse.Namespace) -> int:
    """Show the difference, ask, and approve exactly what was shown; but not what would make every run an error."""
    path = absolute(args.file or _of_the_project())
    try:
        check_approvable(path, environ=os.environ)
    except PolicyError as exc:
        say(f"{exc}\nNot approved as it is.")
        return status.USAGE
    digest, wishes = loosens(path, environ=os.environ)
    if wishes:
        print(f"{whole(str(path))} asks for more than you allow by default:")
        _list(wishes)
    else:
        print(f"{whole(str(path))} asks for nothing beyond what you allow by default.")
    _tell_doubts(path)
    if not args.yes and not _agreed():
        print("Not approved; only what tightens is used.", file=sys.stderr)
        return status.USAGE
    approving.approve(path, digest)
    print("Approved as it is now; a change asks again.")
    return status.OK


def _of_the_project() -> Path:
    path = project_policy(current_folder(), environ=os.environ)
    if path is None:
        raise _none_here()
    return path


def _none_here() -> PolicyError:
    return PolicyError("no policy file speaks about this folder", hint="name one: ipysandbox.toml or pyproject.toml")


def _list(wishes: tuple[NotGranted, ...]) -> None:
    """Every word of it: what is approved was seen."""
    for wish in wishes:
        for line in wish.lines():
            print(f"  {whole(line)}")


def _tell_doubts(path: Path, project: Path | None = None) -> None:
    """What may not be meant, or does not work on this machine: the policy may be for another one."""
    for doubt in doubts(path, project=project, environ=os.environ):
        print(f"Note: {one_line(in_one_line(doubt), 1000)}")
    devices = cards(path)
    if not devices:
        return
    from ipysandbox.doctor import without_cards

    why = without_cards(devices)
    if why:
        print(f"Note: on this machine nothing would run with {one_line(str(path), 1000)}: {one_line(why, 1000)}")


def _trust(path: Path) -> str:
    return f"ipysandbox policy trust {one_line(shlex.quote(str(path)), 1000)}"


def _agreed() -> bool:
    try:
        return input("Approve this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def withdraw(args: argparse.Namespace) -> int:
    path = Path(args.file) if args.file else _of_the_project()
    if approving.withdraw(path.absolute()):
        print("The approval is withdrawn: only what tightens is used.")
        return status.OK
    say(f"{whole(str(path))} was not approved")
    return status.USAGE
