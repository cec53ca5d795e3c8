"""Carries Jupyter messages between clients (front) and one sandboxed kernel (back), and lets nothing else through.

Front and back have keys of their own. A reply or output is believed only as an answer to a request that was really
made: its parent is replaced by the request's own header, its type must fit, and each request gets one reply.
Everything a client sees is rebuilt here from cleaned content.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from ipysandbox.guest import CHANNELS
from ipysandbox.guest.values import MAX_TEXT
from ipysandbox.output import Cleaner

from .back import MOST_BYTES, Back
from .outflow import Outflow
from .wire import BadMessage, Buffer, Message, new_header, pack, unpack, without_copies

#: What a reply with a value may hold beside the value itself.
_REPLY_SLACK = 1 << 20
_FRONT_TYPES = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.XPUB, "hb": zmq.ROUTER}
#: What passes to the kernel besides execute_request, which the cell runner forwards itself.
_REQUESTS = frozenset(
    "inspect_request complete_request history_request is_complete_request comm_info_request kernel_info_request "
    "ipysandbox_get_request ipysandbox_put_request".split()
)
_REPLIES = frozenset(name.replace("_request", "_reply") for name in (*_REQUESTS, "execute_request"))
_OUTPUTS = frozenset("stream display_data update_display_data execute_result error clear_output".split())
#: Widgets' messages pass only where the policy lets them.
_COMMS = frozenset(("comm_open", "comm_msg", "comm_close"))
#: Bytes of one of them.
_MOST_COMM = 2 << 20
#: What a comm of a widget says of itself when it opens, as the page's widgets ask.
_WIDGET_PROTOCOL = "2.1.0"
_REMEMBERED = 500
#: Bytes of a message that are cleaned without leaving the event loop: some milliseconds of hostile HTML.
_CLEAN_HERE = 16 << 10
#: Bytes of a question, or of an answer on the control channel.
_SHORT = 1 << 20
#: Bytes of JSON in a reply on the shell channel: to read them takes some hundredths of a second at most.
_LONG = 4 << 20
#: Seconds that a question waits for the outputs before it, which come by another socket.
_QUESTION_WAIT = 1.0

Handler = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Passes:
    """How much of an output passes on: all of it, or so many characters of a stream's text; then a mark of ours."""

    upto: int | None = None
    mark: str = ""


