"""Promises about much output: memory stays bounded, nothing is lost, all of it is in a file, notebooks keep up."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox
from ipysandbox.policy.model import Limits
from ipysandbox.supervisor import full_text
from ipysandbox.supervisor.full_text import FullText
from ipysandbox.supervisor.outflow import Outflow
from ipysandbox.supervisor.spawn import Supervisor
from ipysandbox.supervisor.wire import Message, new_header

MakeBox = Callable[..., Sandbox]
SMALL = "import os\nfor _ in range({}): os.write(1, b'123456789\\n')"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of one test are not another's to count; the supervisor is told where by its environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Supervisor._stop_current()
    yield
    Supervisor._stop_current()


def kept() -> list[Path]:
    return sorted(full_text.folder().iterdir()) if full_text.folder().exists() else []


# -- what is kept in a file


def test_what_a_limit_cuts_is_in_a_file_that_only_the_user_can_read(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "1MiB"})
    result = box.run("import sys\nfor n in range(200_000):\n    print('line', n)\nsys.stdout.flush()")
    assert result.status == "limit"
    assert result.stdout.count("\n... output cut at 1.0 MiB ...\n") == 1
    assert len(result.stdout) < MIB + 100
    assert result.full_output is not None
    path = Path(result.full_output.path)
    assert kept() == [path]
    text = path.read_text()
    assert text.startswith(result.stdout.partition("\n... output cut")[0])
    shown = [f"line {n}" for n in range(200_000)]
    assert text.splitlines()[:-1] == shown[: len(text.splitlines()) - 1]  # as far as the cell came
    assert len(text) > 0.9 * MIB
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    named = [notice for notice in result.notices if str(path) in notice]
    assert len(named) == 1
    assert named[0].startswith("All that the cell printed")


def test_both_streams_are_in_it_in_order_and_nothing_is_when_little_was_printed(box: Sandbox) -> None:
    assert box.run("print('x' * 900_000)").full_output is None
    assert kept() == []
    code = "import sys\nfor n in range(40):\n    print(n, 'a' * 40_000, flush=True)\n"
    code += "    print(n, 'b' * 40_000, file=sys.stderr, flush=True)"
    result = box.run(code)
    assert (result.status, result.notices) == ("ok", ())
    assert result.full_output is not None
    assert result.full_output.whole
    lines = Path(result.full_output.path).read_text().splitlines()
    assert lines == [f"{n} {letter * 40_000}" for n in range(40) for letter in "ab"]


def test_it_is_cleaned_and_redacted_as_what_is_shown(
    project: Path, make_box: MakeBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "ghp_" + os.urandom(18).hex()
    (project / "data/notes.txt").write_text(token)
    monkeypatch.setenv("GITHUB_TOKEN", token)
    box = make_box(overrides={"limits.output": "1MiB"})
    code = "s = open('data/notes.txt').read()\nfor n in range(6):\n    print('y' * 300_000)\n"
    code += "    print('<\\x1b]52;c;aGk=\\x07' + s + '>', flush=True)"
    result = box.run(code)
    assert result.status == "limit"
    assert result.full_output is not None
    text = Path(result.full_output.path).read_text()
    assert token not in text
    assert "\x1b" not in text
    assert text.count("<•••GITHUB_TOKEN•••>") > 3  # also beyond the limit, where nothing is shown


def test_the_command_names_the_file_when_the_limit_cut_something(project: Path) -> None:
    (project / "flood.py").write_text("print('x' * 3_000_000)")
    (project / "ipysandbox.toml").write_text('[limits]\noutput = "1MiB"\n')
    command = [sys.executable, "-m", "ipysandbox", "run", "flood.py"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 4
    (path,) = kept()
    assert f"in {path}" in done.stderr
    assert path.read_text() == "x" * 3_000_000 + "\n"


def test_only_the_newest_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_text, "_TOTAL", 5 * MIB)
    for number in range(30):
        one = FullText("main", number, Limits(output=1 << 30))
        one.add("stdout", "x" * (2 * MIB if number < 4 else MIB + 1))
        assert one.finish() is not None
        os.utime(kept()[-1], (number, number))
        assert sum(path.stat().st_size for path in kept()) <= 5 * MIB
    assert len(kept()) == 4
    monkeypatch.setattr(full_text, "_TOTAL", 1 << 30)
    for number in range(30):
        one = FullText("main", number, Limits(output=1 << 30))
        one.add("stdout", "x" * (MIB + 1))
        one.finish()
    assert len(kept()) == 20


def test_a_file_ends_at_its_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_text, "_TOTAL", 3 * MIB)
    one = FullText("main", 1, Limits())
    for _ in range(100):
        one.add("stdout", "é" * 100_000)
    done = one.finish()
    assert done is not None
    assert not done.whole
    assert str(done).startswith("The first 3.0 MiB of what it printed are in ")
    assert 3 * MIB - 1 <= done.path.stat().st_size <= 3 * MIB
    done.path.read_text()  # no letter is cut in two


def test_no_link_is_followed_and_the_cell_goes_on(box: Sandbox, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    full_text.folder().parent.mkdir(parents=True, exist_ok=True)
    full_text.folder().symlink_to(elsewhere)
    result = box.run("print('x' * 2_000_000)\n'done'")
    assert (result.status, result.value, result.full_output) == ("ok", "done", None)
    assert any("could not be kept" in notice for notice in result.notices)
    assert list(elsewhere.iterdir()) == []


_LIMITED = """
import resource, signal, sys
from ipysandbox import Sandbox
# As on a full disk, a write that goes beyond is refused by the kernel.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
with Sandbox(project=sys.argv[1], validate=False) as box:
    r = box.run("print('x' * 8_000_000, flush=True)\\n6 * 7")
    print(r.status, r.value, len(r.stdout), r.full_output, r.notices)
