"""Turns values into JSON plus raw buffers and back, without pickle: the same code runs in the sandbox and on the host.

``encode`` gives a tree that names a kind for all that JSON has no word for, and the buffers that it points into.
``decode`` runs on the host on whatever a sandbox sent. It builds only the types below, checks every field against its
type and every length against its buffer before it allocates, and calls no constructor that the tree could choose.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .values_code import InwardDecoder, InwardEncoder
from .values_media import ValueDecoder, ValueEncoder
from .values_plain import MAX_BYTES, MAX_TEXT, MOST_ITEMS, WORKS, Buffer, Untransferable

__all__ = ["MAX_BYTES", "MAX_TEXT", "MOST_ITEMS", "WORKS", "Buffer", "Untransferable", "decode", "encode"]

_VERSION = 1


def encode(obj: object, *, limit: int = MAX_BYTES, inward: bool = False) -> tuple[dict[str, Any], list[Buffer]]:
    """``obj`` as a JSON-able tree and the buffers it refers to by index; large arrays are not copied.

    ``inward``: into the sandbox, which may also get functions and classes.

    Raises Untransferable for a type that can't cross, for a container that holds itself, and above ``limit`` bytes.
    """
    encoder = (InwardEncoder if inward else ValueEncoder)(limit)
    node = encoder.node(obj)
    if not inward and _items(node) > MOST_ITEMS:
        raise Untransferable(
            f"the value has more than {MOST_ITEMS:,} items, which is more than can leave a sandbox one by one. "
            "Make it an array (numpy.array), or a table of fewer columns."
        )
    return {"v": _VERSION, "value": node}, encoder.buffers


def _items(node: object) -> int:
    """How many items its JSON will have; those beyond the limit are not counted."""
    found, level = 0, [node]
    while level and found <= MOST_ITEMS:
        item = level.pop()
        if isinstance(item, (list, dict)):
            found += max(1, len(item))
            level += item.values() if isinstance(item, dict) else item
    return found


def places(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Address and length of each in this process's memory."""
    return [[_address(memoryview(buffer).cast("B")), len(buffer)] for buffer in buffers]


def _address(view: memoryview) -> int:
    """Where a view's bytes are, whether or not they may be written (Py_buffer begins with that)."""
    described = (ctypes.c_void_p * 16)()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), described, 0)
    try:
        return described[0] or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(described)


def decode(
    tree: object, buffers: Sequence[Buffer], *, limit: int = MAX_BYTES, inward: bool = False, own: bool = False
) -> Any:
    """The value that ``encode`` described; ``tree`` and ``buffers`` may be hostile, unless ``inward``.

    ``own``: the buffers may be written and are nobody else's, so that arrays can be made of them without a copy.

    Raises ValueError for anything ``encode`` would not have made, and before using more than about ``limit`` bytes.
    """
    if type(tree) is not dict or tree.get("v") != _VERSION or "value" not in tree:
        raise ValueError("not a value of this version of ipysandbox")
    decoder = (InwardDecoder if inward else ValueDecoder)(buffers, limit)
    if own:
        decoder.own.update(range(len(buffers)))
    try:
        return decoder.node(tree["value"])
    except ImportError as exc:
        raise ValueError(f"the value needs {exc.name or 'a package'}, which is not installed on this side") from None
    except ValueError:
        raise
    except Exception as exc:  # noqa: BLE001 - what libraries raise when fields of the right type don't fit each other
        raise ValueError(f"malformed value ({type(exc).__name__})") from None
