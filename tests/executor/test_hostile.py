"""What a task writes where its result is awaited is believed for nothing but what it is: data within bounds."""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import LimitExceeded, SandboxDied, SandboxError, SandboxExecutor, TaskError, ValueRefused
from ipysandbox.backends.linux import nursery
from ipysandbox.executor.outcome import Outcome, Raised
from ipysandbox.executor.verdict import error_of, value_of
from ipysandbox.output.redact import Redactor
from ipysandbox.supervisor.limits import LimitHit
from ipysandbox.supervisor.task_reply import NoReply, ReplyReader

MakePool = Callable[..., SandboxExecutor]


def answer_with(data: bytes) -> None:
    """Write ``data`` onto the socket by which a task answers, whatever number that has, and end."""
    import socket
    import stat

    for fd in range(3, 20):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                socket.socket(fileno=fd).sendall(data)
        except OSError:
            continue
    os._exit(0)


def reply(kind: int, head: object, *buffers: bytes, sizes: tuple[int, ...] = ()) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    lengths = sizes or tuple(map(len, buffers))
    return b"".join(
        [
            struct.pack("!4sBQI", b"IPT1", kind, len(text), len(lengths)),
            *(struct.pack("!Q", n) for n in lengths),
            text,
            *buffers,
        ]
    )


