"""What may leave a sandbox: cleaned outputs and values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cleaner import Cleaner as Cleaner
    from .redact import KnownSecrets as KnownSecrets
    from .text import TextCleaner as TextCleaner
    from .text import clean_text as clean_text

# Loaded when first used: only the supervisor cleans, and the doors, which take values, start faster without it.
_HOMES = {"Cleaner": "cleaner", "KnownSecrets": "redact", "TextCleaner": "text", "clean_text": "text"}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ipysandbox.output' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ipysandbox.output.{_HOMES[name]}"), name)