"""


def test_where_there_is_no_room_on_the_disk_the_cell_goes_on_and_nothing_half_written_stays(project: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED, str(project)], capture_output=True, text=True)
    assert done.stdout.startswith("ok 42 8000001 None ('What the cell printed could not be kept"), done.stderr
    assert kept() == []


def test_what_a_killed_supervisor_left_half_written_is_removed(box: Sandbox) -> None:
    assert box.run("print('x' * 2_000_000)").full_output is not None
    left = full_text.folder() / "20200101-000000-main-1-abcdef.txt.part"
    left.write_text("x")
    os.utime(left, (1, 1))
    assert box.run("print('x' * 2_000_000)").full_output is not None
    assert len(kept()) == 2
    assert not left.exists()


def test_one_print_beyond_the_limit_is_shown_and_kept_as_many_small_ones(box: Sandbox) -> None:
    result = box.run("print('start'); print('x' * 40_000_000); print('end')")
    assert result.limit is not None
    assert result.limit.name == "output"
    assert result.stdout.startswith("start\nxxx")
    assert result.stdout.endswith("\n... output cut at 32.0 MiB ...\n")
    assert len(result.stdout) > 31 * MIB
    assert result.full_output is not None
    path = Path(result.full_output.path)
    assert path.read_text().startswith("start\n" + "x" * 40_000_000)
    assert any(str(path) in notice for notice in result.notices)


def test_where_a_message_is_too_large_to_be_read_that_is_marked_once_and_what_came_before_stays(box: Sandbox) -> None:
    result = box.run("""
import sys, time
kernel = get_ipython().kernel
def send(text):
    content = {"name": "stdout", "text": text}
    kernel.session.send(kernel.iopub_socket, "stream", content, parent=kernel.get_parent(), ident=b"stream")
print("y" * 2_000_000, flush=True)
for _ in range(2): send("x" * 40_000_000)
send("after it")
time.sleep(60)
""")
    assert result.limit is not None
    assert result.limit.name == "output"
    assert result.stdout == "y" * 2_000_000 + "\n" + "\n... output cut at 32.0 MiB ...\n"
    assert result.full_output is not None
    assert not result.full_output.whole
    assert Path(result.full_output.path).read_text() == "y" * 2_000_000 + "\n"


# -- memory


def _peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


_FLOOD = """
import re, sys
from pathlib import Path
from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor

def peaks():
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in ("self", Supervisor.current().pid)]
    return [int(re.search(r"VmHWM:\\s+(\\d+) kB", text)[1]) << 10 for text in texts]

project, limit, code = sys.argv[1:]
with Sandbox(project=project, validate=False, overrides={"limits.output": limit}) as box:
    box.run("print('warm', flush=True)")
    before = peaks()
    result = box.run(code)
    print(result.status, len(result.stdout), *(after - was for after, was in zip(peaks(), before)))
