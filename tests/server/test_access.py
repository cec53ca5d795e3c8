"""Who may ask: nobody without logging in, nobody that the authorizer refuses, no other site with the user's cookie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jupyter_server.auth import Authorizer

STATE = ("GET", ("ipysandbox", "state"))
KILL = ("POST", ("ipysandbox", "sandboxes", "aaaaaaaaaaaa", "main", "kill"))


async def status_of(jp_fetch: Any, request: tuple[str, tuple[str, ...]], **options: Any) -> int:
    method, path = request
    body = {"body": ""} if method == "POST" else {}
    response = await jp_fetch(*path, method=method, follow_redirects=False, raise_error=False, **body, **options)
    if response.code >= 400:
        assert "message" in json.loads(response.body), "an error of the API is JSON"
    return int(response.code)


@pytest.mark.parametrize("request_", [STATE, KILL], ids=["state", "kill"])
async def test_without_a_login_nothing_is_told_or_done(jp_fetch, supervisor, request_):
    owner = supervisor()
    assert await status_of(jp_fetch, request_, headers={"Authorization": "token wrong"}) == 403
    assert owner.requests == []


class ReadOnly(Authorizer):
    """A server whose users may look at sandboxes and not touch them."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return resource != "ipysandbox" or action == "read"


async def test_the_authorizer_decides_by_resource_and_action(jp_fetch, jp_serverapp, supervisor):
    owner = supervisor()
    jp_serverapp.web_app.settings["authorizer"] = ReadOnly(parent=jp_serverapp)
    assert await status_of(jp_fetch, STATE) == 200
    owner.requests.clear()
    assert await status_of(jp_fetch, KILL) == 403
    assert owner.requests == []


async def test_a_cookie_alone_presses_no_button(jp_fetch, jp_serverapp, jp_base_url, http_server_client, supervisor):
    """A page of another site has the cookie sent along, and can't know the XSRF token."""
    owner = supervisor()
    token = jp_serverapp.identity_provider.token
    login = await http_server_client.fetch(
        f"{jp_base_url}tree?token={token}", follow_redirects=False, raise_error=False
    )
    cookies = [header.split(";")[0] for header in login.headers.get_list("Set-Cookie")]
    assert any(cookie.startswith("username-") for cookie in cookies), "the login by token set no cookie"
    cookie = "; ".join(cookies)
    assert await status_of(jp_fetch, STATE, headers={"Cookie": cookie, "Authorization": ""}) == 200
    owner.requests.clear()
    assert await status_of(jp_fetch, KILL, headers={"Cookie": cookie, "Authorization": ""}) == 403
    assert owner.requests == []

    xsrf = next(one.split("=", 1)[1] for one in cookies if one.startswith("_xsrf="))
    own = {"Cookie": cookie, "Authorization": "", "X-XSRFToken": xsrf}
    assert await status_of(jp_fetch, KILL, headers=own) == 200
    assert owner.requests == [("POST", "/sandboxes/main/kill")]
