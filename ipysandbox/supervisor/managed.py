"""One named sandbox over its whole life: starts, is interrupted, ends, starts again, and tells how it is.

Its parts: ``cells`` runs code, ``watch`` holds the limits, ``output_budget`` counts what comes out, ``trail`` records.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ipysandbox.audit import AuditLog, events
from ipysandbox.backends.base import Backend, Change, Instance, NotLookedAt, StartRequest
from ipysandbox.check import check
from ipysandbox.errors import SandboxError, StartError
from ipysandbox.output import Cleaner, KnownSecrets, clean_text
from ipysandbox.policy import Effective
from ipysandbox.policy.model import Limits

from . import limits as limit_rules
from .attempts import Attempts
from .background import in_background
from .cells import Cell, Cells
from .held_folders import HeldFolders
from .output_budget import OutputBudget
from .pool import Pool, remove_directory
from .relay import Relay
from .trail import Trail
from .watch import Watch

#: From a person's interrupt to the kill, when the code does not stop.
_INTERRUPT_GRACE = 5.0
_READY_SECONDS = 60.0
#: How long closing waits for the reply of a cell that it ended.
_REPLY_WAIT = 5.0
#: Sweeps in a row between two cells that found something.
_MOST_ARMED = 2
#: Changed files that a reply lists.
_SHOWN_CHANGES = 200
#: New names that a notice lists.
_SHOWN_NEW_NAMES = 3

#: Who may end a sandbox, as the control API names them, in words.
KILLERS = {"": "kill()", "command": "`ipysandbox kill`", "panel": "the panel's Kill"}

Resolve = Callable[[Mapping[str, object]], Effective]


def place_of(folder: Path) -> tuple[int, int] | None:
    """Which folder has this path, if one has. Call it from a thread: it may not answer."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
        secrets: KnownSecrets,
        page: bool,
        pool: Pool,
    ) -> None:
        self.name, self._directory, self._backend = name, directory, backend
        self.resolve, self.effective = resolve, effective
        self.validate, self.notebook = validate, notebook
        self._page, self._pool = page, pool
        self.started = time.time()
        #: The policy and the single settings that its client has asked for.
        self.asked: object = None
        #: Which folder its project was when it started: another may have its path since.
        self.place: tuple[int, int] | None = None
        #: One line each, for the next cell's reply.
        self.notices: list[str] = []
        output = effective.policy.output
        self.cleaner = Cleaner(html=output.html, sandbox=name, secrets=secrets, widgets=output.widgets)
        self.trail = Trail(audit, name, notebook, self.notices, self.cleaner.redactor)
        self._attempts = Attempts(self.trail)
        self.instance: Instance | None = None
        #: How the last kernel ended, as its sandbox says: an exit status, or a signal's number below zero.
        self.exit_status: int | None = None
        #: The one that is being killed: it answers for a moment yet, but no cell may begin in it.
        self._condemned: Instance | None = None
        #: By whose order, where somebody's.
        self._killed_by = ""
        self._closed = False
        #: The wait for a kernel that starts, which a close ends.
        self._attaching: asyncio.Future[None] | None = None
        #: A sandbox starts when the one before it has ended, its folders looked at.
        self._life = asyncio.Lock()
        directory.mkdir(mode=0o700, exist_ok=True)
        self.relay = Relay(directory, self.cleaner)
        self.relay.on_interrupt = self.interrupt
        self.relay.on_shutdown = self._on_shutdown
        self.relay.on_question_refused = self._on_question_refused
        self.relay.on_failure = self.fail
        self.relay.interpreter = lambda: self.instance.interpreter() if self.instance is not None else None
        self.cells = Cells(self)
        self.watch = Watch(self)
        self._outputs = OutputBudget(self)
        self._folders = HeldFolders(effective.write)
        self._sweeping = asyncio.Lock()
        #: Between cells: how often in a row traps were found, and when to look again.
        self._armed, self._next_sweep = 0, 0.0
        self._changes: list[Change] = []
        self._written: tuple[list[str], int] = [], 0

    @property
    def cell(self) -> Cell | None:
        """The one that runs."""
        return self.cells.running

    @property
    def busy(self) -> bool:
        """Whether somebody waits for it: for a cell, or for its start."""
        return self.cells.running is not None or self._life.locked()

    @property
    def limits(self) -> Limits:
        """The sandbox's own; a cell may have its own for its time."""
        return self.effective.policy.limits

    # -- start and end

    async def start(self) -> None:
        """Start a fresh sandbox behind the same sockets, unless somebody just has. Raises StartError and leaves nothing
        behind; SandboxError when it is closed meanwhile."""
        self._pool.stir()
        async with self._life:
            if not (self._closed or self.alive):
                await self._end("ended by itself")
                await self._start()
        self._pool.stir()
        if self._closed:
            await self.end_instance("closed")
            raise self._closed_meanwhile()

    def stir(self) -> None:
        """A cell begins or has ended."""
        self._pool.stir()

    def _closed_meanwhile(self) -> SandboxError:
        return SandboxError(f"the sandbox '{self.name}' was closed while it started")

    async def _start(self) -> None:
        request = self._request()
        began = time.monotonic()
        try:
            await self._recover(request)
            self.place = await asyncio.get_running_loop().run_in_executor(None, place_of, self.effective.project)
            self._folders.hold()
            ready = await self._pool.take(request)
            if ready is None:
                instance = await self._backend.start(request)
                await self._attach(instance)
            else:
                instance = ready.instance
                instance.on_exit(lambda _status: remove_directory(ready.directory))
                self.relay.take(ready.back)
        except SandboxError as exc:
            if not self._closed:
                self.trail.after(events.SANDBOX_REFUSED, severity="warning", reason=exc.message)
            raise
        self.instance = instance
        self.started = time.time()
        self.watch.reset(instance)
        self._outputs.reset()
        instance.on_exit(functools.partial(self._on_exit, instance))
        instance.on_attempts(self._attempts.note)
        self.trail.after(
            events.SANDBOX_START,
            backend=self._backend.name,
            policy=self.effective.digest(),
            project=str(self.effective.project),
            seconds=round(time.monotonic() - began, 4),
            pooled=ready is not None,
            guarantees={name: list(layers) for name, layers in instance.guarantees.items()},
        )
        if not instance.alive():
            self._on_exit(instance, None)
        self._pool.want(request, self._folders)

    def _request(self) -> StartRequest:
        return StartRequest(self.name, self.effective, self._directory, self._page)

    async def _recover(self, request: StartRequest) -> None:
        """Before the sandbox takes anything in its writable folders for what has always been there."""
        done: list[str] = []
        try:
            await self._backend.recover(request, done)
        finally:
            done += self._pool.disarmed
            self._pool.disarmed.clear()
            self.trail.swept(done, ", left by a sandbox whose supervisor was killed")

    async def _attach(self, instance: Instance) -> None:
        """Connect the relay to a new kernel; a kernel that ends meanwhile is not waited for."""
        attach = asyncio.ensure_future(
            self.relay.attach(instance.endpoints.channels, instance.endpoints.key, _READY_SECONDS)
        )

        def stop_waiting(_status: int | None) -> None:
            attach.cancel()

        instance.on_exit(stop_waiting)
        self._attaching = attach
        if self._closed:
            attach.cancel()
        try:
            await attach
        except (asyncio.TimeoutError, asyncio.CancelledError) as exc:
            ended = not instance.alive()
            await instance.kill()
            await self.look_at_changes(instance)  # a module of the project may have run in it
            if self._closed:
                raise self._closed_meanwhile() from None
            if isinstance(exc, asyncio.CancelledError) and not ended:
                raise
            raise self._not_ready("ended" if ended else "did not answer", instance) from None
        finally:
            self._attaching = None

    def _not_ready(self, what: str, instance: Instance) -> StartError:
        memory = limit_rules.size(self.limits.memory, self.limits.memory)
        return StartError(
            f"the kernel in the sandbox {what} while it started; limits that are too low for Python itself "
            f"(memory {memory}, {self.limits.processes} processes) are a common reason",
            hint=instance.last_words().strip()[-1500:] or None,
        )

    def adopt(self, effective: Effective, resolve: Resolve, *, validate: bool) -> None:
        """Go on under a policy that decides the same about isolation: what it says of cells and outputs holds now."""
        self.effective, self.resolve, self.validate = effective, resolve, validate
        self.cleaner.show_html_as(effective.policy.output.html)

    async def living_instance(self) -> Instance:
        """The sandbox to run a cell in: a new one where the last has ended, which the user is told."""
        if not self.alive:
            await self.end_instance("ended by itself")
            await self.start()
            self.notices.append("This cell ran in a new sandbox: the variables of the one before it are lost.")
        assert self.instance is not None
        return self.instance

    async def close(self) -> None:
        """For good. One that starts or ends meanwhile, on another's order, has ended when this returns."""
        self._closed = True
        if self._attaching is not None:
            self._attaching.cancel()
        self.hurry()
        async with self._life:  # what another began has started or ended; from here on nothing starts
            await self._end("closed")
        await self.cells.answered(_REPLY_WAIT)  # its cell's reply is on the way
        self.cells.close()
        self.watch.close()
        self.relay.close()
        self._folders.close()
        with contextlib.suppress(OSError):
            self._directory.rmdir()

    async def end_instance(self, reason: str, which: Instance | None = None) -> None:
        """End ``which``, or the one there is now, whatever state it is in. One that another starts meanwhile lives."""
        self.hurry()
        which = which or self.instance
        async with self._life:
            if which is self.instance:
                await self._end(reason)

    async def _end(self, reason: str) -> None:
        """End the sandbox, if there is one; look at what it left, and answer who still waits for it. Only with
        ``_life``, as all that starts one: what is let go of here is this one's."""
        instance, self.instance = self.instance, None
        if instance is None:
            return
        if self.lives(instance) and self.cell is None and instance.untouched():
            # What the user has put into writable folders while nothing ran is not to be taken for its doing.
            with contextlib.suppress(SandboxError, OSError):
                await self.hide_new_names(instance)
                instance.newly_hidden()  # to the next sandbox they are not there at all
        await instance.kill()
        self.relay.detach()
        await self.relay.close_widgets()
        self.cells.ended()
        self._finish_others("the sandbox ended")
        await self.look_at_changes(instance)
        self._attempts.sum_up()
        by = self._killed_by if instance is self._condemned else ""
        how = "killed" if by else reason
        self.trail.after(events.SANDBOX_STOP, reason=how, by=by or None, changes=len(self._changes))

    def condemn(self, instance: Instance) -> None:
        """Kill it without waiting; whatever asks from now on finds it dead."""
        self._condemned, self._killed_by = instance, ""
        in_background(instance.kill())

    def lives(self, instance: Instance) -> bool:
        """Whether it runs and is to go on running."""
        return instance.alive() and instance is not self._condemned

    @property
    def alive(self) -> bool:
        return self.instance is not None and self.lives(self.instance)

    def _on_exit(self, instance: Instance, status: int | None) -> None:
        """The sandbox ended; if not on our order, then in the middle of a cell or between two."""
        if self.instance is not instance:
            return
        self.exit_status = status
        self.watch.wake()
        if self.cell is not None:
            self.cells.ended()
            return
        hit = limit_rules.enforced(self.limits, instance.enforced())
        if hit is not None:
            self.watch.end_between_cells(hit)
        in_background(self.end_instance("ended by itself", instance))

    async def restart(self) -> None:
        if self.cell is not None:
            self.cell.interrupted = True
        await self.end_instance("restarted")
        await self.start()

    async def kill(self, by: str = "") -> None:
        """End the sandbox at once. ``by``: one of ``KILLERS``, unless somebody has interrupted the cell before."""
        self.hurry()
        if self.cell is not None and not self.cell.interrupted:
            self.cell.killed_by = KILLERS.get(by, KILLERS[""])
        if self.instance is not None:
            self._condemned, self._killed_by = self.instance, KILLERS.get(by, KILLERS[""])
            if by and self.cell is None:  # a cell that it ends says so itself
                self.notices.append(f"The sandbox before this one was ended by {self._killed_by}, between two cells.")
            await self.instance.kill()

    def interrupt(self) -> None:
        self.hurry()
        cell = self.cell
        if cell is None or self.instance is None:
            return
        cell.interrupted = True
        self.instance.interrupt()
        self.kill_later(cell, _INTERRUPT_GRACE)

    def hurry(self) -> None:
        """The cell is to end: what it has shown so far is not paced any more."""
        left_out = self.relay.hurry()
        if left_out:
            self.notices.append(f"{left_out} outputs that came faster than a notebook takes them are not shown.")

    def kill_later(self, cell: Cell, seconds: float) -> None:
        """End the sandbox if ``cell`` has still not replied by then."""
        asyncio.get_running_loop().call_later(seconds, self._kill_if_running, cell)

    def _kill_if_running(self, cell: Cell) -> None:
        if self.cell is cell and cell.reply is None and self.instance is not None:
            self.condemn(self.instance)

    def fail(self, exc: BaseException) -> None:
        """Something of ours broke: end the sandbox rather than let it run unwatched, and say so."""
        self.notices.append(f"The supervisor failed ({type(exc).__name__}: {exc}) and ended the sandbox.")
        if self.instance is not None:
            self.condemn(self.instance)
        self.trail.after(events.SUPERVISOR_FAILED, severity="alert", error=type(exc).__name__, text=str(exc))

    # -- what the relay tells

    async def _on_shutdown(self, restart: bool) -> None:
        if restart:
            await self.restart()
        else:
            await self.end_instance("shutdown")

    def _on_question_refused(self, password: bool) -> None:
        """The code asks although nobody answers: it would wait until its time is over."""
        if self.cell is not None and self.instance is not None:
            what = "input that nobody can give"
            if self.effective.policy.output.stdin == "off":
                what = 'input, which the policy refuses (stdin = "off" under [output])'
            elif password:
                what = "a password, which no sandbox is given"
            self.notices.append(f"The code asked for {what}; it was interrupted.")
            self.instance.interrupt()

    def _finish_others(self, why: str) -> None:
        """Answer what the ended kernel no longer will."""
        for request in self.relay.waiting():
            content = {"status": "error", "ename": "SandboxDied", "evalue": why, "traceback": []}
            if request.type != "execute_request":  # a cell's reply is worded where it was run
                in_background(self.relay.reply(request, content))

    # -- files

    async def look_at_changes(self, instance: Instance) -> None:
        """Note what differs in the project, and disarm what was left in writable folders."""
        self._changes = instance.changes()
        self._armed = 0
        await self._sweep(instance)

    async def look_between_cells(self, instance: Instance) -> None:
        """What goes on between cells may lay a trap then, and lay it again: the second time it is ended."""
        now = time.monotonic()
        if self._sweeping.locked() or now < self._next_sweep:
            return
        self._next_sweep = math.inf
        try:
            if await asyncio.get_running_loop().run_in_executor(None, instance.untouched):
                return
            removed = await self._sweep(instance)
        finally:
            self._next_sweep = now + 10 * (time.monotonic() - now)  # a tenth of the time at most
        self._armed = self._armed + 1 if any(not isinstance(text, NotLookedAt) for text in removed) else 0
        if self._armed >= _MOST_ARMED and self.instance is instance and self.lives(instance):
            self.notices.append(
                "Such names came again between two cells, while the code went on: its sandbox was ended."
            )
            self.condemn(instance)

    async def hide_from_cell(self, instance: Instance) -> list[str]:
        """``hide_new_names`` before a cell, which is told what it finds empty."""
        unhidden = await self.hide_new_names(instance)
        names = [clean_text(name) for name in instance.newly_hidden()]
        if names:
            self.notices.append(_appeared(names))
        return unhidden

    async def hide_new_names(self, instance: Instance) -> list[str]:
        """As the instance's. Not while a sweep goes on, which may be about to disarm what would count as the user's."""
        async with self._sweeping:
            return await instance.hide_new_names()

    async def _sweep(self, instance: Instance) -> list[str]:
        async with self._sweeping:
            if instance.quick_to_sweep():
                removed = instance.sweep()
            else:
                removed = await asyncio.get_running_loop().run_in_executor(None, instance.sweep)
            self._written = instance.written()
        self.trail.swept(removed)
        return removed

    def recent_changes(self) -> tuple[list[Change], int]:
        """Some of those noted last, and how many there are; their paths are hostile text."""
        return self._changes[:_SHOWN_CHANGES], len(self._changes)

    def recently_written(self) -> tuple[list[str], int]:
        """Some of the files in writable folders that the sandbox wrote, and how many there are; hostile text too."""
        return self._written[0][:_SHOWN_CHANGES], self._written[1]

    # -- for people and programs

    def check(self, source: str) -> dict[str, Any]:
        code = self.effective.policy.code
        report = check(
            source,
            profile=code.profile,
            deny=code.deny,
            allow=code.allow,
            writable=self.effective.writable_names(),
        )
        return {**report.to_json(), "text": str(report)}

    def changes(self) -> list[Change]:
        """Their paths are hostile text: shown as such, they do nothing to a terminal or a page."""
        found = self.instance.changes() if self.instance is not None and self.instance.alive() else self._changes
        return [replace(change, path=self.cleaner.redactor.text(clean_text(change.path))) for change in found]

    def state(self) -> dict[str, Any]:
        alive = self.alive
        cell, usage = self.cell, self.watch.own_usage()
        return {
            "name": self.name,
            "state": "dead" if not alive else "busy" if cell else "idle",
            "backend": self._backend.name,
            "namespaces": self.instance is None or self.instance.namespaces,
            "pid": self.instance.pid if self.instance is not None else None,
            "notebook": self.notebook,
            "project": str(self.effective.project),
            "started": self.started,
            "cell": {
                "number": cell.number,
                "elapsed": round(time.monotonic() - cell.started, 3),
                "asks": cell.asked is not None,
            }
            if cell
            else None,
            "usage": {
                **asdict(usage if alive else replace(usage, memory=0, processes=0)),
                # Next to its limit, which is one cell's; the whole sandbox's beside it.
                "cpu": max(0.0, usage.cpu - cell.cpu_before) if cell else self.watch.cpu_between_cells,
                "cpu_total": usage.cpu,
                "memory_peak": self.watch.peak_memory,
                "output": cell.output if cell else 0,
            },
            # What holds now: a cell may have its own for its time.
            "limits": {k: v for k, v in asdict(cell.limits if cell else self.limits).items() if k != "gpu"},
            "guarantees": {k: list(v) for k, v in self.instance.guarantees.items()} if self.instance else {},
            "weaker": dict(self.instance.weaker) if self.instance else {},
            "start": self._start_state(),
            "last": self.cells.last,
        }

    def _start_state(self) -> dict[str, Any]:
        """How the next one of this policy would start."""
        return {
            "mode": self.effective.policy.start.mode,
            "not_loaded": dict(self._backend.not_loaded(self.effective)),
            "pool": self._pool.waiting(self._request()),
        }


def _appeared(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} has appeared and its name is hidden by files.hide: inside it reads as empty."
    more = f" and {len(names) - _SHOWN_NEW_NAMES} more" if len(names) > _SHOWN_NEW_NAMES else ""
    listed = ", ".join(names[:_SHOWN_NEW_NAMES]) + more
    return f"{listed} have appeared and their names are hidden by files.hide: inside they read as empty."
