"""Asks every supervisor of this user, without ever letting a silent one hold up the Jupyter server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from ipysandbox.errors import SandboxError
from ipysandbox.server import bounded

# A supervisor answers in milliseconds; one that needs this long is stopped or swamped. The panel asks every second.
STATE_TIMEOUT = 2.0
# A kill waits for the sandbox's processes to be gone.
ACTION_TIMEOUT = 15.0
MAX_SUPERVISORS = 100

ACTIONS = ("interrupt", "kill", "restart")

T = TypeVar("T")


class Client(Protocol):
    """What is used of `ipysandbox.supervisor.client.ControlClient`: one blocking request over its unix socket."""

    def request(self, method: str, path: str, body: Any = None) -> Any: ...


Discover = Callable[[], Sequence[tuple[Client, Mapping[str, Any]]]]


class Refused(Exception):
    """A request that can't be done, with the HTTP status that says whose fault it is."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Supervisors:
    """All supervisors of this user, found anew for each request, since they come and go with their notebooks."""

    def __init__(self, discover: Discover) -> None:
        self._discover = discover
        # Two pools: questions that wait for silent supervisors must not keep a kill waiting.
        self._questions = ThreadPoolExecutor(8, thread_name_prefix="ipysandbox-state")
        self._actions = ThreadPoolExecutor(4, thread_name_prefix="ipysandbox-action")
        self._asked: dict[str, asyncio.Future[Any]] = {}

    async def state(self) -> dict[str, Any]:
        """What all supervisors run now. One that doesn't answer says so in its `error` and hides no other.

        Raises Refused when they can't even be looked for.
        """
        found = await self._find()
        answers = await asyncio.gather(*(self._state_of(name, client) for name, client in found.items()))
        return {"supervisors": [answer for answer in answers if answer is not None]}

    async def act(self, supervisor: str, sandbox: str, action: str) -> None:
        """Interrupt, kill or restart a sandbox.

        Raises Refused when there is no such supervisor (404), when it refuses (409) or doesn't answer (504).
        """
        client = (await self._find()).get(supervisor)
        if client is None:
            raise Refused(404, "This sandbox's supervisor has ended, and the sandbox with it.")
        path = f"/sandboxes/{quote(sandbox, safe='')}/{action}"
        loop = asyncio.get_running_loop()
        asked = loop.run_in_executor(self._actions, client.request, "POST", path)
        try:
            await asyncio.wait_for(asked, ACTION_TIMEOUT)
        except SandboxError as error:
            raise Refused(409, bounded.text(error.message, 1000)) from error
        except asyncio.TimeoutError as error:
            raise Refused(
                504,
                f"The supervisor did not confirm the {action} within {ACTION_TIMEOUT:.0f} s. "
                "Restarting the notebook's own kernel ends it with all its sandboxes.",
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            raise Refused(502, f"The supervisor could not be asked: {bounded.text(str(error))}") from error

    async def _find(self) -> dict[str, Client]:
        try:
            found = await asyncio.wait_for(self._shared("discover", self._discover), STATE_TIMEOUT)
        except asyncio.TimeoutError as error:
            raise Refused(504, f"Reading the runtime directory took longer than {STATE_TIMEOUT:.0f} s.") from error
        except (SandboxError, OSError) as error:
            raise Refused(503, f"The runtime directory can't be read: {bounded.text(str(error), 1000)}") from error
        return {str(info["id"]): client for client, info in found[:MAX_SUPERVISORS]}

    async def _state_of(self, name: str, client: Client) -> dict[str, Any] | None:
        try:
            said = await asyncio.wait_for(
                self._shared(f"state {name}", lambda: client.request("GET", "/state")), STATE_TIMEOUT
            )
        except (ConnectionError, FileNotFoundError):
            return None  # It ended after it was found.
        except asyncio.TimeoutError:
            return _silent(name, f"did not answer within {STATE_TIMEOUT:.0f} s")
        except (SandboxError, OSError, HTTPException, ValueError) as error:
            return _silent(name, f"could not be asked: {bounded.text(str(error))}")
        if not isinstance(said, Mapping):
            return _silent(name, "gave an answer that this version does not understand")
        return {
            "id": name,
            "pid": bounded.number(said.get("pid")),
            "host_pid": bounded.number(said.get("host_pid")),
            "notebook": bounded.text(said.get("notebook")) or None,
            "error": None,
            "sandboxes": bounded.sandboxes(said.get("sandboxes")),
        }

    async def _shared(self, key: str, question: Callable[[], T]) -> T:
        """The answer to a question; who asks the same while it is open waits for that one.

        So several panels cost one request, and a supervisor that hangs holds one thread, not one a second.
        """
        asked = self._asked.get(key)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._questions, question)
            self._asked[key] = asked
            asked.add_done_callback(lambda done: self._answered(key, done))
        answer: T = await asyncio.shield(asked)
        return answer

    def _answered(self, key: str, done: asyncio.Future[Any]) -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # Whoever waited has got it, or has given up; asyncio need not log it as lost.


def _silent(name: str, why: str) -> dict[str, Any]:
    message = (
        f"The supervisor {bounded.text(name)} {why}; its sandboxes are not shown. "
        "If that lasts, restart the kernel of its notebook: that ends it with all its sandboxes."
    )
    return {"id": name, "pid": None, "host_pid": None, "notebook": None, "error": message, "sandboxes": []}
