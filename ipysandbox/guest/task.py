"""What runs one task inside a sandbox, instead of a kernel: reads a call, makes it, writes how it went, and ends.

Nothing here enforces anything; the call may change all of it, and what is written is read outside as hostile.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

from . import confined, fresh, gpu, threads, values

#: Before a call: bytes of the pickled function and of its pickled arguments.
REQUEST = struct.Struct("!QQ")
#: Before an answer: what it is, bytes of its head, number of buffers; then the bytes of each buffer.
REPLY, SIZE = struct.Struct("!4sBQI"), struct.Struct("!Q")
MAGIC = b"IPT1"
VALUE, RAISED, REFUSED = 0, 1, 2
#: Characters of a message and of a traceback that are worth to be sent.
_MOST_TEXT = 32 << 10
#: Pickles name these, and each task would import them anew.
PRELOAD = ("cloudpickle", "cloudpickle.cloudpickle")


def run(program: dict[str, Any], fds: list[int]) -> NoReturn:
    """``program``: as for a kernel, without what only that has. ``fds``: the socket, and where stdout goes."""
    fresh.after_fork()
    if program["confined"]:
        confined.prepare(program["confined"])
    if program["gpu"]:
        gpu.prepare(program["gpu"]["fraction"], program["gpu"]["bytes"])
    _import_from_the_project()
    fresh.read_settings()
    if program["threads"] != 1:  # the zygote's own number
        threads.set_numeric_threads(int(program["threads"]))
    sys.dont_write_bytecode = True
    os.dup2(fds[1], 1)
    os.close(fds[1])
    streams = _own_streams()
    sock = socket.socket(fileno=fds[0])
    head, buffers, kind = _answer(sock)
    for stream in streams:
        _flush(stream)
    _send(sock, kind, head, buffers)
    os._exit(0)


def _answer(sock: socket.socket) -> tuple[bytes, Sequence[Any], int]:
    task = os.getpid()
    try:
        function, arguments = _receive(sock)
        call = pickle.loads(function)
        args, kwargs = pickle.loads(arguments)
        result = call(*args, **kwargs)
    except BaseException as exc:  # noqa: BLE001 - the task's own, whatever it is: told, and then it ends
        answer = _raised(exc)
    else:
        answer = _encoded(result)
    if os.getpid() != task:  # the call forked, and this is not the one that was asked
        os._exit(0)
    return answer


def _raised(exc: BaseException) -> tuple[bytes, Sequence[Any], int]:
    return json.dumps(_described(exc)).encode(), (), RAISED


def _encoded(result: object) -> tuple[bytes, Sequence[Any], int]:
    try:
        tree, buffers = values.encode(result)
        # As it is rather than escaped: what is read outside is bounded by its bytes.
        return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass"), buffers, VALUE
    except values.Untransferable as exc:
        return json.dumps({"message": str(exc)[:_MOST_TEXT]}).encode(), (), REFUSED
    except BaseException as exc:  # noqa: BLE001 - whatever the value's own methods raise
        return _raised(exc)


def _receive(sock: socket.socket) -> tuple[memoryview, memoryview]:
    sizes = REQUEST.unpack(_exactly(sock, REQUEST.size))
    data = _exactly(sock, sum(sizes))
    return data[: sizes[0]], data[sizes[0] :]


def _exactly(sock: socket.socket, count: int) -> memoryview:
    data = memoryview(bytearray(count))
    at = 0
    while at < count:
        got = sock.recv_into(data[at:])
        if not got:
            os._exit(0)  # nobody waits for this one any more
        at += got
    return data


def _send(sock: socket.socket, kind: int, head: bytes, buffers: Sequence[Any]) -> None:
    flat = [memoryview(buffer).cast("B") for buffer in buffers]
    sizes = b"".join(SIZE.pack(len(buffer)) for buffer in flat)
    sock.sendall(REPLY.pack(MAGIC, kind, len(head), len(flat)) + sizes + head)
    for buffer in flat:
        sock.sendall(buffer)


def _described(exc: BaseException) -> dict[str, str]:
    kind = type(exc)
    try:
        message = str(exc)
    except BaseException:  # noqa: BLE001 - its own method
        message = "(its message can't be had)"
    try:
        lines = "".join(traceback.format_exception(kind, exc, _without_ours(exc.__traceback__)))
    except BaseException:  # noqa: BLE001 - the same; no memory
        lines = f"{kind.__name__}: {message}"
    # Of a long one the end, where it was raised.
    named = {"module": str(kind.__module__)[:200], "name": str(kind.__qualname__)[:200]}
    return {**named, "message": message[:_MOST_TEXT], "traceback": lines[-_MOST_TEXT:]}


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """From the call's own first line on; as it is where that was never reached."""
    return trace.tb_next if trace is not None and trace.tb_next is not None else trace


def _import_from_the_project() -> None:
    """As an ordinary script finds what lies beside it: after the standard library, since this Python was isolated."""
    places = [at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))]
    sys.path.insert(places[0] if places else 0, "")


def _own_streams() -> list[Any]:
    """The zygote's lead nowhere. By line, so that a crash leaves what was printed before it."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return [sys.stdout, sys.stderr]


def _flush(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed by the call
        stream.flush()
