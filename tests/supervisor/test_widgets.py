"""Widgets of a real sandbox as the supervisor sees them: bounded, and no hold on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from ipysandbox import Sandbox
from ipysandbox.output.cleaner import Cleaner
from ipysandbox.supervisor.relay import Relay
from ipysandbox.supervisor.wire import Message, new_header, pack

from .test_relay import KEY, SOON, Client, Kernel

MakeBox = Callable[..., Sandbox]
WIDGETS = {"output.widgets": True, "limits.output": "2MiB"}


def test_a_flood_of_changes_is_output_and_ends_with_its_limit(make_box: MakeBox) -> None:
    box = make_box(overrides=WIDGETS)
    result = box.run("import ipywidgets\nslider = ipywidgets.IntSlider(max=2**31)\nwhile True: slider.value += 1")
    assert result.status == "limit"
    assert result.limit is not None
    assert result.limit.name == "output"
    assert box.run("1").status == "ok"


def test_changes_that_nobody_sees_are_no_output(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "100KiB"})
    code = "import ipywidgets\nslider = ipywidgets.IntSlider(max=2**31)\nfor n in range(2000): slider.value = n"
    result = box.run(code)
    assert (result.status, result.usage["output"]) == ("ok", 0)
    assert [notice for notice in result.notices if "widgets = true" in notice] == list(result.notices)


_BAR = """
import ipywidgets
left, bar, right = ipywidgets.HTML(), ipywidgets.IntProgress(max=500), ipywidgets.HTML()
for n in range(500):
    left.value, bar.value, right.value = f"reading: {n / 5:3.0f}%", n, f" {n}/500 [00:12&lt;00:34, {n}.12it/s]"
"""


def test_a_loop_of_ten_minutes_with_two_bars_stays_below_the_limit_on_output(make_box: MakeBox) -> None:
    """tqdm changes a bar ten times a second, in three messages."""
    result = make_box(overrides={"output.widgets": True}).run(_BAR)
    assert result.status == "ok", result.error
    assert 0 < result.usage["output"] * 600 / (500 / 10) * 2 < 32 << 20


def test_a_message_too_large_for_a_widget_is_dropped_unread(make_box: MakeBox) -> None:
    box = make_box(overrides={"output.widgets": True})
    result = box.run("import ipywidgets\ntext = ipywidgets.Textarea()\ntext.value = 'x' * (3 << 20)\nprint('on')")
    assert (result.status, result.stdout) == ("ok", "on\n")
    assert any("dropped" in notice for notice in result.notices)


def test_a_kernel_that_does_not_read_holds_up_nobody(short_folder: Path) -> None:
    async def go() -> None:
        kernel, relay = Kernel(short_folder), Relay(short_folder, Cleaner(widgets=True))
        client = Client(relay)

        async def forward(message: Message) -> None:
            await relay.forward("shell", message)

        relay.on_execute = forward
        try:
            await asyncio.gather(relay.attach(kernel.endpoints, KEY, 10), kernel.greet())
            assert (await client.next("iopub")).type == "iopub_welcome"
            request = Message(new_header("execute_request", "client"), {}, {}, {"code": "slider"})
            await client.sockets["shell"].send_multipart(pack(request, client.key))
            asked = await kernel.receive("shell")
            state = {"_model_name": "IntSliderModel", "_model_module": "@jupyter-widgets/controls", "value": 1}
            opening = {"comm_id": "a", "target_name": "jupyter.widget", "data": {"state": state}}
            await kernel.send("iopub", "comm_open", opening, asked)
            opened = await client.next("iopub")
            assert (opened.type, opened.metadata["version"]) == ("comm_open", "2.1.0")
            data = {"method": "update", "state": {"value": 2}}
            for _ in range(5000):
                said = Message(
                    new_header("comm_msg", "client"), {}, {}, {"comm_id": opened.content["comm_id"], "data": data}
                )
                await client.sockets["shell"].send_multipart(pack(said, client.key))
            stop = Message(new_header("interrupt_request", "client"), {}, {}, {})
            await client.sockets["shell"].send_multipart(pack(stop, client.key))
            assert await client.sockets["shell"].poll(SOON), "the relay waits for the kernel"
            assert (await client.next("shell")).type == "interrupt_reply"
        finally:
            relay.close()
            for sock in (*kernel.sockets.values(), *client.sockets.values()):
                sock.close(linger=0)

    asyncio.run(go())
