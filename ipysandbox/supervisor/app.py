"""The supervisor process: control API, sandboxes by name, and the end of everything when its host kernel ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import tornado.httpserver
import tornado.netutil
import tornado.web
import zmq

from ipysandbox import reach
from ipysandbox.audit import AuditLog, default_path, events
from ipysandbox.backends.linux import fonts
from ipysandbox.backends.linux.backend import SOCKETS_HINT, LinuxBackend
from ipysandbox.backends.linux.zygote_handle import Spawned
from ipysandbox.errors import NotAvailable, PolicyError, SandboxDied, SandboxError, StartError
from ipysandbox.output.redact import KnownSecrets, Redactor
from ipysandbox.policy import Effective, complete_policy, resolve
from ipysandbox.policy.resolution import CELL, SETTING
from ipysandbox.policy.secret_values import secret_values

from . import task_wire as wire
from .managed import Managed, place_of
from .pool import Pool
from .task_lane import TaskLane
from .task_lane import serve as serve_lane

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: How often this process looks at its own size, and what it may be at most: values of 512 MiB pass through it.
_GUARD_SECONDS = 0.25
_MOST_RESIDENT = 2 << 30
#: After its end, how long this process waits for its own threads.
_LEAVE_SECONDS = 5.0
_STATUS = {"policy": 400, "not-available": 400, "refused": 409, "start": 500}


class Supervisor:
    """State shared by the handlers; one per process."""

    def __init__(self, folder: Path, host_pid: int, zygote: Spawned) -> None:
        self.folder, self.host_pid = folder, host_pid
        self.started = time.time()
        self.backend = LinuxBackend(folder, zygote)
        reach.require([default_path()])
        self.audit = AuditLog()
        #: The environment is the host process's own, as it was when it started this one.
        self.secrets = KnownSecrets(secret_values(os.environ))
        self.sandboxes: dict[str, Managed] = {}
        #: Of executors, by name.
        self.lanes: dict[str, TaskLane] = {}
        self.finished = asyncio.Event()
        self._number = self._starting = 0
        self.pool = Pool(self.backend, folder, self._busy)
        self._locks: dict[str, asyncio.Lock] = {}

    def _busy(self) -> bool:
        return self._starting > 0 or any(managed.busy for managed in self.sandboxes.values())

    async def open(self, body: Mapping[str, Any]) -> Managed:
        """The sandbox that ``body`` asks for: the running one of that name when its policy is the same, else a new
        one."""
        name = str(body.get("name") or "main")
        if not _NAME.fullmatch(name):
            raise PolicyError(
                f"{name!r} is no name for a sandbox",
                hint="Use up to 64 letters, digits, dots, dashes and underscores, starting with a letter or digit.",
            )
        backend = str(body.get("backend") or "linux")
        if backend != self.backend.name:
            raise NotAvailable(f"the backend {backend!r} is not available in this version", hint="Use --backend linux.")
        resolved = functools.partial(_resolved, body)
        # In a thread: it may have to wait for a file system's answer, and limits are watched meanwhile.
        loop = asyncio.get_running_loop()
        effective = await loop.run_in_executor(None, resolved, {})
        place = await loop.run_in_executor(None, place_of, effective.project)
        async with self._locks.setdefault(name, asyncio.Lock()):
            running = self.sandboxes.get(name)
            if running is not None:
                same = running.effective.digest() == effective.digest() and not body.get("fresh")
                if same and running.alive and running.place == place:
                    running.adopt(effective, resolved, validate=bool(body.get("validate", True)))
                    return running
                del self.sandboxes[name]
                await running.close()
            self._number += 1
            managed = self._managed(
                name,
                self.folder / f"s{self._number}",
                self.backend,
                self.audit,
                resolved,
                effective,
                validate=bool(body.get("validate", True)),
                notebook=body.get("notebook"),
                secrets=self.secrets,
                page=bool(body.get("page")),
                pool=self.pool,
            )
            managed.asked = (body.get("policy"), body.get("overrides"))
            self._starting += 1
            try:
                await managed.start()
            except BaseException:
                await managed.close()
                raise
            finally:
                self._starting -= 1
            if running is not None:
                managed.notices += running.notices  # what nobody was told yet
                if same and running.place != place:
                    managed.notices.append(f"Another folder is at {effective.project} now: so the sandbox is new.")
                changed = running.effective.differs_in(effective)
                # What the caller asks for otherwise than before, he knows.
                if changed and managed.asked == running.asked and not body.get("fresh"):
                    managed.notices.append(f"The policy has changed ({', '.join(changed)}), so the sandbox is new.")
            self.sandboxes[name] = managed
            for notice in effective.notices:
                self.audit.record(events.POLICY_NOTICE, sandbox=name, details={"text": notice})
            return managed

    @staticmethod
    def _managed(*arguments: Any, **options: Any) -> Managed:
        try:
            return Managed(*arguments, **options)
        except (OSError, zmq.ZMQError) as exc:
            raise StartError(f"the sandbox's sockets can't be made: {exc}", hint=SOCKETS_HINT) from None

    async def serve_tasks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One executor, for as long as it holds its connection."""
        kind, _, size = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
        try:
            if kind != wire.OPEN or size > wire.MOST_JSON:
                raise SandboxError("an executor begins with what it wants")
            body = json.loads(await reader.readexactly(size))
            effective = await asyncio.get_running_loop().run_in_executor(None, _resolved, body, {})
        except SandboxError as exc:
            writer.write(wire.frame(wire.FAILED, 0, json.dumps(exc.to_json()).encode()))
            writer.close()
            return
        self._number += 1
        lane = TaskLane(self, f"tasks-{self._number}", self.folder / f"s{self._number}", effective, body, writer)
        self.lanes[lane.name] = lane
        await serve_lane(lane, reader, writer, self._forget)

    def _forget(self, lane: TaskLane) -> None:
        self.lanes.pop(lane.name, None)

    def get(self, name: str) -> Managed:
        try:
            return self.sandboxes[name]
        except KeyError:
            raise SandboxError(f"there is no sandbox named {name!r} here") from None

    async def remove(self, name: str) -> None:
        managed = self.get(name)
        del self.sandboxes[name]
        await managed.close()

    def state(self) -> dict[str, Any]:
        return {
            "version": 1,
            "id": self.folder.name,
            "pid": os.getpid(),
            "host_pid": self.host_pid,
            "started": self.started,
            "pool": self.pool.state(),
            "sandboxes": [managed.state() for managed in self.sandboxes.values()],
            "executors": [lane.state() for lane in self.lanes.values()],
        }

    async def close(self) -> None:
        ends = [managed.close() for managed in self.sandboxes.values()]
        ends += [lane.close() for lane in self.lanes.values()]
        await asyncio.gather(*ends, self.pool.close(), return_exceptions=True)
        await self.backend.close()
        fonts.stop()


