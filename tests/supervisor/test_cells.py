"""A cell goes in, what a normal cell would show comes out, and the sandbox outlives what happens in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox, SandboxClosed, SandboxError, StartError, ValueRefused
from ipysandbox.audit import tail
from ipysandbox.errors import NotAvailable, PolicyError
from ipysandbox.supervisor.client import discover
from ipysandbox.supervisor.spawn import Supervisor

MakeBox = Callable[..., Sandbox]


def test_value_streams_and_outputs_arrive_as_from_a_normal_cell(box: Sandbox) -> None:
    result = box.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 6 * 7\nx")
    assert (result.status, result.value, result.stdout, result.stderr) == ("ok", 42, "out\n", "err\n")
    kinds = [output["output_type"] for output in result.outputs]
    assert sorted(kinds) == ["execute_result", "stream", "stream"]
    assert result.outputs[-1]["data"] == {"text/plain": "42"}
    assert result.usage["wall"] > 0


def test_state_persists_and_ipython_syntax_works(project: Path, box: Sandbox) -> None:
    box.run("values = [1, 2]")
    result = box.run(
        "files = !ls data\nprint(list(files), len(values))\n%time pass\nawait __import__('asyncio').sleep(0)\nlen?"
    )
    assert result.status == "ok", result.error
    assert "['x.csv'] 2" in result.stdout
    assert "Wall time" in result.stdout
    assert "Return the number of items" in result.stdout  # the pager's text, as plain output


def test_a_thousand_paths_to_read_are_shown_and_what_they_hold_is_hidden(project: Path, make_box: MakeBox) -> None:
    folders = [project / "many" / f"d{number}" for number in range(1000)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "x").touch()
    (folders[700] / ".env").write_text("secret")
    box = make_box(overrides={"files.read": [str(folder) for folder in folders]})
    for _ in range(2):  # looked through at the start, and again before each cell
        result = box.run(
            "import os\nsum(os.path.getsize(f'many/d{n}/x') == 0 for n in range(1000))\n!cat many/d700/.env"
        )
        assert result.status == "ok", result.error
        assert "secret" not in result.stdout
    assert "1000" in str(box.run("sum(os.path.exists(f'many/d{n}/x') for n in range(1000))").outputs)


def test_a_figure_a_table_and_updates_arrive(box: Sandbox) -> None:
    result = box.run("""
import matplotlib.pyplot as plt, pandas as pd
from IPython.display import display, clear_output
display("gone"); clear_output()
handle = display("first", display_id=True); handle.update("second")
plt.plot([1, 2]); plt.show()
pd.DataFrame({"a": [1]})
""")
    assert result.status == "ok", result.error
    bundles = [output["data"] for output in result.outputs if "data" in output]
    assert [sorted(bundle) for bundle in bundles] == [
        ["text/plain"],
        ["image/png", "text/plain"],
        ["text/html", "text/plain"],
    ]
    assert bundles[0]["text/plain"] == "'second'"
    assert "<table" in bundles[2]["text/html"]


def test_output_streams_while_the_cell_still_runs(box: Sandbox) -> None:
    seen = threading.Event()

    def on_output(kind: str, content: dict[str, Any]) -> None:
        if "first" in content.get("text", ""):
            seen.set()
            box.interrupt()  # ends the cell, which would otherwise go on for a minute

    result = box.run("import time\nprint('first', flush=True)\ntime.sleep(60)", on_output=on_output)
    assert seen.is_set()
    assert result.status == "interrupted"
    assert box.run("1").status == "ok"


def test_an_error_carries_its_traceback_and_nothing_else(box: Sandbox) -> None:
    result = box.run("def f():\n    return 1 / 0\nf()")
    assert (result.status, result.error and result.error.ename) == ("error", "ZeroDivisionError")
    assert result.error is not None
    assert "return 1 / 0" in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.error.traceback))


def test_the_check_refuses_before_anything_runs(make_box: MakeBox) -> None:
    box = make_box(validate=True)
    result = box.run("print('ran')\nimport os\nos.system('ls')")
    assert (result.status, result.stdout) == ("refused", "")
    assert [finding["line"] for finding in result.findings] == [3]


@pytest.mark.parametrize(
    "code", ["import os; os._exit(0)", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_kernel_that_vanishes_is_told_as_died(box: Sandbox, code: str) -> None:
    result = box.run(code)
    assert (result.status, result.state_kept) == ("died", False)
    after = box.run("1")
    assert after.status == "ok"
    assert any("new sandbox" in notice for notice in after.notices)


def test_a_supervisor_that_was_killed_is_replaced_and_the_loss_is_told(box: Sandbox) -> None:
    os.kill(Supervisor.current().pid, signal.SIGKILL)
    first = box.run("1")
    if first.status == "died":  # it was noticed in the middle of the cell
        first = box.run("1")
    assert first.status == "ok"
    assert any("lost" in notice for notice in first.notices)


def test_keyboard_interrupt_stops_the_cell_and_keeps_the_variables(box: Sandbox) -> None:
    box.run("x = 1")

    def press(kind: str, content: dict[str, Any]) -> None:
        if "ready" in content.get("text", ""):
            signal.raise_signal(signal.SIGINT)

    result = box.run("import time\nprint('ready', flush=True)\ntime.sleep(60)", on_output=press)
    assert result.status == "interrupted"
    assert box.run("x").value == 1


#: What ipykernel does just before a cell's code, and just after it, interrupts as a person may in that very moment.
_AT_THE_EDGE = """
import os, signal
kernel = get_ipython().kernel
unchanged = kernel.{step}
def interrupted(*arguments, **options):
    kernel.{step} = unchanged
    os.kill(os.getpid(), signal.SIGINT)
    return unchanged(*arguments, **options)
