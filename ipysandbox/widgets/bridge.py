"""Carries one sandbox's widgets between its relay and the notebook's page, as comms of the notebook's own kernel.

What comes from the relay is clean. Two sockets bring the same messages: the one that reads a cell's outputs, so that a
widget is there before it is shown, and this module's own, for what is said between cells. They are numbered; whoever
has one first passes it on. What the page says is passed on by whichever thread of the kernel hears it: that is one of
its own where the kernel has subshells (ipykernel 7), so also while a cell runs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import zmq

from ipysandbox.supervisor.wire import BadMessage, Message, new_header, pack, unpack

TARGET, CONTROL = "jupyter.widget", "jupyter.widget.control"
_CONTROL_VERSION = "1"
#: Requests whose answers are still told apart; a slider sends some tens a second.
_REMEMBERED = 1000
#: How long a new subscription may take; what is said meanwhile comes by the cell's socket too.
_WELCOME_SECONDS = 10.0

Header = dict[str, Any]

_bridges: dict[str, Bridge] = {}
_changing = threading.Lock()


def connect(kernel: Any, name: str, endpoints: Mapping[str, str], key: bytes, supervisor: int) -> Bridge:
    """The bridge from ``kernel``, this process's ipykernel, to the sandbox ``name``. ``supervisor``: its process."""
    with _changing:
        bridge = _bridges.get(name)
        if bridge is None or bridge.key != key or bridge.closed:
            if bridge is not None:
                bridge.close()
            bridge = _bridges[name] = Bridge(kernel, endpoints, key, supervisor)
    _answer_reloads()
    return bridge


def disconnect(name: str) -> None:
    """The sandbox is closed: nothing more is passed on, in either direction."""
    with _changing:
        bridge = _bridges.pop(name, None)
    if bridge is not None:
        bridge.close()


class Bridge:
    """One sandbox's. ``deliver`` may be called from any thread."""

    def __init__(self, kernel: Any, endpoints: Mapping[str, str], key: bytes, supervisor: int) -> None:
        import comm  # with ipykernel, which asks for it

        self.key = key
        self.closed = False
        #: State of each widget as the page has it, by its id.
        self.states: dict[str, dict[str, Any]] = {}
        self._kernel = kernel
        self._manager: Any = comm.get_comm_manager()
        self._session = new_header("", os.urandom(8).hex())["session"]
        self.delivering, self._sending = threading.RLock(), threading.Lock()
        self._last = 0
        #: What of the notebook asked for what, by the message that the sandbox got.
        self._parents: OrderedDict[str, Header] = OrderedDict()
        self._cell: Header = {}
        self._context = zmq.Context()
        self._shell = self._socket(zmq.DEALER, endpoints["shell"])
        self._supervisor = os.pidfd_open(supervisor)
        self._stop, stopped = os.pipe()[::-1]
        listener = self._socket(zmq.SUB, endpoints["iopub"])
        listener.rcvhwm = 0  # the supervisor bounds what it sends
        ready = threading.Event()
        threading.Thread(
            target=self._listen, args=(listener, stopped, ready), name="ipysandbox-widgets", daemon=True
        ).start()
        ready.wait(_WELCOME_SECONDS)

    def _socket(self, kind: int, path: str) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.linger = 0
        sock.connect("ipc://" + path)
        return sock

    # -- from the sandbox

    def cell_begins(self, request_id: str) -> None:
        """What the sandbox says to this request belongs to the cell of the notebook that runs now."""
        parent = self._kernel.get_parent()
        self._cell = parent.get("header", {}) if isinstance(parent, dict) else {}
        self._remember(request_id, self._cell)

    def deliver(self, message: Message) -> None:
        """Take one of the relay's comm messages; one that was taken before is let go."""
        said = message.metadata.get("ipysandbox")
        number = said.get("comm") if isinstance(said, dict) else None
        with self.delivering:
            if not isinstance(number, int) or number <= self._last or self.closed:
                return
            self._last = number
            if message.type == "comm_ended":
                self._forget_all()
            else:
                self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        content = message.content
        comm_id, data = str(content.get("comm_id")), content.get("data") or {}
        if message.type == "comm_open":
            self.states[comm_id] = dict(data["state"])
            self._manager.register_comm(_Comm(self, comm_id))
        elif comm_id not in self.states:
            return
        elif message.type == "comm_close":
            self._forget(comm_id)
        else:
            self.states[comm_id].update(data["state"])
        metadata = {key: value for key, value in message.metadata.items() if key != "ipysandbox"}
        self._publish(message.type, comm_id, content, metadata, self._parents.get(message.parent_id, self._cell))

    def _publish(
        self, kind: str, comm_id: str, content: Mapping[str, Any], metadata: Mapping[str, Any], parent: Header
    ) -> None:
        self._kernel.session.send(
            self._kernel.iopub_socket,
            kind,
            dict(content),
            metadata=dict(metadata),
            parent={"header": parent} if parent else {},
            ident=f"comm-{comm_id}".encode(),
        )

    # -- from the page

    def hear(self, comm_id: str, message: Mapping[str, Any]) -> None:
        """The page speaks to a widget. Its state is told here, also while the sandbox is busy."""
        data, header = message["content"].get("data") or {}, message["header"]
        if data.get("method") == "request_state":
            with self.delivering:
                state = dict(self.states.get(comm_id, {}))
            update = {"method": "update", "state": state, "buffer_paths": []}
            self._publish("comm_msg", comm_id, {"comm_id": comm_id, "data": update}, {}, header)
            return
        self._send("comm_msg", {"comm_id": comm_id, "data": data}, header)

    def hear_close(self, comm_id: str, message: Mapping[str, Any]) -> None:
        """The page has closed a widget."""
        with self.delivering:
            self._forget(comm_id)
        self._send("comm_close", {"comm_id": comm_id, "data": {}}, message["header"])

    def _send(self, kind: str, content: dict[str, Any], header: Header) -> None:
        said = Message(new_header(kind, self._session), {}, {}, content)
        self._remember(said.id, {key: header[key] for key in header if key != "subshell_id"})
        with self._sending:
            if not self.closed:
                with contextlib.suppress(zmq.Again):
                    self._shell.send_multipart(pack(said, self.key), zmq.NOBLOCK)

    def _remember(self, request_id: str, header: Header) -> None:
        with self.delivering:
            self._parents[request_id] = header
            while len(self._parents) > _REMEMBERED:
                self._parents.popitem(last=False)

    # -- the end

    def _forget(self, comm_id: str) -> None:
        self.states.pop(comm_id, None)
        self._manager.comms.pop(comm_id, None)

    def _forget_all(self) -> None:
        """The page keeps what it shows; nobody answers to it."""
        for comm_id in list(self.states):
            self._forget(comm_id)

    def close(self) -> None:
        with self.delivering, self._sending:
            if self.closed:
                return
            self.closed = True
            self._forget_all()
            self._shell.close()
        os.write(self._stop, b"x")  # to the thread
        os.close(self._stop)

    def _listen(self, listener: zmq.Socket[bytes], stopped: int, ready: threading.Event) -> None:
        """A thread: takes what the sandbox says, until this bridge is closed or the supervisor ends."""
        listener.subscribe(b"comm_")
        poller = zmq.Poller()
        for source in (listener, stopped, self._supervisor):
            poller.register(source, zmq.POLLIN)
        with listener:
            while True:
                ended = dict(poller.poll())
                if stopped in ended or self._supervisor in ended:
                    break
                with contextlib.suppress(BadMessage):
                    message = unpack(listener.recv_multipart(), self.key)
                    if message.type == "iopub_welcome":
                        ready.set()
                    else:
                        self.deliver(message)
        self.close()
        for fd in (stopped, self._supervisor):
            os.close(fd)
        self._context.term()


