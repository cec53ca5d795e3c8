"""The supervisor's end of the zygote: starting it, asking it to fork, ending it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ipysandbox import bootstrap
from ipysandbox.errors import StartError
from ipysandbox.policy.model import PRELOAD

from . import fonts
from .uses import KERNELS, TASK_PRELOAD, TASKS

#: A cold start on a busy machine or a network file system; it takes half a second otherwise.
START_SECONDS = 60.0
#: From the order to end to the kill, by which its children end too: it may be in the middle of loading a library.
_END_SECONDS = 2.0
#: One thread each while it is forked from: a pool of threads does not survive a fork. Children set their own number.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")


class Spawned(NamedTuple):
    process: subprocess.Popen[bytes]
    control: socket.socket
    #: What it writes to stderr, for an error message.
    errors: int
    #: The notebook's kernel, whose end it sees for itself.
    host: int
    preload: tuple[str, ...]
    use: str
    #: Nanoseconds, by the clock.
    began: int


class Unfit(Exception):
    """A zygote that must not be forked from, and why."""


def preload_of(use: str, chosen: Sequence[str] = PRELOAD) -> tuple[str, ...]:
    """What is loaded where a policy says ``chosen``; if nobody has chosen, tasks tell by the first of them what they
    need besides."""
    return TASK_PRELOAD if use == TASKS and tuple(chosen) == PRELOAD else tuple(chosen)


def spawn(runtime_dir: Path, host: int, preload: Sequence[str] = PRELOAD, use: str = KERNELS) -> Spawned:
    """Start a zygote process; it loads what its ``use`` needs, then ``preload``, while the caller goes on."""
    began = time.time_ns()
    try:
        seen = os.pidfd_open(host)  # not by its number: sandboxes can read the command line
    except ProcessLookupError:
        raise StartError("the process that this sandbox is for has ended") from None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    errors = os.memfd_create("zygote-errors", os.MFD_CLOEXEC)
    code = "from ipysandbox.backends.linux.zygote import main; main(int(argv[0]), int(argv[1]), *argv[2:])"
    # What many use has been looked at by us; anything else is tried before it counts.
    known, tried = (",".join(n for n in preload if (n in PRELOAD) is ours) for ours in (True, False))
    settings = _matplotlib_folder(runtime_dir) if "matplotlib" in known + tried else {}
    process = subprocess.Popen(
        bootstrap.command(code, [str(theirs.fileno()), str(seen), str(runtime_dir), use, known, tried]),
        env={
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            # No home: nothing of the user's may steer what is loaded here.
            "HOME": "/nonexistent",
            **dict.fromkeys(_THREADS, "1"),
            # pyarrow, which pandas loads, would start a thread.
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            **settings,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get("IPYSANDBOX_DEBUG") else errors,
        pass_fds=[theirs.fileno(), seen],
        cwd="/",
        start_new_session=True,
    )
    theirs.close()
    os.close(seen)
    return Spawned(process, ours, errors, host, tuple(preload), use, began)


def _matplotlib_folder(runtime_dir: Path) -> dict[str, str]:
    """Where the zygote's matplotlib finds the list of fonts, which takes seconds to make, and nothing of the user's."""
    folder = runtime_dir / "matplotlib"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in fonts.cached():
            (folder / path.name).write_bytes(path.read_bytes())
    return {"MPLCONFIGDIR": str(folder)}


class ZygoteHandle:
    """The supervisor's handle on a zygote process."""

    def __init__(self, spawned: Spawned) -> None:
        self._process, self._control, self._errors = spawned.process, spawned.control, spawned.errors
        self._control.setblocking(False)
        #: One message at a time: the socket may take a part of one only.
        self._sending = asyncio.Lock()
        self._closed = False
        self._pids: dict[str, int] = {}
        #: Of the libraries that it has looked at: why it holds one not, or "".
        self.loaded: dict[str, str] = {}
        #: By these it can no longer be forked from.
        self.spoiled: list[str] = []
        self._forks: dict[str, asyncio.Future[int]] = {}
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settled = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    async def started(self) -> None:
        """Until it can fork. Raises StartError when this interpreter can't run kernels."""
        try:
            await asyncio.wait_for(asyncio.shield(self._started), START_SECONDS)
        except BaseException:
            await self.close()
            raise

    def alive(self) -> bool:
        return self._process.poll() is None and not self._reader.done()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def fork(
        self, identifier: str, fds: list[int], groups: list[str], owners: tuple[int, int] | None = None
    ) -> int:
        """The pid of the new sandbox's monitor, which waits for its plan. ``groups``: folders of its control group,
        which the zygote removes if the supervisor no longer can. ``owners``: whose files the host's root's are to be
        shown as. Raises Unfit."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forks[identifier] = future
        asked = {"id": identifier, "zygote": self._process.pid, "groups": groups, "owners": owners}
        data = json.dumps(asked).encode()
        try:
            await asyncio.wait_for(self._send(data, fds), START_SECONDS)
        except (asyncio.TimeoutError, OSError) as exc:
            del self._forks[identifier]
            ended = isinstance(exc, (BrokenPipeError, ConnectionResetError))
            why = "ended" if ended else f"does not take what it is asked ({exc or 'no answer'})"
            raise StartError(f"the zygote process {why}", hint=self._stderr() or None) from None
        return await asyncio.wait_for(future, START_SECONDS)

    async def _send(self, message: bytes, fds: Sequence[int] = ()) -> None:
        """Raises OSError."""
        data = struct.pack("!I", len(message)) + message
        async with self._sending:
            sent = 0
            while fds and not sent:
                try:
                    sent = socket.send_fds(self._control, [data], fds)
                except BlockingIOError:  # it is full: hundreds are asked for at once, and forked one by one
                    await self._writable()
            await asyncio.get_running_loop().sock_sendall(self._control, data[sent:])

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._control, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._control)

    def kill(self, identifier: str) -> None:
        """End a monitor that has not said where its init is; init follows it."""
        pid = self._pids.get(identifier)
        if pid is not None:
            os.kill(pid, 9)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        buffer = b""
        while True:
            data = await loop.sock_recv(self._control, 65536)
            if not data:
                break
            buffer += data
            while len(buffer) >= 4 and len(buffer) >= 4 + struct.unpack("!I", buffer[:4])[0]:
                size = struct.unpack("!I", buffer[:4])[0]
                self._on_message(json.loads(buffer[4 : 4 + size]))
                buffer = buffer[4 + size :]
        error = StartError("the zygote process ended", hint=self._stderr() or None)
        self.settled.set()
        if not self._started.done():
            self._started.set_exception(error)
        for fork in self._forks.values():
            if not fork.done():
                fork.set_exception(error)

    def _on_message(self, message: dict[str, Any]) -> None:
        kind = message["event"]
        if kind == "ready":
            self._started.set_result(None)
        elif kind == "failed":
            self._started.set_exception(
                StartError(
                    f"this Python can't run a kernel: {message['message']}",
                    hint=f"Install what is missing into it: {sys.executable} -m pip install ipykernel",
                )
            )
        elif kind == "forked":
            self._pids[message["id"]] = message["pid"]
            future = self._forks.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_result(message["pid"])
        elif kind == "refused":
            future = self._forks.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_exception(Unfit(message["message"]))
        elif kind == "loaded":
            self.loaded[message["name"]] = message["message"]
            if message["spoiled"]:
                self.spoiled.append(message["name"])
        elif kind == "settled":
            self.settled.set()
        elif kind == "gone":
            self._pids.pop(message["id"], None)

    def _stderr(self) -> str:
        return os.pread(self._errors, 2000, 0).decode("utf-8", "replace")

    async def leave(self) -> None:
        """End it alone: the supervisor goes on with others."""
        with contextlib.suppress(OSError):
            await self._send(json.dumps({"leave": True}).encode())
        await self.close()

    async def close(self) -> None:
        """Closing the control socket is the order to end everything."""
        if self._closed:
            return
        self._closed = True
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._control.close()
        await asyncio.get_running_loop().run_in_executor(None, self._wait)
        os.close(self._errors)

    def _wait(self) -> None:
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
