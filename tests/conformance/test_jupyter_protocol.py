"""jupyter_kernel_test's suite for IPython, against a sandboxed kernel through the relay.

The whole suite runs, but for ``hist_access_type="range"`` (see there). What a plain kernel may do to its client
besides, and a sandbox may not, each with its reason, is in ``REFUSED`` and tested below.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jupyter_kernel_test
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_kernel_test.msgspec_v5 import validate_message

from .sandboxed import SandboxedKernel

#: Far above what any answer here takes, on a busy machine too; seconds.
_SECONDS = 60
_DISPLAY = "from IPython.display import HTML, Latex, Math, clear_output, display\n"

#: Payloads that would act in the user's client, by the code that sends them.
REFUSED = {
    "set_next_input writes into the notebook": "get_ipython().set_next_input('import os')",
    "ask_exit ends the client's session": (
        "get_ipython().payload_manager.write_payload({'source': 'ask_exit', 'keepkernel': False})"
    ),
    "edit opens a file of the user's in an editor": (
        "get_ipython().payload_manager.write_payload({'source': 'edit_magic', 'filename': '/etc/passwd'})"
    ),
    "a page of HTML would be rendered as trusted": (
        "get_ipython().payload_manager.write_payload({'source': 'page', 'data': {'text/html': '<script>1</script>'}})"
    ),
}


class TestIPython(jupyter_kernel_test.KernelTests):
    """The samples follow the suite's own for ipykernel, and add what research cells use."""

    km: SandboxedKernel  # type: ignore[assignment]
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('to stderr', file=sys.stderr)"
    completion_samples = [  # noqa: RUF012 - as the suite declares it
        {"text": "zi", "matches": {"zip"}},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [  # noqa: RUF012
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        {"code": _DISPLAY + "HTML('<b>bold</b>')", "mime": "text/html"},
    ]
    code_display_data = [  # noqa: RUF012
        {"code": _DISPLAY + "display(HTML('<b>bold</b>'))", "mime": "text/html"},
        {"code": _DISPLAY + "display(Math('x^2'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    # "range" does not apply: IPython's own kernel answers with session 0 for the running one, where the suite asks for
    # the number that "tail" gave; its own samples for ipykernel leave it out as well.
    supported_history_operations = ("tail", "search")  # type: ignore[assignment]
    code_inspect_sample = "zip"
    code_clear_output = _DISPLAY + "clear_output()"

    @classmethod
    def setUpClass(cls) -> None:
        cls.km = SandboxedKernel()
        cls.kc = cls.km.client()
        cls.kc.start_channels()
        cls.kc.wait_for_ready(timeout=_SECONDS)


class TestWelcome(jupyter_kernel_test.IopubWelcomeTests):
    """A client knows from when on it misses nothing (JEP 65)."""

    support_iopub_welcome = True

    @classmethod
    def setUpClass(cls) -> None:
        cls.km = SandboxedKernel()  # type: ignore[assignment]
        cls.kc = cls.km.client()


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingKernelClient]:
    kernel = SandboxedKernel()
    one = kernel.client()
    one.start_channels()
    one.wait_for_ready(timeout=_SECONDS)
    yield one
    one.stop_channels()
    kernel.shutdown_kernel()


def _run(client: BlockingKernelClient, code: str, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The reply and every message of iopub that belongs to the cell, all of them as the protocol has them."""
    messages: list[dict[str, Any]] = []
    reply = client.execute_interactive(code, timeout=_SECONDS, output_hook=messages.append, **options)
    for message in messages:
        validate_message(message)
    return reply, messages


def test_input_asks_the_client_and_takes_its_answer(client: BlockingKernelClient) -> None:
    asked: list[dict[str, Any]] = []

    def answer(message: dict[str, Any]) -> None:
        asked.append(message["content"])
        client.input("Ada")

    _, messages = _run(client, "print('hello,', input('name? '))", allow_stdin=True, stdin_hook=answer)
    assert asked == [{"prompt": "name? ", "password": False}]
    assert "hello, Ada" in "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


def test_input_fails_at_once_where_the_client_can_not_answer(client: BlockingKernelClient) -> None:
    reply, _ = _run(client, "input()", allow_stdin=False)
    assert reply["content"]["ename"] == "StdinNotImplementedError"


def test_every_client_sees_the_code_of_a_cell_once_and_before_its_output(client: BlockingKernelClient) -> None:
    reply, messages = _run(client, "print(1)")
    kinds = [message["msg_type"] for message in messages if message["msg_type"] != "status"]
    # A print is as many messages as ipykernel sends it in: its line's end comes alone where the machine is busy.
    assert kinds[:2] == ["execute_input", "stream"]
    assert kinds.count("execute_input") == 1
    shown = next(message["content"] for message in messages if message["msg_type"] == "execute_input")
    assert shown == {"code": "print(1)", "execution_count": reply["content"]["execution_count"]}


def test_a_display_is_updated_under_its_id(client: BlockingKernelClient) -> None:
    _, messages = _run(client, "h = display('first', display_id=True); h.update('second')")
    first, second = (m for m in messages if m["msg_type"] in ("display_data", "update_display_data"))
    assert second["msg_type"] == "update_display_data"
    assert first["content"]["transient"] == second["content"]["transient"] != {}


def test_user_expressions_come_with_the_reply(client: BlockingKernelClient) -> None:
    reply, _ = _run(client, "a = 5", user_expressions={"twice": "a * 2", "broken": "1 / 0"})
    results = reply["content"]["user_expressions"]
    assert results["twice"]["data"]["text/plain"] == "10"
    assert results["broken"]["ename"] == "ZeroDivisionError"


def test_a_silent_cell_shows_nothing_and_counts_nothing(client: BlockingKernelClient) -> None:
    before, _ = _run(client, "1")
    _, messages = _run(client, "2", silent=True)
    after, _ = _run(client, "3")
    assert [m["msg_type"] for m in messages if m["msg_type"] != "status"] == []
    assert after["content"]["execution_count"] == before["content"]["execution_count"] + 1


def test_an_interrupt_on_the_control_channel_ends_the_cell_as_ctrl_c_does(client: BlockingKernelClient) -> None:
    def interrupt(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            client.control_channel.send(client.session.msg("interrupt_request", {}))

    code = "import time\nprint('in', flush=True)\ntime.sleep(600)"
    reply = client.execute_interactive(code, timeout=_SECONDS, output_hook=interrupt)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    validate_message(client.get_control_msg(timeout=_SECONDS), "interrupt_reply")
    assert _run(client, "1")[0]["content"]["status"] == "ok"


def test_the_heartbeat_answers_while_a_cell_runs(client: BlockingKernelClient) -> None:
    seen: list[bool] = []

    def look(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            seen.append(client.hb_channel.is_beating())

    client.hb_channel.unpause()
    client.execute_interactive("print(1, flush=True)", timeout=_SECONDS, output_hook=look)
    assert seen == [True]


def test_a_request_that_does_not_pass_is_answered_with_an_error_not_with_silence(client: BlockingKernelClient) -> None:
    client.control_channel.send(client.session.msg("debug_request", {"type": "request", "seq": 1}))
    reply = client.get_control_msg(timeout=_SECONDS)
    assert reply["content"]["status"] == "error"
    assert "not passed to a sandbox" in reply["content"]["evalue"]


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_what_a_sandbox_may_not_do_to_its_client(client: BlockingKernelClient, code: str) -> None:
    reply, messages = _run(client, code)
    assert reply["content"]["status"] == "ok", reply
    assert reply["content"]["payload"] == []
    assert not [m for m in messages if m["msg_type"].startswith("comm_")]


def test_a_shutdown_request_ends_the_kernel_and_is_answered() -> None:
    kernel = SandboxedKernel()
    client = kernel.client()
    client.start_channels()
    client.wait_for_ready(timeout=_SECONDS)
    client.control_channel.send(client.session.msg("shutdown_request", {"restart": False}))
    reply = client.get_control_msg(timeout=_SECONDS)
    validate_message(reply, "shutdown_reply")
    assert reply["content"]["restart"] is False
    client.stop_channels()
    kernel.shutdown_kernel()