kernel.{step} = interrupted
x = 1
"""


@pytest.mark.parametrize("step", ["init_metadata", "do_execute", "finish_metadata"])
def test_an_interrupt_at_the_edge_of_a_cell_costs_no_reply(box: Sandbox, step: str) -> None:
    first = box.run(_AT_THE_EDGE.format(step=step), timeout="30s")
    assert first.status == "ok"
    second = box.run("x", timeout="30s")
    assert (second.status, second.error and second.error.ename, second.value) in [
        ("ok", None, 1),
        ("error", "KeyboardInterrupt", None),
    ]
    assert box.run("x").value == 1


def test_values_cross_both_ways_and_hostile_ones_do_not(box: Sandbox) -> None:
    import numpy as np

    box.put("a", np.arange(6.0).reshape(2, 3))
    box.run("b = a * 2\nclass Evil:\n    def __reduce__(self): return (print, ('ran on the host',))\nevil = [Evil()]")
    assert box.get("b").tolist() == [[0, 2, 4], [6, 8, 10]]
    with pytest.raises(ValueRefused, match="evil"):
        box.get("evil")
    with pytest.raises(NameError, match="missing"):
        box.get("missing")


def test_input_fails_at_once_where_nobody_can_answer_and_works_where_somebody_does(box: Sandbox) -> None:
    assert box.run("input('name? ')").error.ename == "StdinNotImplementedError"  # type: ignore[union-attr]
    asked = box.run("print('hello', input('name? '))", on_input=lambda prompt, password: "Ada")
    assert "hello Ada" in asked.stdout


def test_a_question_comes_after_all_that_was_printed_before_it(box: Sandbox) -> None:
    seen: list[str] = []

    def answer(prompt: str, password: bool) -> str:
        assert f"<{prompt}>" in "".join(seen)
        return "yes"

    code = "for n in range(50):\n    print(f'<{n}>')\n    input(str(n))"
    asked = box.run(code, on_output=lambda _kind, content: seen.append(content.get("text", "")), on_input=answer)
    assert asked.status == "ok"


@pytest.mark.parametrize("source", ["tqdm.notebook", "tqdm.auto", "tqdm.autonotebook", "tqdm"])
def test_a_progress_bar_is_text_wherever_it_comes_from(box: Sandbox, source: str) -> None:
    result = box.run(f"from {source} import tqdm\nsum(tqdm(range(5), desc='reading'))")
    assert (result.status, result.value) == ("ok", 10)
    assert "reading: 100%" in result.stderr


def test_nothing_is_lost_of_what_is_printed_faster_than_it_is_read(box: Sandbox) -> None:
    result = box.run("for n in range(20_000): print(n, flush=True)")
    assert result.status == "ok"
    assert result.stdout.split() == [str(n) for n in range(20_000)]


def test_restart_forgets_and_close_ends(box: Sandbox) -> None:
    box.run("x = 1")
    box.restart()
    assert box.run("x").error.ename == "NameError"  # type: ignore[union-attr]
    box.close()
    names = [row["name"] for _, state in discover() for row in state["sandboxes"]]
    assert box.name not in names


def test_a_closed_sandbox_stays_closed_until_it_is_started(project: Path) -> None:
    with Sandbox(project=project) as box:
        box.run("x = 1")
    box.close()
    for use in (lambda: box.run("1"), lambda: box.get("x"), lambda: box.put("x", 1), box.status, box.restart):
        with pytest.raises(SandboxClosed, match="is closed"):
            use()
    assert box.name not in [row["name"] for _, state in discover() for row in state["sandboxes"]]
    with box:
        assert box.run("2").value == 2


def test_killed_while_it_runs_is_told_as_such(make_box: MakeBox) -> None:
    box = make_box()

    def end(kind: str, content: dict[str, Any]) -> None:
        if "ready" in content.get("text", ""):
            box.kill()

    result = box.run("print('ready', flush=True)\nwhile True: pass", on_output=end)
    assert (result.status, result.state_kept) == ("died", False)
    assert result.error is not None
    assert "ended by kill()" in result.error.evalue


def test_a_policy_that_makes_no_sense_is_refused_before_anything_is_started(project: Path) -> None:
    for policy in ("defualt", {"limits": {"memroy": "4GiB"}}):
        with pytest.raises(PolicyError):
            Sandbox(policy, project=project)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="4 potatoes"):
        Sandbox(project=project, overrides={"limits.memory": "4 potatoes"})


def test_what_was_written_and_changed_is_told_of_the_whole_life(project: Path, box: Sandbox) -> None:
    first = box.run("open('results/a', 'w').write('1'); open('b', 'w').write('1')")
    second = box.run("1")
    assert first.written == second.written == ("results/a",)
    assert [change.path for change in second.changes] == ["b"]


def test_a_file_that_was_only_opened_for_writing_does_not_count_as_changed(project: Path, box: Sandbox) -> None:
    with contextlib.closing(sqlite3.connect(project / "runs.db")) as runs, runs:
        runs.execute("create table runs (number)")
    (project / "open.txt").write_text("x")
    os.utime(project / "open.txt", ns=(1, 1_234_567_891))
    query = "import sqlite3; runs = sqlite3.connect('runs.db'); runs.execute('select * from runs').fetchall()"
    read = box.run(f"{query}; open('open.txt', 'r+').close()")
    assert (read.status, read.changes) == ("ok", ())
    for code, changed in (
        ("runs.execute('insert into runs values (1)'); runs.commit()", ["runs.db"]),
        ("import os; os.chmod('open.txt', 0o600)", ["open.txt", "runs.db"]),
    ):
        assert [change.path for change in box.run(code).changes] == changed


def test_a_new_policy_for_a_name_starts_a_new_sandbox_and_the_same_one_joins_it(make_box: MakeBox) -> None:
    make_box(name="study").run("x = 1")
    assert make_box(name="study").run("x").value == 1
    other = make_box(name="study", overrides={"limits.memory": "2GiB"})
    assert other.run("x").error.ename == "NameError"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": "../etc"}, PolicyError, "is no name for a sandbox"),
        ({"backend": "docker"}, NotAvailable, "not available in this version"),
        ({"policy": "defualt"}, PolicyError, "default"),
        ({"policy": {"limits": {"memroy": "4GiB"}}}, PolicyError, "memory"),
        ({"policy": {"limits": {"memory": "4 potatoes"}}}, PolicyError, "4 potatoes"),
        ({"policy": {"files": {"read": ["no/such/folder"]}}}, PolicyError, "no/such/folder"),
        ({"policy": {"network": {"allow": ["example.org:443"]}}}, SandboxError, "not available in this version"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(
    make_box: MakeBox, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        make_box(**options)


def test_a_runtime_folder_that_others_can_enter_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipysandbox.supervisor import runtime

    shared = tmp_path / "r"
    (shared / "ipysandbox").mkdir(parents=True)
    (shared / "ipysandbox").chmod(0o777)
    monkeypatch.setattr(runtime, "roots", lambda environ=None: [shared / "ipysandbox"])
    with pytest.raises(StartError, match=r"mode 0700"):
        runtime.create()


def test_an_empty_cell_and_a_very_long_one_work(box: Sandbox) -> None:
    assert box.run("").status == "ok"
    assert box.run("x = '" + "a" * 5_000_000 + "'\nlen(x)").value == 5_000_000


def test_forged_and_malformed_messages_are_dropped_and_counted(box: Sandbox) -> None:
    result = box.run("""
