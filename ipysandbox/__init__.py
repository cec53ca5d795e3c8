"""Sandboxed cells for Jupyter and IPython: ``%load_ext ipysandbox``, then ``%%sandbox`` on top of a cell.

Public names: ``Sandbox``, ``SandboxExecutor``, ``RunResult``, ``RunError``, ``Policy``, ``Change``, ``LimitHit`` and
the errors of ``ipysandbox.errors``. They load when first used: importing this package alone costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends.base import Change as Change
    from .errors import CheckRefused as CheckRefused
    from .errors import LimitExceeded as LimitExceeded
    from .errors import NotAvailable as NotAvailable
    from .errors import PolicyError as PolicyError
    from .errors import SandboxClosed as SandboxClosed
    from .errors import SandboxDied as SandboxDied
    from .errors import SandboxError as SandboxError
    from .errors import SandboxInterrupted as SandboxInterrupted
    from .errors import StartError as StartError
    from .errors import TaskError as TaskError
    from .errors import ValueRefused as ValueRefused
    from .executor import SandboxExecutor as SandboxExecutor
    from .policy import Policy as Policy
    from .sandbox import RunError as RunError
    from .sandbox import RunResult as RunResult
    from .sandbox import Sandbox as Sandbox
    from .supervisor.limits import LimitHit as LimitHit

_HOMES = {
    "Sandbox": "sandbox",
    "SandboxExecutor": "executor",
    "RunResult": "sandbox",
    "RunError": "sandbox",
    "Policy": "policy",
    "Change": "backends.base",
    "LimitHit": "supervisor.limits",
    **dict.fromkeys(
        (
            "CheckRefused",
            "LimitExceeded",
            "NotAvailable",
            "PolicyError",
            "SandboxClosed",
            "SandboxDied",
            "SandboxError",
            "SandboxInterrupted",
            "StartError",
            "TaskError",
            "ValueRefused",
        ),
        "errors",
    ),
}
__all__ = sorted([*_HOMES, "register_joblib"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ipysandbox' has no attribute {name!r}")
    from .bootstrap import trusted_imports

    # What this package is made of must not come from a notebook's folder, which may be a stranger's.
    with trusted_imports():
        return getattr(importlib.import_module(f"ipysandbox.{_HOMES[name]}"), name)


def register_joblib() -> None:
    """Make joblib's backend "ipysandbox" known: ``joblib.parallel_config("ipysandbox")`` runs jobs in sandboxes."""
    from .bootstrap import trusted_imports

    with trusted_imports():
        from .executor.joblib import register

        register()


def load_ipython_extension(ipython: Any) -> None:
    """Called by ``%load_ext ipysandbox``: registers ``%%sandbox`` and ``%sandbox``."""
    from .bootstrap import trusted_imports

    with trusted_imports():
        from .magics import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Called by ``%unload_ext ipysandbox``: ends this kernel's sandboxes."""
    from .magics import unload

    unload(ipython)
