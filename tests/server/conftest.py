"""A Jupyter server with the extension, and supervisors that a test scripts or that are real."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

# Its fixtures start servers by themselves (autouse): they belong in this folder only, so this is no `pytest_plugins`.
from pytest_jupyter.jupyter_server import *  # noqa: F403

from ipysandbox.audit import AuditLog


@pytest.fixture
def jp_server_config() -> dict[str, Any]:
    return {
        "ServerApp": {
            "jpserver_extensions": {"ipysandbox.server": True},
            # Fails the start if any of our verbs forgot to ask who it is.
            "allow_unauthenticated_access": False,
        }
    }


@pytest.fixture
def runtime_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This user's runtime directory; not below tmp_path, whose names are too long for a socket's address."""
    folder = Path(tempfile.mkdtemp(prefix="ipys-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    root = folder / "ipysandbox"
    root.mkdir(mode=0o700)
    yield root
    shutil.rmtree(folder)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AuditLog]:
    """This user's audit trail."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with AuditLog() as trail:
        yield trail


@pytest.fixture
def study(jp_root_dir: Path) -> Path:
    """A stranger's project with a notebook's folder, whose policy asks for more than the user allows."""
    folder = jp_root_dir / "study"
    folder.mkdir()
    (folder / "ipysandbox.toml").write_text('[limits]\nmemory = "64GiB"\ncpu = "10s"\n')
    return folder


class ScriptedSupervisor(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers on a real control socket with what the test says; keeps what it was asked."""

    daemon_threads = True

    def __init__(self, folder: Path, state: Any) -> None:
        folder.mkdir(mode=0o700)
        self.folder, self.state = folder, state
        self.requests: list[tuple[str, str]] = []
        self.policy: Any = {}
        self.answer: tuple[int, Any] = (200, {"status": "ok"})
        #: Sent as it is, in place of any answer; and whether it then goes on in drips.
        self.raw: bytes | None = None
        self.drips = False
        self.silent = threading.Event()
        self.closing = threading.Event()
        self.lock = open(folder / "lock", "w")  # noqa: SIM115
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        super().__init__(str(folder / "ctl.sock"), _Answer)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()
        self.lock.close()


class _Answer(BaseHTTPRequestHandler):
    server: ScriptedSupervisor

    def do_GET(self) -> None:
        self.server.requests.append(("GET", self.path))
        self._send(200, self.server.policy if self.path.endswith("/policy") else self.server.state)

    def do_POST(self) -> None:
        self.server.requests.append(("POST", self.path))
        # A server that closes before it has read all resets the connection, and its answer may be lost with it.
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send(*self.server.answer)

    def _send(self, status: int, body: Any) -> None:
        if self.server.silent.is_set():
            self.server.closing.wait()
            return
        if self.server.raw is not None:
            self.wfile.write(self.server.raw)
            with contextlib.suppress(OSError):
                while self.server.drips and not self.server.closing.wait(0.2):
                    self.wfile.write(b" ")
            return
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "unix socket"

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def supervisor(runtime_root: Path) -> Iterator[Callable[..., ScriptedSupervisor]]:
    started: list[ScriptedSupervisor] = []

    def start(name: str = "aaaaaaaaaaaa", **state: Any) -> ScriptedSupervisor:
        started.append(ScriptedSupervisor(runtime_root / name, {"pid": 7, "host_pid": 6, "sandboxes": [], **state}))
        return started[-1]

    yield start
    for one in started:
        one.stop()
