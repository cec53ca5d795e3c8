"""The REST API of the panel: GET ipysandbox/state, POST ipysandbox/sandboxes/SUPERVISOR/NAME/ACTION."""

from __future__ import annotations

import json
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from ipysandbox.server.supervisors import ACTIONS, Refused, Supervisors


class _Handler(APIHandler):
    """Authenticated, authorized as resource "ipysandbox", with jupyter_server's own XSRF and origin checks."""

    auth_resource = "ipysandbox"

    def initialize(self, supervisors: Supervisors) -> None:
        self.supervisors = supervisors

    def reply(self, status: int, body: dict[str, Any]) -> None:
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(body))


class StateHandler(_Handler):
    # An open panel must not keep an otherwise idle server from being culled.
    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        try:
            self.reply(200, await self.supervisors.state())
        except Refused as refused:
            self.reply(refused.status, {"message": refused.message})


class ActionHandler(_Handler):
    @web.authenticated
    @authorized
    async def post(self, supervisor: str, sandbox: str, action: str) -> None:
        try:
            await self.supervisors.act(supervisor, sandbox, action)
        except Refused as refused:
            self.reply(refused.status, {"message": refused.message})
        else:
            self.reply(200, {"supervisor": supervisor, "sandbox": sandbox, "action": action})


def handlers(base_url: str, supervisors: Supervisors) -> list[tuple[str, type[_Handler], dict[str, Supervisors]]]:
    """The routes below base_url, which under JupyterHub is `/user/NAME/`."""
    shared = {"supervisors": supervisors}
    # tornado decodes each group after matching: a slash in a name arrives as %2F and can't become another path.
    action = rf"sandboxes/([^/]{{1,200}})/([^/]{{1,1000}})/({'|'.join(ACTIONS)})"
    return [
        (url_path_join(base_url, "ipysandbox", "state"), StateHandler, shared),
        (url_path_join(base_url, "ipysandbox", action), ActionHandler, shared),
    ]
