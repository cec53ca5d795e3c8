"""Runs the cells of one sandbox one at a time: checks, records, forwards, waits, and words the one reply to each."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ipysandbox.audit import events
from ipysandbox.backends.base import Instance
from ipysandbox.errors import PolicyError, SandboxError
from ipysandbox.output import clean_text
from ipysandbox.policy.model import Limits

from . import limits as limit_rules
from .full_text import FullText, Kept
from .late_text import LateText
from .limits import LimitHit
from .relay import is_paced
from .wire import Message

if TYPE_CHECKING:
    from .managed import Managed

#: Between the kernel's reply and its next output or "idle", which may overtake each other on two sockets (seconds).
_IDLE_WAIT = 1.0
#: Characters of code that are checked without leaving the event loop: a few milliseconds.
_CHECKED_HERE = 2000
#: For what was printed beyond the limit and belongs into a file (seconds).
_REST_WAIT = 5.0
#: Far above any notebook's; what the kernel keeps by number has a place for each before.
_MOST_NUMBER = 1_000_000
_LAST_WORDS = 1500


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
    #: Who ended the whole sandbox meanwhile, in words; empty if nobody did.
    killed_by: str = ""
    reply: Message | None = None
    #: Whether the time in which a question waits is not the cell's.
    patient: bool = False
    #: Since when a question of it waits for its reader, and how long those did that are answered (seconds).
    asked: float | None = None
    waited: float = 0.0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    #: Whose words its user knows.
    words: limit_rules.Words = "options"
    #: Bytes that the sandbox held when its cell began, and then when it met a limit.
    held: int = 0
    peak_memory: int = 0
    peak_processes: int = 0
    #: All that it prints, for when that is too much to show.
    text: FullText | None = None
    kept: Kept | None = None

    def wall(self) -> float:
        """Seconds that it took so far, without those that somebody takes to answer it."""
        now = time.monotonic()
        waits = self.waited + (now - self.asked if self.asked is not None else 0.0)
        return now - self.started - (waits if self.patient else 0.0)


def _number(metadata: Mapping[str, Any]) -> int:
    """The cell's number in its notebook; 0 if nobody says so."""
    number = metadata.get("number")
    return number if type(number) is int and 0 < number <= _MOST_NUMBER else 0


@dataclass(frozen=True)
class _Outcome:
    """How a cell ended, in words: ``error`` is what stands for the exception where the kernel gave none."""

    status: str
    error: tuple[str, str] | None = None
    #: What a failure has to do with the sandbox's walls, where that is known here; one line.
    hint: str = ""


def _how(status: int | None) -> str:
    """How the kernel's process ended. Its sandbox says so itself: words for people, and nothing else."""
    if status is None or status == 0:
        return ": its process ended itself" if status == 0 else ""
    if status > 0:
        return f": its process ended itself with status {status}"
    try:
        return f": its process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f": its process was ended by signal {-status}"


