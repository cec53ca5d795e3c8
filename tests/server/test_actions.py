"""The buttons: they reach the right sandbox, say why when they don't, and work while the notebook's kernel is busy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError


async def press(jp_fetch: Any, *path: str) -> dict[str, Any]:
    response = await jp_fetch("ipysandbox", "sandboxes", *path, method="POST", body="")
    answer: dict[str, Any] = json.loads(response.body)
    return answer


@pytest.mark.parametrize("action", ["interrupt", "kill", "restart"])
async def test_a_button_reaches_the_supervisor_that_owns_the_sandbox(jp_fetch, supervisor, action):
    other, owner = supervisor("aaaaaaaaaaaa"), supervisor("bbbbbbbbbbbb")
    answer = await press(jp_fetch, "bbbbbbbbbbbb", "main", action)
    assert answer == {"supervisor": "bbbbbbbbbbbb", "sandbox": "main", "action": action}
    assert owner.requests == [("POST", f"/sandboxes/main/{action}")]
    assert other.requests == []


async def test_a_name_cannot_become_another_path(http_server_client, jp_base_url, jp_auth_header, supervisor):
    owner = supervisor()
    url = f"{jp_base_url}ipysandbox/sandboxes/aaaaaaaaaaaa/..%2Fshutdown%3Fx%3D%23/kill"
    await http_server_client.fetch(url, method="POST", body="", headers=jp_auth_header)
    assert owner.requests == [("POST", "/sandboxes/..%2Fshutdown%3Fx%3D%23/kill")]


@pytest.mark.parametrize("path", [("nobody", "main", "kill"), ("..", "main", "kill"), ("%2e%2e%2fx", "main", "kill")])
async def test_a_supervisor_that_has_ended_is_said_so(jp_fetch, supervisor, path):
    supervisor()
    with pytest.raises(HTTPClientError) as caught:
        await press(jp_fetch, *path)
    assert caught.value.code == 404


async def test_an_unknown_action_does_not_exist(jp_fetch, supervisor):
    owner = supervisor()
    with pytest.raises(HTTPClientError) as caught:
        await press(jp_fetch, "aaaaaaaaaaaa", "main", "shutdown")
    assert caught.value.code == 404
    assert owner.requests == []


async def test_the_supervisors_reason_is_passed_on(jp_fetch, supervisor):
    supervisor().answer = (409, {"error": {"kind": "error", "message": "there is no sandbox named 'main' here\x1b[2J"}})
    with pytest.raises(HTTPClientError) as caught:
        await press(jp_fetch, "aaaaaaaaaaaa", "main", "kill")
    assert caught.value.code == 409
    assert json.loads(caught.value.response.body) == {"message": "there is no sandbox named 'main' here\ufffd[2J"}


SPINNING_NOTEBOOK = """
import sys
from ipysandbox import Sandbox

CODE = "print('spinning', flush=True)\\nwhile True: pass"
with Sandbox(name="main", project=sys.argv[1]) as box:
    result = box.run(CODE, timeout="90s", on_output=lambda *_: print("spinning", flush=True))
    print(result.status, flush=True)
"""


@pytest.mark.parametrize(("action", "status"), [("interrupt", "interrupted"), ("kill", "died")])
async def test_a_spinning_cell_is_stopped_while_its_notebook_is_blocked(
    jp_fetch: Any, runtime_root: Path, tmp_path: Path, action: str, status: str
):
    command = [sys.executable, "-c", SPINNING_NOTEBOOK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as notebook:
        try:
            assert notebook.stdout is not None
            assert notebook.stdout.readline() == "spinning\n"
            supervisors = json.loads((await jp_fetch("ipysandbox", "state")).body)["supervisors"]
            [found] = [one for one in supervisors if (runtime_root / one["id"]).exists()]
            [box] = found["sandboxes"]
            assert (box["name"], box["state"]) == ("main", "busy")
            assert found["host_pid"] == notebook.pid
            assert 0 < box["usage"]["memory"] < box["limits"]["memory"]
            assert box["limits"]["wall"] == 90, "the cell's own limit is the one that holds"
            assert "network" in box["guarantees"]
            await press(jp_fetch, found["id"], box["name"], action)
            assert notebook.stdout.read().split()[-1] == status
            assert notebook.wait(timeout=30) == 0
        finally:
            notebook.kill()