import json
kernel = get_ipython().kernel
session, parent = kernel.session, kernel.get_parent("shell")
def send(kind, content, parent=parent):
    session.send(kernel.iopub_socket, kind, content, parent=parent, ident=kind.encode())
send("stream", {"name": "stdout", "text": "forged"}, {"header": {"msg_id": "somebody-else"}})
send("comm_open", {"comm_id": "a", "target_name": "jupyter.widget", "data": {}})
send("unknown_kind", {})
kernel.iopub_socket.send_multipart([b"x", b"<IDS|MSG>", b"bad signature", b"{}", b"{}", b"{}", b"{}"])
print("fine")
""")
    assert (result.status, result.stdout) == ("ok", "fine\n")
    assert any("dropped" in notice for notice in result.notices)


def test_a_forged_question_does_not_hang_the_cell(box: Sandbox) -> None:
    result = box.run(
        """
kernel = get_ipython().kernel
kernel._allow_stdin = True
try:
    kernel.raw_input("name? ")
except KeyboardInterrupt:
    print("nobody answered")
""",
        timeout=30,
    )
    assert (result.status, result.stdout) == ("ok", "nobody answered\n")
    assert any("input" in notice for notice in result.notices)


_FORGED = """
kernel = get_ipython().kernel
try:
    kernel._input_request("{words}", kernel._parent_ident["shell"], kernel.get_parent("shell"), password={password})
except KeyboardInterrupt:
    print("nobody answered")
"""


def test_a_forged_question_for_a_password_reaches_nobody(box: Sandbox) -> None:
    asked: list[str] = []

    def answer(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "x"

    result = box.run(_FORGED.format(words="Password: ", password=True), on_input=answer, timeout=30)
    assert (result.status, result.stdout, asked) == ("ok", "nobody answered\n", [])
    assert "The code asked for a password, which no sandbox is given; it was interrupted." in result.notices


def test_a_forged_question_reaches_nobody_where_the_policy_refuses_all(make_box: Callable[..., Sandbox]) -> None:
    box = make_box(policy={"output": {"stdin": "off"}})
    asked: list[str] = []

    def answer(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "x"

    result = box.run(_FORGED.format(words="name? ", password=False), on_input=answer, timeout=30)
    assert (result.status, result.stdout, asked) == ("ok", "nobody answered\n", [])
    assert any('stdin = "off" under [output]' in notice for notice in result.notices)


def test_a_crash_report_carries_no_terminal_commands(box: Sandbox) -> None:
    result = box.run("""
