"""Measures the running tasks of one executor again and again, all in one pass, and ends what goes over a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ipysandbox.backends.base import Uncountable
from ipysandbox.backends.linux.task_room import TaskRoom, written_by

from . import limits as limit_rules
from .task_run import TaskRun, over_output
from .watch import BUSY_SECONDS, COST_FACTOR, EXACT_ABOVE, FILL_RATE, HIDDEN, SOONEST, WRITE_RATE

#: Of what a shared folder has grown by, so much one task must have written by its own count to be ended alone for it:
#: what the count does not see (fallocate, memory that is mapped) is then too little for the limit of another.
_EXPLAINS = 0.75
#: Between two looks, however long one takes.
_LATEST_SECONDS = 0.25
_TOGETHER = (
    " It could not be told which of them it was: all that ran at the time were ended, this one too, whether it had a "
    "part in it or not."
)
_MOST_WRITTEN = " This one had written most."


class TaskWatch:
    """``stop`` ends a task; ``failed`` is told what can't be measured, and ends all."""

    def __init__(
        self,
        room: TaskRoom,
        running: Mapping[int, TaskRun],
        stop: Callable[[TaskRun], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._room, self._running, self._stop, self._failed = room, running, stop, failed
        self._began = asyncio.Event()
        self._cost = 0.0
        self._bytes = self._files = 0
        self._task = asyncio.ensure_future(self._run())

    def begin(self, run: TaskRun) -> None:
        run.folder_bytes, run.folder_files = self._bytes, self._files
        others = [other for other in self._running.values() if other is not run]
        for one in (run, *others) if others else ():
            one.shared = True
        self._began.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._began.wait()
            await asyncio.sleep(self._pause(self._running.values()))
            if not self._running:
                self._began.clear()
                continue
            began = time.monotonic()
            self._room.touch()
            for run in [*self._running.values()]:
                self._look(run)
            try:
                self._look_at_folders()
            except Uncountable as exc:
                for run in self._running.values():
                    self._end_uncountable(run, exc)
            except Exception as exc:  # noqa: BLE001 - what can't be measured must not run
                self._failed(exc)
            self._cost = time.monotonic() - began

    def _pause(self, running: Iterable[TaskRun]) -> float:
        """Until the next look (seconds): sooner where what is left of memory or disk could be filled by then."""
        soonest = BUSY_SECONDS
        for run in running:
            limits, instance = run.limits, run.instance
            soonest = min(soonest, (limits.disk - run.usage.disk) / WRITE_RATE, max(0.0, limits.wall - run.wall))
            if instance is not None and "memory" not in instance.bounded:
                soonest = min(soonest, (limits.memory - run.usage.memory) / (FILL_RATE * max(1.0, limits.cpus)))
        return max(SOONEST, soonest, min(_LATEST_SECONDS, COST_FACTOR * self._cost))

    def _look(self, run: TaskRun) -> None:
        instance = run.instance
        if instance is None or not instance.alive() or run.hit is not None:
            return
        limits = run.limits
        instance.exact_above(int(limits.memory * EXACT_ABOVE), limits.memory)
        try:
            usage = instance.measure()
        except ProcessLookupError:
            return
        except PermissionError:
            run.hit = replace(limit_rules.hit("disk", limits.disk, None), text=HIDDEN)
            self._stop(run)
            return
        except Uncountable as exc:
            self._end_uncountable(run, exc)
            return
        except Exception as exc:  # noqa: BLE001 - what can't be measured must not run
            self._failed(exc)
            return
        run.usage = usage
        run.peak_memory = max(run.peak_memory, usage.memory)
        run.hit = limit_rules.enforced(limits, instance.enforced())
        run.hit = run.hit or limit_rules.exceeded(limits, usage, cpu=usage.cpu, wall=run.wall)
        run.hit = run.hit or over_output(limits, instance)
        if run.hit is not None:
            self._stop(run)

    def _look_at_folders(self) -> None:
        """Writable folders are shared by all. When they have grown by more than the limit in the time of any task that
        runs, who did it is ended; and what is left there counts for none of the others."""
        limits = self._room.effective.policy.limits
        inits = [run.instance.pid for run in self._running.values() if run.instance is not None]
        rows = self._room.count(limit_rules.files_allowed(limits), inits)
        self._bytes, self._files = sum(row[0] for row in rows), sum(row[1] for row in rows)
        running = [run for run in self._running.values() if run.instance is not None and run.hit is None]
        over = [(run, hit) for run in running if (hit := self._grown(run)) is not None]
        if not over:
            return
        worst = max((hit for _, hit in over), key=lambda hit: hit.observed or 0)
        for run, more in self._guilty(running, worst).items():
            run.hit = replace(worst, text=_of_all(worst.text) + more) if more else worst
            self._stop(run)
        for run in self._running.values():
            run.folder_bytes, run.folder_files = self._bytes, self._files
            run.written = _written(run)

    def _end_uncountable(self, run: TaskRun, why: Uncountable) -> None:
        if run.instance is not None and run.hit is None:
            run.hit = limit_rules.uncountable(why)
            self._stop(run)

    def _guilty(self, running: list[TaskRun], hit: limit_rules.LimitHit) -> dict[TaskRun, str]:
        """Those to end, and what more to say. A file does not tell who wrote it. A task's own count does, but for what
        it leaves out: where that is not little, all that may have done it are ended, so that who did is among them."""
        if len(running) == 1 and not running[0].shared:
            return {running[0]: ""}
        counts = {run: _written(run) - run.written for run in running}
        most = max(running, key=counts.__getitem__)
        if hit.name == "disk" and counts[most] >= _EXPLAINS * (hit.observed or 0):
            return {most: _MOST_WRITTEN}
        return {run: _TOGETHER for run in running if self._bytes > run.folder_bytes or self._files > run.folder_files}

    def _grown(self, run: TaskRun) -> limit_rules.LimitHit | None:
        disk, files = self._bytes - run.folder_bytes, self._files - run.folder_files
        if disk > run.limits.disk:
            return limit_rules.hit("disk", run.limits.disk, disk)
        most = limit_rules.files_allowed(run.limits)
        return limit_rules.hit("files", most, files) if files > most else None


def _of_all(text: str) -> str:
    """The sentence is one sandbox's."""
    text = text.replace(": the sandbox ", ": the tasks that share the writable folders together ")
    return text.replace(", its limit ", ", the limit ")


def _written(run: TaskRun) -> int:
    """What lies in its own folder for temporary files, and what it has printed, is none of the shared folders'."""
    instance = run.instance
    if instance is None:
        return 0
    return max(0, written_by(instance.pid) - run.usage.disk - instance.out.count - instance.err_count)
