"""Progress bars as text: a notebook's bar is a widget, and widgets stay inside."""

from __future__ import annotations

import sys
from typing import Any

from .after_import import after_import


def prepare() -> None:
    after_import({"tqdm.notebook": _tqdm})


def _tqdm(module: Any) -> None:
    """``tqdm.auto`` and ``tqdm.autonotebook`` take theirs from here."""
    standard = sys.modules["tqdm.std"]
    module.tqdm = module.tqdm_notebook = standard.tqdm
    module.trange = module.tnrange = standard.trange
