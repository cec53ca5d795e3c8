"""Starts the supervisor process of this host process, once, and finds it again."""

from __future__ import annotations

import atexit
import json
import os
import platform
import subprocess
import threading
from pathlib import Path
from typing import Any

from ipysandbox import bootstrap
from ipysandbox.backends.linux.uses import KERNELS
from ipysandbox.errors import NotAvailable, SandboxDied, StartError, from_json
from ipysandbox.policy.secret_values import secret_values

from .client import ControlClient

#: From the request to end until the process is killed. A busy machine takes long to sweep results/ and to end in order.
_STOP_SECONDS = 30.0


class Supervisor:
    """The supervisor of this process: started on first use, ended with the process."""

    _lock = threading.Lock()
    _current: Supervisor | None = None

    def __init__(self, use: str = KERNELS) -> None:
        """``use``: what it is wanted for first, and gets ready for."""
        if platform.system() != "Linux":
            raise NotAvailable(
                f"this version sandboxes on Linux only, not on {platform.system()}",
                hint="Run the notebook on Linux, in WSL 2 or in a Linux virtual machine. Nothing was run.",
            )
        self._environ = _environment()  # which the supervisor inherits
        read, write = os.pipe()
        code = "from ipysandbox.supervisor.entry import main; main(int(argv[0]), int(argv[1]), argv[2])"
        try:
            self._process = subprocess.Popen(
                bootstrap.command(code, [str(os.getpid()), str(write), use]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("IPYSANDBOX_DEBUG") else subprocess.DEVNULL,
                pass_fds=[write],
                cwd="/",
                # Out of the terminal's foreground group: Ctrl-C in a shell is for the host process.
                start_new_session=True,
            )
        except OSError as exc:
            os.close(read)
            raise StartError(f"the sandbox supervisor could not be started: {exc}") from None
        finally:
            os.close(write)
        with os.fdopen(read) as file:
            answer = file.read()
        if not answer:
            code_text = self._process.wait()
            raise StartError(
                f"the sandbox supervisor ended at its start (status {code_text})",
                hint="Set IPYSANDBOX_DEBUG=1 and try again to see its error.",
            )
        message: dict[str, Any] = json.loads(answer)
        if "error" in message:
            self._process.wait()
            raise from_json(message["error"])
        self.pid = self._process.pid
        self.client = ControlClient(Path(message["folder"]))
        self._owner = os.getpid()

    @classmethod
    def current(cls, use: str = KERNELS) -> Supervisor:
        """This process's supervisor; a new one if none runs (any more), or after a fork."""
        with cls._lock:
            running = cls._current
            if running is None or running._owner != os.getpid() or not running.alive():
                cls._current = cls(use)
                if running is None:
                    atexit.register(cls._stop_current)
            assert cls._current is not None
            return cls._current

    @classmethod
    def _stop_current(cls) -> None:
        if cls._current is not None and cls._current._owner == os.getpid():
            cls._current.stop()

    def alive(self) -> bool:
        return self._process.poll() is None

    def request(self, method: str, path: str, body: Any = None, *, timeout: float = 90.0) -> Any:
        return self.client.request(method, path, body, timeout=timeout)

    def tell_secrets(self) -> None:
        """Tell it the secrets that came into this process's environment since, for it to keep out of outputs."""
        environ = _environment()
        if environ == self._environ:
            return
        secrets = secret_values(environ)
        if secrets and secrets != secret_values(self._environ):
            self.request("POST", "/secrets", secrets)
        self._environ = environ

    def stop(self) -> None:
        """End the supervisor and its sandboxes; returns when they are gone."""
        if self.alive():
            try:
                self.request("POST", "/shutdown", timeout=5.0)
            except SandboxDied:
                self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _environment() -> dict[str, str]:
    """A copy that another thread's changes don't disturb."""
    return {name: os.environ.get(name, "") for name in list(os.environ)}