def _resolved(body: Mapping[str, Any], overrides: Mapping[str, object]) -> Effective:
    """The policy that a request asks for."""
    cwd = Path(str(body["cwd"]))
    merged = {**(body.get("overrides") or {}), **overrides}
    environ = body.get("environ") or os.environ
    policy = body.get("policy")
    if body.get("complete"):
        policy = complete_policy(body["policy"])
    try:
        given_as = CELL if body.get("by_options") else SETTING
        effective = resolve(policy, cwd=cwd, overrides=merged, environ=environ, given_as=given_as)
        return _without_missing_default(effective)
    except PolicyError:
        if not cwd.is_dir():  # it answers, or the error were another
            raise PolicyError(f"the project folder {cwd} does not exist", hint="check the path") from None
        raise


def _without_missing_default(effective: Effective) -> Effective:
    """A project that can't be written to has no results/, and code that only reads can do without: it is told."""
    if not effective.sources.get("files.write", "").startswith("built-in"):
        return effective
    kept = tuple(path for path in effective.write if path.exists() or os.access(path.parent, os.W_OK))
    if kept == effective.write:
        return effective
    missing = ", ".join(str(path) for path in effective.write if path not in kept)
    notice = f"{missing} can't be made here: nothing of what the code writes is kept."
    return replace(effective, write=kept, notices=(*effective.notices, notice))


class _Handler(tornado.web.RequestHandler):
    supervisor: Supervisor

    def initialize(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    def body(self) -> dict[str, Any]:
        if not self.request.body:
            return {}
        data = json.loads(self.request.body)
        if not isinstance(data, dict):
            raise SandboxError("the request's body is not a JSON object")
        return data

    def send(self, data: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(data))

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ARG002 - tornado's signature
        error = kwargs.get("exc_info", (None, None, None))[1]
        if error is None:  # what it worked for was cancelled
            error = SandboxDied(f"the sandbox supervisor ends: {self.request.method} {self.request.path} was not done")
        elif not isinstance(error, SandboxError):
            error = SandboxError(f"{self.request.method} {self.request.path}: {type(error).__name__}: {error}")
        self.set_status(_STATUS.get(error.kind, 500))
        self.send({"error": Redactor(self.supervisor.secrets).value(error.to_json())})

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, SandboxError):
            super().log_exception(typ, value, tb)


class _State(_Handler):
    def get(self) -> None:
        self.send(self.supervisor.state())


class _Shutdown(_Handler):
    def post(self) -> None:
        self.send({"status": "ok"})
        self.supervisor.finished.set()


class _Secrets(_Handler):
    def post(self) -> None:
        """Variables that the host process has set since: {name: [values]}."""
        told = self.body()
        self.supervisor.secrets.learn({str(name): [str(value) for value in told[name]] for name in told})
        self.send({"status": "ok"})


class _Sandboxes(_Handler):
    async def post(self) -> None:
        managed = await self.supervisor.open(self.body())
        self.send(
            {
                "name": managed.name,
                "endpoints": managed.relay.endpoints,
                "key": managed.relay.key.decode(),
                "started": managed.started,
                "notices": list(managed.effective.notices),
                "widgets": managed.effective.policy.output.widgets,
                "state": managed.state(),
            }
        )


class _Sandbox(_Handler):
    def get(self, name: str) -> None:
        self.send(self.supervisor.get(name).state())

    async def delete(self, name: str) -> None:
        await self.supervisor.remove(name)
        self.send({"status": "ok"})


