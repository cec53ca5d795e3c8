"""The websocket that brings the panel what changes: the state of all sandboxes, and records of the audit trail.

Messages are JSON objects: {"type": "state", …as GET state}, at most two a second; {"type": "records", "records": […]},
oldest first, at most four a second. Records carry the audit trail's own numbers: who comes back with `?after=N` gets
those that it missed, or, after a long absence, the newest of them, and sees by the numbers that some are left out. A
client may send {"interval": MILLISECONDS}: how often it wants the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any, ClassVar

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ipysandbox.audit import AuditError
from ipysandbox.audit.pages import Follower
from ipysandbox.server import bounded
from ipysandbox.server.supervisors import Refused, Supervisors
from ipysandbox.supervisor.background import Alarm

#: Between two states (seconds): at least, and unless the client asks for another pace.
SOONEST, LATEST, USUAL = 0.5, 30.0, 0.5
#: Between two looks for new records.
RECORDS = 0.25
#: An unchanged state is said again after this time, so that a client can tell silence from a lost connection.
HEARTBEAT = 5.0
MOST_RECORDS = 200
#: Connections of one server. Each is a panel in a browser tab.
MOST_FEEDS = 50


class FeedHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Nothing waits in here: the next message is made when the last one has been taken, and then it is the newest."""

    auth_resource = "ipysandbox"
    _track_activity = False
    _feeds: ClassVar[set[FeedHandler]] = set()

    def initialize(self, supervisors: Supervisors) -> None:
        self.supervisors = supervisors
        self._interval = USUAL
        self._task: asyncio.Task[None] | None = None
        self._wake = Alarm()

    def set_default_headers(self) -> None:
        """Those of a page mean nothing here."""

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        allowed = await ensure_async(self.authorizer.is_authorized(self, self.current_user, "read", self.auth_resource))
        if not allowed:
            raise web.HTTPError(403)
        if len(self._feeds) >= MOST_FEEDS:
            raise web.HTTPError(503, f"{MOST_FEEDS} panels are open on this server already")
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)  # starts the pings
        self._feeds.add(self)
        after = self.get_query_argument("after", "")
        number = int(after) if after.isascii() and after.isdigit() and len(after) < 16 else None
        self._task = asyncio.ensure_future(self._talk(number))

    def on_message(self, message: str | bytes) -> None:
        if len(message) > 1000:
            return
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(message)
            wanted = bounded.number(said.get("interval")) if isinstance(said, dict) else None
            if wanted is not None:
                self._interval = min(max(wanted / 1000, SOONEST), LATEST)
                self._wake.set()

    def on_close(self) -> None:
        super().on_close()
        self._feeds.discard(self)
        if self._task is not None:
            self._task.cancel()

    async def _talk(self, after: int | None) -> None:
        said: dict[str, Any] = {}
        due, said_at = 0.0, 0.0
        with contextlib.suppress(WebSocketClosedError):
            # Before the first state: who has that can count on every record made from then on.
            follower = await self._follow(after)
            while True:
                now = time.monotonic()
                if now >= due:
                    due = now + self._interval
                    state = await self._state()
                    known = {key: value for key, value in state.items() if key != "now"}
                    if known != said or now - said_at >= HEARTBEAT:
                        said, said_at = known, now
                        await self.write_message(json.dumps(state))
                follower = follower or await self._follow(after)
                if follower is not None:
                    await self._tell_records(follower)
                await self._pause(min(RECORDS, due - time.monotonic()))
                due = min(due, time.monotonic() + self._interval)

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        await self._wake.wait(max(0.01, seconds))

    async def _state(self) -> dict[str, Any]:
        try:
            return {"type": "state", **await self.supervisors.recent_state(), "message": None}
        except Refused as refused:
            return {"type": "state", "now": time.time(), "supervisors": [], "message": refused.message}

    async def _follow(self, after: int | None) -> Follower | None:
        """None where the log can't be read: paging through it says why."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, lambda: Follower(after=after))
        except (OSError, ValueError, AuditError):
            return None

    async def _tell_records(self, follower: Follower) -> None:
        """What is new in the audit trail, in bounded messages."""
        try:
            records = await asyncio.get_running_loop().run_in_executor(None, follower.read)
        except (OSError, ValueError, AuditError):
            return
        for start in range(0, len(records), MOST_RECORDS):
            shown = [bounded.record(record) for record in records[start : start + MOST_RECORDS]]
            await self.write_message(json.dumps({"type": "records", "records": shown}))
            await asyncio.sleep(RECORDS)