import ctypes, os, signal, time
ctypes.CDLL(None).write(1, b"\\x1b]52;c;aGk=\\x07\\x1b[2J last words", 26)
os.kill(os.getpid(), signal.SIGKILL)
""")
    assert result.status == "died"
    assert "\x1b" not in json.dumps(result.outputs) + str(result.error)


#: In the sandbox: ``send(kind, content)`` signs with the kernel's own key; ``raw(part)`` sends any bytes as content.
_FORGE = """
import json, threading, time
kernel = get_ipython().kernel
session, parent = kernel.session, kernel.get_parent("shell")
def send(kind, content):
    session.send(kernel.iopub_socket, kind, content, parent=parent, ident=kind.encode())
def raw(kind, part):
    parts = [json.dumps(session.msg_header(kind), default=str).encode(),
             json.dumps(parent["header"], default=str).encode(), b"{}", part]
    kernel.iopub_socket.send_multipart([kind.encode(), b"<IDS|MSG>", session.sign(parts)] + parts)
"""


def test_no_message_keeps_the_supervisor_from_its_work(box: Sandbox) -> None:
    box.run(_FORGE)
    result = box.run(
        "for _ in range(3): raw('display_data', b'{\"data\":[' + b'[],' * 8_000_000 + b'0]}')\ntime.sleep(60)",
        timeout=3,
    )
    assert result.limit is not None
    assert result.limit.name == "wall"
    assert float(result.limit.observed or 0) < 8


def test_output_of_a_finished_cell_is_bounded_as_well(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "4MiB"})
    box.run(_FORGE)
    box.run("""
def flood():
    while True: send("stream", {"name": "stdout", "text": "x" * 100_000})
threading.Thread(target=flood, daemon=True).start()
""")
    notices, limit = [], None
    while limit is None and not any("Between cells" in notice for notice in notices):
        result = box.run("1")
        notices, limit = [*notices, *result.notices], result.limit
    assert any("limit on output" in notice for notice in notices), notices


#: Prints once it is told that its cell has ended, and tells that it did.
_AFTER_ITS_END = """
import pathlib, threading
results = pathlib.Path("results")
def report():
    while not (results / "go").exists(): time.sleep(0.01)
    print("from the thread", "x" * 100_000 if long else "", "\\x1b]52;c;aGk=\\x07the end", flush=True)
    (results / "done").touch()
threading.Thread(target=report).start()
"""


@pytest.mark.parametrize("long", [False, True], ids=["little", "much"])
def test_what_was_printed_after_the_end_of_its_cell_is_shown_by_the_next_under_a_mark(
    project: Path, box: Sandbox, long: bool
) -> None:
    def shown(_kind: str, _content: dict[str, Any]) -> None:
        pass

    assert box.run(f"import time\nlong = {long}" + _AFTER_ITS_END, on_output=shown).stdout == ""
    (project / "results/go").touch()
    until = time.monotonic() + 60
    while not (project / "results/done").exists() and time.monotonic() < until:
        time.sleep(0.01)
    head, *lines = box.run("1", on_output=shown).stdout.splitlines()
    assert lines[-1] == "... until here ..."
    if long:
        assert head == "... printed since by what earlier cells started, the last of 98 KiB: ..."
        assert lines[0].endswith("xxx the end")
        assert len(lines[0]) < 1 << 16
    else:
        assert head == "... printed since by what earlier cells started: ..."
        assert lines[0] == "from the thread  the end"
    assert box.run("1", on_output=shown).stdout == ""


def test_what_an_earlier_cell_prints_while_another_runs_is_shown_at_the_end_of_that(box: Sandbox) -> None:
    box.run(_FORGE)
    late = "send('stream', {'name': 'stderr', 'text': 'late'})\nprint('own')\n"
    late += "send('display_data', {'data': {'text/plain': 'x'}, 'metadata': {}})"
    result = box.run(late, on_output=lambda _kind, _content: None)
    head = "... printed since by what earlier cells started, without its displays (1): ..."
    assert result.stdout == f"own\n{head}\nlate\n... until here ...\n"
    collected = box.run(late)  # where it would be taken for the cell's own
    assert collected.stdout == "own\n"
    (notice,) = collected.notices
    assert notice.startswith("What earlier cells started has printed 4 B and made displays (1) since")


def test_a_frame_counts_by_what_it_brings(make_box: MakeBox) -> None:
    """A few characters name a library of some hundred thousand, which the notebook would hold each time."""
    version = pytest.importorskip("bokeh").__version__
    box = make_box(overrides={"limits.output": "4MiB", "output.html": "isolate"})
    address = f"https://cdn.bokeh.org/bokeh/release/bokeh-{version}.min.js"
    result = box.run(f"""
