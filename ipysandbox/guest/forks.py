"""Brings what forked children print to the kernel's output, over a pair of sockets instead of a port on loopback.

ipykernel opens a TCP port for it, which a sandbox without a network of its own doesn't have.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import zmq
from ipykernel.iostream import IOPubThread

#: Far below what a socket takes at once (net.core.wmem_default): longer messages are sent in parts.
_PART = 48 << 10
#: The child, its message's number, this part's, how many there are.
_HEADER = struct.Struct("=IIII")
_FRAME = struct.Struct("=I")
#: Messages that never became whole (their sender was killed) are forgotten beyond this number.
_MOST_OPEN = 64


class ForkAwareIOPubThread(IOPubThread):
    """As its base, but that children send through ``socket.socketpair``, which a fork inherits."""

    def _setup_pipe_in(self) -> None:
        # Packets keep their boundaries: a sender that is killed in the middle harms nobody else's message.
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._numbers = itertools.count()
        self._open: dict[tuple[int, int], dict[int, bytes]] = {}
        self.io_loop.add_handler(self._ours, self._on_packet, self.io_loop.READ)

    async def _run_event_pipe_gc(self) -> None:
        """Every ten seconds, says the base. What waits is to run not at all: by that it is known that nothing inside
        has changed what lies in writable folders."""

    def forget_ended_threads(self) -> None:
        """What the base does then, for after a cell."""
        if self._event_pipes:
            self.io_loop.add_callback(self._event_pipe_gc)

    def _on_packet(self, _fd: Any, _events: int) -> None:
        try:
            packet = self._ours.recv(_PART + _HEADER.size)
        except BlockingIOError:
            return
        if len(packet) < _HEADER.size:
            return
        sender, number, part, parts = _HEADER.unpack_from(packet)
        held = self._open.setdefault((sender, number), {})
        held[part] = packet[_HEADER.size :]
        if len(held) == parts:
            del self._open[sender, number]
            self.send_multipart(_split(b"".join(held[index] for index in range(parts))))  # type: ignore[no-untyped-call]
        while len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _really_send(self, msg: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        if os.getpid() == self._master_pid:
            super()._really_send(msg, *args, **kwargs)  # type: ignore[no-untyped-call]
            return
        data = b"".join(_FRAME.pack(len(frame)) + frame for frame in map(_bytes, msg))
        number = next(self._numbers)
        parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
        for index, part in enumerate(parts):
            self._theirs.send(_HEADER.pack(os.getpid(), number, index, len(parts)) + part)


def _bytes(frame: Any) -> bytes:
    return frame.bytes if isinstance(frame, zmq.Frame) else bytes(frame)


def _split(data: bytes) -> list[bytes]:
    frames = []
    while data:
        end = _FRAME.size + _FRAME.unpack_from(data)[0]
        frames.append(data[_FRAME.size : end])
        data = data[end:]
    return frames
