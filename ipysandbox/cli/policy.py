"""`ipysandbox policy show`, `lint`, `trust` and `untrust`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ipysandbox.display_tables import policy_text
from ipysandbox.policy import lint, loosens, resolve, trust, untrust

from . import status


def show(args: argparse.Namespace) -> int:
    effective = resolve(args.policy, cwd=Path.cwd(), environ=os.environ).to_json()
    print(json.dumps(effective) if args.json else policy_text(effective))
    return status.OK


def lint_files(args: argparse.Namespace) -> int:
    problems = [problem for path in args.files for problem in lint(Path(path))]
    for problem in problems:
        print(f"{problem}", file=sys.stderr)
    if not problems:
        print("No problem found.")
    return status.USAGE if problems else status.OK


def approve(args: argparse.Namespace) -> int:
    """Show the difference, ask, and approve exactly what was shown."""
    path = Path(args.file).absolute()
    digest, wishes = loosens(path, environ=os.environ)
    if wishes:
        print(f"{path} asks for more than you allow by default:")
        for wish in wishes:
            print(f"  {wish}")
    else:
        print(f"{path} asks for nothing beyond what you allow by default.")
    if not args.yes and not _agreed():
        print("Not approved; only what tightens is used.", file=sys.stderr)
        return status.USAGE
    trust(path, expect=digest)
    print("Approved as it is now; a change asks again.")
    return status.OK


def _agreed() -> bool:
    try:
        return input("Approve this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def withdraw(args: argparse.Namespace) -> int:
    if untrust(Path(args.file).absolute()):
        print("The approval is withdrawn: only what tightens is used.")
        return status.OK
    print(f"ipysandbox: {args.file} was not approved", file=sys.stderr)
    return status.USAGE