from IPython.display import HTML, display
while True: display(HTML("<script src='{address}'></script>"))
""")
    assert result.limit is not None
    assert result.limit.name == "output"
    assert 1 <= len(result.outputs) < 20
    assert sum(len(str(output)) for output in result.outputs) < 8 << 20


def test_many_outputs_that_say_nothing_are_bounded(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "1MiB"})
    box.run(_FORGE)
    result = box.run("while True: send('display_data', {})")
    assert result.limit is not None
    assert result.limit.name == "output"
    assert len(result.outputs) < 2000


def test_a_value_larger_than_asked_for_does_not_reach_the_host(box: Sandbox) -> None:
    box.run("""
async def answer(stream, ident, parent):
    kernel.session.send(stream, "ipysandbox_get_reply", {"status": "ok", "tree": {}}, parent, ident=ident,
                        buffers=[bytes(8 << 20)] * 4)
kernel = get_ipython().kernel
kernel.shell_handlers["ipysandbox_get_request"] = answer
""")
    with pytest.raises(ValueRefused, match="larger than was asked"):
        box.get("x", limit=1 << 20)


@pytest.mark.parametrize("ask", ["box.get('x')", "the result's own value"])
def test_an_answer_that_is_all_text_is_refused_unread(box: Sandbox, ask: str) -> None:
    box.run("""
async def answer(stream, ident, parent):
    session = kernel.session
    message = session.msg("ipysandbox_get_reply", {}, parent)
    parts = [session.pack(message[name]) for name in ("header", "parent_header", "metadata")]
    parts.append(b'{"status": "' + b"x" * (200 << 20) + b'"}')
    stream.send_multipart([*ident, b"<IDS|MSG>", session.sign(parts), *parts])
kernel = get_ipython().kernel
kernel.shell_handlers["ipysandbox_get_request"] = answer
""")
    began = time.monotonic()
    with pytest.raises(ValueRefused, match="an answer of more than"):
        _ = box.get("x") if ask.startswith("box") else box.run("1").value
    assert time.monotonic() - began < 20
    assert box.run("2", want_value=False).status == "ok"


def test_a_large_text_crosses_and_one_too_large_names_the_way(box: Sandbox) -> None:
    box.run("text = 'é' * 5_000_000\nmore = 'x' * (65 << 20)")
    assert box.get("text") == "é" * 5_000_000
    with pytest.raises(ValueRefused, match=r"text of more than 64 MiB; give it as bytes: \.encode\(\)"):
        box.get("more")
    box.run("more = more.encode()")
    assert len(box.get("more")) == 65 << 20


def test_a_value_that_never_comes_does_not_hold_the_result(box: Sandbox) -> None:
    box.run("""
import asyncio
async def answer(stream, ident, parent): await asyncio.sleep(600)
get_ipython().kernel.shell_handlers["ipysandbox_get_request"] = answer
""")
    result = box.run("1")
    assert result.status == "ok"
    with pytest.raises(SandboxError, match="did not answer"):
        _ = result.value


def test_restart_and_close_answer_the_cell_that_they_end(make_box: MakeBox) -> None:
    box = make_box()

    def end(kind: str, content: dict[str, Any]) -> None:
        if "ready" in content.get("text", ""):
            box.restart()

    assert box.run("print('ready', flush=True)\nwhile True: pass", on_output=end).status == "interrupted"
    assert box.run("2").value == 2


def test_a_folder_nested_beyond_reach_neither_hides_nor_keeps_a_sandbox_alive(box: Sandbox) -> None:
    box.run("import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')")
    pid = box.status()["pid"]
    assert len(box.diff()) > 100
    box.close()
    assert not Path(f"/proc/{pid}").exists()


def test_exit_ends_the_cell_and_not_the_sandbox_some_cells_later(box: Sandbox) -> None:
    for leave in ("exit()", "quit()", "import sys; sys.exit()"):
        result = box.run(f"x = 1\nprint('before')\n{leave}\nprint('after')")
        assert (result.status, result.stdout, result.stderr) == ("error", "before\n", "")
        assert result.error is not None
        assert result.error.ename == "SystemExit"
    assert box.run("import asyncio\nawait asyncio.sleep(0.3)\nx").value == 1


def test_modules_of_the_project_can_be_imported(box: Sandbox) -> None:
    result = box.run("from src.model import FACTOR\nimport subprocess, sys\nFACTOR")
    assert (result.status, result.value) == ("ok", 3), result.error


def test_the_current_folder_is_on_the_path_once_between_the_standard_library_and_what_is_installed(
    box: Sandbox,
) -> None:
    """Where IPython puts it in an ordinary kernel."""
    path = box.run("import sys; sys.path").value
    own = os.path.dirname(os.__file__)
    installed = [at for at, entry in enumerate(path) if entry.endswith(("site-packages", "dist-packages"))]
    assert path.count("") == 1, path
    assert path.index(own) < path.index("") < installed[0], path


@pytest.mark.parametrize(
    "code",
    [
        "import shutil; shutil.copyfile('big', 'results/a'); open('results/a', 'rb').read() == sent",
        "import os, shutil; shutil.copy2('big', 'results/b'); os.stat('results/b').st_mtime == os.stat('big').st_mtime",
        """