"""


def test_what_a_limit_cuts_is_in_the_file(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "1MiB"})
    code = "n = 0\nwhile True: n += print('x' * 999) is None"
    result = box.run(code, on_output=lambda _kind, _content: None)
    assert result.limit.name == "output"
    assert result.state_kept
    lines = Path(result.full_output.path).read_text().count("\n")
    assert 1 << 20 < lines * 1000 <= (box.run("n").value + 1) * 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limit", "status", "shown"),
    [
        (SMALL.format(5_000_000), "64MiB", "ok", 50_000_000),
        (SMALL.format(5_000_000), "32MiB", "limit", 33_000_000),
        ("for _ in range(5_000_000): print('123456789', flush=True)", "4MiB", "limit", 160_000),
        ("for _ in range(20_000): print('123456789', flush=True)", "32MiB", "ok", 200_000),
    ],
    ids=["written, not cut", "written, cut", "printed, cut", "printed, not cut"],
)
def test_memory_grows_by_less_than_the_limit_and_a_little(
    project: Path, code: str, limit: str, status: str, shown: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FLOOD, str(project), limit, code], capture_output=True, text=True, check=True
    )
    how, length, ours, supervisor = done.stdout.split()
    assert how == status
    assert shown <= int(length) <= (shown if status == "ok" else 1.4 * shown)
    allowed = int(limit.removesuffix("MiB")) * MIB + 20 * 10**6
    assert int(ours) < allowed
    assert int(supervisor) < allowed


# -- the pace


def _request() -> Message:
    return Message(new_header("execute_request", "client"), {}, {}, {})


def flow(work: Callable[[Outflow, list[tuple[str, Any]]], Awaitable[None]]) -> list[tuple[str, Any]]:
    """What an outflow sends, and what it was when it did."""
    sent: list[tuple[str, Any]] = []

    async def send(kind: str, content: dict[str, Any], _request: Message) -> None:
        sent.append((kind, content))

    async def go() -> None:
        one = Outflow(send)
        task = asyncio.ensure_future(one.run())
        await work(one, sent)
        await one.drained()
        task.cancel()

    asyncio.run(go())
    return sent


def _text(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "text": text}


def test_streams_that_wait_are_joined_without_loss_and_in_order() -> None:
    request, said = _request(), [("stdout" if n % 50 < 40 else "stderr", f"{n}\n") for n in range(20_000)]

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        for number, (name, text) in enumerate(said):
            one.add("stream", _text(name, text), request, paced=True)
            if number % 100 == 0:
                await asyncio.sleep(0)

    sent = flow(work)
    assert len(sent) < 1300
    assert "".join(content["text"] for _, content in sent) == "".join(text for _, text in said)
    for stream in ("stdout", "stderr"):
        assert "".join(c["text"] for _, c in sent if c["name"] == stream) == "".join(t for n, t in said if n == stream)


def test_streams_in_turns_never_become_more_messages_than_a_notebook_takes() -> None:
    request = _request()

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        for n in range(50_000):
            one.add("stream", _text("stdout" if n % 2 else "stderr", f"{n}\n"), request, paced=True)

    sent = flow(work)
    assert len(sent) < 1500
    for stream, first in (("stderr", 0), ("stdout", 1)):
        text = "".join(c["text"] for _, c in sent if c["name"] == stream)
        assert text.split() == [str(n) for n in range(first, 50_000, 2)]


def test_of_updates_that_wait_only_the_newest_is_sent_and_the_last_one_always() -> None:
    request = _request()

    def display(number: int) -> dict[str, Any]:
        return {"data": {"text/plain": str(number)}, "metadata": {}, "transient": {"display_id": "bar"}}

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        one.add("display_data", display(0), request, paced=True)
        for number in range(1, 30_000):
            one.add("update_display_data", display(number), request, paced=True)
            if number % 100 == 0:
                await asyncio.sleep(0)

    sent = flow(work)
    assert sent[0] == ("display_data", display(0))
    assert sent[-1] == ("update_display_data", display(29_999))
    assert len(sent) < 1000


def test_an_update_stays_behind_the_display_that_it_changes() -> None:
    request = _request()

    def shown(number: int) -> dict[str, Any]:
        return {"data": {"text/plain": str(number)}, "metadata": {}, "transient": {"display_id": "bar"}}

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        for kind, number in (("update_display_data", 1), ("display_data", 2), ("update_display_data", 3)):
            one.add(kind, shown(number), request, paced=True)

    assert [content["data"]["text/plain"] for _, content in flow(work)] == ["1", "2", "3"]


def test_what_is_cleared_before_it_is_seen_is_not_sent_and_the_last_picture_is() -> None:
    request, other = _request(), _request()

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        one.add("stream", _text("stdout", "of a thread of an earlier cell"), other, paced=True)
        for number in range(10_000):
            one.add("clear_output", {"wait": True}, request, paced=True)
            one.add("display_data", {"data": {"text/plain": str(number)}}, request, paced=True)

    sent = flow(work)
    assert [kind for kind, _ in sent] == ["stream", "clear_output", "display_data"]
    assert sent[-1][1] == {"data": {"text/plain": "9999"}}


def test_in_a_hurry_no_text_is_lost_and_displays_beyond_a_burst_are_counted() -> None:
    request = _request()
    left_out: list[int] = []

    async def work(one: Outflow, sent: list[tuple[str, Any]]) -> None:
        for number in range(5_000):
            one.add("display_data", {"data": {"text/plain": str(number)}}, request, paced=True)
            one.add("stream", _text("stdout", f"{number}\n"), request, paced=True)
        began = time.monotonic()
        left_out.append(one.hurry())
        await one.drained()
        assert time.monotonic() - began < 3  # of 25 at the pace

    sent = flow(work)
    displays = [content for kind, content in sent if kind == "display_data"]
    assert len(displays) + left_out[0] == 5_000
    assert len(sent) < 1_000
    assert "".join(c["text"] for kind, c in sent if kind == "stream").split() == [str(n) for n in range(5_000)]


def _rate(sent: list[float], seconds: float) -> int:
    """The most that came within so many seconds."""
    return max(sum(1 for at in sent[first:] if at - sent[first] <= seconds) for first in range(0, len(sent), 50))


def test_displays_come_at_a_pace_that_leaves_a_server_room(box: Sandbox) -> None:
    came: list[float] = []

    def note(kind: str, content: dict[str, Any]) -> None:
        if kind == "display_data":
            came.append(time.monotonic())

    result = box.run("for n in range(3000): display(n)", on_output=note)
    shown = [output["data"]["text/plain"] for output in result.outputs]
    assert shown == [str(n) for n in range(3000)]
    assert _rate(came, 3.0) < 2000  # jupyter_server takes 3000
    assert box.run("for n in range(3000): display(n)").usage["wall"] < 30
    assert result.usage["wall"] < 30


def test_a_print_appears_at_once_also_after_a_flood(box: Sandbox) -> None:
    late: list[float] = []
    begun = ""

    def note(kind: str, content: dict[str, Any]) -> None:
        nonlocal begun
        # A line may come in two messages.
        *lines, begun = (begun + content.get("text", "")).split("\n")
        late.extend(time.time() - float(line.split()[1]) for line in lines if line.startswith("at "))

    code = "import time\nfor n in range(3000): print('x', flush=True)\n"
    code += "input('is all of it there? ')\n"
    code += "for n in range(20):\n    print('at', time.time(), flush=True)\n    time.sleep(0.02)"
    assert box.run(code, on_output=note, on_input=lambda _prompt, _password: "yes").status == "ok"
    assert len(late) == 20
    assert sorted(late)[10] < 0.5  # as the flood's messages take at the pace: 7 s


def test_an_interrupt_ends_a_cell_whose_outputs_still_wait_at_once(box: Sandbox) -> None:
    seen: list[str] = []

    def note(kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            seen.append(content["text"])
        elif len(seen) == 0:
            seen.append("")
            box.interrupt()

    began = time.monotonic()
    result = box.run("for n in range(20_000): display(n)\nwhile True: pass", on_output=note, timeout=60)
    assert result.status == "interrupted"
    assert time.monotonic() - began < 20  # the pace would take twice as long
    assert box.run("6 * 7").value == 42


def test_a_limit_ends_a_cell_whose_outputs_wait_at_once_and_says_what_is_not_shown(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.output": "8MiB"})
    seen: list[str] = []
    result = box.run("while True: display('x')", on_output=lambda kind, _content: seen.append(kind))
    assert result.status == "limit"
    assert any("faster than a notebook takes them" in notice for notice in result.notices)
    assert len(result.outputs) < 8192