class _Policy(_Handler):
    def get(self, name: str) -> None:
        self.send(self.supervisor.get(name).effective.to_json())


class _Diff(_Handler):
    def get(self, name: str) -> None:
        self.send({"changes": [asdict(change) for change in self.supervisor.get(name).changes()]})


class _Check(_Handler):
    def post(self, name: str) -> None:
        self.send(self.supervisor.get(name).check(str(self.body().get("code", ""))))


class _Action(_Handler):
    async def post(self, name: str, action: str) -> None:
        managed = self.supervisor.get(name)
        if action == "interrupt":
            managed.interrupt()
        elif action == "kill":
            await managed.kill(str(self.body().get("by") or ""))
        else:
            await self._require_policy(managed)
            await managed.restart()
        self.send({"status": "ok", "started": managed.started})

    @staticmethod
    async def _require_policy(managed: Managed) -> None:
        """Under a policy that can't be read the next cell would be refused: variables are not given away for that."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, managed.resolve, {})
        except PolicyError as exc:
            exc.hint = "\n".join(filter(None, [exc.hint, "Nothing was restarted: the sandbox is as it was."]))
            raise


class _Executor(_Handler):
    def post(self, name: str) -> None:
        """End its tasks."""
        lane = self.supervisor.lanes.get(name)
        if lane is None:
            raise SandboxError(f"there is no executor named {name!r} here")
        lane.kill(str(self.body().get("by") or ""))
        self.send({"status": "ok"})


def _application(supervisor: Supervisor) -> tornado.web.Application:
    arguments = {"supervisor": supervisor}
    name = r"/sandboxes/([^/]+)"
    return tornado.web.Application(
        [
            (r"/state", _State, arguments),
            (r"/shutdown", _Shutdown, arguments),
            (r"/secrets", _Secrets, arguments),
            (r"/sandboxes", _Sandboxes, arguments),
            (name, _Sandbox, arguments),
            (r"/executors/([^/]+)/kill", _Executor, arguments),
            (name + r"/policy", _Policy, arguments),
            (name + r"/diff", _Diff, arguments),
            (name + r"/check", _Check, arguments),
            (name + r"/(interrupt|kill|restart)", _Action, arguments),
        ],
        log_function=lambda _handler: None,
    )


def serve(folder: Path, host_pid: int, host: int, zygote: Spawned, tell: Callable[[dict[str, Any]], None]) -> None:
    """Serve in ``folder`` until the host process (a pidfd) ends or asks to stop. ``tell``: to whom it is ready."""
    asyncio.run(_serve(folder, host_pid, host, zygote, tell))


async def _serve(
    folder: Path, host_pid: int, host: int, zygote: Spawned, tell: Callable[[dict[str, Any]], None]
) -> None:
    supervisor = Supervisor(folder, host_pid, zygote)
    loop = asyncio.get_running_loop()
    loop.add_reader(host, supervisor.finished.set)
    loop.add_signal_handler(signal.SIGTERM, supervisor.finished.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's Ctrl-C is the host kernel's to handle
    server = tornado.httpserver.HTTPServer(_application(supervisor))
    server.add_socket(tornado.netutil.bind_unix_socket(str(folder / "ctl.sock"), mode=0o600))
    tasks = await asyncio.start_unix_server(supervisor.serve_tasks, folder / wire.SOCKET, limit=1 << 20)
    os.chmod(folder / wire.SOCKET, 0o600)
    tell({"folder": str(folder)})
    helpers = [asyncio.ensure_future(_prepare(supervisor)), asyncio.ensure_future(_guard_memory(supervisor))]
    await supervisor.finished.wait()
    for helper in helpers:
        helper.cancel()
    server.stop()
    tasks.close()
    await supervisor.close()
    # A thread that a stalled file system holds can't be joined. The sandboxes are gone; the zygote removes the folder.
    leave = threading.Timer(_LEAVE_SECONDS, os._exit, [1])
    leave.daemon = True
    leave.start()


def _resident(statm: int) -> int:
    """Bytes of this process. ``statm``: a descriptor of /proc/self/statm, read anew from its beginning."""
    return int(os.pread(statm, 256, 0).split()[1]) * resource.getpagesize()


async def _guard_memory(supervisor: Supervisor) -> None:
    """End the sandboxes that are being talked to when this process itself grows too large: a message of many parts is
    in memory before libzmq hands it over, so no bound on messages covers it."""
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    while True:
        await asyncio.sleep(_GUARD_SECONDS)
        resident = _resident(statm)
        if resident > _MOST_RESIDENT:
            all_of_them = list(supervisor.sandboxes.values())
            # Those that are being talked to first; an idle one that floods is ended at the next look.
            for managed in [m for m in all_of_them if m.cell is not None or m.relay.waiting()] or all_of_them:
                managed.fail(MemoryError(f"{resident >> 20} MiB of messages from the sandbox"))


async def _prepare(supervisor: Supervisor) -> None:
    with contextlib.suppress(SandboxError):  # the first start meets the same error and tells it
        await supervisor.backend.prepare()
