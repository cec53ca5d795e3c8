"""The trail: one JSON line for everything that happened to a sandbox, written by several processes at once."""

from __future__ import annotations

from ipysandbox.audit.errors import AuditError
from ipysandbox.audit.log import AuditLog, default_path
from ipysandbox.audit.query import iter_newest, iter_records, tail
from ipysandbox.audit.verify import verify

__all__ = ["AuditError", "AuditLog", "default_path", "iter_newest", "iter_records", "tail", "verify"]
