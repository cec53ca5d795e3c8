"""Approves a policy file on the user's order, and writes that down: the trail tells what has loosened whose default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from . import reach
from .audit import AuditError, AuditLog, default_path, events
from .policy import trust, untrust


def approve(path: Path, digest: str, *, environ: Mapping[str, str] | None = None) -> None:
    """As ``trust``. Raises AuditError, and it is not approved, where that can't be recorded."""
    trust(path, expect=digest, environ=environ)
    try:
        _record(path, trusted=True, sha256=digest)
    except AuditError:
        untrust(path, environ=environ)
        raise


def withdraw(path: Path) -> bool:
    """As ``untrust``."""
    found = untrust(path)
    if found:
        _record(path, trusted=False)
    return found


def _record(path: Path, *, trusted: bool, sha256: str | None = None) -> None:
    reach.require([default_path()])
    AuditLog().record(events.POLICY_TRUSTED, details={"path": str(path), "sha256": sha256, "trusted": trusted})
