"""Progress bars as text where a notebook's bar, which is a widget, would not be seen."""

from __future__ import annotations

import sys
from typing import Any

from .after_import import after_import


def prepare(*, widgets: bool) -> None:
    """``widgets``: whether they are seen outside this sandbox."""

    def tqdm(module: Any) -> None:
        if not widgets or module.IProgress is None:  # or ipywidgets is not installed
            _as_text(module)

    after_import({"tqdm.notebook": tqdm})


def _as_text(module: Any) -> None:
    """``tqdm.auto`` and ``tqdm.autonotebook`` take theirs from here."""
    standard = sys.modules["tqdm.std"]
    module.tqdm = module.tqdm_notebook = standard.tqdm
    module.trange = module.tnrange = standard.trange
