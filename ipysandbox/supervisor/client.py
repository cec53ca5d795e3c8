"""Talks to a supervisor's control API: HTTP and JSON over its unix socket. Used by every door; blocking."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ipysandbox.errors import SandboxDied, SandboxError, from_json

from . import runtime

_MOST_REPLY = 64 << 20
#: Of lists and objects within each other; no honest answer comes near, and what works with one recurses per level.
_MOST_DEPTH = 60
#: How much longer than each of its parts an answer may take: one that comes in drips must end too.
_WHOLE = 2


def _exchange(path: str, method: str, target: str, body: bytes, seconds: float) -> tuple[int, bytes]:
    """Status and body of one exchange of HTTP/1.0, where the reply ends with the connection. Python's own client loads
    what mail and TLS need, which takes longer than this package. ``seconds``: of each part. Raises OSError, ValueError.
    """
    head = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    until = time.monotonic() + _WHOLE * seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(seconds)
        sock.connect(path)
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
        reply = bytearray()
        while len(reply) < _MOST_REPLY and (data := sock.recv(1 << 16)):
            reply += data
            if time.monotonic() > until:
                raise TimeoutError(f"its answer is not complete after {_WHOLE * seconds:.0f} s")
    top, found, content = bytes(reply).partition(b"\r\n\r\n")
    status, *fields = top.split(b"\r\n")
    sizes = [int(field.split(b":")[1]) for field in fields if field.lower().startswith(b"content-length:")]
    if not found or sizes not in ([], [len(content)]):
        raise ValueError("the reply is cut off")
    words = status.split()
    if len(words) < 2:
        raise ValueError("the reply has no status")
    return int(words[1]), content


def _decoded(data: bytes) -> Any:
    """Raises ValueError."""
    try:
        decoded = json.loads(data) if data else None
    except RecursionError:
        raise ValueError("nested too deep") from None
    level = [decoded]
    for _ in range(_MOST_DEPTH):
        nested = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [child for children in nested for child in children]
    if level:
        raise ValueError("nested too deep")
    return decoded


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
            decoded = _decoded(data)
        except ValueError:
            raise SandboxError(f"the supervisor's answer to {method} {path} is no JSON that can be read") from None
        if status >= 400:
            raise from_json(decoded.get("error") if isinstance(decoded, dict) else None)
        return decoded


def discover(
    environ: Mapping[str, str] = os.environ,
    left_out: Callable[[ControlClient, str], None] = lambda _client, _why: None,
) -> list[tuple[ControlClient, dict[str, Any]]]:
    """Every living supervisor of this user that answers, with its state. ``left_out`` is told of those that should
    answer and do not, or with nothing that is a state, and why."""
    found = []
    for folder in runtime.folders(environ):
        client = ControlClient(folder)
        try:
            state = client.request("GET", "/state", timeout=2.0)
        except SandboxError as exc:
            if not isinstance(exc.__context__, (FileNotFoundError, ConnectionError)):  # it is just starting or ending
                left_out(client, exc.message)
            continue
        if isinstance(state, dict):
            found.append((client, state))
        else:
            left_out(client, "its answer is no state")
    return found
