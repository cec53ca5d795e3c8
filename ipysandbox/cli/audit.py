"""`ipysandbox audit tail` and `query`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from ipysandbox.audit import AuditError, iter_records
from ipysandbox.audit import tail as newest
from ipysandbox.display_tables import record_text
from ipysandbox.policy.units import BadValue, parse_duration

from . import status


def tail(args: argparse.Namespace) -> int:
    return _print(args, lambda wanted: list(reversed(newest(args.n, **wanted))))


def query(args: argparse.Namespace) -> int:
    return _print(args, lambda wanted: iter_records(**wanted))


def _print(args: argparse.Namespace, read: Any) -> int:
    wanted = {key: getattr(args, key) for key in ("action", "sandbox", "notebook", "severity")}
    try:
        wanted["since"] = _moment(args.since) if args.since else None
        records: Iterable[dict[str, Any]] = read(wanted)
        for record in records:
            print(json.dumps(record) if args.json else record_text(record))
    except (BadValue, AuditError, OSError) as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        print(f"ipysandbox: {exc}", file=sys.stderr)
        return status.USAGE
    return status.OK


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