import socket, threading
a, b = socket.socketpair()
threading.Thread(target=lambda: (a.sendfile(open("big", "rb")), a.close())).start()
b.makefile("rb").read() == sent
""",
        """
import asyncio
async def serve(reader, writer):
    await asyncio.get_running_loop().sendfile(writer.transport, open("big", "rb"))
    writer.close()
server = await asyncio.start_server(serve, "127.0.0.1", 0)
reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
(await reader.read()) == sent
""",
        """
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen("http://127.0.0.1:%d/big" % server.server_port).read() == sent
""",
    ],
    ids=["copyfile", "copy2", "socket", "asyncio", "http.server"],
)
def test_files_are_copied_and_sent_where_the_kernel_does_not_do_it_by_itself(
    project: Path, make_box: MakeBox, code: str
) -> None:
    (project / "big").write_bytes(os.urandom(3 << 20))
    box = make_box()
    if "127.0.0.1" in code and not box.status()["guarantees"].get("network"):
        pytest.skip("without namespaces there are no connections")
    result = box.run("sent = open('big', 'rb').read()\n" + code)
    assert result.value is True, (result.error, result.stderr)


def test_numeric_libraries_start_as_many_threads_as_the_policy_has_processors(make_box: MakeBox) -> None:
    code = """
import numpy, os, threadpoolctl
[pool["num_threads"] for pool in threadpoolctl.threadpool_info()], os.environ["OMP_NUM_THREADS"]
"""
    for cpus in (1, 2):
        wanted = min(cpus, len(os.sched_getaffinity(0)))
        counts, environment = make_box(overrides={"limits.cpus": cpus}).run(code).value
        assert counts
        assert set(counts) == {wanted}
        assert environment == str(wanted)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: numeric libraries start no thread")
def test_threads_of_numeric_libraries_start_with_the_first_calculation_that_is_worth_them(make_box: MakeBox) -> None:
    """OpenBLAS' own look for work at full speed as soon as they start, which a sandbox's start would pay for."""
    code = """
import numpy, os
before = len(os.listdir("/proc/self/task"))
product = numpy.ones((600, 600)) @ numpy.ones((600, 600))
float(product[0, 0]), len(os.listdir("/proc/self/task")) - before
"""
    box = make_box(overrides={"limits.cpus": 2})
    assert box.run(code).value == (600.0, 1)
    assert box.run(code).value == (600.0, 0)


def test_one_sandbox_can_be_used_from_several_threads(box: Sandbox) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda n: box.run(f"{n} * 2").value, range(12))) == [n * 2 for n in range(12)]


def test_a_value_makes_the_host_import_nothing_from_the_project(project: Path) -> None:
    """The host's import path starts with the project, as a notebook's does, and values need libraries."""
    for name in (
        "scipy/__init__.py",
        "scipy/sparse.py",
        "tzdata/__init__.py",
        "numpy.py",
        "pandas.py",
        "zmq.py",
        "nh3.py",
    ):
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("open('ran-on-the-host', 'w').write('x')\nraise ImportError('the project')\n")
    host = """
import sys
sys.path = [p for p in sys.path if p] + [""]  # the package itself is found first, as in an installed one
from ipysandbox import Sandbox
sys.path.insert(0, "")
with Sandbox(project=".", validate=False) as box:
    for code in ("import sys; sys.path.remove(''); import scipy.sparse as s; s.csr_matrix([[1, 0]])",
                 "import datetime as d, zoneinfo; d.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris'))",
                 "import numpy; numpy.arange(3)", "import pandas; pandas.DataFrame({'a': [1]})"):
        result = box.run(code)
        try: print(result.status, type(result.value).__name__)
        except Exception as exc: print(result.status, result.error, type(exc).__name__)
