"""What may leave a sandbox: cleaned outputs and values."""

from __future__ import annotations

from .cleaner import Cleaner
from .text import TextCleaner, clean_text

__all__ = ["Cleaner", "TextCleaner", "clean_text"]
