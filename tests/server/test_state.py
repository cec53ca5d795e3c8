"""What the panel is told: everything that runs, nothing unbounded, and never less because one supervisor is silent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BOX: dict[str, Any] = {
    "name": "main",
    "state": "busy",
    "backend": "linux",
    "notebook": "analysis.ipynb",
    "opens": None,
    "project": "/home/me/study",
    "started": 1900000000.5,
    "cell": {"number": 3, "elapsed": 1.5, "asks": False},
    "last": {"number": 2, "status": "limit", "limit": "limit on time", "usage": {"wall": 5.0, "cpu": 4.0}},
    "usage": {"cpu": 1.2, "memory": 1000, "memory_peak": 2000, "processes": 2, "disk": 0, "files": 1, "output": 5},
    "limits": {"cpu": 300.0, "wall": 600.0, "memory": 4 << 30, "disk": 1 << 30, "processes": 256, "output": 32 << 20},
    "guarantees": {"network": ["network namespace", "landlock"]},
    "weaker": {"network": "no loopback"},
}


async def state(jp_fetch: Any, root: Path) -> list[dict[str, Any]]:
    """What is told of the supervisors of this test; the person who runs it may have others, below /tmp."""
    response = await jp_fetch("ipysandbox", "state")
    assert response.headers["Content-Type"].startswith("application/json")
    assert response.headers["Cache-Control"] == "no-store"
    supervisors: list[dict[str, Any]] = json.loads(response.body)["supervisors"]
    return [one for one in supervisors if (root / one["id"]).exists()]


async def test_no_supervisor_is_an_empty_list(jp_fetch, runtime_root):
    assert await state(jp_fetch, runtime_root) == []


async def test_sandboxes_of_all_notebooks_are_there(jp_fetch, runtime_root, supervisor):
    said = {**BOX, "last": {**BOX["last"], "limit": {"name": "wall", "text": "limit on time"}}}
    supervisor("aaaaaaaaaaaa", sandboxes=[said])
    supervisor("bbbbbbbbbbbb", sandboxes=[{**BOX, "name": "other", "state": "idle", "cell": None}])
    first, second = await state(jp_fetch, runtime_root)
    assert first == {"id": "aaaaaaaaaaaa", "pid": 7, "host_pid": 6, "kernel": None, "error": None, "sandboxes": [BOX]}
    assert [box["name"] for box in second["sandboxes"]] == ["other"]


async def test_whose_kernel_a_sandbox_belongs_to_is_told_by_the_kernels_id(jp_fetch, runtime_root, supervisor):
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    for words, kernel in ((["-f", "/run/me/kernel-4711-ab.json"], "4711-ab"), (["kernel-1.json.bak"], None)):
        with subprocess.Popen([*waits, *words], stdin=subprocess.PIPE) as host:
            owner = supervisor("b" * len(words), sandboxes=[BOX], host_pid=host.pid)
            [shown] = await state(jp_fetch, runtime_root)
            assert shown["kernel"] == kernel
            owner.lock.close()
            host.communicate()


async def test_a_silent_supervisor_is_named_and_hides_no_other(jp_fetch, runtime_root, supervisor):
    supervisor("aaaaaaaaaaaa").silent.set()
    supervisor("bbbbbbbbbbbb", sandboxes=[BOX])
    silent, well = await state(jp_fetch, runtime_root)
    assert "aaaaaaaaaaaa" in silent["error"]
    assert "restart the kernel" in silent["error"]
    assert [box["name"] for box in well["sandboxes"]] == ["main"]


async def test_many_panels_ask_a_silent_supervisor_once(jp_fetch, runtime_root, supervisor):
    hung = supervisor()
    hung.silent.set()
    start = time.monotonic()
    await asyncio.gather(*(state(jp_fetch, runtime_root) for _ in range(10)))
    assert hung.requests == [("GET", "/state")]
    assert time.monotonic() - start < 8, "the panels waited for one another"


async def test_a_supervisor_that_is_only_starting_is_no_problem(jp_fetch, runtime_root, supervisor):
    starting = supervisor()
    (starting.folder / "ctl.sock").unlink()
    assert await state(jp_fetch, runtime_root) == []


async def test_a_killed_supervisor_is_not_shown(jp_fetch, runtime_root, supervisor):
    killed = supervisor(sandboxes=[BOX])
    killed.lock.close()
    assert await state(jp_fetch, runtime_root) == []


async def test_an_answer_that_is_no_state_is_a_problem_not_a_crash(jp_fetch, runtime_root, supervisor):
    supervisor().state = ["?"]
    [odd] = await state(jp_fetch, runtime_root)
    assert "does not understand" in odd["error"]


_OK = b"HTTP/1.0 200 OK\r\n\r\n"
_NONSENSE = {
    "deep": _OK + b"[" * 200_000,
    "deep but closed": _OK + b'{"sandboxes":' + b"[" * 900 + b"]" * 900 + b"}",
    "digits": _OK + b'{"pid":' + b"9" * 100_000 + b"}",
    "no text": _OK + b"\xff\xfe",
    "no status": b"HTTP\r\n\r\n{}",
    "status of letters": b"HTTP/1.0 abc\r\n\r\n{}",
    "no length": b"HTTP/1.0 200 OK\r\nContent-Length:\r\n\r\n{}",
    "error that is a list": b'HTTP/1.0 500 No\r\n\r\n{"error":[1]}',
    "error of odd parts": b'HTTP/1.0 500 No\r\n\r\n{"error":{"kind":[1],"message":"m","hint":{},"file":3}}',
    "list": _OK + b"[]",
    "sandboxes of odd parts": _OK + b'{"id":"x","sandboxes":[null,{"name":7},{"name":"main","cell":3}]}',
}


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ipysandbox", *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("raw", _NONSENSE.values(), ids=_NONSENSE)
async def test_a_supervisor_that_answers_nonsense_hides_no_other(jp_fetch, runtime_root, supervisor, raw):
    supervisor("aaaaaaaaaaaa").raw = raw
    supervisor("bbbbbbbbbbbb", id="bbbbbbbbbbbb", executors=[], sandboxes=[BOX | {"pid": 5}])
    odd, well = await state(jp_fetch, runtime_root)
    assert [box["name"] for box in well["sandboxes"]] == ["main"]
    assert odd["error"] or [box["name"] for box in odd["sandboxes"]] == ["main"]
    done = await asyncio.to_thread(_command, "ps")
    assert done.returncode == 0, done.stderr
    assert "bbbbbbbbbbbb/main" in done.stdout
    assert "ipysandbox: the supervisor aaaaaaaaaaaa is left out: " in done.stderr
    done = await asyncio.to_thread(_command, "kill", "bbbbbbbbbbbb/main")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


async def test_an_answer_in_drips_keeps_nobody(supervisor):
    drips = supervisor()
    drips.raw, drips.drips = _OK, True
    done = await asyncio.to_thread(_command, "ps")
    assert (done.returncode, done.stdout.startswith("No sandbox runs") or "STATE" in done.stdout) == (0, True)
    assert "aaaaaaaaaaaa is left out: the sandbox supervisor does not answer (its answer is not complete" in done.stderr


async def test_a_kill_that_is_not_confirmed_is_not_told_as_done(jp_fetch, supervisor):
    supervisor(sandboxes=[BOX]).answer = (200, ["?"])
    done = await asyncio.to_thread(_command, "kill", "aaaaaaaaaaaa/main")
    assert done.returncode != 0
    assert "did not say that it has ended main" in done.stderr
    said = await jp_fetch(
        "ipysandbox", "sandboxes", "aaaaaaaaaaaa", "main", "kill", method="POST", body="", raise_error=False
    )
    assert said.code == 504


async def test_hostile_values_arrive_bounded_or_not_at_all(jp_fetch, runtime_root, supervisor):
    supervisor(
        pid="7; rm",
        sandboxes=[
            {
                **BOX,
                "name": "x" * 1_000_000,
                "state": "<b>",
                "backend": {"a": 1},
                "notebook": "a\u202egpj.ipynb\x1b[2J",
                "cell": [],
                "usage": {"cpu": float("inf"), "memory": -5, "processes": 10**400, "disk": True, "evil": 1},
                "limits": "none",
                "guarantees": {f"g{n}": ["l" * 999] * 99 for n in range(99)},
                "weaker": {**{f"g{n}": "x" * 9999 for n in range(99)}, "g0": ["no text"]},
                "extra": "x" * 1_000_000,
            },
            "not a sandbox",
            *[{**BOX, "name": f"n{n}"} for n in range(500)],
        ],
    )
    response = await jp_fetch("ipysandbox", "state")
    assert len(response.body) < 500_000
    [one] = [one for one in json.loads(response.body)["supervisors"] if (runtime_root / one["id"]).exists()]
    assert one["pid"] is None
    assert len(one["sandboxes"]) <= 100
    box = one["sandboxes"][0]
    assert len(box["name"]) == 200
    assert box["state"] == "unknown"
    assert box["backend"] == ""
    assert box["notebook"] == "a\ufffdgpj.ipynb\ufffd[2J"
    assert box["cell"] is None
    assert box["usage"] == {"memory": 0.0, "processes": 2.0**53}
    assert box["limits"] == {}
    assert len(box["guarantees"]) <= 32
    assert len(box["weaker"]) <= 32
    assert box["weaker"]["g0"] == ""
    assert len(box["weaker"]["g1"]) == 1000
    assert "extra" not in box