"""
    done = subprocess.run([sys.executable, "-c", host], cwd=project, capture_output=True, text=True)
    assert "csr_matrix" in done.stdout, (done.stdout, done.stderr)
    assert "ndarray" in done.stdout
    assert "DataFrame" in done.stdout
    assert not (project / "ran-on-the-host").exists()


def test_a_sandbox_that_ends_does_not_take_results_from_another_one(project: Path, make_box: MakeBox) -> None:
    """Neither of this supervisor nor of another: what the other one writes must be kept."""
    code = "import sys; from ipysandbox import Sandbox\nwith Sandbox(project=sys.argv[1], validate=False) as box:"
    code += "\n    print('up', flush=True); sys.stdin.read()"
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    box, other = make_box(), make_box()
    first.communicate("")
    other.close()
    assert box.run("open('results/kept', 'w').write('x')").status == "ok"
    assert (project / "results" / "kept").read_text() == "x"
    (project / "results" / "kept").unlink()


def test_results_that_nobody_used_is_gone_with_its_last_sandbox(project: Path, make_box: MakeBox) -> None:
    box = make_box()
    assert (project / "results").is_dir()
    box.close()
    assert not (project / "results").exists()


def test_what_a_policy_says_of_cells_and_outputs_holds_from_the_next_start(project: Path) -> None:
    show = "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\nkept = 1"
    with Sandbox(project=project, validate=True) as box:
        assert "text/html" in box.run(show).outputs[0]["data"]
        (project / "ipysandbox.toml").write_text(
            "[limits]\nwall = '1s'\n[output]\nhtml = 'text'\n[code]\ndeny = ['socket']"
        )
        assert not box.start()
        assert "text/html" not in box.run(f"{show} + kept").outputs[0]["data"]
        assert box.run("import socket").status == "refused"
        slow = box.run("while True: pass")
        assert (slow.limit.name, slow.limit.value) == ("wall", 1.0)
        assert box.run("kept").value == 2


def test_a_setting_of_pythons_is_named_as_it_was_given(project: Path) -> None:
    with pytest.raises(PolicyError, match=r"""^overrides\['limits\.memroy'\]: unknown key "memroy"\ndid you mean"""):
        Sandbox(project=project, overrides={"limits.memroy": "1GiB"})
    with Sandbox(project=project, overrides={"limits.memory": "1GiB"}) as box:
        assert box.policy()["sources"]["limits.memory"] == "argument"


def test_a_policy_that_can_not_be_read_costs_no_variables(project: Path) -> None:
    with Sandbox(project=project) as box:
        box.run("kept = 1")
        (project / "ipysandbox.toml").write_text("[limits]\nmemmory = '1GiB'\n")
        with pytest.raises(PolicyError, match=r"ipysandbox\.toml:2: .*unknown key") as caught:
            box.restart()
        assert "Nothing was restarted" in str(caught.value)
        assert box.run("kept").value == 1
        (project / "ipysandbox.toml").unlink()
        box.restart()
        assert box.run("'kept' in globals()").value is False


def test_outputs_in_frames_are_for_a_sandbox_that_has_known_of_them_from_its_start(
    project: Path,
) -> None:
    own, renderer = (
        Path(os.environ["JUPYTER_CONFIG_DIR"], "frames.toml"),
        "import os; os.environ.get('PLOTLY_RENDERER')",
    )
    own.write_text("[output]\nhtml = 'sanitize'\n")
    with Sandbox(own, project=project) as box:
        assert box.run(renderer).value is None
        own.write_text("[output]\nhtml = 'isolate'\n")
        assert box.start()
        result = box.run(renderer)
        assert result.value == "colab"
        assert "The policy has changed (output.html), so the sandbox is new." in result.notices


def test_a_project_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"the project folder .*/nowhere does not exist"):
        Sandbox(project=tmp_path / "nowhere").run("1")


def test_the_time_that_a_person_takes_to_answer_is_not_the_cells(box: Sandbox) -> None:
    box.run("1")

    def think(prompt: str, password: bool) -> str:
        while box.status()["cell"]["elapsed"] < 2:
            assert box.status()["cell"]["asks"]
        return "Ada"

    result = box.run("print(input('name? '))\nprint(input('again? '))", on_input=think, timeout=1.5, patient=True)
    assert (result.status, result.stdout.split()) == ("ok", ["Ada", "Ada"])
    slow = box.run(
        "input('name? ')\nwhile True: pass", on_input=lambda prompt, password: "Ada", timeout=1, patient=True
    )
    assert (slow.limit.name, slow.limit.value) == ("wall", 1.0)


def test_what_programs_print_is_whole_when_their_cell_is_done(box: Sandbox) -> None:
    for size in (10, 1000, 50_000, 3_000_000):
        result = box.run(
            f"import os\nos.write(1, 'é'.encode() * 7); os.write(2, b'x' * 9)\n!head -c {size} /dev/zero | tr '\\0' y"
        )
        assert (result.stdout.count("y"), result.stdout.count("é"), result.stderr) == (size, 7, "x" * 9)
    letters = "os.write(1, 'é'.encode()[:1]); os.write(1, 'é'.encode()[1:])"
    assert box.run(f"for _ in range(1000): {letters}").stdout == "é" * 1000


def test_a_value_of_too_many_items_is_refused_at_once(box: Sandbox) -> None:
    import numpy

    box.run("import numpy, time\nbig = list(range(300_000))\nfew = big[:150_000]\nbegan = time.monotonic()")
    with pytest.raises(ValueRefused, match="more than 190,000 items"):
        box.get("big")
    assert box.get("few") == list(range(150_000))
    assert (numpy.array(box.run("numpy.array(big)").value) == range(300_000)).all()
    with pytest.raises(ValueRefused, match="more than 190,000 items"):
        _ = box.run("big").value
    assert box.run("time.monotonic() - began").value < 30


@pytest.mark.parametrize(("last", "status"), [("None", 0), ("1 / 0", 1), ("raise SystemExit(3)", 1)])
def test_what_a_cell_forked_ends_with_the_cells_code(box: Sandbox, last: str, status: int) -> None:
    """It is no second kernel that waits on its parent's sockets."""
    result = box.run(f"""
import os
child = os.fork()
if child == 0:
    print("printed by the child")
    {last}
else:
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert f"status {status}" in result.stdout
    assert "printed by the child" in result.stdout
    assert box.run("6 * 7").value == 42


@pytest.mark.parametrize(
    ("key", "lowest", "less"),
    [
        ("memory", "256MiB", "255MiB"),
        ("processes", 16, 15),
        ("open_files", 96, 95),
        ("disk", "1MiB", "1023KiB"),
        ("output", "1KiB", "1023B"),
        ("cpus", 0.1, 0.09),
    ],
)
def test_a_kernel_starts_at_the_lowest_value_of_each_limit(
    make_box: MakeBox, key: str, lowest: object, less: object
) -> None:
    assert make_box(overrides={f"limits.{key}": lowest}).run("1").value == 1
    with pytest.raises(PolicyError, match="out of range"):
        make_box(overrides={f"limits.{key}": less})


def _sandboxes() -> int:
    """How many the supervisor's zygote holds."""

    def children(pid: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    (zygote,) = children(Supervisor.current().pid)
    return len(children(zygote))


def _wait_for_sandboxes(number: int) -> None:
    """The zygote collects what has ended in its own time."""
    end = time.monotonic() + 20
    while _sandboxes() != number:
        assert time.monotonic() < end


def test_restarts_and_runs_at_once_leave_one_sandbox(project: Path) -> None:
    with Sandbox(project=project, validate=False) as box:
        others = _sandboxes() - 1
        for _ in range(3):
            threads = [threading.Thread(target=box.restart) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert box.run("1").status in ("ok", "interrupted")
            for thread in threads:
                thread.join()
            assert box.run("1").value == 1
            _wait_for_sandboxes(others + 1)
    _wait_for_sandboxes(others)


def test_kills_restarts_and_runs_at_once_leave_a_sandbox_that_answers(box: Sandbox) -> None:
    """Some arrive just when a start has ended that others wait for: what they end must be what they meant."""
    [client] = [client for client, state in discover() if state["host_pid"] == os.getpid()]

    def act(number: int) -> None:
        client.request("POST", f"/sandboxes/{box.name}/{('kill', 'restart', 'restart', 'interrupt')[number % 4]}")

    for _ in range(4):
        running = threading.Thread(target=box.run, args=("while True: pass",), kwargs={"timeout": "60s"})
        running.start()
        with ThreadPoolExecutor(30) as pool:
            list(pool.map(act, range(120)))
        box.restart()
        running.join()
        assert box.run("1 + 1", timeout="30s").value == 2
    refused = [record for record in tail(1000, sandbox=box.name) if record["action"] == "sandbox.refused"]
    assert not refused


def test_a_close_in_the_middle_of_a_restart_leaves_nothing(make_box: MakeBox) -> None:
    make_box()  # keeps the zygote
    others = _sandboxes()
    told: list[BaseException] = []

    def restart(box: Sandbox) -> None:
        try:
            box.restart()
        except SandboxError as exc:
            told.append(exc)

    for number in range(8):
        box = make_box(name=f"short-{number}")
        restarting = threading.Thread(target=restart, args=(box,))
        restarting.start()
        for _ in range(4 * number):
            box.status()  # takes a moment
        box.close()
        restarting.join()
        _wait_for_sandboxes(others)
    assert all("closed" in str(exc) or "no sandbox named" in str(exc) for exc in told), told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"timeout": []}, "timeout is of type list"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": True}, "timeout is of type bool"),
        ({"cpu": {}}, "cpu is of type dict"),
    ],
)
def test_a_time_that_is_none_is_told_by_its_argument(box: Sandbox, given: dict[str, Any], told: str) -> None:
    with pytest.raises(PolicyError, match=f'{told}\ngive seconds, as 30, or a text with a unit, as "30s"'):
        box.run("1", **given)
    assert box.run("2").value == 2


