"""Reads a cell before it runs and explains what it objects to; a tripwire, never the boundary."""

from __future__ import annotations

from ipysandbox.check.engine import check
from ipysandbox.check.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
