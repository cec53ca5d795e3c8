"""Packs a function and its arguments for a sandbox, and refuses what holds a secret of this process."""

from __future__ import annotations

import importlib
import os
import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ipysandbox.errors import NotAvailable, ValueRefused

from .by_value import Elsewhere, by_value

#: Before a packed call: bytes of the function; its arguments follow to the end. ``supervisor.task_run`` reads it.
_SIZE = struct.Struct("!I")
_MOST_FUNCTION = 1 << 31


def parts(call: bytes) -> tuple[bytes, bytes]:
    """The pickles of a packed call: its function, its arguments."""
    at = _SIZE.size + _SIZE.unpack_from(call)[0]
    return call[_SIZE.size : at], call[at:]


class Packer:
    """One executor's: it looks for secrets as they are in the environment now."""

    def __init__(self, project: Path, *, allow_secrets: bool = False) -> None:
        try:
            self._cloudpickle = importlib.import_module("cloudpickle")
        except ImportError:
            raise NotAvailable(
                "functions go into a sandbox by cloudpickle, which is not installed",
                hint="pip install ipysandbox[values]",
            ) from None
        self._elsewhere = Elsewhere(project)
        self._allow_secrets = allow_secrets
        self._known: tuple[dict[str, str], Any] | None = None

    def function(self, fn: Callable[..., Any]) -> bytes:
        """``fn`` alone, for many calls of it. Raises ValueRefused if it can't be pickled, or holds a secret."""
        return self._packed(fn, "the function")

    def call(self, function: bytes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """A call of what ``function`` has packed. Raises ValueRefused."""
        return _SIZE.pack(len(function)) + function + self._packed((args, dict(kwargs)), "an argument")

    def _packed(self, value: object, what: str) -> bytes:
        try:
            with by_value(self._cloudpickle, self._elsewhere.modules()):
                data: bytes = self._cloudpickle.dumps(value, protocol=5)
        except (TypeError, ValueError, AttributeError, pickle.PicklingError, RecursionError) as exc:
            raise ValueRefused(
                f"{what} can't be sent into a sandbox: something it uses can't be pickled ({str(exc)[:200]})"
            ) from None
        if len(data) >= _MOST_FUNCTION:
            raise ValueRefused(f"{what} has {len(data) >> 20} MiB, which is too much to send into a sandbox")
        secret = None if self._allow_secrets else self._secret_in(data)
        if secret is not None:
            raise ValueRefused(
                f"{what} holds the secret of the environment variable {secret}",
                hint="If the code is to have it: SandboxExecutor(…, allow_secrets=True).",
            )
        return data

    def _secret_in(self, data: bytes) -> str | None:
        environ = {name: os.environ.get(name, "") for name in list(os.environ)}
        if self._known is None or self._known[0] != environ:
            from ipysandbox.output.redact import KnownSecrets
            from ipysandbox.policy.secret_values import secret_values

            self._known = environ, KnownSecrets(secret_values(environ)).index
        index = self._known[1]
        return next((name for _, _, name in index.find(data)), None) if index.known else None
