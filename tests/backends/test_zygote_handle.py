"""The supervisor's end of a zygote that takes its time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys

from ipysandbox.backends.linux.zygote_handle import Spawned, ZygoteHandle

_MANY = 1000


def test_a_thousand_forks_asked_for_at_once_wait_until_the_zygote_reads() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        errors = os.memfd_create("errors")
        handle = ZygoteHandle(Spawned(process, ours, errors, 0, (), "kernels", 0))
        asked = [asyncio.ensure_future(handle.fork(f"n{number}", [errors], [])) for number in range(_MANY)]
        await asyncio.sleep(0)  # all have tried to send, and the socket is full
        answering = asyncio.get_running_loop().run_in_executor(None, _answer, theirs)
        assert await asyncio.gather(*asked) == list(range(_MANY))
        assert await answering == _MANY
        process.communicate(b"\n")
        await handle.close()
        theirs.close()

    asyncio.run(main())


def _answer(theirs: socket.socket) -> int:
    """As a zygote does; how many descriptors came."""
    buffer, came, answered = b"", 0, 0
    while answered < _MANY:
        data, fds, _, _ = socket.recv_fds(theirs, 65536, 100)
        came += len(fds)
        for fd in fds:
            os.close(fd)
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= (size := 4 + struct.unpack("!I", buffer[:4])[0]):
            asked = json.loads(buffer[4:size])
            answer = json.dumps({"event": "forked", "id": asked["id"], "pid": int(asked["id"][1:])}).encode()
            theirs.sendall(struct.pack("!I", len(answer)) + answer)
            buffer, answered = buffer[size:], answered + 1
    return came
