"""Which modules a pickled call names: loaded once for all tasks, they need not be imported in each."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Iterator

#: As far as a pickle is looked into, in bytes and in names.
_MOST_BYTES, _MOST_NAMES = 256 << 10, 64
#: What every nursery has, or must not get.
_LEFT_OUT = ("__main__", "builtins", "cloudpickle", "ipysandbox", "numpy")


def named_in(*pickles: bytes) -> tuple[str, ...]:
    """Installed modules that this process has loaded too and whose names stand in ``pickles``."""
    from ipysandbox.backends.linux.layout import interpreter_places

    found: dict[str, None] = {}
    places = tuple(f"{place}/" for place in interpreter_places())
    for data in pickles:
        for text in _texts(data[:_MOST_BYTES]):
            if len(found) < _MOST_NAMES and text in sys.modules and text.split(".")[0] not in _LEFT_OUT:
                spec = getattr(sys.modules[text], "__spec__", None)
                origin = getattr(spec, "origin", None) or ""
                if spec is not None and spec.name == text and "site-packages" in origin and origin.startswith(places):
                    found[text] = None
    return tuple(found)


def _texts(data: bytes) -> Iterator[str]:
    try:
        for _, argument, _ in pickletools.genops(data):
            if isinstance(argument, str) and len(argument) < 200:
                yield argument
    except Exception:  # noqa: BLE001 - cut off in the middle, which is where this ends
        return
