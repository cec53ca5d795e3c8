"""The REST API of the panel, as openapi.json describes it, below `ipysandbox/`; `feed` is a websocket."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from ipysandbox import doctor
from ipysandbox.server import bounded
from ipysandbox.server.policy_view import View, folder_of
from ipysandbox.server.supervisors import ACTIONS, Refused, Supervisors

DESCRIPTION = files("ipysandbox.server").joinpath("openapi.json")
#: A body holds names and a hash.
_MOST_BODY = 10_000
_DOCTOR_SECONDS = 60.0


class Handler(APIHandler):
    """Authenticated, authorized as resource "ipysandbox", with jupyter_server's own XSRF and origin checks."""

    auth_resource = "ipysandbox"
    # An open panel must not keep an otherwise idle server from being culled.
    _track_activity = False

    def initialize(self, supervisors: Supervisors) -> None:
        self.supervisors = supervisors

    def reply(self, status: int, body: dict[str, Any]) -> None:
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, Refused):
            self.reply(error.status, {"message": error.message})
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, Refused):  # said to who asked, and nobody's fault here
            super().log_exception(typ, value, tb)


class StateHandler(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.reply(200, await self.supervisors.state())


class ActionHandler(Handler):
    _track_activity = True

    @web.authenticated
    @authorized(action="execute")  # type: ignore[untyped-decorator]
    async def post(self, supervisor: str, sandbox: str, action: str) -> None:
        await self.supervisors.act(supervisor, sandbox, action)
        self.reply(200, {"supervisor": supervisor, "sandbox": sandbox, "action": action})


class _AboutPolicy(Handler):
    """Speaks of a sandbox (`supervisor`, `sandbox`), or of a notebook's folder (`path`, below the server's root)."""

    def view(self) -> View:
        return View(self.supervisors.places, dict(os.environ))

    def folder_of(self, path: str) -> Path:
        folder = self.supervisors.places.folder(path)
        if folder is None:
            raise Refused(400, "path: this leads out of the server's folder.")
        return folder

    async def sandbox_policy(self, supervisor: str, sandbox: str) -> Any:
        return await self.supervisors.policy(supervisor, sandbox)


class PolicyHandler(_AboutPolicy):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        view = self.view()
        path = self.get_query_argument("path", None)
        if path is not None:
            folder = self.folder_of(path)
            self.reply(200, await self.supervisors.look(f"policy {folder}", lambda: view.of_folder(folder)))
            return
        names = self.get_query_argument("supervisor"), self.get_query_argument("sandbox")
        effective = await self.sandbox_policy(*names)
        self.reply(200, await self.supervisors.look(f"policy of {names}", lambda: view.of_sandbox(effective)))


class TrustHandler(_AboutPolicy):
    """Approves a project's policy exactly as it was shown: `digest` is that of the content."""

    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        asked = self._asked()
        if asked.get("path") is not None:
            folder = self.folder_of(asked["path"])
        else:
            effective = await self.sandbox_policy(asked.get("supervisor", ""), asked.get("sandbox", ""))
            named = folder_of(effective)
            if named is None:
                raise Refused(502, "The sandbox's supervisor gave an answer that this version does not understand.")
            folder = named
        digest, view = asked.get("digest", ""), self.view()
        await self.supervisors.look(f"trust {folder} {digest}", lambda: view.approve(folder, digest))
        self.reply(200, {"digest": digest})

    def _asked(self) -> dict[str, str]:
        try:
            body = json.loads(self.request.body) if len(self.request.body) <= _MOST_BODY else None
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
            raise Refused(400, "The body is not a JSON object of texts.")
        if not body.get("digest"):
            raise Refused(400, "digest: say what was approved.")
        return body


class DoctorHandler(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        report = await self.supervisors.look("doctor", lambda: doctor.full_apart(tried=False), _DOCTOR_SECONDS)
        lines = [bounded.text(line, 4000) for line in doctor.text(report).split("\n")]
        self.reply(200, {"report": bounded.tree(report, 4000), "text": "\n".join(lines)})


class DescriptionHandler(Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.reply(200, json.loads(DESCRIPTION.read_text("utf-8")))


def handlers(base_url: str, supervisors: Supervisors) -> list[tuple[str, Any, dict[str, Supervisors]]]:
    """The routes below base_url, which under JupyterHub is `/user/NAME/`."""
    from ipysandbox.server.audit import ExportHandler, PageHandler, VerifyHandler
    from ipysandbox.server.feed import FeedHandler

    # tornado decodes each group after matching: a slash in a name arrives as %2F and can't become another path.
    action = rf"sandboxes/([^/]{{1,200}})/([^/]{{1,1000}})/({'|'.join(ACTIONS)})"
    routes: dict[str, Any] = {
        "state": StateHandler,
        action: ActionHandler,
        "policy": PolicyHandler,
        "policy/trust": TrustHandler,
        "audit": PageHandler,
        "audit/verify": VerifyHandler,
        "audit/export": ExportHandler,
        "doctor": DoctorHandler,
        "feed": FeedHandler,
        "openapi.json": DescriptionHandler,
    }
    shared = {"supervisors": supervisors}
    return [(url_path_join(base_url, "ipysandbox", path), handler, shared) for path, handler in routes.items()]
