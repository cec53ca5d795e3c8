"""Functions and classes, into the sandbox only: they travel by cloudpickle, and loading that is running code."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pickle
import types
from collections.abc import Sequence
from typing import Any

from .values_media import ValueDecoder, ValueEncoder
from .values_plain import MAX_BYTES, Buffer, Node

_KINDS = (types.FunctionType, type, functools.partial)


class InwardEncoder(ValueEncoder):
    """On the host: what the user hands in."""

    most_text = MAX_BYTES

    def make(self, obj: Any) -> Node:
        if isinstance(obj, _KINDS) and type(obj) not in self.makers:
            return self._code(obj)
        return super().make(obj)

    def _code(self, obj: Any) -> Node:
        if importlib.util.find_spec("cloudpickle") is None:
            raise self.refusal(obj, hint=" without cloudpickle (pip install cloudpickle)")
        try:
            data = importlib.import_module("cloudpickle").dumps(obj)
        except (TypeError, ValueError, AttributeError, pickle.PicklingError, RecursionError) as exc:
            raise self.refusal(obj, hint=f": something it uses can't be pickled ({str(exc)[:200]})") from None
        return {"t": "code", "b": self.buffer(data)}


class InwardDecoder(ValueDecoder):
    """In the sandbox, where the user's code may run as well as any other."""

    def __init__(self, buffers: Sequence[Buffer], limit: int) -> None:
        super().__init__(buffers, limit)
        self.makers["code"] = lambda node: pickle.loads(self.buffer(node["b"]))
