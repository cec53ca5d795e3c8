"""What runs on the workers and the scheduler of a Dask cluster: a worker's own supervisor, and who is told of its end.

A worker's process is trusted as the caller's is. What a task returns is not: it leaves here as the bytes that came from
the sandbox, so that Dask, which unpickles what its workers send, has nothing of it to unpickle.
"""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from ipysandbox.bootstrap import trusted_imports
from ipysandbox.errors import PolicyError, SandboxDied, SandboxError, StartError
from ipysandbox.policy import Effective, complete_policy, resolve

from .local import TaskRunner
from .outcome import MOST_BUFFERS, Outcome

#: The share of a worker's memory that values may have, all together: each is there up to three times on its way from
#: the sandbox to Dask, beside results that Dask holds and what the caller's other code needs.
_VALUES = 1 / 8
#: Records of a worker that go home with one result; the oldest are left out, and stay in the worker's own trail.
MOST_RECORDS = 1000
#: Bytes of the JSON of the records; how many frames follow, and the size of each.
_RECORDS, _SIZES = struct.Struct("!I"), struct.Struct("!I")
_SIZE = struct.Struct("!Q")
#: Of a task that a worker is told to drop: what Dask calls the state that it goes to.
_DROPPED = ("cancelled", "released", "forgotten")


@dataclass(frozen=True)
class Wanted:
    """A policy as it was resolved at the caller's, and what it came to there."""

    policy: Mapping[str, Any]
    project: str
    preload: tuple[str, ...]
    suggested: tuple[str, ...]
    facts: Mapping[str, Any]
    digest: str


def facts(effective: Effective) -> dict[str, Any]:
    """What has to be the same on each machine, by the policy's own words."""
    return {
        "the project": str(effective.project),
        "files.read": sorted(map(str, effective.read)),
        "files.write": sorted(map(str, effective.write)),
        "files.hide": list(effective.hidden),
        "environment.allow": sorted(effective.environment),
        **{f"limits.{name}": value for name, value in asdict(effective.policy.limits).items()},
        "output.html": effective.policy.output.html,
    }


class SandboxPlugin(WorkerPlugin):
    """A worker's supervisor, zygote and sandboxes, for one executor."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        self.name, self.wanted = name, wanted

    # -- Dask's calls, in the worker's event loop

    async def setup(self, worker: Any) -> None:
        self._worker = worker
        #: Whoever has both took ``_opening`` first; ``_lock`` guards what follows it.
        self._opening, self._lock = threading.Lock(), threading.Lock()
        self._runner: TaskRunner | None = None
        self._supervisor: Any = None
        self._running: dict[str, Future[Outcome]] = {}
        self._dropped: set[str] = set()
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_RECORDS)
        self._refused = ""
        self._closed = False
        await in_thread(self._try_to_open)
        # By a request of its own: a worker that has only just come has no stream for events yet.
        await worker.scheduler.log_event(topic=self.name, msg={"kind": "worker", **self.report()})

    async def teardown(self, worker: Any) -> None:  # noqa: ARG002 - as Dask calls it
        await in_thread(self.close)

    def transition(self, key: Any, start: Any, finish: Any, **_more: Any) -> None:
        if finish not in _DROPPED or start in _DROPPED:
            return
        with self._lock:
            future = self._running.get(str(key))
            if future is not None:
                self._dropped.add(str(key))
        if future is not None:
            self._worker.loop.run_in_executor(None, future.cancel)

    # -- in threads

    def _try_to_open(self) -> None:
        try:
            self._open()
        except SandboxError as exc:
            self._refused = str(exc)
        except OSError as exc:
            self._refused = f"the sandbox supervisor can't be started: {exc}"

    def _open(self) -> TaskRunner:
        """Raises SandboxError. Nothing is weaker here than where the policy comes from: or it is an error."""
        with self._opening:
            with self._lock:
                if self._runner is not None and self._supervisor.alive():  # another task has opened it meanwhile
                    return self._runner
            return self._opened()

    def _opened(self) -> TaskRunner:
        with trusted_imports():
            from ipysandbox.backends.linux.uses import TASKS
            from ipysandbox.supervisor.spawn import Supervisor
        policy = complete_policy(self.wanted.policy)
        _require_same(self.wanted)
        supervisor = Supervisor(TASKS)
        try:
            runner = TaskRunner(
                policy=policy,
                project=self.wanted.project,
                workers=self._worker.state.nthreads,
                preload=self.wanted.preload,
                suggested=self.wanted.suggested,
                supervisor=supervisor,
                records=self._records.extend,
                complete=True,
            )
            if runner.digest != self.wanted.digest:
                runner.close()
                raise PolicyError(
                    "the policy comes to something else here", hint="Make the machines' files and settings alike."
                )
        except BaseException:
            supervisor.stop()
            raise
        with self._lock:
            if not self._closed:
                self._runner, self._supervisor, self._refused = runner, supervisor, ""
                return runner
        runner.close()
        supervisor.stop()
        raise SandboxDied("the executor has left this worker")

    def run(self, key: str, call: bytes, limits: Mapping[str, float] | None) -> bytes:
        """One task, in a thread of the worker's."""
        with self._lock:
            runner = self._runner
            if self._supervisor is not None and not self._supervisor.alive():
                runner = None
        try:
            running = (runner or self._open()).submit(call, {**(limits or {}), **self._room()})
            with self._lock:
                self._running[key] = running
            try:
                outcome = running.result()
            finally:
                with self._lock:
                    del self._running[key]
                    self._dropped.discard(key)
        except CancelledError:
            outcome = Outcome("cancelled")
        except SandboxError as exc:
            outcome = Outcome("failed", text=str(exc), kind=exc.kind)
        return packed(self._taken(), outcome)

    def _room(self) -> dict[str, float]:
        """For the value of one task: the same for all, so that none leaves the others without."""
        memory = self._worker.memory_manager.memory_limit
        return {"value": memory * _VALUES / self._worker.state.nthreads} if memory else {}

    def _taken(self) -> list[dict[str, Any]]:
        return [self._records.popleft() for _ in range(len(self._records))]

    def report(self) -> dict[str, Any]:
        """For the caller: plain data, which Dask's messages can carry."""
        runner = self._runner
        return {
            "worker": self._worker.address,
            "name": str(self._worker.name),
            "slots": self._worker.state.nthreads,
            "refused": self._refused,
            "guarantees": {} if runner is None else {name: list(held) for name, held in runner.guarantees.items()},
            "weaker": {} if runner is None else dict(runner.weaker),
            "notices": [] if runner is None else list(runner.notices),
        }

    def close(self) -> list[dict[str, Any]]:
        """End all of it; returns when nothing is left, with what had not been told. Again: nothing."""
        with self._lock:
            self._closed = True
            runner, self._runner = self._runner, None
            supervisor, self._supervisor = self._supervisor, None
        with self._opening:  # what was about to start ends itself
            pass
        if runner is not None:
            runner.close()
        if supervisor is not None:
            supervisor.stop()
        return self._taken()