class Relay:
    """Sockets and forwarding for one named sandbox; the kernel behind it may be replaced (``attach``)."""

    def __init__(self, directory: Path, cleaner: Cleaner) -> None:
        self.key = secrets.token_hex(32).encode()
        self.session = secrets.token_hex(8)
        self._cleaner = cleaner
        self._cleaning = asyncio.Lock()
        #: Whose stream was cleaned last: what was held back of it is shown as its output.
        self._streaming: Message | None = None
        self._context = zmq.asyncio.Context.instance()
        self._front: dict[str, zmq.asyncio.Socket] = {}
        self._back: Mapping[str, zmq.asyncio.Socket] = {}
        self._back_key = b""
        self._attached: Back | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._back_tasks: list[asyncio.Task[None]] = []
        #: Requests not answered yet, and those that may still have outputs, by message id.
        self._waiting: dict[str, tuple[str, Message]] = {}
        self._known: OrderedDict[str, Message] = OrderedDict()
        #: What the page said to widgets, apart from those: a slider sends hundreds.
        self._told: OrderedDict[str, Message] = OrderedDict()
        #: Those that the kernel is not done with.
        self._undone: set[str] = set()
        #: Widgets' messages that were published.
        self._comms = 0
        #: Messages on iopub for each request: a question says how many come before it.
        self._published: dict[str, int] = {}
        self._question_marked = asyncio.Event()
        #: Cells whose code has not been shown yet to the other clients.
        self._unshown: set[str] = set()
        self._outflow = Outflow(self._send_output)
        self.endpoints: dict[str, str] = {}
        #: Messages that were no messages, or answered nothing that was asked.
        self.dropped = 0
        #: Messages from the kernel's iopub so far.
        self.heard = 0
        self.on_execute: Handler | None = None
        self.on_shutdown: Callable[[bool], Awaitable[None]] | None = None
        self.on_interrupt: Callable[[], None] | None = None
        #: Sees every output of a request, before it is cleaned; says how much of it passes on.
        self.on_output: Callable[[Message, Message], Passes] = lambda _request, _message: Passes()
        self.on_grown: Callable[[Message, Message, dict[str, Any]], bool] | None = None
        #: Gets each stream's text as it is shown, and, while it wants that, what a limit keeps from being shown.
        self.keeps_text: Callable[[Message], bool] = lambda _request: False
        self.on_text: Callable[[Message, dict[str, Any]], None] = lambda _request, _content: None
        #: Asked before a message from iopub is parsed: whether so many bytes may still come.
        self.admits: Callable[[int], bool] = lambda _size: True
        #: Told of one that may not: under which request that is marked, and how; None if it is already.
        self.on_unread: Callable[[], tuple[Message, str] | None] = lambda: None
        self.on_execute_reply: Callable[[Message, Message], None] | None = None
        self.on_idle: Callable[[Message], None] | None = None
        #: Told that a question goes to its reader, and that he has answered.
        self.on_question: Callable[[Message], None] = lambda _request: None
        self.on_answer: Callable[[], None] = lambda: None
        #: Told whether it was one for a password.
        self.on_question_refused: Callable[[bool], None] | None = None
        #: A direction of this relay broke: nothing more will pass there.
        self.on_failure: Callable[[BaseException], None] | None = None
        #: The process whose memory holds the values, (number, start time), for a client that reads them there.
        self.interpreter: Callable[[], tuple[int, int] | None] = lambda: None
        self.stdin_allowed: Callable[[str], bool] = lambda _parent: False
        for channel in CHANNELS:
            sock = self._socket(_FRONT_TYPES[channel])
            sock.linger = 1000  # the last reply is sent even when the sandbox is being closed
            if channel == "iopub":
                sock.sndhwm = 0  # what is sent was bounded before; dropping one's "idle" would leave it waiting
                sock.setsockopt(zmq.XPUB_VERBOSE, 1)  # every subscriber is greeted, not just the first
            path = str(directory / f"f-{channel}")
            sock.bind("ipc://" + path)
            self.endpoints[channel] = path
            self._front[channel] = sock
        for channel, loop in (
            ("shell", self._from_client),
            ("control", self._from_client),
            ("stdin", self._stdin_from_client),
            ("iopub", self._subscriptions),
            ("hb", self._heartbeat),
        ):
            self._tasks.append(self._task(loop(channel)))
        self._tasks.append(self._task(self._outflow.run()))

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run one direction; if it fails, nobody must wait for messages that no longer pass."""

        def finished(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and self.on_failure is not None:
                self.on_failure(error)

        task = asyncio.ensure_future(work)
        task.add_done_callback(finished)
        return task

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        sock = self._context.socket(kind)
        sock.linger = 0
        sock.maxmsgsize = MOST_BYTES
        return sock

    # -- the kernel's side

    async def attach(self, endpoints: Mapping[str, str], key: bytes, seconds: float) -> None:
        """Connect to a new kernel and wait until it answers. Raises asyncio.TimeoutError."""
        back = Back(endpoints, key)
        try:
            await back.settled(seconds)
        except BaseException:
            back.close()
            raise
        self.take(back)

    def take(self, back: Back) -> None:
        """From now on this is the kernel."""
        self.detach()
        self._attached, self._back, self._back_key = back, back.sockets, back.key
        for channel in ("shell", "control"):
            self._back_tasks.append(self._task(self._from_kernel(channel)))
        self._back_tasks.append(self._task(self._outputs()))
        self._back_tasks.append(self._task(self._stdin_from_kernel()))

    def detach(self) -> None:
        """Let go of the kernel; its unanswered requests stay for the caller to answer (``waiting``)."""
        for task in self._back_tasks:
            task.cancel()
        self._back_tasks.clear()
        if self._attached is not None:
            self._attached.close()
        self._attached, self._back = None, {}

    async def forward(self, channel: str, message: Message) -> bool:
        """Send a client's request on to the kernel under its own header, signed with the kernel's key. False when there
        is no kernel to send it to."""
        self._waiting[message.id] = (channel, message)
        self._remember(self._known, message)
        if message.type == "execute_request" and not message.content.get("silent"):
            self._unshown.add(message.id)
        if channel not in self._back:
            return False
        metadata = {k: v for k, v in message.metadata.items() if k != "ipysandbox"}
        out = Message(message.header, message.parent, metadata, message.content, buffers=message.buffers)
        await self._back[channel].send_multipart(pack(out, self._back_key), copy=not out.buffers)
        return True

    def _remember(self, known: OrderedDict[str, Message], message: Message) -> None:
        known[message.id] = message
        while len(known) > _REMEMBERED:
            self._published.pop(known.popitem(last=False)[0], None)

    async def _from_kernel(self, channel: str) -> None:
        while True:
            await asyncio.sleep(0)
            frames = without_copies(await self._back[channel].recv_multipart(copy=False))
            message = self._unpack(frames, self._most_text()) if channel == "shell" else self._unpack_short(frames)
            if message is None:
                await self._give_up_values()
                continue
            request = self._waiting.get(message.parent_id, ("", None))[1]
            if (
                request is None
                or message.type != request.type.replace("_request", "_reply")
                or message.type not in _REPLIES
            ):
                self.dropped += 1
                continue
            if message.type == "execute_reply":
                if self.on_execute_reply is not None:
                    self.on_execute_reply(request, message)
                continue
            if message.type.startswith("ipysandbox_"):
                # Values are decoded by the client, strictly; here they are only carried, up to the size it asked for.
                content: dict[str, Any] | None = message.content
                allowed = request.content.get("limit", 0)
                if sum(map(len, frames)) > (allowed if isinstance(allowed, int) else 0) + _REPLY_SLACK:
                    message.buffers = []
                    content = {"status": "error", "ename": "ValueError", "evalue": "larger than was asked for"}
                else:
                    content = await self._in_turn(self._cleaner.clean_value, content, size=sum(map(len, frames)))
                    # Which process that is, only we say: an address alone names nothing.
                    content["process"] = self.interpreter() if request.content.get("direct") is True else None
            else:
                content = await self.clean(message.type, message.content)
            await self.reply(request, content or {"status": "error"}, buffers=message.buffers)

    async def _give_up_values(self) -> None:
        """An answer could not be read, and may have been the one to somebody who waits for a value."""
        content = {"status": "error", "ename": "ValueError", "evalue": "the sandbox's answer can't be read"}
        for _, request in [*self._waiting.values()]:
            if request.type.startswith("ipysandbox_"):
                await self.reply(request, content)

    async def _outputs(self) -> None:
        while True:
            # Receiving does not yield while there is something to receive: a flood must not keep the rest waiting.
            await asyncio.sleep(0)
            frames = await self._back["iopub"].recv_multipart()
            self.heard += 1
            if not self.admits(sum(map(len, frames))):
                await self._mark_unread()
                continue
            message = self._unpack(frames)
            if message is None:
                continue
            kind = message.type
            if kind == "iopub_welcome":
                continue
            request = self._known.get(message.parent_id) or self._told.get(message.parent_id)
            if request is None:
                # Output without a parent comes from an honest kernel too, while it starts.
                self.dropped += bool(message.parent_id) and kind != "status"
                continue
            if kind == "status":
                if message.content.get("execution_state") == "idle" and self.on_idle is not None:
                    self.on_idle(request)
                if message.content.get("execution_state") == "idle":
                    await self._done_with(request)
            elif kind in _COMMS:
                await self._widgets(request, message, sum(map(len, frames)))
            elif kind in _OUTPUTS:
                await self._output(request, message, sum(map(len, frames)))
            elif kind == "execute_input":
                await self._show_input(request, message)
            elif kind == "ipysandbox_question":
                self._question_marked.set()
            else:
                self.dropped += 1

    async def _output(self, request: Message, message: Message, size: int) -> None:
        """Clean one output and show what may be shown of it."""
        kind, passes = message.type, self.on_output(request, message)
        if kind == "stream":
            await self._stream(request, message, passes, size)
            return
        if passes.upto is not None:
            return
        await self.release()
        content = await self.clean(kind, message.content, size)
        if content is not None and (self.on_grown is None or self.on_grown(request, message, content)):
            await self.publish(kind, content, request)

    async def _stream(self, request: Message, message: Message, passes: Passes, size: int) -> None:
        if passes == Passes(0) and not self.keeps_text(request):
            return
        name, text = message.content.get("name"), message.content.get("text")
        await self.release(but=name if request is self._streaming else None)
        upto = passes.upto
        parts = [text] if upto is None or not isinstance(text, str) else [text[:upto], text[upto:]]
        for shown, part in zip((True, False), parts, strict=False):
            if not shown and not self.keeps_text(request):
                break
            content = await self.clean("stream", {"name": name, "text": part}, size)
            self._streaming = request
            if content is not None:
                self.on_text(request, content)
                if shown:
                    await self.publish("stream", content, request)
        if passes.mark:
            name = "stderr" if name == "stderr" else "stdout"
            await self.publish("stream", {"name": name, "text": passes.mark}, request)

    async def _mark_unread(self) -> None:
        """Say where a message is missing that was too large to be read."""
        marked = self.on_unread()
        if marked is not None:
            await self.release()
            await self.publish("stream", {"name": "stdout", "text": marked[1]}, marked[0])

    async def _widgets(self, request: Message, message: Message, size: int) -> None:
        """Let through what a widget may say; it counts as output."""
        if size > _MOST_COMM:
            self.dropped += 1
            return
        # What never passes is no output: code may move a hundred widgets that nobody sees.
        if self._cleaner.widgets and self.on_output(request, message).upto is not None:
            return
        content = await self.clean(message.type, message.content, size)
        if content is None:
            return
        version = {"version": _WIDGET_PROTOCOL} if message.type == "comm_open" else {}
        await self._publish_comm(message.type, content, request, version)

    async def _publish_comm(
        self, kind: str, content: dict[str, Any], request: Message, metadata: dict[str, Any] | None = None
    ) -> None:
        """Numbered: whoever reads them by several sockets takes each once, in order."""
        self._comms += 1
        await self.publish(kind, content, request, {**(metadata or {}), "ipysandbox": {"comm": self._comms}})

    async def close_widgets(self) -> None:
        """The kernel has ended, and nobody answers for its widgets any more."""
        if self._cleaner.forget_widgets():
            await self._publish_comm("comm_ended", {}, Message(new_header("comm_ended", self.session), {}, {}, {}))

    async def _show_input(self, request: Message, message: Message) -> None:
        """Tell every client what runs, once a cell: the code that was asked for, with the kernel's number for it."""
        if request.id not in self._unshown:
            return
        self._unshown.discard(request.id)
        content = await self.clean("execute_input", message.content)
        if content is not None:
            await self.publish("execute_input", {**content, "code": request.content.get("code")}, request)

    async def _stdin_from_kernel(self) -> None:
        while True:
            await asyncio.sleep(0)
            message = self._unpack_short(await self._back["stdin"].recv_multipart())
            if message is None:
                continue
            request = self._known.get(message.parent_id)
            password = message.content.get("password") not in (False, None)
            if message.type != "input_request" or request is None or password or not self.stdin_allowed(request.id):
                self.dropped += 1
                if self.on_question_refused is not None:
                    self.on_question_refused(password)
                continue
            await self.release()
            content = await self.clean("input_request", message.content)
            if content is None:
                continue
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._question_marked.wait(), _QUESTION_WAIT)
            self._question_marked.clear()
            await self.drained()
            before = {"ipysandbox": {"published": self._published.get(request.id, 0)}}
            out = Message(new_header("input_request", self.session), request.header, before, content, request.idents)
            self.on_question(request)
            await self._front["stdin"].send_multipart(pack(out, self.key))

    async def clean(self, kind: str, content: dict[str, Any], size: int = 0) -> dict[str, Any] | None:
        """What may pass of ``content``. Large ones are cleaned in a thread: limits must be watched meanwhile."""
        cleaned: dict[str, Any] | None = await self._in_turn(self._cleaner.clean, kind, content, size=size)
        return cleaned

    async def _in_turn(self, work: Callable[..., Any], *arguments: Any, size: int = 0) -> Any:
        async with self._cleaning:
            if size < _CLEAN_HERE and not self._cleaner.packs:
                return work(*arguments)
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)

    async def release(self, but: object = None) -> None:
        """Show what stands for text that streams (save ``but``) hold back: nothing that belongs to it comes next."""
        for content in await self._in_turn(self._cleaner.released, but):
            if self._streaming is not None:
                self.on_text(self._streaming, content)
                await self.publish("stream", content, self._streaming)

    def _most_text(self) -> int:
        """Bytes of JSON that a reply may have by what is asked at present: of values, what is large is in buffers."""
        asked = [request.content.get("limit") for _, request in self._waiting.values()]
        return max([_LONG, *(min(limit, MAX_TEXT) + _REPLY_SLACK for limit in asked if isinstance(limit, int))])

    def _unpack(self, frames: Sequence[Buffer], most: int | None = None) -> Message | None:
        try:
            return unpack(frames, self._back_key, most=most)
        except BadMessage:
            self.dropped += 1
            return None

    def _unpack_short(self, frames: Sequence[Buffer]) -> Message | None:
        """Of a channel on which no honest message is long: what is, is not even looked into."""
        if sum(map(len, frames)) <= _SHORT:
            return self._unpack(frames)
        self.dropped += 1
        return None

    # -- the clients' side

    async def _from_client(self, channel: str) -> None:
        sock = self._front[channel]
        while True:
            try:
                message = unpack(without_copies(await sock.recv_multipart(copy=False)), self.key)
            except BadMessage:
                continue
            if message.type == "execute_request" and channel == "shell":
                if self.on_execute is not None:
                    await self.on_execute(message)
            elif message.type == "interrupt_request":
                if self.on_interrupt is not None:
                    self.on_interrupt()
                await self.reply(message, {"status": "ok"}, channel=channel)
            elif message.type == "shutdown_request":
                restart = bool(message.content.get("restart"))
                if self.on_shutdown is not None:
                    await self.on_shutdown(restart)
                await self.reply(message, {"status": "ok", "restart": restart}, channel=channel)
            elif message.type in _COMMS:
                await self._to_widget(message)
            elif message.type in _REQUESTS:
                await self.publish("status", {"execution_state": "busy"}, message)
                if not await self.forward(channel, message):
                    await self.reply(message, {"status": "error", "ename": "SandboxDied", "evalue": "no sandbox"})
            else:
                await self.reply(
                    message,
                    {
                        "status": "error",
                        "ename": "NotAvailable",
                        "evalue": f"{message.type} is not passed to a sandbox",
                        "traceback": [],
                    },
                    channel=channel,
                )

    async def _to_widget(self, message: Message) -> None:
        """What the page says to a widget. Nobody replies; a kernel that does not read loses it."""
        self._undone = {*(self._undone & self._told.keys()), message.id}
        content = await self._in_turn(self._cleaner.to_sandbox, message.type, message.content)
        if content is None or "shell" not in self._back:
            await self._done_with(message)
            return
        self._remember(self._told, message)
        out = Message(message.header, message.parent, {}, content)
        with contextlib.suppress(zmq.Again):
            await self._back["shell"].send_multipart(pack(out, self._back_key), flags=zmq.NOBLOCK)

    async def _done_with(self, told: Message) -> None:
        """By this a page knows that it may say more to a widget."""
        if told.id in self._undone:
            self._undone.discard(told.id)
            await self.publish("status", {"execution_state": "idle"}, told)

    async def _stdin_from_client(self, channel: str) -> None:
        while True:
            try:
                message = unpack(await self._front[channel].recv_multipart(), self.key)
            except BadMessage:
                continue
            if message.type == "input_reply" and channel in self._back:
                message.idents = []
                self.on_answer()
                await self._back[channel].send_multipart(pack(message, self._back_key))

    async def _subscriptions(self, channel: str) -> None:
        """Greet each subscriber, so that a client knows from when on it misses nothing (JEP 65)."""
        while True:
            frames = await self._front[channel].recv_multipart()
            if frames and frames[0][:1] == b"\x01":
                topic = frames[0][1:]
                header = new_header("iopub_welcome", self.session)
                message = Message(header, {}, {}, {"subscription": topic.decode("utf-8", "replace")}, [topic])
                await self._front[channel].send_multipart(pack(message, self.key))

    async def _heartbeat(self, channel: str) -> None:
        """Answered here: it tells that the supervisor lives; a busy sandbox is no dead one."""
        while True:
            await self._front[channel].send_multipart(await self._front[channel].recv_multipart())

    async def reply(
        self,
        request: Message,
        content: dict[str, Any],
        *,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
        buffers: list[Buffer] | None = None,
    ) -> None:
        """Answer ``request`` once, and tell that it is done."""
        where, _ = self._waiting.pop(request.id, (channel or "shell", None))
        self._unshown.discard(request.id)
        kind = request.type.replace("_request", "_reply")
        message = Message(
            new_header(kind, self.session), request.header, metadata or {}, content, request.idents, buffers or []
        )
        await self._front[channel or where].send_multipart(pack(message, self.key), copy=not message.buffers)
        await self.publish("status", {"execution_state": "idle"}, request)
        if request.id not in self._known:
            self._published.pop(request.id, None)

    async def publish(
        self, kind: str, content: dict[str, Any], request: Message, metadata: dict[str, Any] | None = None
    ) -> None:
        """Tell all clients. Outputs wait their turn."""
        if kind in _OUTPUTS:
            self._outflow.add(kind, content, request, paced=is_paced(request))
        else:
            await self._send_output(kind, content, request, metadata)

    async def _send_output(
        self, kind: str, content: dict[str, Any], request: Message, metadata: dict[str, Any] | None = None
    ) -> None:
        message = Message(new_header(kind, self.session), request.header, metadata or {}, content, [kind.encode()])
        self._published[request.id] = self._published.get(request.id, 0) + 1
        await self._front["iopub"].send_multipart(pack(message, self.key))

    async def drained(self) -> None:
        """Returns when all outputs so far have been sent."""
        await self._outflow.drained()

    def hurry(self) -> int:
        """Show what waits at once: nobody wants to wait for it any more. How many outputs that leaves out."""
        return self._outflow.hurry()

    def waiting(self) -> list[Message]:
        return [message for _, message in self._waiting.values()]

    def close(self) -> None:
        self.detach()
        for task in self._tasks:
            task.cancel()
        for sock in self._front.values():
            sock.close()
        for path in self.endpoints.values():
            Path(path).unlink(missing_ok=True)


def is_paced(request: Message) -> bool:
    """Whether a notebook shows the outputs. Programs of ours that only collect them say so; they take all at once."""
    options = request.metadata.get("ipysandbox")
    return not isinstance(options, dict) or options.get("paced") is not False