class _Comm:
    """What the kernel's comm manager asks of a comm; the kernel itself never speaks by this one."""

    target_name = TARGET

    def __init__(self, bridge: Bridge, comm_id: str) -> None:
        self.comm_id, self._bridge = comm_id, bridge
        self._closed = False

    def handle_msg(self, message: Mapping[str, Any]) -> None:
        self._bridge.hear(self.comm_id, message)

    def handle_close(self, message: Mapping[str, Any]) -> None:
        self._bridge.hear_close(self.comm_id, message)

    def close(self, *_arguments: Any, **_options: Any) -> None:
        """Of the kernel's own comms, as it ends."""


def _answer_reloads() -> None:
    """A page that is loaded again asks for all widgets at once, by a comm that ipywidgets answers for the notebook's
    own; it takes one answer, so those of the sandboxes go along."""
    import comm

    manager: Any = comm.get_comm_manager()
    if getattr(manager, "of_ipysandbox", False):
        return
    register, before = manager.register_target, manager.targets.get(CONTROL)

    def register_target(name: str, opened: Any) -> None:
        """A notebook that imports ipywidgets only now registers an answer that knows of its own alone."""
        register(name, _with_states(opened) if name == CONTROL else opened)

    manager.register_target, manager.of_ipysandbox = register_target, True
    register_target(CONTROL, before)


def _with_states(opened: Any) -> Any:
    """``opened`` answers for the notebook's own widgets (None: it has none); this tells of the sandboxes' too."""
    if isinstance(opened, str):
        module, _, name = opened.rpartition(".")
        opened = getattr(importlib.import_module(module), name)

    def answer(control: Any, message: Mapping[str, Any]) -> None:
        send = control.send

        def send_all(data: Any = None, *arguments: Any, **options: Any) -> None:
            if isinstance(data, dict) and data.get("method") == "update_states":
                data = {**data, "states": {**data.get("states", {}), **_states()}}
            send(data, *arguments, **options)

        control.send = send_all
        if opened is not None:
            opened(control, message)
        else:
            control.on_msg(lambda _message: control.send({"method": "update_states", "states": {}, "buffer_paths": []}))

    return answer


def _states() -> dict[str, Any]:
    found = {}
    for bridge in list(_bridges.values()):
        with bridge.delivering:
            for comm_id, state in bridge.states.items():
                names = ("model_name", "model_module", "model_module_version")
                found[comm_id] = {name: state[f"_{name}"] for name in names} | {"state": dict(state)}
    return found
