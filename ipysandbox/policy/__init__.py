"""What a sandbox is allowed: the policy's model, its files and profiles, and whom to believe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ipysandbox.errors import PolicyError

from . import approvals
from .discovery import find_project, home_folders
from .linting import lint
from .model import Effective, Policy
from .patterns import Matcher, compile_patterns, is_hidden
from .profiles import PROFILES
from .resolution import loosens, resolve
from .schema import Problem, first_error, read_table
from .source import read_required
from .units import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "PROFILES",
    "Effective",
    "Matcher",
    "Policy",
    "PolicyError",
    "Problem",
    "compile_patterns",
    "find_project",
    "format_duration",
    "format_size",
    "is_hidden",
    "is_trusted",
    "lint",
    "loosens",
    "parse_duration",
    "parse_size",
    "resolve",
    "trust",
    "untrust",
]


def trust(
    path: Path, *, expect: str | None = None, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> str:
    """Approve a project's policy as it is now; its SHA-256 is returned. PolicyError if it is no valid policy.

    ``expect`` is the hash of what the user was shown: if the file changed in between, nothing is approved.
    """
    document = read_required(path)
    first_error(read_table(document.table, str(path), document, credentials_ok=False)[1])
    if expect not in (None, document.sha256):
        raise PolicyError("the policy changed since it was shown", file=str(path), hint="look at it again")
    approvals.approve(document, _store(environ, home))
    return document.sha256


def untrust(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> bool:
    """Withdraw the approval of a policy, which need not exist any more; False if there was none."""
    return approvals.withdraw(path, _store(environ, home))


def is_trusted(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> bool:
    """Has the user approved this policy as it is now?"""
    document = read_required(path)
    return approvals.approved_hash(document, _store(environ, home)) == document.sha256


def _store(environ: Mapping[str, str] | None, home: Path | None) -> Path:
    environ = os.environ if environ is None else environ
    return approvals.trust_file(environ, home_folders(environ, home)[0])