def answer_at_length(size: int) -> None:
    """With text that is all escapes."""
    answer_with(reply(0, b'{"v":1,"value":"' + rb"\\u005c" * (size // 7) + b'"}'))


def value(tree: object) -> dict[str, Any]:
    return {"v": 1, "value": tree}


_NO_REPLY = {
    "nothing": b"",
    "another protocol": b"HTTP/1.1 200 OK\r\n\r\n",
    "a kind that is none": reply(7, {}),
    "an end in the middle": reply(0, value(1))[:-2],
    "an endless head": struct.pack("!4sBQI", b"IPT1", 0, 1 << 62, 0),
    "a description of a GiB": struct.pack("!4sBQI", b"IPT1", 1, 1 << 30, 0),
    "millions of buffers": struct.pack("!4sBQI", b"IPT1", 0, 10, 4_000_000_000),
    "no JSON": reply(1, b"{"),
    "a nest": reply(1, b'{"a":' * 100_000),
    "a buffer that never comes": reply(0, value(1), sizes=(1 << 20,)),
}


def test_what_is_no_answer_is_a_task_that_died(make_pool: MakePool) -> None:
    pool = make_pool(2, timeout="20s")
    futures = {name: pool.submit(answer_with, data) for name, data in _NO_REPLY.items()}
    for name, future in futures.items():
        assert isinstance(future.exception(), (SandboxDied, ValueRefused)), name
    assert pool.submit(divmod, 7, 2).result() == (3, 1)


def test_an_answer_that_is_cut_off_in_the_middle_of_a_buffer_is_none() -> None:
    async def read() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ours.send(b"what it never reads, so that its end is a reset")
        theirs.sendall(reply(0, value(1), sizes=(1 << 20,)))
        reader = ReplyReader(ours, Redactor(), asyncio.Lock())
        answer = await reader.read()
        theirs.close()
        with ours, pytest.raises(NoReply):
            assert [piece async for piece in reader.pieces(answer)]

    asyncio.run(read())


def test_a_long_answer_does_not_keep_the_limits_of_others_waiting(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", 'tok-9f8e"7d6c\\5b4a')
    pool, quick = make_pool(3, timeout="60s"), make_pool(1, timeout="1s")
    assert pool.submit(lambda: "é" * 3_000_000).result() == "é" * 3_000_000
    assert quick.submit(len, "ab").result() == 2
    futures = [pool.submit(answer_at_length, size) for size in (63 << 20, 63 << 20, 7 << 20, 7 << 20)]
    error = quick.submit(time.sleep, 1000).exception()
    answers = [future.exception() for future in futures]
    assert isinstance(error, LimitExceeded)
    assert error.name == "wall"
    assert error.observed is not None
    assert error.observed < 2 * error.value
    assert ["make numbers an array" in str(answer) for answer in answers] == [True, True, False, False]


def test_a_forged_answer_is_data_and_names_no_class(make_pool: MakePool) -> None:
    pool = make_pool(2, timeout="20s")
    pickled = {"t": "code", "b": 0}
    forged = reply(0, value(pickled), b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    with pytest.raises(ValueRefused):
        pool.submit(answer_with, forged).result()
    with pytest.raises(ValueRefused):
        pool.submit(answer_with, reply(0, value({"t": "ndarray", "dtype": "<f8", "shape": [1 << 40], "b": 0}))).result()
    for module, name in (
        ("os", "system"),
        ("builtins", "SystemExit"),
        ("builtins", "exec"),
        ("builtins", "__import__"),
    ):
        described = {"module": module, "name": name, "message": "touch /tmp/owned", "traceback": "\x1b]0;x\x07here"}
        error = pool.submit(answer_with, reply(1, described)).exception()
        assert type(error) is TaskError
        assert "\x1b" not in str(error.__cause__)
    odd = {"module": ["x"], "name": "a b\n", "message": {"a": 1}, "traceback": None}
    assert type(pool.submit(answer_with, reply(1, odd)).exception()) is TaskError
    many = value(list(range(300_000)))
    assert isinstance(pool.submit(answer_with, reply(0, many)).exception(), (SandboxDied, ValueRefused))
    assert not os.path.exists("/tmp/owned")


def test_a_task_takes_no_name_among_the_hosts_sockets(make_pool: MakePool) -> None:
    """The socket by which it answers was made outside, where an abstract name could be one that a program wants."""

    def take() -> list[str]:
        import errno
        import os
        import socket

        refused = []
        for number in range(64):
            for name in (b"\0taken-by-a-task", os.environ["TMPDIR"].encode() + b"/taken"):
                try:
                    socket.socket(fileno=os.dup(number)).bind(name)
                except OSError as exc:
                    refused.append(errno.errorcode[exc.errno or 0])
                else:
                    refused.append("taken")
        return sorted(set(refused) - {"EBADF", "ENOTSOCK"})

    assert make_pool().submit(take).result() == ["EINVAL"]
    assert "taken-by-a-task" not in Path("/proc/net/unix").read_text()


def test_words_alone_are_no_limit(make_pool: MakePool) -> None:
    own = type("MemoryError", (Exception,), {})

    def fail(error: Callable[..., Exception], *arguments: object) -> None:
        raise error(*arguments)

    pool = make_pool(2, timeout="20s")
    text = "[Errno 28] No space left on device"
    assert type(pool.submit(fail, ValueError, text).exception()) is ValueError
    assert type(pool.submit(fail, own, "mine").exception()) is TaskError
    for error, arguments, name in ((OSError, (28, "full"), "disk"), (MemoryError, (), "memory")):
        hit = pool.submit(fail, error, *arguments).exception()
        assert isinstance(hit, LimitExceeded)
        assert hit.name == name


class Finder(importlib.abc.MetaPathFinder):  # as a development install puts one there, which leads to a project
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> importlib.machinery.ModuleSpec:
        return importlib.util.spec_from_file_location(name, self._folder / f"{name}.py")


def test_a_nursery_loads_what_is_installed_and_nothing_that_a_project_could_have_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "developed.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(tmp_path)])
    [failed], _ = nursery._load(("colorsys", "developed"))
    assert failed.startswith("developed: ModuleNotFoundError")
    assert "colorsys" in sys.modules


def test_an_outcome_travels_as_frames_and_what_is_none_is_refused() -> None:
    hit = LimitHit("wall", 1.0, 2.5, "limit on time")
    raised = Raised("builtins", "ValueError", "bad", "Traceback …")
    outcome = Outcome("ok", b'{"v":1,"value":7}', (b"xyz",), usage={"wall": 0.1}, stdout="é")
    assert Outcome.from_wire(outcome.to_wire()) == outcome
    assert value_of(outcome) == 7
    for other in (Outcome("limit", limit=hit, error=raised), Outcome("died", text="it ended", kind="died")):
        assert Outcome.from_wire([memoryview(frame) for frame in other.to_wire()]) == other
        assert isinstance(error_of(other), SandboxError)
    assert type(error_of(Outcome("error", error=raised))) is ValueError
    head = outcome.to_wire()[0]
    for frames in (
        [],
        [head],
        [b"[]", b""],
        [b"{", b""],
        [head.replace(b'"ok"', b'"fine"'), b""],
        [head.replace(b"0.1", b'"x"'), b""],
        [head] + [b""] * 20_000,
        [b'{"a":' * 100_000, b""],
    ):
        with pytest.raises(SandboxError, match="not the outcome"):
            Outcome.from_wire(frames)
