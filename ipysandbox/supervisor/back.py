"""The sockets to one sandboxed kernel: connected, and waited for until it answers; then a relay's to read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress

import zmq
import zmq.asyncio

from .wire import BadMessage, Message, new_header, pack, unpack

#: One frame; libzmq drops the connection that sends a larger one before it is in memory. A value may be a large array.
MOST_BYTES = 600 << 20
_TYPES = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}
#: Bytes of a message of a kernel that has only begun; others are not looked into.
_SHORT = 1 << 20
#: Messages that may wait to be read from iopub; the kernel keeps what is above it.
_WAITING = 1000


class Back:
    """Made on the supervisor's loop. Whoever has it closes it."""

    def __init__(self, endpoints: Mapping[str, str], key: bytes) -> None:
        self.key = key
        self.sockets: dict[str, zmq.asyncio.Socket] = {}
        context = zmq.asyncio.Context.instance()
        identity = secrets.token_hex(8).encode()
        for channel, kind in _TYPES.items():
            sock = context.socket(kind)
            sock.linger = 0
            sock.maxmsgsize = MOST_BYTES
            if channel == "iopub":
                sock.rcvhwm = _WAITING
                sock.subscribe(b"")
            else:
                # One identity on all: the kernel routes a question to whoever sent the cell.
                sock.identity = identity
            sock.connect("ipc://" + endpoints[channel])
            self.sockets[channel] = sock

    async def settled(self, seconds: float) -> None:
        """Until the kernel answers and its outputs arrive here. Raises asyncio.TimeoutError."""
        await asyncio.wait_for(asyncio.gather(self._answered(), self._welcomed()), seconds)

    async def _answered(self) -> None:
        question = Message(new_header("kernel_info_request", secrets.token_hex(8)), {}, {}, {})
        await self.sockets["shell"].send_multipart(pack(question, self.key))
        while (await self._next("shell")).parent_id != question.id:
            pass

    async def _welcomed(self) -> None:
        while (await self._next("iopub")).type != "iopub_welcome":
            pass

    async def _next(self, channel: str) -> Message:
        while True:
            await asyncio.sleep(0)  # receiving does not yield while there is something to receive
            frames = await self.sockets[channel].recv_multipart()
            if sum(map(len, frames)) <= _SHORT:
                with suppress(BadMessage):
                    return unpack(frames, self.key)

    def close(self) -> None:
        for sock in self.sockets.values():
            sock.close()
        self.sockets.clear()
