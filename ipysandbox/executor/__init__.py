"""Calls of functions, each in a sandbox of its own: ``SandboxExecutor``, a ``concurrent.futures.Executor``."""

from __future__ import annotations

from .pool import SandboxExecutor

__all__ = ["SandboxExecutor"]
