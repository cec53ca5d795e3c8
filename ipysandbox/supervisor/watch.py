"""Measures one sandbox again and again, and ends what goes over a limit."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ipysandbox.audit import events
from ipysandbox.backends.base import Instance, Uncountable, Usage

from . import limits as limit_rules
from .background import Alarm, in_background
from .cells import Cell
from .limits import LimitHit

if TYPE_CHECKING:
    from .managed import Managed

#: How often usage is read: while something runs, and while nothing does but a kernel that waits.
BUSY_SECONDS, _IDLE_SECONDS = 0.05, 0.5
#: Meters that were read so short a time ago need not be read again before a cell.
_JUST_NOW = 0.03
#: From this share of a processor on, something runs.
_RUNS_FROM = 0.05
#: From the interrupt that a limit on time sends to the kill.
_LIMIT_GRACE = 1.5
#: Below this share of the limit the quick figure for memory is good enough.
EXACT_ABOVE = 0.5
#: What one processor can fill in a second (bytes): zeroed pages of 2 MiB on a fast machine, measured at 3 to 4 GB.
FILL_RATE = 4 << 30
#: What can be written to files in a second (bytes), as long as it goes into the kernel's cache.
WRITE_RATE = 2 << 30
#: Between two looks at least, and at least so many times what a look takes: watching must not be the work.
SOONEST, COST_FACTOR = 0.005, 5
#: After a cell that went over its limit on cpu time, what goes on computing gets this share of it, in seconds at least.
_AFTER_CPU, _AFTER_CPU_LEAST = 0.05, 0.2
#: Where what a sandbox holds on disk can't be counted.
HIDDEN = (
    "limit on disk space: a process in the sandbox hid which files it holds open, or kept its memory from being looked "
    "at; what it holds can't be counted. To allow more: start only programs that may be read as well as run."
)


class Watch:
    """The watchdog of one sandbox, through all its restarts."""

    def __init__(self, box: Managed) -> None:
        self._box = box
        self.usage = Usage()
        self.peak_memory = 0
        self._cpu_at_end = 0.0
        self._cost = 0.0
        #: Whether something went on between the last two looks, and when the last one was.
        self._runs, self._looked = False, 0.0
        #: In a sandbox that has only begun.
        self._first_processes = 0
        self._first = Usage()
        #: The last cell went over its limit on cpu time.
        self._overdrawn = False
        self._told: Instance | None = None
        self._wake = Alarm()
        self._looks_at_once = True
        self._task = asyncio.ensure_future(self._run())

    def reset(self, instance: Instance) -> None:
        """A new sandbox; what its start has used is nobody's."""
        self.usage, self._overdrawn, self._looked = Usage(), False, 0.0
        with contextlib.suppress(ProcessLookupError, PermissionError, Uncountable):
            self.usage = instance.measure(brief=True)
        self._first, self.peak_memory = self.usage, self.usage.memory
        self._cpu_at_end, self._first_processes = self.usage.cpu, self.usage.processes

    def own_usage(self) -> Usage:
        """Without the files that a sandbox begins with, which are no code's."""
        first, now = self._first, self.usage
        return replace(now, disk=max(0, now.disk - first.disk), files=max(0, now.files - first.files))

    @property
    def first_memory(self) -> int:
        """Bytes that the sandbox held when it began."""
        return self._first.memory

    def wake(self) -> None:
        """Look now: something has ended."""
        self._looks_at_once = True
        self._wake.set()

    def began(self) -> None:
        """A cell, just after the meters were read: look again as soon as that asks for, not at once."""
        self._looks_at_once = self._wake.is_set()
        self._wake.set()

    def close(self) -> None:
        self._task.cancel()

    def begin(self, cell: Cell, instance: Instance) -> None:
        """Read the meter of time before ``cell`` runs: what was used before is not its own."""
        cell.cpu_before, cell.held = self.usage.cpu, self.usage.memory
        if time.monotonic() - self._looked > _JUST_NOW:
            with contextlib.suppress(ProcessLookupError):
                cell.cpu_before = instance.cpu()

    async def end(self, cell: Cell, instance: Instance) -> bool:
        """Read the meters after ``cell``, and name what ended it; whether the sandbox lives."""
        alive = instance.alive()
        try:
            self._note(cell, instance.measure(brief=True))
        except ProcessLookupError:
            alive = False
        except (PermissionError, Uncountable) as exc:
            self._end_uncounted(instance, exc)
        hit = limit_rules.enforced(cell.limits, instance.enforced())
        if hit is not None:
            cell.hit = cell.hit or hit
            await instance.kill()  # it has lost a process
        return alive and self._box.lives(instance)

    @property
    def cpu_between_cells(self) -> float:
        """Seconds that went on after the last cell."""
        return max(0.0, self.usage.cpu - self._cpu_at_end)

    def between_cells(self, ended: Cell) -> None:
        """From now on cpu time counts against nobody's cell."""
        self._cpu_at_end = self.usage.cpu
        self._overdrawn = ended.hit is not None and ended.hit.name == "cpu"

    async def _run(self) -> None:
        due = math.inf
        while True:
            self._wake.clear()
            self._looks_at_once = True
            now = time.monotonic()
            due = min(due, now + self._pause())  # many short cells, one after the other, put no look off
            if await self._wake.wait(due - now) and not self._looks_at_once:
                continue
            due = math.inf
            instance = self._box.instance
            if instance is not None and instance.alive():
                try:
                    if self._box.cell is None and instance.at_rest():
                        self._looked, self._runs = time.monotonic(), False
                        continue  # what it holds has not changed
                    self._look(instance, self._box.cell)
                    if self._box.cell is None:
                        in_background(self._box.look_between_cells(instance))
                except ProcessLookupError:
                    continue  # it ended between two looks
                except (PermissionError, Uncountable) as exc:
                    self._end_uncounted(instance, exc)
                except Exception as exc:  # noqa: BLE001 - what can't be measured must not run
                    self._box.fail(exc)

    def _pause(self) -> float:
        """Until the next look (seconds): sooner where what is left of memory or disk could be filled by then."""
        cell, instance = self._box.cell, self._box.instance
        # What an earlier cell has left may fill memory as fast as a cell.
        left_behind = self._runs or self.usage.processes > self._first_processes
        if cell is None and not (left_behind or self._overdrawn):
            # All idle sandboxes at the same moments: to wake up costs more than to look.
            return _IDLE_SECONDS - time.monotonic() % _IDLE_SECONDS
        limits = cell.limits if cell else self._box.limits
        full = (limits.disk - self.usage.disk) / WRITE_RATE
        if instance is not None and "memory" not in instance.bounded:
            full = min(full, (limits.memory - self.usage.memory) / (FILL_RATE * max(1.0, limits.cpus)))
        return min(BUSY_SECONDS, max(SOONEST, full, COST_FACTOR * self._cost))

    def _look(self, instance: Instance, cell: Cell | None) -> None:
        """Measure once, and end what is over a limit. Raises ProcessLookupError when the sandbox has ended."""
        limits = cell.limits if cell else self._box.limits
        instance.exact_above(int(limits.memory * EXACT_ABOVE), limits.memory)
        began = time.monotonic()
        usage = instance.measure()
        self._cost = time.monotonic() - began
        self._note(cell, usage)
        wall = cell.wall() if cell else None
        # Between cells, threads and forged replies may go on computing: they have what one cell has.
        cpu = usage.cpu - (cell.cpu_before if cell else self._cpu_at_end)
        if cell is None and self._overdrawn and cpu > max(_AFTER_CPU_LEAST, _AFTER_CPU * limits.cpu):
            cpu += limits.cpu
        hit = limit_rules.enforced(limits, instance.enforced())
        hit = hit or limit_rules.exceeded(limits, usage, cpu=cpu, wall=wall)
        if hit is None:
            return
        soft = hit.name in ("wall", "cpu")
        if cell is None:
            self.end_between_cells(hit)
        elif cell.hit is None:
            self.stop(cell, hit, soft=soft)
        elif not soft:
            self._box.condemn(instance)  # within the time that another limit's interrupt was given

    def _note(self, cell: Cell | None, usage: Usage) -> None:
        now = time.monotonic()
        self._runs = usage.cpu - self.usage.cpu > _RUNS_FROM * (now - self._looked)
        self._looked = now
        self.usage = usage
        self.peak_memory = max(self.peak_memory, usage.memory)
        if cell is not None:
            cell.peak_memory = max(cell.peak_memory, usage.memory)
            cell.peak_processes = max(cell.peak_processes, usage.processes)

    def stop(self, cell: Cell, hit: LimitHit, *, soft: bool) -> None:
        """End the cell: time and output by an interrupt first, since the variables may be worth keeping."""
        cell.hit, cell.held = hit, self.usage.memory
        instance = self._box.instance
        if instance is None:
            return
        if soft:
            instance.interrupt()
            self._box.kill_later(cell, 0.0 if instance.deaf() else _LIMIT_GRACE)
        else:
            self._box.condemn(instance)

    def end_between_cells(self, hit: LimitHit) -> None:
        """End the sandbox and tell why, once however often it is seen."""
        instance = self._box.instance
        if instance is not None:
            if instance is self._told:
                return
            self._told = instance
            self._box.condemn(instance)
        text = hit.text.replace(": the cell ", ": what went on after the last cell ")
        self._box.notices.append(f"Between cells the sandbox went over its {text}")
        self._box.trail.after(
            events.LIMIT_HIT, severity="warning", limit=hit.name, value=hit.value, observed=hit.observed
        )

    def _end_uncounted(self, instance: Instance, why: PermissionError | Uncountable) -> None:
        """A process made itself unreadable (by running a program it may not read), or there are too many files: what it
        has on disk can't be counted."""
        if not self._box.lives(instance):
            return  # killed for another reason, which is the one to tell
        if isinstance(why, Uncountable):
            hit = limit_rules.uncountable(why)
        else:
            hit = replace(limit_rules.hit("disk", self._box.limits.disk, None), text=HIDDEN)
        cell = self._box.cell
        if cell is not None and cell.hit is None:
            cell.hit = hit
        else:
            self._box.notices.append(f"The sandbox was ended by its {hit.text}")
            self._box.trail.after(
                events.LIMIT_HIT, severity="warning", limit=hit.name, value=hit.value, observed=hit.observed
            )
        self._box.condemn(instance)
