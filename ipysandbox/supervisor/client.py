"""Talks to a supervisor's control API: HTTP and JSON over its unix socket. Used by every door; blocking."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ipysandbox.errors import SandboxDied, SandboxError, from_json

from . import runtime

_MOST_REPLY = 64 << 20


def _exchange(path: str, method: str, target: str, body: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body of one exchange of HTTP/1.0, where the reply ends with the connection. Python's own client loads
    what mail and TLS need, which takes longer than this package. Raises OSError, ValueError.
    """
    head = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(seconds)
        sock.connect(path)
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
        reply = bytearray()
        while len(reply) < _MOST_REPLY and (data := sock.recv(1 << 16)):
            reply += data
    top, found, content = bytes(reply).partition(b"\r\n\r\n")
    status, *fields = top.split(b"\r\n")
    sizes = [int(field.split(b":")[1]) for field in fields if field.lower().startswith(b"content-length:")]
    if not found or sizes not in ([], [len(content)]):
        raise ValueError("the reply is cut off")
    return int(status.split()[1]), content


class ControlClient:
    """One supervisor, by its runtime folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = 90.0) -> Any:
        """The decoded reply. Raises the SandboxError that the supervisor names, or SandboxDied when nobody answers."""
        try:
            payload = b"" if body is None else json.dumps(body).encode()
            status, data = _exchange(str(self.folder / "ctl.sock"), method, quote(path, safe="/%"), payload, timeout)
        except (OSError, ValueError) as exc:
            raise SandboxDied(f"the sandbox supervisor does not answer ({exc})") from None
        try:
            decoded = json.loads(data) if data else None
        except ValueError:
            raise SandboxError(f"the supervisor's answer to {method} {path} is no JSON") from None
        if status >= 400:
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
