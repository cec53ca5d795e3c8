"""Runs the tasks of an executor on a Dask cluster: which worker gets which, what is done when one is lost.

executor ── call ─→ this ── Dask ─→ a worker's SandboxPlugin ── its supervisor ─→ a sandbox
         ←─ outcome (undecoded bytes) ────────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import os
import queue
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipysandbox.audit import AuditError, AuditLog
from ipysandbox.cwd import absolute
from ipysandbox.errors import NotAvailable, SandboxClosed, SandboxDied, SandboxError, StartError, ValueRefused
from ipysandbox.output.text import clean_text
from ipysandbox.policy import Effective, Policy, resolve

from .local import TaskFuture
from .outcome import Outcome

#: Bytes of one call: the scheduler holds all that wait, to send them again when a worker is lost.
MOST_CALL = 64 << 20
#: So many workers may be lost while they run the same task. The last time nothing of the executor runs beside it: what
#: a worker is lost to then is it, and not its neighbour.
MOST_TRIES = 3
#: Tasks at a worker beyond those that it runs, so that it never waits for one.
_AHEAD = 2
#: How long tasks wait for a worker when the last has gone: one that its nanny starts again is back by then; seconds.
_ALONE_SECONDS = 60.0
#: Records that one executor takes home; the workers' own trails have all of them.
MOST_HOME = 100_000


@dataclass
class _Task:
    number: int
    call: bytes
    limits: Mapping[str, float] | None
    future: TaskFuture = field(init=False)
    #: How often it was sent to a worker, and how many workers were lost while they ran it.
    sent: int = 0
    lost: int = 0
    #: Where it is, and Dask's own future there.
    worker: str = ""
    handle: Any = None


@dataclass
class _Worker:
    name: str
    slots: int
    #: In the order in which they were sent, which is that in which Dask runs them: the first ``slots`` have begun.
    tasks: dict[int, None] = field(default_factory=dict)
    #: The task that has it for itself, or will when those before it are done.
    kept: int | None = None


class DaskRunner:
    """See ``Runner``. Raises PolicyError or StartError where no worker can hold the policy: nothing was run."""

    def __init__(
        self,
        client: Any,
        *,
        policy: str | Path | Mapping[str, Any] | Policy | None = None,
        project: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
        workers: int | None = None,
        preload: tuple[str, ...] = (),
        suggested: tuple[str, ...] = (),
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        require_usable(client)
        from . import dask_worker

        self._there = dask_worker
        self._client, self._most, self._on_notice = client, workers, on_notice
        self.name = f"ipysandbox-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._tasks: dict[int, _Task] = {}
        self._waiting: deque[int] = deque()
        #: Those that wait for a worker of their own: see MOST_TRIES.
        self._suspects: list[int] = []
        self._workers: dict[str, _Worker] = {}
        self._refused: dict[str, str] = {}
        self._gone: set[str] = set()
        self._closed: SandboxError | None = None
        self._alone: threading.Timer | None = None
        self.guarantees: Mapping[str, tuple[str, ...]] = {}
        self.weaker: dict[str, str] = {}
        self._audit = AuditLog()
        self._home = 0
        here = resolve(policy, cwd=absolute(project), overrides=overrides, environ=os.environ)
        for notice in here.notices:
            self._on_notice(clean_text(notice))
        effective = _travelling(here)
        self._wanted = dask_worker.Wanted(
            effective.policy.to_mapping(),
            str(effective.project),
            preload,
            suggested,
            dask_worker.facts(effective),
            effective.digest(),
        )
        #: What is done with results, and with what callers do when they come, never stops Dask's own thread.
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ipysandbox-dask", daemon=True)
        self._thread.start()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """How many tasks run at a time, with the workers that are there now."""
        with self._lock:
            slots = sum(worker.slots for worker in self._workers.values())
        return max(1, slots if self._most is None else min(slots, self._most))

    # -- workers

    def _open(self) -> None:
        client, there = self._client, self._there
        client.subscribe_topic(self.name, self._on_event)
        try:
            client.register_plugin(there.ClientGone(self.name, client.id), name=self.name)
            with contextlib.suppress(OSError):  # a worker that is lost at this moment
                client.register_plugin(there.SandboxPlugin(self.name, self._wanted), name=self.name)
            reports = client.run(there.look, self.name, on_error="ignore")
        except (ImportError, AttributeError) as exc:
            raise StartError(
                f"the scheduler or a worker of the Dask cluster can't load what it needs: {exc}",
                hint="Install the same ipysandbox[dask] everywhere: where the scheduler and the workers run too.",
            ) from None
        for report in reports.values():
            self._on_report(report)
        with self._lock:
            usable, refused = bool(self._workers), dict(self._refused)
        if not usable:
            raise _none_usable(refused)

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Dask's own thread: what the scheduler or a worker tells."""
        message = event[1]
        if message.get("kind") == "worker":
            self._todo.put(lambda: self._on_new(message))
        elif message.get("kind") == "gone":
            self._todo.put(lambda: self._on_gone(str(message["worker"])))

    def _on_new(self, report: Mapping[str, Any]) -> None:
        """From a worker itself, as it starts: it may have the address of one that has gone."""
        with self._lock:
            self._gone.discard(str(report["worker"]))
        self._on_report(report)

    def _on_report(self, report: Mapping[str, Any]) -> None:
        if not report:
            return
        address, name = str(report["worker"]), str(report["name"])
        shown = address if name == address else f"{name} ({address})"
        with self._lock:
            if address in self._workers or address in self._gone or self._refused.get(shown) == report["refused"]:
                return
            if report["refused"]:
                self._refused[shown] = str(report["refused"])
            else:
                self._workers[address] = _Worker(shown, int(report["slots"]))
                self._refused.pop(shown, None)
                self._note_guarantees(report, shown)
                if self._alone is not None:
                    self._alone.cancel()
                    self._alone = None
        notices = [f"not used: {report['refused']}"] if report["refused"] else report["notices"]
        for notice in notices:
            self._on_notice(f"worker {shown}: {clean_text(str(notice))}")
        self._send_waiting()

    def _note_guarantees(self, report: Mapping[str, Any], shown: str) -> None:
        """Of all workers together: the layers of any, and what is weaker on one."""
        held = {name: tuple(layers) for name, layers in report["guarantees"].items()}
        self.guarantees = {
            name: tuple(dict.fromkeys((*self.guarantees.get(name, ()), *layers))) for name, layers in held.items()
        }
        self.weaker |= {name: f"{text} (worker {shown})" for name, text in report["weaker"].items()}

    def _on_gone(self, address: str) -> None:
        lost: list[_Task] = []
        with self._lock:
            self._gone.add(address)
            worker = self._workers.pop(address, None)
            if worker is None:
                return
            begun = [*worker.tasks][: worker.slots]
            for number in reversed(worker.tasks):
                task = self._tasks[number]
                task.lost += number in begun
                if task.lost >= MOST_TRIES:
                    lost.append(task)
                    continue
                self._drop(task)
                if task.lost == MOST_TRIES - 1:
                    self._suspects.append(number)
                else:
                    self._waiting.appendleft(number)
            if not self._workers and self._alone is None and self._closed is None:
                self._alone = threading.Timer(_ALONE_SECONDS, self._todo.put, [self._give_up])
                self._alone.daemon = True
                self._alone.start()
        for task in lost:
            text = (
                f"{task.lost} workers of the Dask cluster were lost while they ran it, the last of them {worker.name}"
            )
            self._resolve(task, Outcome("died", text=text, kind=SandboxDied.kind))
        self._on_notice(f"worker {worker.name} has gone; what it ran is begun again elsewhere")
        self._send_waiting()

    def _give_up(self) -> None:
        """No worker has come back in time."""
        with self._lock:
            if self._workers:
                return
            left = [self._tasks[number] for number in (*self._suspects, *self._waiting) if number in self._tasks]
            self._waiting.clear()
            self._suspects.clear()
            text = _none_usable(self._refused).message
        for task in left:
            self._resolve(task, Outcome("died", text=text, kind=SandboxDied.kind))

    # -- tasks

    def submit(self, call: bytes, limits: Mapping[str, float] | None = None) -> Future[Outcome]:
        if len(call) > MOST_CALL:
            raise ValueRefused(
                f"the call has {len(call) >> 20} MiB; at most {MOST_CALL >> 20} go to a Dask cluster at once",
                hint="Put large data into a file that the workers can read, and its folder into files.read.",
            )
        with self._lock:
            if self._closed is not None:
                raise self._closed
            number = next(self._numbers)
            task = self._tasks[number] = _Task(number, call, limits)
            task.future = TaskFuture(lambda: self._cancel(number), lambda: task.handle is not None)
            self._waiting.append(number)
        self._send_waiting()
        return task.future

    def _send_waiting(self) -> None:
        """Give workers what waits, the least busy first."""
        while True:
            with self._lock:
                found = self._next() if self._closed is None else None
                if found is None:
                    return
                number, address = found
                task = self._tasks[number]
                task.worker, task.sent = address, task.sent + 1
                self._workers[address].tasks[number] = None
                key = f"{self.name}-{number}-{task.sent}"
                # Under the lock: its end must not be told before it is known here.
                task.handle = self._client.submit(
                    self._there.run_task, self.name, key, task.call, task.limits,
                    key=key, workers=[address], allow_other_workers=False, pure=False, retries=0,
                )  # fmt: skip
                follow = self._follow(task, task.handle)
            asyncio.run_coroutine_threadsafe(follow, self._client.loop.asyncio_loop)

    def _next(self) -> tuple[int, str] | None:
        """``_lock`` is held. The task to send now, and where to."""
        if self._most is not None and sum(len(worker.tasks) for worker in self._workers.values()) >= self._most:
            return None
        for number in self._suspects:
            address = self._own(number)
            if address is not None and not self._workers[address].tasks:
                self._suspects.remove(number)
                return number, address
        while self._waiting and self._waiting[0] not in self._tasks:
            self._waiting.popleft()  # cancelled
        address = self._free() if self._waiting else None
        return None if address is None else (self._waiting.popleft(), address)

    def _own(self, number: int) -> str | None:
        """The worker that a task has for itself, which gets no other from now on."""
        free = []
        for address, worker in self._workers.items():
            if worker.kept == number:
                return address
            if worker.kept is None:
                free.append(address)
        found = min(free, key=lambda address: len(self._workers[address].tasks), default=None)
        if found is not None:
            self._workers[found].kept = number
        return found

    def _free(self) -> str | None:
        used = {address: len(worker.tasks) for address, worker in self._workers.items() if worker.kept is None}
        room = {
            address: count / self._workers[address].slots
            for address, count in used.items()
            if count < self._workers[address].slots + _AHEAD
        }
        return min(room, key=room.__getitem__, default=None)

    async def _follow(self, task: _Task, handle: Any) -> None:
        """In Dask's loop: until the task is done, and its result is here."""
        try:
            (data,) = await self._client.gather([handle], asynchronous=True)
        except asyncio.CancelledError as exc:
            data = exc
        except Exception as exc:  # noqa: BLE001 - whatever Dask has to say about it is the task's outcome
            data = exc
        self._todo.put(lambda: self._on_done(task, handle, data))

    def _on_done(self, task: _Task, handle: Any, data: object) -> None:
        with self._lock:
            if task.handle is not handle:
                return  # begun again elsewhere, or cancelled
        if isinstance(data, bytes):
            try:
                records, outcome = self._there.unpacked(data)
                self._keep(records, task.worker)
            except SandboxError as exc:
                outcome = Outcome("failed", text=str(exc), kind=exc.kind)
        else:
            lost = self._client.status != "running" or isinstance(data, asyncio.CancelledError)
            what = "the connection to the Dask scheduler was lost" if lost else "Dask could not run the task"
            outcome = Outcome("died", text=f"{what} ({type(data).__name__}: {str(data)[:500]})", kind=SandboxDied.kind)
        self._resolve(task, outcome)

    def _resolve(self, task: _Task, outcome: Outcome) -> None:
        with self._lock:
            self._tasks.pop(task.number, None)
            self._drop(task)
        with contextlib.suppress(InvalidStateError):  # cancelled at this very moment
            task.future.set_result(outcome)
        task.future.let_go()
        self._send_waiting()

    def _drop(self, task: _Task) -> None:
        """``_lock`` is held. Where it runs, it is killed; a result that is there is let go."""
        handle, task.handle = task.handle, None
        if task.lost:
            self._release(task.number)
        worker = self._workers.get(task.worker)
        if worker is not None:
            worker.tasks.pop(task.number, None)
        if handle is not None and self._client.status == "running":
            self._client.loop.add_callback(_cancel, self._client, handle)

    def _release(self, number: int) -> None:
        """The worker that it had for itself, or was to have, is all tasks' again."""
        if number in self._suspects:
            self._suspects.remove(number)
        for worker in self._workers.values():
            if worker.kept == number:
                worker.kept = None

    def _cancel(self, number: int) -> None:
        with self._lock:
            task = self._tasks.pop(number, None)
            if task is not None:
                self._drop(task)
        self._send_waiting()

    def _work(self) -> None:
        while (todo := self._todo.get()) is not None:
            todo()

    # -- the trail

    def _keep(self, records: list[Any], worker: str) -> None:
        """Bring a worker's records into the caller's trail, under its name. What is not like one is not kept."""
        with self._lock:
            name = self._workers[worker].name if worker in self._workers else worker
        for record in records:
            if self._home >= MOST_HOME or not isinstance(record, dict) or not isinstance(record.get("details"), dict):
                continue
            self._home += 1
            details = {**record["details"], "worker": name, "at": str(record.get("time"))[:40]}
            try:
                self._audit.record(
                    str(record.get("action")),
                    sandbox=f"{self.name}/{str(record.get('sandbox'))[:80]}",
                    severity=record.get("severity", "info"),
                    details=details,
                )
            except ValueError:
                continue
            except AuditError as exc:
                self._on_notice(f"The audit trail could not be written: {exc.message}")
                self._home = MOST_HOME
                return

    # -- end

    def close(self) -> None:
        with self._lock:
            self._closed = self._closed or SandboxClosed("the executor is shut down")
            futures = [task.future for task in self._tasks.values()]
            self._waiting.clear()
            if self._alone is not None:
                self._alone.cancel()
        for future in futures:
            future.cancel()
        if self._client.status == "running":
            self._leave()
        self._todo.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._audit.close()

    def _leave(self) -> None:
        """Take everything off the cluster. A worker that is just going away takes its own part with it."""
        for address, told in self._client.run(self._there.finish, self.name, on_error="ignore").items():
            self._keep(json.loads(told), address)
        # A worker that is lost at this moment; a scheduler that has none of that name, since it was started again.
        with contextlib.suppress(OSError, ValueError):
            self._client.unregister_worker_plugin(self.name)
        with contextlib.suppress(OSError, ValueError):
            self._client.unregister_scheduler_plugin(self.name)
        self._client.unsubscribe_topic(self.name)


