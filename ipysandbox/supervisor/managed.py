"""One named sandbox over its whole life: starts, runs cells one at a time, watches limits, ends, starts again."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ipysandbox.audit import AuditError, AuditLog, events
from ipysandbox.audit.record import Severity
from ipysandbox.backends.base import Backend, Change, Instance, StartRequest, Usage
from ipysandbox.check import check
from ipysandbox.errors import PolicyError, SandboxError, StartError
from ipysandbox.output import Cleaner, clean_text
from ipysandbox.policy import Effective
from ipysandbox.policy.model import Limits

from . import limits as limit_rules
from .limits import LimitHit
from .relay import Relay
from .wire import Message

#: How often usage is read: while a cell runs, and while none does (threads of an earlier cell may).
_BUSY_SECONDS, _IDLE_SECONDS = 0.05, 0.5
#: From the interrupt that a limit on time sends to the kill.
_LIMIT_GRACE = 1.5
#: The same for a person's interrupt.
_INTERRUPT_GRACE = 5.0
#: Between the kernel's reply and its "idle", which may overtake each other on two sockets.
_IDLE_WAIT = 1.0
_READY_SECONDS = 60.0
#: How long closing waits for the reply of a cell that it ended.
_REPLY_WAIT = 5.0
#: Below this share of the limit the quick figure for memory is good enough.
_EXACT_ABOVE = 0.5

#: The protocol's own bytes around an output.
_MESSAGE_OVERHEAD = 1 << 20
#: Up to this size a message is read even if the limit is lower, so that the beginning of it can be shown.
_ALWAYS_PARSED = 32 << 20
#: What an output counts at least, in bytes: each is an object in the notebook, however little it says.
_LIGHTEST, _LIGHTEST_OTHER = {"stream": 256}, 1024

Resolve = Callable[[Mapping[str, object]], Effective]


@dataclass
class Cell:
    """One execute_request on its way."""

    request: Message
    number: int
    limits: Limits
    started: float = field(default_factory=time.monotonic)
    cpu_before: float = 0.0
    output: int = 0
    hit: LimitHit | None = None
    interrupted: bool = False
    reply: Message | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    peak_memory: int = 0
    peak_processes: int = 0


class Managed:
    """Owned by the supervisor; all methods run on its loop."""

    def __init__(
        self,
        name: str,
        directory: Path,
        backend: Backend,
        audit: AuditLog,
        resolve: Resolve,
        effective: Effective,
        *,
        validate: bool,
        notebook: str | None,
    ) -> None:
        self.name, self._directory, self._backend, self._audit = name, directory, backend, audit
        self._resolve, self.effective = resolve, effective
        self.validate, self.notebook = validate, notebook
        self.started = time.time()
        directory.mkdir(mode=0o700, exist_ok=True)
        self.cleaner = Cleaner(html=effective.policy.output.html, sandbox=name)
        self.relay = Relay(directory, self.cleaner)
        self.relay.on_execute = self._queue_cell
        self.relay.admits = self._admits
        self.relay.on_output = self._on_output
        self.relay.on_execute_reply = self._on_execute_reply
        self.relay.on_idle = self._on_idle
        self.relay.on_interrupt = self.interrupt
        self.relay.on_shutdown = self._on_shutdown
        self.relay.stdin_allowed = self._stdin_allowed
        self.relay.on_question_refused = self._on_question_refused
        self.relay.on_failure = self.fail
        self.instance: Instance | None = None
        self.usage = Usage()
        self.peak_memory = 0
        self._cpu_at_end = 0.0
        self._late_output, self._late_since = 0, time.monotonic()
        self.cell: Cell | None = None
        self._no_cell = asyncio.Event()
        self._no_cell.set()
        self.last: dict[str, Any] | None = None
        self._count = 0
        #: One line each, for the next cell's reply.
        self.notices: list[str] = []
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._cells = asyncio.ensure_future(self._run_cells())
        self._watch = asyncio.ensure_future(self._watch_limits())
        self._wake = asyncio.Event()
        self._made_folders = [path for path in effective.write if not path.exists()]
        self._changes: list[Change] = []

    # -- start and end

    async def start(self) -> None:
        """Start a fresh sandbox behind the same sockets. Raises StartError and leaves nothing behind."""
        request = StartRequest(self.name, self.effective, self._directory)
        began = time.monotonic()
        try:
            instance = await self._backend.start(request)
            await self._attach(instance)
        except SandboxError as exc:
            self._record(events.SANDBOX_REFUSED, severity="warning", reason=exc.message)
            raise
        self.instance = instance
        self.started = time.time()
        self.usage, self.peak_memory, self._cpu_at_end, self._late_output = Usage(), 0, 0.0, 0
        instance.on_exit(functools.partial(self._on_exit, instance))
        self._record(
            events.SANDBOX_START,
            backend=self._backend.name,
            policy=self.effective.digest(),
            project=str(self.effective.project),
            seconds=round(time.monotonic() - began, 4),
            guarantees={name: list(layers) for name, layers in instance.guarantees.items()},
        )
        if not instance.alive():
            self._on_exit(instance, None)

    async def _attach(self, instance: Instance) -> None:
        """Connect the relay to a new kernel; a kernel that ends meanwhile is not waited for."""
        attach = asyncio.ensure_future(
            self.relay.attach(instance.endpoints.channels, instance.endpoints.key, _READY_SECONDS)
        )

        def stop_waiting(_status: int | None) -> None:
            attach.cancel()

        instance.on_exit(stop_waiting)
        try:
            await attach
        except (asyncio.TimeoutError, asyncio.CancelledError) as exc:
            ended = not instance.alive()
            await instance.kill()
            if isinstance(exc, asyncio.CancelledError) and not ended:
                raise
            what = "ended" if ended else "did not answer"
            words = instance.last_words().strip()[-1500:]
            raise StartError(
                f"the kernel in the sandbox {what} while it started; limits that are too low for Python itself "
                f"(memory {limit_rules.size(self.effective.policy.limits.memory)}, "
                f"{self.effective.policy.limits.processes} processes) are a common reason",
                hint=words or None,
            ) from None

    async def close(self) -> None:
        await self._end_instance("closed")
        with contextlib.suppress(asyncio.TimeoutError):  # its cell's reply is on the way
            await asyncio.wait_for(self._no_cell.wait(), _REPLY_WAIT)
        for task in (self._cells, self._watch):
            task.cancel()
        self.relay.close()
        for folder in self._made_folders:
            with contextlib.suppress(OSError):  # made for this sandbox: it goes if nothing was put there
                folder.rmdir()
        with contextlib.suppress(OSError):
            self._directory.rmdir()

    async def _end_instance(self, reason: str) -> None:
        """End the sandbox, whatever state it is in; then look at what it left, and answer who still waits for it."""
        instance, self.instance = self.instance, None
        if instance is None:
            return
        await instance.kill()
        self.relay.detach()
        if self.cell is not None:
            self.cell.done.set()
        self._finish_others("the sandbox ended")
        self._changes = instance.changes()
        await self._sweep(instance)
        self._record(events.SANDBOX_STOP, reason=reason, changes=len(self._changes))

    def _on_exit(self, instance: Instance, _status: int | None) -> None:
        """The sandbox ended; if not on our order, then in the middle of a cell or between two."""
        if self.instance is not instance:
            return
        self._wake.set()
        if self.cell is not None:
            self.cell.done.set()
        else:
            self._background(self._end_instance("ended by itself"))

    async def restart(self) -> None:
        if self.cell is not None:
            self.cell.interrupted = True
        await self._end_instance("restarted")
        await self.start()

    async def kill(self) -> None:
        if self.cell is not None:
            self.cell.interrupted = True
        if self.instance is not None:
            await self.instance.kill()

    def interrupt(self) -> None:
        cell = self.cell
        if cell is None or self.instance is None:
            return
        cell.interrupted = True
        self.instance.interrupt()
        asyncio.get_running_loop().call_later(_INTERRUPT_GRACE, self._kill_if_running, cell)

    def _kill_if_running(self, cell: Cell) -> None:
        if self.cell is cell and cell.reply is None and self.instance is not None:
            self._background(self.instance.kill())

    def _background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _on_shutdown(self, restart: bool) -> None:
        if restart:
            await self.restart()
        else:
            await self._end_instance("shutdown")

    # -- cells

    async def _queue_cell(self, message: Message) -> None:
        await self._queue.put(message)

    async def _run_cells(self) -> None:
        while True:
            message = await self._queue.get()
            try:
                await self._run_cell(message)
            except asyncio.CancelledError:
                raise
            except PolicyError as exc:  # an option of this cell; the sandbox is as it was
                await self._answer(message, "refused", error=(type(exc).__name__, str(exc)))
            except SandboxError as exc:
                await self._answer(message, "died", error=(type(exc).__name__, str(exc)), alive=False)
            except Exception as exc:  # noqa: BLE001 - ours; the sandbox must not go on unwatched, nor the cell hang
                self.fail(exc)
                text = f"the supervisor failed ({type(exc).__name__}: {exc}); please report this"
                await self._answer(message, "died", error=("SandboxDied", text), alive=False)

    async def _run_cell(self, message: Message) -> None:
        source = message.content.get("code")
        if not isinstance(source, str):
            await self._answer(message, "refused", error=("TypeError", "execute_request without code"))
            return
        options = message.metadata.get("ipysandbox")
        options = options if isinstance(options, dict) else {}
        overrides = options.get("overrides")
        effective = self._resolve(overrides) if overrides else self.effective
        code_hash = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        silent = bool(message.content.get("silent"))
        self._count += not silent
        # Before it runs: what can't be recorded is not run (AuditError).
        self._audit_now(events.CELL_SUBMITTED, number=self._count, sha256=code_hash, bytes=len(source))
        await self.relay.publish("status", {"execution_state": "busy"}, message)
        if self.validate and options.get("validate", True):
            report = await asyncio.get_running_loop().run_in_executor(None, self.check, source)
            if report["verdict"] != "ok":
                self._record(
                    events.CHECK_VERDICT,
                    severity="warning",
                    number=self._count,
                    verdict="refused",
                    rules=[f["rule"] for f in report["findings"] if f["severity"] == "refuse"][:50],
                )
                await self._answer(
                    message, "refused", error=("CheckRefused", report["text"]), findings=report["findings"]
                )
                return
        if self.instance is None or not self.instance.alive():
            await self._end_instance("ended by itself")
            await self.start()
            self.notices.append("This cell ran in a new sandbox: the variables of the one before it are lost.")
        cell = Cell(message, self._count, effective.policy.limits)
        assert self.instance is not None
        instance = self.instance
        unhidden = await instance.hide_new_names()
        if unhidden:
            raise SandboxError(
                f"these new files can't be hidden from the sandbox: {', '.join(unhidden[:5])}; restart it"
            )
        try:
            self.usage = instance.measure()
            cell.cpu_before = self.usage.cpu
        except ProcessLookupError:
            pass
        self.cell = cell
        self._no_cell.clear()
        self._wake.set()
        await self.relay.forward("shell", message)
        if not instance.alive():
            cell.done.set()
        await cell.done.wait()
        if cell.reply is not None:
            with contextlib.suppress(asyncio.TimeoutError):  # it only says that it is busy; its reply is in
                await asyncio.wait_for(cell.idle.wait(), _IDLE_WAIT)
        await self._finish_cell(cell, instance)

    async def _finish_cell(self, cell: Cell, instance: Instance) -> None:
        """Word the outcome and send the one reply."""
        alive = instance.alive()
        if alive:
            try:
                self._note_usage(cell, instance.measure())
            except ProcessLookupError:
                alive = False
        content = await self.relay.clean("execute_reply", cell.reply.content) if cell.reply else None
        pager = self.cleaner.pager_text(cell.reply.content) if cell.reply else None
        if pager:
            await self.relay.publish("stream", {"name": "stdout", "text": pager}, cell.request)
        status, error = "ok", None
        if cell.hit is not None:
            status, error = "limit", ("LimitExceeded", cell.hit.text)
        elif cell.interrupted and (content is None or content.get("status") != "ok"):
            status, error = "interrupted", ("KeyboardInterrupt", "interrupted")
        elif content is None:
            status = "died"
            words = instance.last_words().strip()[-1500:]
            text = "the sandbox ended in the middle of the cell; its variables are lost"
            error = ("SandboxDied", f"{text}\n{words}" if words else text)
        elif content.get("status") != "ok":
            status = "error"
            cell.hit = limit_rules.from_error(cell.limits, str(content.get("ename")), str(content.get("evalue")))
            if cell.hit is not None:
                status = "limit"
        self.cell = None
        self._cpu_at_end = self.usage.cpu
        if alive:
            self._changes = instance.changes()
            await self._sweep(instance)
        elif self.instance is instance:
            await self._end_instance(status)
        if cell.hit is not None:
            self._record(
                events.LIMIT_HIT, severity="warning", number=cell.number, limit=cell.hit.name, value=cell.hit.value,
                observed=cell.hit.observed, ended=not alive,
            )  # fmt: skip
        await self._answer(cell.request, status, error=error, content=content, cell=cell, alive=alive)

    async def _answer(
        self,
        request: Message,
        status: str,
        *,
        error: tuple[str, str] | None = None,
        content: dict[str, Any] | None = None,
        cell: Cell | None = None,
        findings: list[dict[str, Any]] | None = None,
        alive: bool = True,
    ) -> None:
        if content is None or (content.get("status") == "ok" and status != "ok"):
            ename, evalue = error or ("SandboxError", status)
            content = {
                "status": "error",
                "execution_count": self._count,
                "ename": ename,
                "evalue": clean_text(evalue),
                "traceback": [clean_text(f"{ename}: {evalue}")],
                "payload": [],
                "user_expressions": {},
            }
            if status in ("refused", "died"):
                await self.relay.publish("error", {k: content[k] for k in ("ename", "evalue", "traceback")}, request)
        self.notices += self.cleaner.notes
        self.cleaner.notes.clear()
        if self.relay.dropped:
            self.notices.append(f"{self.relay.dropped} malformed or unasked messages from the sandbox were dropped.")
            self.relay.dropped = 0
        outcome = {
            "status": status,
            "number": self._count,
            "limit": cell.hit.to_json() if cell and cell.hit else None,
            "usage": self._cell_usage(cell) if cell else {},
            "findings": findings or [],
            "notices": [*dict.fromkeys(self.notices)][:50],
            "state_kept": alive,
            "changes": [asdict(replace(change, path=clean_text(change.path))) for change in self._changes[:200]],
            "changes_total": len(self._changes),
        }
        self.notices.clear()
        self.last = {k: outcome[k] for k in ("status", "number", "limit", "usage")}
        self._record(events.CELL_RESULT, number=self._count, status=status, usage=outcome["usage"])
        await self.relay.reply(request, content, metadata={"ipysandbox": outcome})
        self._no_cell.set()

    def _cell_usage(self, cell: Cell) -> dict[str, float]:
        return {
            "wall": round(time.monotonic() - cell.started, 4),
            "cpu": round(max(0.0, self.usage.cpu - cell.cpu_before), 3),
            "memory_peak": cell.peak_memory,
            "processes_peak": cell.peak_processes,
            "disk": self.usage.disk,
            "files": self.usage.files,
            "output": cell.output,
        }

    def _finish_others(self, why: str) -> None:
        """Answer what the ended kernel no longer will."""
        for request in self.relay.waiting():
            content = {"status": "error", "ename": "SandboxDied", "evalue": why, "traceback": []}
            if request.type != "execute_request":  # a cell's reply is worded where it was run
                self._background(self.relay.reply(request, content))

    async def _sweep(self, instance: Instance) -> None:
        removed = await asyncio.get_running_loop().run_in_executor(None, instance.sweep)
        if removed:
            shown = ", ".join(removed[:5]) + (f" and {len(removed) - 5} more" if len(removed) > 5 else "")
            self.notices.append(f"Disarmed in writable folders: {shown}.")
            self._record("files.swept", severity="warning", removed=removed[:100])

    # -- what the relay tells

    def _admits(self, size: int) -> bool:
        """Whether a message of ``size`` bytes is parsed at all: one that alone is over the limit is not."""
        limits = self.cell.limits if self.cell else self.effective.policy.limits
        if size <= max(limits.output, _ALWAYS_PARSED) + _MESSAGE_OVERHEAD:
            return True
        self._too_much_output(limits, size)
        return False

    def _on_output(self, request: Message, message: Message) -> bool:
        """Count an output of the running cell, or of an earlier one whose threads go on; cut what is too much."""
        cell = self.cell if self.cell is not None and request.id == self.cell.request.id else None
        limits = cell.limits if cell else self.effective.policy.limits
        weight = max(_weight(message.content), _LIGHTEST.get(message.type, _LIGHTEST_OTHER))
        if cell is None:
            # What threads of finished cells may print grows back with time, and with nothing else: cells may be short.
            now = time.monotonic()
            grown = (now - self._late_since) * limits.output / limits.wall
            self._late_output, self._late_since = max(0, self._late_output - int(grown)), now
        before = cell.output if cell else self._late_output
        room = limits.output - before
        if cell:
            cell.output += weight
        else:
            self._late_output += weight
        if weight <= room:
            return True
        if room < 0:
            return False
        if cell is None:
            # A thread of a finished cell: an interrupt would not reach it, whatever cell is running by now.
            hit = limit_rules.hit("output", limits.output, before + weight)
            if self.cell is not None and self.cell.hit is None:
                self.cell.hit = hit
            self._end_between_cells(hit)
            return False
        self._too_much_output(limits, before + weight)
        text = message.content.get("text")
        if message.type != "stream" or not isinstance(text, str):
            return False
        message.content["text"] = f"{text[:room]}\n… output cut at {limit_rules.size(limits.output)} …\n"
        return True

    def _too_much_output(self, limits: Limits, observed: int) -> None:
        hit = limit_rules.hit("output", limits.output, observed)
        if self.cell is None:
            self._end_between_cells(hit)
        elif self.cell.hit is None:
            self._stop(self.cell, hit, soft=True)

    def _on_execute_reply(self, request: Message, message: Message) -> None:
        cell = self.cell
        if cell is not None and request.id == cell.request.id and cell.reply is None:
            cell.reply = message
            cell.done.set()

    def _on_idle(self, request: Message) -> None:
        if self.cell is not None and request.id == self.cell.request.id:
            self.cell.idle.set()

    def _stdin_allowed(self, parent_id: str) -> bool:
        cell = self.cell
        return cell is not None and parent_id == cell.request.id and bool(cell.request.content.get("allow_stdin"))

    def _on_question_refused(self) -> None:
        """The code asks although nobody answers: it would wait until its time is over."""
        if self.cell is not None and self.instance is not None:
            self.notices.append("The code asked for input that nobody can give; it was interrupted.")
            self.instance.interrupt()

    # -- limits

    async def _watch_limits(self) -> None:
        while True:
            self._wake.clear()
            busy = self.cell is not None
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _BUSY_SECONDS if busy else _IDLE_SECONDS)
            instance = self.instance
            if instance is not None and instance.alive():
                try:
                    self._look(instance, self.cell)
                except ProcessLookupError:
                    continue  # it ended between two looks
                except PermissionError:
                    self._end_hidden(instance)
                except Exception as exc:  # noqa: BLE001 - what can't be measured must not run
                    self.fail(exc)

    def _look(self, instance: Instance, cell: Cell | None) -> None:
        """Measure once, and end what is over a limit. Raises ProcessLookupError when the sandbox has ended."""
        limits = cell.limits if cell else self.effective.policy.limits
        instance.exact_above(int(limits.memory * _EXACT_ABOVE))
        usage = instance.measure()
        self._note_usage(cell, usage)
        wall = time.monotonic() - cell.started if cell else None
        # Between cells, threads and forged replies may go on computing: they have what one cell has.
        cpu = usage.cpu - (cell.cpu_before if cell else self._cpu_at_end)
        hit = limit_rules.exceeded(limits, usage, cpu=cpu, wall=wall)
        if hit is None:
            return
        soft = hit.name in ("wall", "cpu")
        if cell is None:
            self._end_between_cells(hit)
        elif cell.hit is None:
            self._stop(cell, hit, soft=soft)
        elif not soft:
            self._background(instance.kill())  # within the time that another limit's interrupt was given

    def _end_between_cells(self, hit: LimitHit) -> None:
        self.notices.append(f"Between cells the sandbox went over its {hit.text}")
        if self.instance is not None:
            self._background(self.instance.kill())
        self._record(events.LIMIT_HIT, severity="warning", limit=hit.name, value=hit.value, observed=hit.observed)

    def _end_hidden(self, instance: Instance) -> None:
        """A process made itself unreadable (by running a program it may not read): its files can't be counted."""
        limits = self.effective.policy.limits
        hit = replace(
            limit_rules.hit("disk", limits.disk, None),
            text="limit on disk space: a process in the sandbox hid which files it holds open; they can't be counted. "
            "To allow more: start only programs that may be read as well as run.",
        )
        if self.cell is not None and self.cell.hit is None:
            self.cell.hit = hit
        else:
            self.notices.append(f"The sandbox was ended by its {hit.text}")
        self._background(instance.kill())

    def fail(self, exc: BaseException) -> None:
        """Something of ours broke: end the sandbox rather than let it run unwatched, and say so."""
        self.notices.append(f"The supervisor failed ({type(exc).__name__}: {exc}) and ended the sandbox.")
        if self.instance is not None:
            self._background(self.instance.kill())
        self._record("supervisor.failed", severity="alert", error=type(exc).__name__, text=str(exc))

    def _note_usage(self, cell: Cell | None, usage: Usage) -> None:
        self.usage = usage
        self.peak_memory = max(self.peak_memory, usage.memory)
        if cell is not None:
            cell.peak_memory = max(cell.peak_memory, usage.memory)
            cell.peak_processes = max(cell.peak_processes, usage.processes)

    def _stop(self, cell: Cell, hit: LimitHit, *, soft: bool) -> None:
        """End the cell: time and output by an interrupt first, since the variables may be worth keeping."""
        cell.hit = hit
        if self.instance is None:
            return
        if soft:
            self.instance.interrupt()
            asyncio.get_running_loop().call_later(_LIMIT_GRACE, self._kill_if_running, cell)
        else:
            self._background(self.instance.kill())

    # -- for people and programs

    def check(self, source: str) -> dict[str, Any]:
        code = self.effective.policy.code
        report = check(
            source,
            profile=code.profile,
            deny=code.deny,
            allow=code.allow,
            writable=tuple(str(path) for path in self.effective.policy.files.write),
        )
        return {**report.to_json(), "text": str(report)}

    def changes(self) -> list[Change]:
        """Their paths are hostile text: shown as such, they do nothing to a terminal or a page."""
        found = self.instance.changes() if self.instance is not None and self.instance.alive() else self._changes
        return [replace(change, path=clean_text(change.path)) for change in found]

    def state(self) -> dict[str, Any]:
        alive = self.instance is not None and self.instance.alive()
        cell = self.cell
        return {
            "name": self.name,
            "state": "dead" if not alive else "busy" if cell else "idle",
            "backend": self._backend.name,
            "pid": self.instance.pid if self.instance is not None else None,
            "notebook": self.notebook,
            "project": str(self.effective.project),
            "started": self.started,
            "cell": {"number": cell.number, "elapsed": round(time.monotonic() - cell.started, 3)} if cell else None,
            "usage": {
                **asdict(self.usage if alive else replace(self.usage, memory=0, processes=0)),
                # Next to its limit, which is one cell's; the whole sandbox's beside it.
                "cpu": max(0.0, self.usage.cpu - cell.cpu_before) if cell else 0.0,
                "cpu_total": self.usage.cpu,
                "memory_peak": self.peak_memory,
                "output": cell.output if cell else 0,
            },
            "limits": {k: v for k, v in asdict(self.effective.policy.limits).items() if k != "gpu"},
            "guarantees": {k: list(v) for k, v in self.instance.guarantees.items()} if self.instance else {},
            "last": self.last,
        }

    def _audit_now(self, action: str, *, severity: Severity = "info", **details: Any) -> None:
        """Record what is about to happen. Raises AuditError: then it must not happen."""
        self._audit.record(action, sandbox=self.name, notebook=self.notebook, severity=severity, details=details)

    def _record(self, action: str, *, severity: Severity = "info", **details: Any) -> None:
        """Record what has happened. It can't be undone, so a trail that fails is told, and the next cell is refused."""
        try:
            self._audit_now(action, severity=severity, **details)
        except AuditError as exc:
            self.notices.append(f"The audit trail could not be written: {exc.message}")


def _weight(content: dict[str, Any]) -> int:
    """Bytes of an output, near enough for a limit: text counts by characters, nested data by its strings."""
    total, level = 0, [content]
    while level:
        item = level.pop()
        for key, value in item.items():
            total += len(key)
            if isinstance(value, str):
                total += len(value)
            elif isinstance(value, dict):
                level.append(value)
            elif isinstance(value, list):
                total += sum(len(v) for v in value if isinstance(v, str)) + 8 * len(value)
                level += [v for v in value if isinstance(v, dict)]
    return total
