"""Approves a policy file, withdraws that, and says what waits for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ipysandbox.errors import PolicyError

from . import approvals
from .discovery import find_project, find_project_policy, home_folders, user_file
from .merge import NotGranted, too_much
from .resolution import counts_in_full, loosens, require_usable
from .schema import first_error, read_table
from .source import Document, read_required


def trust(
    path: Path, *, expect: str | None = None, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> str:
    """Approve a policy file as it is now; its SHA-256 is returned. PolicyError if it is no valid policy, one
    that would make an error of every run once it counts in full, or one that asks for more than anybody could read.

    ``expect`` is the hash of what the user was shown: if the file changed in between, nothing is approved.
    """
    environ = os.environ if environ is None else environ
    document = read_required(path)
    first_error(read_table(document.table, str(path), document, credentials_ok=False)[1])
    if expect not in (None, document.sha256):
        raise PolicyError("the policy changed since it was shown", file=str(path), hint="look at it again")
    _require_approvable(document, environ, home)
    approvals.approve(document, _store(environ, home))
    return document.sha256


def check_approvable(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> None:
    """PolicyError if ``trust`` would refuse this project's policy: every run would be an error with it, or it asks for
    more than anybody could read."""
    _require_approvable(read_required(path), os.environ if environ is None else environ, home)


def _require_approvable(document: Document, environ: Mapping[str, str], home: Path | None) -> None:
    require_usable(document, environ=environ, home=home)
    digest, wishes = loosens(document.path, environ=environ, home=home)
    if digest != document.sha256:
        raise PolicyError("the policy changed while it was read", file=str(document.path), hint="look at it again")
    if why := too_much(wishes):
        hint = "name folders or patterns instead of single files, or what you need of it in your own policy"
        raise PolicyError(why, file=str(document.path), hint=hint)


def untrust(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> bool:
    """Withdraw the approval of a policy, which need not exist any more; False if there was none."""
    return approvals.withdraw(path, _store(environ, home))


def is_trusted(path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> bool:
    """Has the user approved this policy as it is now?"""
    document = read_required(path)
    return approvals.approved_hash(document, _store(environ, home)) == document.sha256


def project_policy(cwd: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Path | None:
    """The policy file for code run in ``cwd``; None if there is none. PolicyError if it can't be read."""
    environ = os.environ if environ is None else environ
    document = find_project_policy(cwd, home_folders(environ, home))
    return None if document is None else document.path


def policies_in_force(
    cwd: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> dict[Path, Path]:
    """The policy files that speak about code run in ``cwd``, the project's and the user's own, those that there are;
    and the folder from which each one's paths are looked up."""
    environ = os.environ if environ is None else environ
    of_project, own = (
        project_policy(cwd, environ=environ, home=home),
        user_file(environ, home_folders(environ, home)[0]),
    )
    found = {} if of_project is None else {of_project: of_project.parent}
    return found if own is None else {**found, own: find_project(cwd, home=home, environ=environ)}


def not_counted(
    path: Path, *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> tuple[NotGranted, ...]:
    """What of a policy file does not count before it is approved; nothing of the user's own files waits."""
    environ = os.environ if environ is None else environ
    if counts_in_full(path, environ=environ, home=home) or is_trusted(path, environ=environ, home=home):
        return ()
    return loosens(path, environ=environ, home=home)[1]


def _store(environ: Mapping[str, str] | None, home: Path | None) -> Path:
    environ = os.environ if environ is None else environ
    return approvals.trust_file(environ, home_folders(environ, home)[0])
