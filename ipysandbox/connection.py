"""The client's end of a sandbox's relay: sends a cell, a question about a value, or an answer, and takes what comes."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import zmq

from .errors import SandboxDied
from .outputs import OutputCollector
from .supervisor.spawn import Supervisor
from .supervisor.wire import BadMessage, Message, new_header, pack, unpack, without_copies

if TYPE_CHECKING:
    from .widgets.bridge import Bridge

#: How long a new subscription may take; seconds.
_WELCOME_SECONDS = 60.0
#: How long the last outputs may be on their way after a cell's reply.
_IDLE_MILLISECONDS = 10_000

OnOutput = Callable[[str, dict[str, Any]], None]
OnInput = Callable[[str, bool], str]


class Interruptible(Protocol):
    """What Ctrl-C is for, the first time and after that."""

    def interrupt(self) -> None: ...

    def kill(self) -> None: ...


def _release(sockets: list[zmq.Socket[bytes]], context: zmq.Context[zmq.Socket[bytes]], pidfd: int) -> None:
    for sock in sockets:
        sock.close()
    context.term()
    os.close(pidfd)


class Connection:
    """The client's end of the relay: three sockets and one request at a time."""

    def __init__(self, endpoints: Mapping[str, str], key: bytes, supervisor: Supervisor) -> None:
        self.key = key
        self._session = uuid.uuid4().hex
        self._context = zmq.Context()
        self._supervisor = os.pidfd_open(supervisor.pid)
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        for channel, kind in (("shell", zmq.DEALER), ("iopub", zmq.SUB), ("stdin", zmq.DEALER)):
            sock = self._context.socket(kind)
            sock.linger = 0
            if channel == "iopub":
                sock.rcvhwm = 0  # the supervisor bounds what it sends
                sock.subscribe(b"")
            else:
                # One identity on both: the relay routes a question to whoever sent the cell.
                sock.identity = self._session.encode()
            sock.connect("ipc://" + endpoints[channel])
            self._sockets[channel] = sock
        self._poller = zmq.Poller()
        for sock in self._sockets.values():
            self._poller.register(sock, zmq.POLLIN)
        self._poller.register(self._supervisor, zmq.POLLIN)
        #: Where widgets pass, and there is a page to show them.
        self.widgets: Bridge | None = None
        #: Messages on iopub so far for the cell that runs.
        self._heard = 0
        #: Also when the Sandbox is dropped without having been closed.
        self.close = weakref.finalize(self, _release, list(self._sockets.values()), self._context, self._supervisor)
        self._until_welcome()

    def _until_welcome(self) -> None:
        while True:
            message = self._receive("iopub", _WELCOME_SECONDS)
            if message is not None and message.type == "iopub_welcome":
                return

    def _receive(self, channel: str, seconds: float) -> Message | None:
        """The next message of one channel; None if it was no message. Raises SandboxDied."""
        poller = zmq.Poller()
        poller.register(self._sockets[channel], zmq.POLLIN)
        poller.register(self._supervisor, zmq.POLLIN)
        ready = dict(poller.poll(int(seconds * 1000)))
        if self._sockets[channel] in ready:
            return self._read(channel)
        if ready:
            raise SandboxDied("the sandbox supervisor ended; the next run starts a new sandbox, variables are lost")
        raise SandboxDied(f"the sandbox did not answer within {seconds:.0f} s")

    def _read(self, channel: str) -> Message | None:
        try:
            return unpack(without_copies(self._sockets[channel].recv_multipart(copy=False)), self.key)
        except BadMessage:
            return None

    def ask(self, kind: str, content: dict[str, Any], buffers: list[Any], seconds: float) -> Message:
        request = Message(new_header(kind, self._session), {}, {}, content, buffers=buffers)
        self._sockets["shell"].send_multipart(pack(request, self.key), copy=not buffers)
        while True:
            message = self._receive("shell", seconds)
            if message is not None and message.parent_id == request.id:
                return message

    def execute(
        self,
        code: str,
        metadata: dict[str, Any],
        collector: OutputCollector,
        on_output: OnOutput | None,
        on_input: OnInput | None,
        box: Interruptible,
    ) -> Message:
        """Send the cell, collect until its reply and its idle are both in. Raises SandboxDied."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": on_input is not None,
            "stop_on_error": True,
        }
        request = Message(new_header("execute_request", self._session), {}, metadata, content)
        if self.widgets is not None:
            self.widgets.cell_begins(request.id)
        self._sockets["shell"].send_multipart(pack(request, self.key))
        reply: Message | None = None
        idle = False
        interrupts = 0
        self._heard = 0
        while reply is None or not idle:
            try:
                ready = dict(self._poller.poll(None if reply is None else _IDLE_MILLISECONDS))
                if not ready:
                    break  # the reply is in, and what was shown came before it
                # Outputs before the reply, so that everything shown is in order.
                if self._sockets["iopub"] in ready:
                    idle |= self._output(request, collector, on_output)
                elif self._sockets["stdin"] in ready and on_input is not None:
                    message = self._read("stdin")
                    if message is not None and message.parent_id == request.id and message.type == "input_request":
                        idle |= self._before_question(message, request, collector, on_output)
                        self._answer_input(message, on_input)
                elif self._sockets["shell"] in ready:
                    message = self._read("shell")
                    if message is not None and message.parent_id == request.id:
                        reply = message
                elif self._supervisor in ready:
                    raise SandboxDied("the sandbox supervisor ended; variables are lost, the next run starts a new one")
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts == 1:
                    box.interrupt()
                else:
                    box.kill()
        assert reply is not None
        return reply

    def _output(self, request: Message, collector: OutputCollector, on_output: OnOutput | None) -> bool:
        """Take one message from iopub; True when it says that the request is done."""
        message = self._read("iopub")
        if message is None:
            return False
        is_widget = message.type.startswith("comm_")
        if is_widget and self.widgets is not None:
            self.widgets.deliver(message)
        if message.parent_id != request.id:
            return False
        self._heard += 1
        if is_widget:
            return False
        if message.type == "status":
            return message.content.get("execution_state") == "idle"
        if message.type == "execute_input":
            return False
        collector.add(message.type, message.content)
        if on_output is not None:
            on_output(message.type, message.content)
        return False

    def _before_question(
        self, question: Message, request: Message, collector: OutputCollector, on_output: OnOutput | None
    ) -> bool:
        """Take what the relay published before it passed the question on, by another socket; as ``_output``."""
        said = question.metadata.get("ipysandbox")
        published = said.get("published") if isinstance(said, dict) else 0
        idle = False
        while isinstance(published, int) and self._heard < published:
            if not self._sockets["iopub"].poll(_IDLE_MILLISECONDS):
                break
            idle |= self._output(request, collector, on_output)
        return idle

    def _answer_input(self, message: Message, on_input: OnInput) -> None:
        value = on_input(str(message.content.get("prompt", "")), bool(message.content.get("password")))
        reply = Message(new_header("input_reply", self._session), message.header, {}, {"value": value})
        self._sockets["stdin"].send_multipart(pack(reply, self.key))
