"""What libraries put off until they are used for the first time (milliseconds): the zygote does it for all sandboxes,
and one that waits ready does it again, in pages of its own that its first cell would have to copy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def _use_pandas(pandas: Any) -> None:
    # Without text: that is Arrow's, whose first piece of it takes a gigabyte of addresses, which counts in each child.
    table = pandas.DataFrame({0: [1.0, 2.0]})
    table[0].sum()
    if "pyarrow" in sys.modules:
        importlib.import_module("pyarrow.pandas_compat")


_WAYS: Mapping[str, Callable[[Any], None]] = {"pandas": _use_pandas}


def of(name: str) -> None:
    """Of a library that is loaded, if there is anything to do."""
    if name in _WAYS:
        _WAYS[name](sys.modules[name])


def of_all() -> None:
    """Of those that are loaded."""
    for name in _WAYS.keys() & sys.modules.keys():
        of(name)
