"""The kernel inside a sandbox: ipykernel on sockets that were opened for it outside, plus value transfer.

Nothing here enforces anything; by the time it runs, code of the sandbox may change all of it.
"""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any, NoReturn

import zmq
from ipykernel.heartbeat import Heartbeat
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from traitlets.config import Config

from . import CHANNELS, values


def _load_without_debugger() -> None:
    """Have ipykernel find no debugpy: the relay passes no debugger's messages, and loading it takes longer than the rest.

    Code in the sandbox can still import it.
    """
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("ipykernel.debugger")
    finally:
        del sys.modules["debugpy"]


_load_without_debugger()


class _InheritedHeartbeat(Heartbeat):  # type: ignore[misc]
    fd = -1

    def _try_bind_socket(self) -> None:
        _listen(self.socket, self.fd)


def _listen(socket: zmq.Socket[bytes], fd: int) -> None:
    """Serve on a socket that is listening already; the address is only a label (ZMQ_USE_FD)."""
    socket.setsockopt(zmq.USE_FD, fd)
    socket.bind("ipc:///ipysandbox")


class SandboxKernelApp(IPKernelApp):  # type: ignore[misc]
    """ipykernel without a connection file: the sockets are inherited descriptors."""

    name = "ipysandbox-kernel"
    fds: dict[int, int] = {}

    def _try_bind_socket(self, s: zmq.Socket[bytes], port: int) -> int:
        _listen(s, self.fds[port])
        return port

    def init_control(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        super().init_control(context)
        # The debugger's own connection to the shell goes by the address, which does not exist in here.
        endpoint = self.shell_socket.getsockopt(zmq.LAST_ENDPOINT)
        if endpoint:
            self.debug_shell_socket.disconnect(endpoint)

    def init_heartbeat(self) -> None:
        heartbeat = _InheritedHeartbeat(zmq.Context(), ("ipc", "ipysandbox", self.hb_port))
        heartbeat.fd = self.fds[self.hb_port]
        self.heartbeat = heartbeat
        heartbeat.start()

    def init_connection_file(self) -> None:
        pass

    def write_connection_file(self, **kwargs: Any) -> None:
        pass

    def log_connection_info(self) -> None:
        pass


class SandboxKernel(IPythonKernel):  # type: ignore[misc]
    """IPython with two more requests: hand a value out, take a value in."""

    msg_types = [*IPythonKernel.msg_types, "ipysandbox_get_request", "ipysandbox_put_request"]

    async def ipysandbox_get_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """content: {"name": NAME} or {"output": EXECUTION COUNT}, and "limit" in bytes."""
        content = parent["content"]
        buffers: list[Any] = []
        try:
            if "output" in content:
                value = self.shell.user_ns["_oh"][content["output"]]
            else:
                value = self.shell.user_ns[content["name"]]
            tree, buffers = values.encode(value, limit=int(content["limit"]))
            reply: dict[str, Any] = {"status": "ok", "tree": tree}
        except KeyError:
            reply = {"status": "error", "ename": "NameError", "evalue": "no variable of that name in the sandbox"}
        except Exception as exc:
            reply = {"status": "error", "ename": type(exc).__name__, "evalue": str(exc)}
        self.session.send(stream, "ipysandbox_get_reply", reply, parent, ident=ident, buffers=buffers)

    async def ipysandbox_put_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """content: {"name": NAME, "tree": …}; the buffers follow the message."""
        content = parent["content"]
        try:
            self.shell.user_ns[content["name"]] = values.decode(content["tree"], parent["buffers"])
            reply: dict[str, Any] = {"status": "ok"}
        except Exception as exc:
            reply = {"status": "error", "ename": type(exc).__name__, "evalue": str(exc)}
        self.session.send(stream, "ipysandbox_put_reply", reply, parent, ident=ident)


def _reseed() -> None:
    """Siblings were forked from one process: without this they would draw the same numbers."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def run(program: dict[str, Any], fds: list[int]) -> NoReturn:
    """Serve one sandbox for the rest of this process's life. ``program``: {"key": the session's HMAC key}."""
    _reseed()
    sys.dont_write_bytecode = True  # the environment says so to children; this interpreter read it before
    config = Config()
    config.HistoryManager.hist_file = ":memory:"  # `%history` works; nothing is written
    config.Session.key = program["key"].encode()
    config.IPKernelApp.log_level = 40
    app = SandboxKernelApp.instance(config=config, kernel_class=SandboxKernel)
    app.transport, app.ip = "ipc", "ipysandbox"
    app.fds = dict(enumerate(fds, start=1))
    for port, channel in enumerate(CHANNELS, start=1):
        setattr(app, f"{channel}_port", port)
    app.initialize([])
    app.start()
    raise SystemExit(0)