def _require_same(wanted: Wanted) -> None:
    """Raises PolicyError where this machine's files, or its administrator, make something else of the policy."""
    import os

    project = Path(wanted.project)
    if not project.is_dir():
        raise PolicyError(
            f"the project folder {project} does not exist here",
            hint="Put it on a file system that all machines share, at the same path, or copy it there.",
        )
    here = facts(resolve(complete_policy(wanted.policy), cwd=project, environ=os.environ))
    for name, there in wanted.facts.items():
        if here.get(name) != there:
            raise PolicyError(
                f"{name} is {_short(here.get(name))} here, and {_short(there)} where the executor was made",
                hint="Paths have to be the same on all machines; what an administrator's file allows less of on one of "
                "them has to be asked for less everywhere.",
            )


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 300 else text[:300] + " …"


async def in_thread(work: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


class ClientGone(SchedulerPlugin):
    """Tells an executor which workers have left, and clears up after a caller that has left without doing so."""

    def __init__(self, name: str, client: str) -> None:
        self.name, self._client = name, client

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def remove_worker(self, scheduler: Any, worker: str, **_more: Any) -> None:
        scheduler.log_event(self.name, {"kind": "gone", "worker": worker})

    def remove_client(self, scheduler: Any, client: str) -> None:  # noqa: ARG002
        if client == self._client:
            asyncio.ensure_future(self._clear_up())  # noqa: RUF006 - the scheduler's loop has it until it is done

    async def _clear_up(self) -> None:
        if self.name in self._scheduler.worker_plugins:
            await self._scheduler.unregister_worker_plugin(comm=None, name=self.name)
        self._scheduler.plugins.pop(self.name, None)


# -- what a caller has workers do; Dask sends these by name


def run_task(name: str, key: str, call: bytes, limits: Mapping[str, float] | None) -> bytes:
    plugin: Any = get_worker().plugins.get(name)
    if plugin is None:
        text = "the executor has left the worker"
        return packed([], Outcome("failed", text=text, kind=SandboxDied.kind))
    result: bytes = plugin.run(key, call, limits)
    return result


async def look(name: str, dask_worker: Any) -> dict[str, Any]:
    plugin = dask_worker.plugins.get(name)
    report: dict[str, Any] = plugin.report() if plugin is not None else {}
    return report


async def finish(name: str, dask_worker: Any) -> bytes:
    plugin = dask_worker.plugins.get(name)
    return b"[]" if plugin is None else json.dumps(await in_thread(plugin.close)).encode()


# -- bytes between a worker and its caller


def packed(records: Iterable[Mapping[str, Any]], outcome: Outcome) -> bytes:
    told, frames = json.dumps(list(records)).encode(), outcome.to_wire()
    sizes = b"".join(_SIZE.pack(len(frame)) for frame in frames)
    return b"".join([_RECORDS.pack(len(told)), told, _SIZES.pack(len(frames)), sizes, *frames])


def unpacked(data: bytes) -> tuple[list[Any], Outcome]:
    """Raises SandboxError for bytes that are none of ``packed``."""
    try:
        view, at = memoryview(data), _RECORDS.size
        size = _RECORDS.unpack_from(view)[0]
        told = json.loads(bytes(view[at : at + size]))
        at += size
        count = _SIZES.unpack_from(view, at)[0]
        at += _SIZES.size
        if type(told) is not list or count > MOST_BUFFERS + 2:
            raise ValueError("head")
        frames, at = _cut(
            view, at + count * _SIZE.size, [_SIZE.unpack_from(view, at + n * _SIZE.size)[0] for n in range(count)]
        )
        if at != len(data):
            raise ValueError("size")
    except (ValueError, TypeError, struct.error, RecursionError) as exc:
        raise StartError(f"a worker sent what is no result ({type(exc).__name__})") from None
    return told[-MOST_RECORDS:], Outcome.from_wire(frames)


def _cut(view: memoryview, at: int, sizes: Sequence[int]) -> tuple[list[memoryview], int]:
    frames = []
    for size in sizes:
        frames.append(view[at : at + size])
        at += size
    return frames, at
