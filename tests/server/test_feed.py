"""The websocket: it brings states and records as they come, waits for who is slow, and goes on after a break."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator
from jupyter_server.auth import Authorizer
from tornado.httpclient import HTTPClientError

from ipysandbox.server.handlers import DESCRIPTION


async def until(feed: Any, kind: str, seconds: float = 20) -> dict[str, Any]:
    """The next message of this kind, checked against the description."""
    described = json.loads(DESCRIPTION.read_text())
    schema = {**described["components"]["schemas"]["Message"], "components": described["components"]}
    deadline = asyncio.get_running_loop().time() + seconds  # states keep coming, also where what is awaited doesn't
    while True:
        text = await asyncio.wait_for(feed.read_message(), deadline - asyncio.get_running_loop().time())
        assert text is not None, "the feed was closed"
        message: dict[str, Any] = json.loads(text)
        Draft202012Validator(schema).validate(message)
        if message["type"] == kind:
            return message


async def test_states_and_records_come_and_those_of_a_break_are_made_up_for(jp_ws_fetch, supervisor, log):
    owner = supervisor(sandboxes=[{"name": "main", "state": "idle", "usage": {"memory": 1}}])
    log.record("sandbox.start", sandbox="main")
    feed = await jp_ws_fetch("ipysandbox", "feed")
    [said] = [one for one in (await until(feed, "state"))["supervisors"] if one["id"] == owner.folder.name]
    assert said["sandboxes"][0]["usage"] == {"memory": 1}
    log.record("limit.hit", sandbox="main\u202e", details={"text": "<b>" * 9999})
    [record] = (await until(feed, "records"))["records"]
    assert (record["seq"], record["sandbox"]) == (2, "main\ufffd")
    assert len(record["details"]["text"]) == 1000
    owner.state["sandboxes"][0]["usage"]["memory"] = 5
    while True:
        state = await until(feed, "state")
        if any(box["usage"].get("memory") == 5 for one in state["supervisors"] for box in one["sandboxes"]):
            break
    feed.close()
    for _ in range(500):
        log.record("cell.result")
    feed = await jp_ws_fetch("ipysandbox", "feed", params={"after": "2"})
    seqs: list[float] = []
    while len(seqs) < 500:
        message = await until(feed, "records")
        assert len(message["records"]) <= 200
        seqs += [record["seq"] for record in message["records"]]
    assert seqs == list(range(3, 503))
    # What is no message of ours changes nothing.
    for text in ("[", "x" * 5000, '{"interval": "1"}', '{"interval": 1e999}', "[1]", '{"interval": 500}'):
        feed.write_message(text)
    log.record("sandbox.stop")
    assert (await until(feed, "records"))["records"][0]["seq"] == 503
    feed.close()


class Nothing(Authorizer):
    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return resource != "ipysandbox"


async def test_nobody_else_is_connected(jp_ws_fetch, jp_serverapp, http_server_port, supervisor):
    owner = supervisor()
    with pytest.raises(HTTPClientError) as caught:
        await jp_ws_fetch("ipysandbox", "feed", headers={"Authorization": "token wrong"})
    assert caught.value.code == 403
    jp_serverapp.web_app.settings["authorizer"] = Nothing(parent=jp_serverapp)
    with pytest.raises(HTTPClientError) as caught:
        await jp_ws_fetch("ipysandbox", "feed")
    assert caught.value.code == 403
    assert owner.requests == []


async def test_a_page_of_another_site_is_not_connected_with_the_users_cookie(
    jp_ws_fetch: Any, jp_serverapp: Any, jp_base_url: str, http_server_client: Any
):
    login = f"{jp_base_url}tree?token={jp_serverapp.identity_provider.token}"
    said = await http_server_client.fetch(login, follow_redirects=False, raise_error=False)
    cookie = "; ".join(header.split(";")[0] for header in said.headers.get_list("Set-Cookie"))
    mine = {
        "Cookie": cookie,
        "Authorization": "",
        "Host": urlsplit(said.effective_url).netloc,
    }  # it is part of its name
    own = await jp_ws_fetch("ipysandbox", "feed", headers=mine)
    assert (await until(own, "state"))["message"] is None
    own.close()
    with pytest.raises(HTTPClientError) as caught:
        await jp_ws_fetch("ipysandbox", "feed", headers={**mine, "Origin": "https://evil.example"})
    assert caught.value.code == 403


async def test_who_reads_nothing_is_not_buffered_for(jp_ws_fetch, jp_serverapp, supervisor, log):
    """The next state is made when the last one has been taken: nothing piles up in the server."""
    boxes = [{"name": f"n{n}", "guarantees": {f"g{m}": ["x" * 200] * 4 for m in range(32)}} for n in range(100)]
    owner = supervisor(sandboxes=boxes)
    feed = await jp_ws_fetch("ipysandbox", "feed")
    asked = [0]
    while len(asked) < 30:  # until what the sockets hold is full
        owner.state["pid"] = len(asked)
        await asyncio.sleep(0.7)
        asked.append(len(owner.requests))
        if asked[-4:-1] == asked[-3:] and len(asked) > 4:
            break
    assert asked[-1] == asked[-4], "the server goes on making states that nobody takes"
    feed.close()
