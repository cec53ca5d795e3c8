"""The relay between a kernel and a client whose messages come in any order that their sockets allow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from ipysandbox.backends.linux.zygote_handle import spawn
from ipysandbox.output.cleaner import Cleaner
from ipysandbox.supervisor.app import Supervisor
from ipysandbox.supervisor.relay import Relay
from ipysandbox.supervisor.wire import Message, new_header, pack, unpack

KEY = b"kernel"
#: Milliseconds: of what must come, and of what must not.
SOON, NEVER = 10_000, 300


class Kernel:
    """Answers what a relay asks at first; the rest is the test's."""

    def __init__(self, folder: Path) -> None:
        context = zmq.asyncio.Context.instance()
        self.endpoints = {name: str(folder / name) for name in ("shell", "control", "stdin", "iopub")}
        self.sockets = {name: context.socket(zmq.XPUB if name == "iopub" else zmq.ROUTER) for name in self.endpoints}
        for name, sock in self.sockets.items():
            sock.bind("ipc://" + self.endpoints[name])

    async def greet(self) -> None:
        await self.sockets["iopub"].recv_multipart()
        asked = await self.receive("shell")
        await self.send("shell", "kernel_info_reply", {"status": "ok"}, asked)
        await self.send("iopub", "iopub_welcome", {}, asked)

    async def receive(self, channel: str) -> Message:
        return unpack(await self.sockets[channel].recv_multipart(), KEY)

    async def send(self, channel: str, kind: str, content: dict[str, Any], request: Message) -> None:
        idents = [kind.encode()] if channel == "iopub" else request.idents
        await self.sockets[channel].send_multipart(
            pack(Message(new_header(kind, "kernel"), request.header, {}, content, idents), KEY)
        )


class Client:
    def __init__(self, relay: Relay) -> None:
        self.key = relay.key
        context = zmq.asyncio.Context.instance()
        kinds = {"shell": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}
        self.sockets = {name: context.socket(kind) for name, kind in kinds.items()}
        for name, sock in self.sockets.items():
            if name == "iopub":
                sock.subscribe(b"")
            else:
                sock.identity = b"client"
            sock.connect("ipc://" + relay.endpoints[name])

    async def next(self, channel: str) -> Message:
        assert await self.sockets[channel].poll(SOON), f"nothing came on {channel}"
        return unpack(await self.sockets[channel].recv_multipart(), self.key)


@asynccontextmanager
async def cell(folder: Path) -> AsyncIterator[tuple[Kernel, Client, Message]]:
    """A cell that runs: its kernel, the client that sent it, and the request as the kernel got it."""
    kernel, relay = Kernel(folder), Relay(folder, Cleaner())
    client = Client(relay)

    async def forward(message: Message) -> None:
        await relay.forward("shell", message)

    relay.on_execute, relay.stdin_allowed = forward, lambda _parent: True
    try:
        await asyncio.gather(relay.attach(kernel.endpoints, KEY, 10), kernel.greet())
        assert (await client.next("iopub")).type == "iopub_welcome"
        request = Message(new_header("execute_request", "client"), {}, {}, {"code": "input()"})
        await client.sockets["shell"].send_multipart(pack(request, client.key))
        yield kernel, client, await kernel.receive("shell")
    finally:
        relay.close()
        for sock in (*kernel.sockets.values(), *client.sockets.values()):
            sock.close(linger=0)


def run(folder: Path, test: Callable[[Kernel, Client, Message], Awaitable[None]]) -> None:
    async def go() -> None:
        async with cell(folder) as parts:
            await test(*parts)

    asyncio.run(go())


def test_a_question_that_overtook_a_print_waits_for_it(short_folder: Path) -> None:
    async def test(kernel: Kernel, client: Client, request: Message) -> None:
        await kernel.send("stdin", "input_request", {"prompt": "go on? ", "password": False}, request)
        assert not await client.sockets["stdin"].poll(NEVER)
        await kernel.send("iopub", "stream", {"name": "stdout", "text": "before"}, request)
        await kernel.send("iopub", "ipysandbox_question", {}, request)
        question = await client.next("stdin")
        assert question.content == {"prompt": "go on? ", "password": False}
        assert question.metadata == {"ipysandbox": {"published": 1}}
        assert (await client.next("iopub")).content["text"] == "before"

    run(short_folder, test)


def test_a_question_as_long_as_a_book_is_dropped_and_the_next_one_comes(short_folder: Path) -> None:
    async def test(kernel: Kernel, client: Client, request: Message) -> None:
        for prompt in ("x" * 2_000_000, "short"):
            await kernel.send("iopub", "ipysandbox_question", {}, request)
            await kernel.send("stdin", "input_request", {"prompt": prompt, "password": False}, request)
        assert (await client.next("stdin")).content["prompt"] == "short"

    run(short_folder, test)


def test_a_question_of_a_kernel_that_marks_none_comes_all_the_same(short_folder: Path) -> None:
    async def test(kernel: Kernel, client: Client, request: Message) -> None:
        await kernel.send("stdin", "input_request", {"prompt": "? ", "password": False}, request)
        assert (await client.next("stdin")).type == "input_request"

    run(short_folder, test)


def test_a_request_for_a_kernel_that_is_not_there_is_told_at_once(short_folder: Path) -> None:
    async def main() -> None:
        relay = Relay(short_folder, Cleaner())
        try:
            assert not await relay.forward("shell", Message(new_header("execute_request", "client"), {}, {}, {}))
        finally:
            relay.close()

    asyncio.run(main())


def test_a_cell_whose_sandbox_is_connected_to_nothing_is_answered_and_the_next_one_runs(
    project: Path, short_folder: Path
) -> None:
    async def main() -> None:
        supervisor = Supervisor(short_folder, os.getpid(), spawn(short_folder, os.getpid()))
        try:
            box = await supervisor.open({"cwd": str(project)})
            client = Client(box.relay)
            box.relay.detach()
            statuses = []
            for code in ("1", "2"):
                request = Message(new_header("execute_request", "client"), {}, {}, {"code": code})
                await client.sockets["shell"].send_multipart(pack(request, client.key))
                reply = await client.next("shell")
                statuses.append(reply.metadata["ipysandbox"]["status"])
                if code == "1":
                    assert "is connected to nothing" in reply.metadata["ipysandbox"]["notices"][0]
            assert statuses == ["died", "ok"]
        finally:
            await supervisor.close()

    asyncio.run(main())
