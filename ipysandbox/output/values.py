"""The host's side of the value transfer: the same encoding, with this package's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..bootstrap import trusted_imports
from ..errors import ValueRefused
from ..guest.values import MAX_BYTES, WORKS, Buffer, Untransferable, decode, encode


def send(value: object, *, limit: int = MAX_BYTES) -> tuple[dict[str, Any], list[Buffer]]:
    """What to send into the sandbox for ``value``; raises ValueRefused if it can't cross or is over ``limit`` bytes."""
    try:
        with trusted_imports():
            return encode(value, limit=limit, inward=True)
    except Untransferable as exc:
        raise ValueRefused(str(exc)) from None


def secret_in(tree: object, buffers: Sequence[Buffer], environ: Mapping[str, str]) -> str | None:
    """The name of the variable whose secret is in what ``send`` made, if there is one."""
    from ..policy.secret_values import secret_values
    from .redact import KnownSecrets

    index = KnownSecrets(secret_values(environ)).index
    if not index.known:
        return None
    text = json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return next((name for data in (text, *map(bytes, buffers)) for _, _, name in index.find(data)), None)


def receive(tree: object, buffers: Sequence[Buffer], *, limit: int = MAX_BYTES, own: bool = False) -> Any:
    """The value a sandbox sent; raises ValueRefused for anything but well-formed data of at most ``limit`` bytes.

    ``own``: the buffers are the value's to keep.
    """
    try:
        with trusted_imports():
            return decode(tree, buffers, limit=limit, own=own)
    except ValueError as exc:
        raise ValueRefused(
            f"the sandbox sent a value that can't be accepted: {str(exc)[:300]}", hint=f"What can cross: {WORKS}."
        ) from None
