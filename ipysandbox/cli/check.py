"""`ipysandbox check FILE…`: what the check would say, without running anything."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from ipysandbox.check import Report, check
from ipysandbox.cwd import current_folder
from ipysandbox.display import in_lines
from ipysandbox.policy import Effective, resolve

from . import status
from .say import say
from .source import NotReadable, read


def checked(text: str, effective: Effective) -> Report:
    """What the check says under this policy."""
    code, writable = effective.policy.code, effective.writable_names()
    return check(text, profile=code.profile, deny=code.deny, allow=code.allow, writable=writable)


def check_files(args: argparse.Namespace) -> int:
    effective = resolve(args.policy, cwd=current_folder(), environ=os.environ)
    worst, reports = status.OK, []
    for path in args.files:
        try:
            source = read(path)
        except NotReadable as exc:
            say(str(exc))
            worst = status.USAGE
            continue
        if source.problem:
            found: dict[str, Any] = {"verdict": "refused", "findings": [], "problem": source.problem}
            text = in_lines(f"{source.problem}: refused")
        else:
            report = checked(source.text, effective)
            found, text = report.to_json(), report.render(source.name)
        reports.append({"file": source.name, **found})
        if found["verdict"] != "ok" and worst == status.OK:
            worst = status.REFUSED
        if not args.json:
            print(text)
    if args.json:
        print(json.dumps(reports))
    return worst