@pytest.mark.parametrize("overrides", [[1], 3, "limits.wall", {1: "30s"}])
def test_settings_that_are_no_mapping_are_told_by_their_argument(project: Path, overrides: Any) -> None:
    with pytest.raises(PolicyError, match=r'overrides .*\ngive settings by name, as {"limits.wall": "30s"}'):
        Sandbox(project=project, overrides=overrides)


def test_a_sandbox_that_a_thread_starts_while_the_interpreter_ends_says_that(project: Path) -> None:
    code = """
from ipysandbox import Sandbox
import threading
Sandbox().start()
begun = threading.Event()
def start_many():
    for number in range(10_000):
        try:
            Sandbox(name=f"n{number}").start()
        except BaseException as exc:
            print(type(exc).__name__, exc, flush=True)
            return
        begun.set()
threading.Thread(target=start_many, daemon=True).start()
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "NoneType" not in done.stdout
    assert not done.stdout or done.stdout.startswith(("SandboxDied ", "SandboxError ", "StartError ")), done.stdout


def test_processes_that_are_spawned_import_from_the_project(project: Path, make_box: MakeBox) -> None:
    """joblib's and multiprocessing's, as from a script in its folder."""
    (project / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    box = make_box(validate=False)
    pool = "import multiprocessing as m\nwith m.get_context('spawn').Pool(1) as p: r = p.map(helper.double, [1, 2])\nr"
    assert box.run(f"import helper\n{pool}").value == [2, 4]
    jobs = "from joblib import Parallel, delayed\nParallel(n_jobs=2)(delayed(helper.double)(n) for n in range(4))"
    assert box.run(jobs).value == [0, 2, 4, 6]
