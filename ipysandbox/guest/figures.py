"""Makes plotting libraries write outputs that stand alone, for sandboxes whose HTML is shown in isolated frames.

Each output has a frame of its own there, so nothing can be loaded once per notebook as Plotly, Bokeh and Altair do by
default. Plotly is told by its environment variable; the others as soon as the code has imported them.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from .after_import import after_import


def prepare() -> None:
    after_import({"bokeh.io": _bokeh, "altair": _altair})


def _bokeh(module: Any) -> None:
    """``show`` writes a whole page, with or without a call of output_notebook() before it."""

    def load(*_: Any, **__: Any) -> None:
        return None

    def show_doc(figure: Any, _state: Any, _handle: Any = None) -> None:
        from bokeh.embed import file_html
        from bokeh.resources import CDN
        from IPython.display import display

        # The address stands for the library: the host puts in its text, and this output stays small.
        display({"text/html": file_html(figure, CDN), "text/plain": repr(figure)}, raw=True)  # type: ignore[no-untyped-call]

    def show_app(*_: Any, **__: Any) -> None:
        raise RuntimeError("a Bokeh application needs a connection to the kernel, which an isolated output has not")

    module.install_notebook_hook("ipysandbox", load, show_doc, show_app)
    native = module.output_notebook

    def output_notebook(*_: Any, **__: Any) -> None:
        native(hide_banner=True, notebook_type="ipysandbox")

    module.output_notebook = output_notebook
    plotting = sys.modules.get("bokeh.plotting")
    if plotting is not None and hasattr(plotting, "output_notebook"):
        plotting.output_notebook = output_notebook  # type: ignore[attr-defined]
    output_notebook()


def _altair(module: Any) -> None:
    """The library comes with the output where vl-convert is installed, which carries it."""
    template = "inline" if importlib.util.find_spec("vl_convert") else "standard"
    module.renderers.enable("html", template=template)