def require_usable(client: Any) -> None:
    """Raises NotAvailable, TypeError or SandboxClosed for what no executor can run on."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise NotAvailable(
            "an executor on a Dask cluster needs the package distributed, which is not installed",
            hint="pip install ipysandbox[dask], here and where the scheduler and the workers run.",
        ) from None
    if not isinstance(client, distributed.Client):
        raise TypeError(f"client must be a dask.distributed.Client, not {type(client).__name__}")
    if client.asynchronous:
        raise NotAvailable("an asynchronous Client can't be used", hint="Make one without asynchronous=True.")
    if client.status != "running":
        raise SandboxClosed(f"the Dask client is {client.status}")


async def _cancel(client: Any, handle: Any) -> None:
    with contextlib.suppress(Exception):  # the scheduler is gone, and the task with it
        await client.cancel([handle], asynchronous=True, force=True)
    handle.release()


def _travelling(effective: Effective) -> Effective:
    """What the policy comes to for one who knows only its text, as workers do: they don't read our files."""
    policy = effective.policy
    built_in = effective.sources.get("files.write", "").startswith("built-in")
    if built_in and not all(path.exists() or os.access(path.parent, os.W_OK) for path in effective.write):
        policy = policy.with_value("files.write", ())
    return resolve(policy, cwd=effective.project, environ=os.environ)


def _none_usable(refused: Mapping[str, str]) -> StartError:
    if not refused:
        return StartError(
            "the Dask cluster has no workers",
            hint="Start some first (client.wait_for_workers); an adaptive one needs minimum=1.",
        )
    reasons = "\n".join(f"- worker {name}: {why}" for name, why in list(refused.items())[:10])
    return StartError(f"no worker of the Dask cluster can hold the policy:\n{reasons}")
