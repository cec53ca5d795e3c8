"""A lean client of the Jupyter protocol, used alike on a plain ipykernel and on a sandbox's relay.

jupyter_client's own blocking client waits in steps of up to 0.2 s at a start and costs some milliseconds a cell; a
sandbox would look better against it than it is.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from ipysandbox.supervisor.spawn import Supervisor

PLAIN = "plain ipykernel"
#: libzmq tries a socket that is not there yet again after so long; its default of 100 ms would be seen in the figures.
_RETRY_MS = 1
#: How long a subscription may take to arrive before the kernel is asked once more.
_SUBSCRIBED_MS = 100
#: No cell here takes as long; the kernel has died.
_ANSWER_MS = 120_000


class Client:
    """One cell at a time on one kernel."""

    def __init__(self, endpoints: Mapping[str, str], key: bytes, close: Callable[[], None]) -> None:
        self._session = Session(key=key)
        self._context = zmq.Context()
        self._close = close
        self._shell = self._connect(zmq.DEALER, endpoints["shell"])
        self._iopub = self._connect(zmq.SUB, endpoints["iopub"])
        self._iopub.subscribe(b"")

    def _connect(self, kind: int, path: str) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.linger, sock.reconnect_ivl, sock.rcvhwm = 0, _RETRY_MS, 0
        sock.connect("ipc://" + path)
        return sock

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        message = self._session.msg(kind, content)
        self._session.send(self._shell, message)
        return str(message["header"]["msg_id"])

    def _receive(self, sock: zmq.Socket[bytes], request: str) -> tuple[str, dict[str, Any]] | None:
        """Type and content of the next message, if it answers ``request``."""
        if not sock.poll(_ANSWER_MS):
            raise RuntimeError("the kernel does not answer")
        _, message = self._session.recv(sock)
        if message is None or message["parent_header"].get("msg_id") != request:
            return None
        return message["msg_type"], message["content"]

    def first(self, code: str, expression: str) -> str:
        """Runs before the subscription to outputs may be there: the value of ``expression`` comes with the reply."""
        content = {"code": code, "user_expressions": {"value": expression}, "allow_stdin": False}
        request = self._send("execute_request", content)
        while (answer := self._receive(self._shell, request)) is None:
            pass
        return str(answer[1]["user_expressions"]["value"]["data"]["text/plain"])

    def until_subscribed(self) -> None:
        """Returns when outputs arrive here."""
        while True:
            request = self._send("kernel_info_request", {})
            while self._iopub.poll(_SUBSCRIBED_MS):
                if self._receive(self._iopub, request):
                    while self._receive(self._shell, request) is None:
                        pass
                    return

    def run(self, code: str) -> str:
        """Text that the cell printed or gave, once its reply and its "idle" are both in."""
        request = self._send("execute_request", {"code": code, "user_expressions": {}, "allow_stdin": False})
        text: list[str] = []
        idle = False
        while not idle:
            message = self._receive(self._iopub, request)
            if message is None:
                continue
            kind, content = message
            idle = kind == "status" and content["execution_state"] == "idle"
            if kind == "stream":
                text.append(content["text"])
            elif kind in ("execute_result", "display_data"):
                text.append(content["data"]["text/plain"])
            elif kind == "error":
                raise RuntimeError(f"{content['ename']}: {content['evalue']}")
        while self._receive(self._shell, request) is None:
            pass
        return "".join(text)

    def close(self) -> None:
        self._context.destroy()
        self._close()


#: Gives a kernel that is started when it is first asked for.
Kept = Callable[[], Client]


def kept(kernel: Client, stack: ExitStack) -> Client:
    """Until ``stack`` ends it; what it shows arrives here."""
    stack.callback(kernel.close)
    kernel.until_subscribed()
    return kernel


def plain_kernel(folder: Path, environ: Mapping[str, str]) -> Client:
    """A new ipykernel of this Python on ipc sockets, as fast as one can be had."""
    # A short path: the sockets lie beside the file, and their names may have 107 bytes.
    sockets = tempfile.mkdtemp(prefix="ipysandbox-", dir="/tmp")
    manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=f"{sockets}/kernel.json")
    # It repeats there what is written to its descriptors.
    manager.start_kernel(cwd=str(folder), env=dict(environ), stdout=subprocess.DEVNULL)
    endpoints = {"shell": f"{manager.ip}-{manager.shell_port}", "iopub": f"{manager.ip}-{manager.iopub_port}"}

    def close() -> None:
        manager.shutdown_kernel(now=True)
        shutil.rmtree(sockets)

    return Client(endpoints, manager.session.key, close)


def relayed_kernel(
    folder: Path, name: str, supervisor: Supervisor | None = None, overrides: Mapping[str, str] | None = None
) -> Client:
    """A sandbox of its own, driven through the relay by the same client."""
    supervisor = supervisor or Supervisor.current()
    info = supervisor.request("POST", "/sandboxes", {"name": name, "cwd": str(folder), "overrides": overrides or {}})
    return Client(info["endpoints"], info["key"].encode(), lambda: supervisor.request("DELETE", f"/sandboxes/{name}"))