class Cells:
    """The queue of one sandbox; at most one cell runs."""

    def __init__(self, box: Managed) -> None:
        self._box = box
        self.running: Cell | None = None
        #: Of a cell that was cut for its output: the request, while more of it may be on the way.
        self.cut: str | None = None
        #: What earlier cells' threads and tasks have printed that nobody was there to show.
        self.late = LateText()
        self.last: dict[str, Any] | None = None
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._run_all())
        box.relay.on_execute = self._queue.put
        box.relay.on_execute_reply = self._on_reply
        box.relay.on_idle = self._on_idle
        box.relay.stdin_allowed = self._stdin_allowed
        box.relay.on_question = self._on_question
        box.relay.on_answer = self._on_answer

    def ended(self) -> None:
        """The sandbox has ended: so has its cell."""
        if self.running is not None:
            self.running.done.set()

    async def answered(self, seconds: float) -> None:
        """Wait until no cell waits for its reply, at most so long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._none.wait(), seconds)

    def close(self) -> None:
        self._task.cancel()

    # -- what the relay tells

    def _on_reply(self, request: Message, message: Message) -> None:
        cell = self.running
        if cell is not None and request.id == cell.request.id and cell.reply is None:
            cell.reply = message
            cell.done.set()

    def _on_idle(self, request: Message) -> None:
        if request.id == self.cut:
            self.cut = None
        if self.running is not None and request.id == self.running.request.id:
            self.running.idle.set()

    def _stdin_allowed(self, parent_id: str) -> bool:
        cell = self.running
        if cell is None or parent_id != cell.request.id or self._box.effective.policy.output.stdin == "off":
            return False
        return bool(cell.request.content.get("allow_stdin"))

    def _on_question(self, request: Message) -> None:
        cell = self.running
        if cell is not None and request.id == cell.request.id and cell.asked is None:
            cell.asked = time.monotonic()

    def _on_answer(self) -> None:
        cell = self.running
        if cell is not None and cell.asked is not None:
            cell.waited += time.monotonic() - cell.asked
            cell.asked = None

    # -- one after the other

    async def _run_all(self) -> None:
        while True:
            message = await self._queue.get()
            try:
                await self._run(message)
            except asyncio.CancelledError:
                raise
            except PolicyError as exc:  # an option of this cell; the sandbox is as it was
                await self._answer(message, "refused", error=(type(exc).__name__, str(exc)))
            except SandboxError as exc:
                await self._answer(message, "died", error=(type(exc).__name__, str(exc)), alive=False)
            except Exception as exc:  # noqa: BLE001 - ours; the sandbox must not go on unwatched, nor the cell hang
                self._box.fail(exc)
                text = f"the supervisor failed ({type(exc).__name__}: {exc}); please report this"
                await self._answer(message, "died", error=("SandboxDied", text), alive=False)

    async def _run(self, message: Message) -> None:
        self._box.stir()
        source = message.content.get("code")
        if not isinstance(source, str):
            await self._answer(message, "refused", error=("TypeError", "execute_request without code"))
            return
        options = message.metadata.get("ipysandbox")
        options = options if isinstance(options, dict) else {}
        overrides = options.get("overrides")
        effective = self._box.resolve(overrides) if overrides else self._box.effective
        code_hash = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
        if not message.content.get("silent"):
            self._count = _number(message.metadata) or self._count + 1
        # Before it runs: what can't be recorded is not run (AuditError).
        self._box.trail.before(events.CELL_SUBMITTED, number=self._count, sha256=code_hash, bytes=len(source))
        await self._box.relay.publish("status", {"execution_state": "busy"}, message)
        if not await self._passes_the_check(message, source, options):
            return
        instance = await self._ready_instance()
        limits = effective.policy.limits
        cell = Cell(message, self._count, limits, text=FullText(self._box.name, self._count, limits))
        cell.patient = options.get("patient") is True
        cell.words = "python" if options.get("words") == "python" else "options"
        await self._carry_out(cell, instance)
        await self._finish(cell, instance)

    async def _ready_instance(self) -> Instance:
        """A sandbox that lives, with what came to the project since then hidden from it."""
        while True:
            instance = await self._box.living_instance()
            unhidden = await self._box.hide_from_cell(instance)
            if unhidden:
                raise SandboxError(
                    f"these new files can't be hidden from the sandbox: {', '.join(unhidden[:5])}; restart it"
                )
            if self._box.instance is instance and self._box.lives(instance):  # or it was ended meanwhile
                return instance

    async def _passes_the_check(self, message: Message, source: str, options: Mapping[str, Any]) -> bool:
        """Read the code first, where that was asked for; a refusal is answered."""
        if not (self._box.validate and options.get("validate", True)):
            return True
        if len(source) <= _CHECKED_HERE:
            report = self._box.check(source)
        else:
            report = await asyncio.get_running_loop().run_in_executor(None, self._box.check, source)
        if report["verdict"] == "ok":
            return True
        rules = [finding["rule"] for finding in report["findings"] if finding["severity"] == "refuse"]
        self._box.trail.after(
            events.CHECK_VERDICT, severity="warning", number=self._count, verdict="refused", rules=rules[:50]
        )
        await self._answer(message, "refused", error=("CheckRefused", report["text"]), findings=report["findings"])
        return False

    async def _carry_out(self, cell: Cell, instance: Instance) -> None:
        """Send the cell to the kernel and wait until it replies, or ends."""
        self._box.watch.begin(cell, instance)
        self.running = cell
        self._none.clear()
        self._box.watch.began()
        await self._show_late(cell)
        sent = await self._box.relay.forward("shell", cell.request)
        if not sent and self._box.lives(instance):
            # Nothing would ever answer, and nothing would end the wait but a limit.
            self._box.fail(ConnectionError("the sandbox lives, but is connected to nothing"))
        if not sent or not instance.alive():
            cell.done.set()
        await cell.done.wait()
        # Its reply is in; what it printed may be on its way yet, for as long as it comes.
        heard, until = -1, time.monotonic() + _REST_WAIT
        while cell.reply and not cell.idle.is_set() and heard != self._box.relay.heard:
            if cell.hit and (cell.hit.name != "output" or time.monotonic() > until):
                break
            heard = self._box.relay.heard
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(cell.idle.wait(), _IDLE_WAIT)

    async def _finish(self, cell: Cell, instance: Instance) -> None:
        """Look at what the cell left, and send the one reply."""
        alive = await self._box.watch.end(cell, instance)
        await self._show_late(cell)
        content = await self._box.relay.clean("execute_reply", cell.reply.content) if cell.reply else None
        pager = self._box.cleaner.pager_text(cell.reply.content) if cell.reply else None
        if pager and "ipysandbox" in cell.request.metadata:  # our own doors have no pager
            shown = {"name": "stdout", "text": pager}
            self._box.relay.on_text(cell.request, shown)
            await self._box.relay.publish("stream", shown, cell.request)
        elif pager and content:
            content["payload"] = [{"source": "page", "data": {"text/plain": pager}, "start": 0}]
        outcome = self._outcome(cell, content, instance)
        self._keep_text(cell)
        if outcome.status not in ("ok", "error"):
            self._box.hurry()
        self.running = None
        if cell.hit is not None and cell.hit.name == "output" and not cell.idle.is_set():
            self.cut = cell.request.id
        self._box.watch.between_cells(cell)
        if alive:
            await self._box.look_at_changes(instance)
        elif self._box.instance is instance:
            await self._box.end_instance("killed" if cell.killed_by else outcome.status)
        if cell.hit is not None:
            self._box.trail.after(
                events.LIMIT_HIT, severity="warning", number=cell.number, limit=cell.hit.name, value=cell.hit.value,
                observed=cell.hit.observed, ended=not alive,
            )  # fmt: skip
        await self._answer(
            cell.request,
            outcome.status,
            error=outcome.error,
            content=content,
            cell=cell,
            alive=alive,
            hint=outcome.hint,
        )

    async def _show_late(self, cell: Cell) -> None:
        """Under this cell, marked, if a notebook shows it; in a program's result it would be taken for the cell's."""
        await self._box.relay.release()
        if "ipysandbox" not in cell.request.metadata:
            return
        if is_paced(cell.request):
            text = self._box.cleaner.redactor.text(self.late.take())  # both streams' are in one now
            if text:
                shown = {"name": "stdout", "text": text}
                self._box.relay.on_text(cell.request, shown)
                await self._box.relay.publish("stream", shown, cell.request)
        elif notice := self.late.take_notice():
            self._box.notices.append(notice)

    def _keep_text(self, cell: Cell) -> None:
        """Finish the file with all that the cell printed, where there is one, and say so where a limit cut it."""
        if cell.text is None:
            return
        cell.kept = cell.text.finish()
        if cell.text.problem:
            self._box.notices.append(cell.text.problem)
        elif cell.kept is not None and cell.hit is not None and cell.hit.name == "output":
            self._box.notices.append(f"{cell.kept}.")

    def _outcome(self, cell: Cell, content: Mapping[str, Any] | None, instance: Instance) -> _Outcome:
        """Word how the cell ended. ``content``: the kernel's reply, if there was one."""
        if cell.hit is not None:
            return self._limited(cell, cell.hit)
        if cell.killed_by and content is None:
            return _Outcome(
                "died", ("SandboxDied", f"the sandbox was ended by {cell.killed_by}; its variables are lost")
            )
        if cell.interrupted and (content is None or content.get("status") != "ok"):
            return _Outcome("interrupted", ("KeyboardInterrupt", "interrupted"))
        if content is None:
            return self._died(cell, instance)
        if content.get("status") == "ok":
            return _Outcome("ok")
        hit = limit_rules.from_error(cell.limits, str(content.get("ename")), str(content.get("evalue")))
        return _Outcome("error") if hit is None else replace(self._limited(cell, hit), error=None)

    def _limited(self, cell: Cell, hit: LimitHit) -> _Outcome:
        """With the limit in the user's words; and memory named where that was behind a limit on time, or is short from
        now on."""
        hint = ""
        if hit.name in ("wall", "cpu"):
            hint = limit_rules.memory_cause(cell.limits, cell.held)
        elif hit.name == "memory" and self._box.alive:
            held, before = self._box.watch.own_usage().memory, self._box.watch.first_memory
            hint = limit_rules.memory_left(cell.limits, held, before, self._box.name, cell.words)
        if hint and hit.name != "memory":
            cell.hit = limit_rules.for_want_of_memory(hit, cell.limits, hint, cell.words)
        else:
            cell.hit = limit_rules.in_words(hit, cell.words)
        return _Outcome("limit", ("LimitExceeded", cell.hit.text), hint)

    def _died(self, cell: Cell, instance: Instance) -> _Outcome:
        words, status = instance.last_words().strip()[-_LAST_WORDS:], self._box.exit_status
        text = f"the sandbox ended in the middle of the cell{_how(status)}; its variables are lost"
        # Not what is measured now: its process may have gone before the rest.
        held = max(cell.held, cell.peak_memory)
        cause = limit_rules.memory_cause(cell.limits, held) if status != 0 else ""
        if cause:
            text += f". {limit_rules.died_for_want_of_memory(cell.limits, cause, cell.words)}"
        return _Outcome("died", ("SandboxDied", f"{text}\n{words}" if words else text), cause)

    # -- the reply

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
        hint: str = "",
    ) -> None:
        if content is None or (content.get("status") == "ok" and status != "ok"):
            content = self._redacted(self._error_content(*(error or ("SandboxError", status))))
            if status in ("refused", "died"):
                shown = {k: content[k] for k in ("ename", "evalue", "traceback")}
                await self._box.relay.publish("error", shown, request)
        usage = self._usage(cell) if cell else {}
        await self._box.relay.drained()
        changes, total = self._box.recent_changes()
        written, written_total = self._box.recently_written()
        outcome = {
            "status": status,
            "number": self._count,
            "limit": cell.hit.to_json() if cell and cell.hit else None,
            "usage": usage,
            "findings": findings or [],
            "notices": self._take_notices(),
            "hint": hint,
            "state_kept": alive,
            "changes": [asdict(replace(change, path=clean_text(change.path))) for change in changes],
            "changes_total": total,
            "written": [clean_text(path) for path in written],
            "written_total": written_total,
            "printed": {"path": str(cell.kept.path), "whole": cell.kept.whole} if cell and cell.kept else None,
        }
        outcome = self._redacted(outcome)
        self.last = {k: outcome[k] for k in ("status", "number", "limit", "usage")}
        self._box.trail.after(events.CELL_RESULT, number=self._count, status=status, usage=outcome["usage"])
        await self._box.relay.reply(request, content, metadata={"ipysandbox": outcome})
        self._none.set()
        self._box.stir()

    def _redacted(self, said: dict[str, Any]) -> dict[str, Any]:
        """File names, notices and last words are a sandbox's to choose."""
        redacted: dict[str, Any] = self._box.cleaner.redactor.value(said)
        return redacted

    def _error_content(self, ename: str, evalue: str) -> dict[str, Any]:
        """An error reply of ours, where the kernel has sent none that says what happened."""
        return {
            "status": "error",
            "execution_count": self._count,
            "ename": ename,
            "evalue": clean_text(evalue),
            "traceback": [clean_text(f"{ename}: {evalue}")],
            "payload": [],
            "user_expressions": {},
        }

    def _take_notices(self) -> list[str]:
        """What the user has to be told with this reply, each line once."""
        notices, relay, cleaner = self._box.notices, self._box.relay, self._box.cleaner
        notices += cleaner.notes
        cleaner.notes.clear()
        if relay.dropped:
            notices.append(f"{relay.dropped} malformed or unasked messages from the sandbox were dropped.")
            relay.dropped = 0
        taken = [*dict.fromkeys(notices)][:50]
        notices.clear()
        return taken

    def _usage(self, cell: Cell) -> dict[str, float]:
        usage = self._box.watch.usage
        return {
            "wall": round(time.monotonic() - cell.started, 4),
            "cpu": round(max(0.0, usage.cpu - cell.cpu_before), 3),
            "memory_peak": cell.peak_memory,
            "processes_peak": cell.peak_processes,
            "disk": usage.disk,
            "files": usage.files,
            "output": cell.output,
        }
