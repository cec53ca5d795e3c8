"""Writes one sandbox's records to the audit log: what is about to happen, and what has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipysandbox.audit import AuditError, AuditLog, events
from ipysandbox.audit.record import Severity
from ipysandbox.backends.base import NotLookedAt
from ipysandbox.output.redact import Redactor
from ipysandbox.output.text import clean_characters


class Trail:
    """Records under the name of one sandbox; ``notices`` tells its user when a record could not be written.

    ``tell``, if given, gets each record that was written.
    """

    def __init__(
        self,
        audit: AuditLog,
        sandbox: str,
        notebook: str | None,
        notices: list[str],
        redactor: Redactor,
        tell: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._audit, self._sandbox, self._notebook, self._notices = audit, sandbox, notebook, notices
        self._redactor, self._tell = redactor, tell

    def before(self, action: str, *, severity: Severity = "info", **details: Any) -> None:
        """Record what is about to happen. Raises AuditError: then it must not happen."""
        details = self._redactor.value(details)
        record = self._audit.record(
            action, sandbox=self._sandbox, notebook=self._notebook, severity=severity, details=details
        )
        if self._tell is not None:
            self._tell(record)

    def after(self, action: str, *, severity: Severity = "info", **details: Any) -> None:
        """Record what has happened. It can't be undone, so a trail that fails is told, and the next cell is refused."""
        try:
            self.before(action, severity=severity, **details)
        except AuditError as exc:
            self._notices.append(f"The audit trail could not be written: {exc.message}")

    def swept(self, removed: list[str], whence: str = "") -> None:
        """Tell and record what was disarmed in writable folders, if anything, and where not all could be looked at; one
        phrase each, names hostile."""
        missed = [_harmless(text) for text in removed if isinstance(text, NotLookedAt)]
        removed = [_harmless(text) for text in removed if not isinstance(text, NotLookedAt)]
        if removed:
            shown = ", ".join(removed[:5]) + (f" and {len(removed) - 5} more" if len(removed) > 5 else "")
            self._notices.append(f"Disarmed in writable folders{whence}: {shown}.")
            self.after(events.FILES_SWEPT, severity="warning", removed=removed[:100])
        if missed:
            self._notices.extend(f"Not all could be disarmed{whence}: {text}." for text in missed)
            self.after(events.FILES_SWEPT, severity="alert", removed=[], missed=missed)


def _harmless(text: str) -> str:
    return " ".join(clean_characters(text).split())
