"""Asks every supervisor of this user, without ever letting a silent one hold up the Jupyter server."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from ipysandbox.errors import SandboxDied, SandboxError
from ipysandbox.server import bounded
from ipysandbox.server.places import Places
from ipysandbox.supervisor import runtime
from ipysandbox.supervisor.client import ControlClient

# A supervisor answers in milliseconds; one that needs this long is stopped or swamped. The panel asks every second.
STATE_TIMEOUT = 2.0
# A kill waits for the sandbox's processes to be gone.
ACTION_TIMEOUT = 15.0
#: Reading policy files, examining the machine: of a file system that stalls nobody hears (seconds).
LOOK_TIMEOUT = 20.0
#: Several panels at once share one answer of this age (seconds), a little less than the feed's shortest interval.
FRESH = 0.4
#: How long a supervisor may take to end its sandboxes once it answers no more (seconds).
ENDING = 15.0
MAX_SUPERVISORS = 100

LAST_RESORT = "If that lasts, restart the kernel of its notebook: that ends it with all its sandboxes."

ACTIONS = ("interrupt", "kill", "restart")

#: As jupyter_server names those of its kernels.
_CONNECTION_FILE = re.compile(rb"(?:^|[/=])kernel-([0-9A-Za-z_-]{1,100})\.json$")

T = TypeVar("T")


class Refused(Exception):
    """A request that can't be done, with the HTTP status that says whose fault it is."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Supervisors:
    """All supervisors of this user, found anew for each request, since they come and go with their notebooks."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._refused_since: dict[str, float] = {}
        #: What each said last, and what was made of it: mostly it says the same again.
        self._said: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        self._last: tuple[float, dict[str, Any]] = (float("-inf"), {})
        # Two pools: questions that wait for silent supervisors must not keep a kill waiting.
        self._questions = ThreadPoolExecutor(8, thread_name_prefix="ipysandbox-state")
        self._actions = ThreadPoolExecutor(4, thread_name_prefix="ipysandbox-action")
        self._asked: dict[str, asyncio.Future[Any]] = {}

    async def state(self) -> dict[str, Any]:
        """What all supervisors run now. One that doesn't answer says so in its `error` and hides no other.

        Raises Refused when they can't even be looked for.
        """
        folders = await self._folders()
        self._said = {folder.name: self._said[folder.name] for folder in folders if folder.name in self._said}
        answers = await asyncio.gather(*(self._state_of(folder) for folder in folders))
        return {"now": time.time(), "supervisors": [answer for answer in answers if answer is not None]}

    async def recent_state(self) -> dict[str, Any]:
        """``state``, or another's answer of just now."""
        if time.monotonic() - self._last[0] > FRESH:
            self._last = (time.monotonic(), await self.state())
        return self._last[1]

    async def policy(self, supervisor: str, sandbox: str) -> Mapping[str, Any]:
        """The effective policy that a sandbox runs under, as its supervisor says it. Raises Refused."""
        folder = await self._folder(supervisor)
        path = f"/sandboxes/{quote(sandbox, safe='')}/policy"
        said = await self.look(f"{folder} {path}", lambda: ControlClient(folder).request("GET", path, timeout=5.0))
        if not isinstance(said, Mapping):
            raise Refused(502, "The sandbox's supervisor gave an answer that this version does not understand.")
        return said

    async def look(self, key: str, question: Callable[[], T], seconds: float = LOOK_TIMEOUT) -> T:
        """Run a blocking question in a thread, once for all who ask it meanwhile. Raises Refused."""
        try:
            return await asyncio.wait_for(self._shared(key, question), seconds)
        except asyncio.TimeoutError as error:
            raise Refused(504, f"That took longer than {seconds:.0f} s. A file system may be stalled.") from error
        except SandboxDied as error:
            raise Refused(504, f"{bounded.text(error.message, 1000)}. {LAST_RESORT}") from error
        except SandboxError as error:
            raise Refused(409, bounded.text(str(error), 1000)) from error

    async def act(self, supervisor: str, sandbox: str, action: str) -> None:
        """Interrupt, kill or restart a sandbox.

        Raises Refused when there is no such supervisor (404), when it refuses (409) or doesn't answer (504).
        """
        folder = await self._folder(supervisor)
        path = f"/sandboxes/{quote(sandbox, safe='')}/{action}"

        def ask() -> Any:
            body = {"by": "panel"} if action == "kill" else None
            return ControlClient(folder).request("POST", path, body, timeout=ACTION_TIMEOUT)

        try:
            said = await asyncio.get_running_loop().run_in_executor(self._actions, ask)
        except SandboxDied as error:
            raise Refused(504, f"{bounded.text(error.message, 1000)}. {LAST_RESORT}") from error
        except SandboxError as error:
            raise Refused(409, bounded.text(error.message, 1000)) from error
        if not (isinstance(said, Mapping) and said.get("status") == "ok"):
            raise Refused(504, f"The sandbox's supervisor did not say that it has done it. {LAST_RESORT}")

    async def _folder(self, supervisor: str) -> Path:
        folder = next((folder for folder in await self._folders() if folder.name == supervisor), None)
        if folder is None:
            raise Refused(404, "This sandbox's supervisor has ended, and the sandbox with it.")
        return folder

    async def _folders(self) -> list[Path]:
        def found() -> list[Path]:
            return list(islice(runtime.folders(), MAX_SUPERVISORS))

        try:
            return await asyncio.wait_for(self._shared("folders", found), STATE_TIMEOUT)
        except asyncio.TimeoutError as error:
            raise Refused(504, f"Reading the runtime directory took longer than {STATE_TIMEOUT:.0f} s.") from error

    async def _state_of(self, folder: Path) -> dict[str, Any] | None:
        try:
            # The socket's own time-out is for each read: this one is for the whole answer.
            said = await asyncio.wait_for(self._shared(str(folder), lambda: _ask_state(folder)), 2 * STATE_TIMEOUT)
        except asyncio.TimeoutError:
            return _silent(folder, f"did not finish its answer within {2 * STATE_TIMEOUT:.0f} s")
        except SandboxError as error:
            if isinstance(error.__context__, ConnectionRefusedError) and not self._refuses_long(folder):
                return None
            return _silent(folder, f"could not be asked: {bounded.text(error.message)}")
        self._refused_since.pop(folder.name, None)
        if said is None:
            return None
        if not isinstance(said, Mapping):
            return _silent(folder, "gave an answer that this version does not understand")
        before = self._said.get(folder.name)
        if before is None or before[0] != said:
            shown = {
                "id": folder.name,
                "pid": bounded.number(said.get("pid")),
                "host_pid": bounded.number(said.get("host_pid")),
                "kernel": said.get("kernel"),
                "error": None,
                "sandboxes": bounded.sandboxes(said.get("sandboxes"), self.places.opens),
            }
            self._said[folder.name] = before = (said, shown)
        return before[1]

    def _refuses_long(self, folder: Path) -> bool:
        """A supervisor that ends closes its socket first; only one that stays so is a problem to show."""
        now = time.monotonic()
        self._refused_since = {name: at for name, at in self._refused_since.items() if now - at < 10 * ENDING}
        return now - self._refused_since.setdefault(folder.name, now) > ENDING

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


def _ask_state(folder: Path) -> Any:
    """The state; None for a supervisor that is only starting, or has ended meanwhile: neither is a problem to show."""
    if not (folder / "ctl.sock").exists():
        return None
    try:
        said = ControlClient(folder).request("GET", "/state", timeout=STATE_TIMEOUT)
    except SandboxDied:
        if folder in runtime.folders():
            raise
        return None
    return {**said, "kernel": _kernel(said.get("host_pid"))} if isinstance(said, Mapping) else said


def _kernel(pid: object) -> str | None:
    """The id of the Jupyter kernel that a process is, by the connection file it was started with; None for any other.

    By this, not by its notebook's path, the page knows whose a sandbox is: a notebook may be renamed while its kernel
    runs, and two may share one kernel.
    """
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    found = (_CONNECTION_FILE.search(word) for word in words)
    return next((match[1].decode("ascii") for match in found if match), None)


def _silent(folder: Path, why: str) -> dict[str, Any]:
    message = f"The supervisor {bounded.text(folder.name)} {why}. Its sandboxes are not shown. {LAST_RESORT}"
    return {"id": folder.name, "pid": None, "host_pid": None, "kernel": None, "error": message, "sandboxes": []}
