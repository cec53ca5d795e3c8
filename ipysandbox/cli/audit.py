"""`ipysandbox audit tail`, `query`, `export` and `verify`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any

from ipysandbox.arguments import meant
from ipysandbox.audit import AuditError, iter_records
from ipysandbox.audit import tail as newest
from ipysandbox.audit import verify as examine
from ipysandbox.audit.events import ACTIONS
from ipysandbox.audit.export import exported
from ipysandbox.display_tables import record_text
from ipysandbox.policy.units import BadValue, parse_duration

from . import status
from .say import say


def tail(args: argparse.Namespace) -> int:
    return _print(args, lambda wanted: list(reversed(newest(args.n, **wanted))))


def query(args: argparse.Namespace) -> int:
    return _print(args, lambda wanted: iter_records(**wanted))


def export(args: argparse.Namespace) -> int:
    return _print(args, lambda wanted: iter_records(**wanted))


def verify(_args: argparse.Namespace) -> int:
    """Exit status 1 where the log has a gap or lines that are no records."""
    try:
        report = examine()
    except (AuditError, OSError) as exc:
        say(str(exc))
        return status.USAGE
    print(report.text())
    return status.OK if report.ok else status.FAILED


def _print(args: argparse.Namespace, read: Any) -> int:
    wanted = {key: getattr(args, key) for key in ("action", "sandbox", "notebook", "severity")}
    try:
        wanted["since"] = _moment(args.since) if args.since else None
        records: Iterable[dict[str, Any]] = read(wanted)
        found = False
        for line in _lines(records, args):
            found = True
            sys.stdout.write(line)
        if not found:
            _require_known(args.action)
    except (BadValue, AuditError, OSError) as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        say(str(exc))
        return status.USAGE
    return status.OK


def _lines(records: Iterable[dict[str, Any]], args: argparse.Namespace) -> Iterable[str]:
    if hasattr(args, "format"):
        return exported(records, args.format)
    return (f"{json.dumps(record) if args.json else record_text(record)}\n" for record in records)


def _require_known(action: str | None) -> None:
    """Nothing found and misspelled must not look the same. Asked last: a log may hold actions of other versions."""
    if action is None or any(fnmatchcase(known, action) for known in ACTIONS):
        return
    known = sorted(ACTIONS)
    near = meant(action, known) or f" (there are {', '.join(known)})"
    raise BadValue(f"--action: nothing is recorded as {action!r}{near}")


def _moment(text: str) -> datetime:
    """An ISO date or time (local without a zone), or how long ago."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return datetime.now(timezone.utc) - timedelta(seconds=parse_duration(text))
    except BadValue:
        raise BadValue(
            f"--since: {text!r} is neither a time, such as 2031-05-01T12:00, nor an age, such as 2h"
        ) from None
