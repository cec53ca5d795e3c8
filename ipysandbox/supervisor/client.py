"""Talks to a supervisor's control API: HTTP and JSON over its unix socket. Used by every door; blocking."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipysandbox.errors import SandboxDied, SandboxError, from_json

from . import runtime

_MOST_REPLY = 64 << 20


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ControlClient:
    """One supervisor, by its runtime folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = 90.0) -> Any:
        """The decoded reply. Raises the SandboxError that the supervisor names, or SandboxDied when nobody answers."""
        connection = _UnixConnection(str(self.folder / "ctl.sock"), timeout)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read(_MOST_REPLY)
        except (OSError, http.client.HTTPException) as exc:
            raise SandboxDied(f"the sandbox supervisor does not answer ({exc})") from None
        finally:
            connection.close()
        try:
            decoded = json.loads(data) if data else None
        except ValueError:
            raise SandboxError(f"the supervisor's answer to {method} {path} is no JSON") from None
        if response.status >= 400:
            raise from_json(decoded.get("error", {}) if isinstance(decoded, dict) else {})
        return decoded


def discover(environ: Mapping[str, str] = os.environ) -> list[tuple[ControlClient, dict[str, Any]]]:
    """Every living supervisor of this user that answers, with its state."""
    found = []
    for folder in runtime.folders(environ):
        client = ControlClient(folder)
        try:
            found.append((client, client.request("GET", "/state", timeout=2.0)))
        except SandboxError:
            continue  # it is just starting or ending
    return found
