"""The error of a log that can't be written or trusted."""

from __future__ import annotations

from ipysandbox.errors import SandboxError


class AuditError(SandboxError):
    """The audit log can't be opened, or a record could not be written; what was to be recorded must not go on."""

    kind = "audit"
