"""One running Linux sandbox, seen from the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import select
import signal
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ipysandbox import reach
from ipysandbox.backends.attempt import Attempt
from ipysandbox.backends.base import Change, Endpoints, Instance, Usage
from ipysandbox.errors import StartError
from ipysandbox.output import clean_text
from ipysandbox.policy.links import within

from . import left_behind, processes, whereabouts
from .attempts import Attempts
from .changed import changes, writable_overlays
from .confined_plan import ConfinedPlan
from .disks import Disks, writable
from .folders import SWAPPED, FilesChanged
from .gpu import Cards, Meter
from .groups import Group, Used
from .holdings import Descriptors, Holdings
from .layout import Spent
from .left_behind import Record
from .memory import Memory, of_descriptors, of_mappings, of_sockets
from .plan import Plan
from .still import held_still
from .unseen import Unseen
from .writable import HELD_SECONDS, WritableFolder, sweep_all

if TYPE_CHECKING:
    from .zygotes import Zygote

_LOG_BYTES = 64 << 10
_REPORT_BYTES = 1 << 20
#: The monitor answers in a millisecond; it is a process of ours and waits for nothing else.
_COVER_SECONDS = 10.0
_QUICK_LOOK = 0.25
#: A sweep of so many entries takes a few milliseconds.
_QUICK_ENTRIES = 300
#: The search gives up by itself before that, unless the file system no longer answers.
_LOOK_SECONDS = 8.0
_KILL_SECONDS = 10.0
#: How old what processes hold open may be at a cell's end: the next look is not far.
_BRIEF_SECONDS = 0.5
#: Any change of a file system is a reason to count what lies there.
_AT_ONCE = -(1 << 62)
_COUNT_ANEW_SECONDS = 0.25
#: From init's end to the monitor's, which tells what it has seen last.
_LAST_REPORT_SECONDS = 0.5
#: What mounting says of a name that was there when the plan was made.
_GONE = (errno.ENOENT, errno.EINVAL, errno.ESTALE, *SWAPPED)
#: Code that makes and removes such names all the time fails one start in two, at most.
_MOST_STARTS = 24
_T = TypeVar("_T")


class LinuxInstance(Instance):
    """Owns the report socket, the log pipe and the scratch descriptor; knows the sandbox by its init process."""

    #: It was forked from this one.
    zygote: Zygote

    def __init__(
        self,
        plan: Plan | ConfinedPlan,
        endpoints: Endpoints,
        guarantees: Mapping[str, tuple[str, ...]],
        report: socket.socket,
        log_fd: int,
        folders: list[WritableFolder],
        hidden: Callable[[], tuple[list[str], Spent]],
    ) -> None:
        self.plan, self.endpoints, self.guarantees, self.pid = plan, endpoints, guarantees, 0
        self._folders = folders
        #: What was in them before, for whoever sweeps them if we can't.
        self.records: list[Record] = []
        #: The files and folders that it was given, as the host had them then.
        self.sources = whereabouts.of_plan(plan)
        self._find_hidden = hidden
        self._overlays = writable_overlays(plan)
        # A whiteout holds for a name; a cover lies on one file, and goes when the host puts another in its place.
        self._whiteouts = {f"{overlay.target}/{name}" for overlay in plan.overlays for name in overlay.hidden}
        self._covered = {path: whereabouts.of_name(path) for path in plan.covered}
        self._newly_hidden: list[str] = []
        self._next_look = 0.0
        self._cover_reply: asyncio.Future[list[str]] | None = None
        self._report, self._log_fd = report, log_fd
        self._buffer, self._log = bytearray(), bytearray()
        self._scratch = -1
        self._pidfd = -1
        self._ended = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callbacks: list[Callable[[int | None], None]] = []
        self._attempts = Attempts()
        self._monitor = 0
        self._group: Group | None = None
        self._enforced: dict[str, int] = {}
        self._heard_all = False
        self._status: int | None = None
        self._cpu = processes.CpuMeter(len(plan.cpus))
        self._descriptors = Descriptors()
        #: Files that no longer have a name count as well, where those lie that the sandbox may write.
        self._disks = Disks(plan)
        self._holdings = Holdings((folder.device for folder in folders), self._disks.shown, writable(plan))
        #: As the supervisor allows, which ends what goes over it.
        self._most_files = max(1024, plan.scratch_bytes >> 14)
        self._memory = Memory(self._ask_to_count)
        self._unseen = Unseen()
        #: Nothing has run yet that could hold any.
        self._next_descriptors = time.monotonic()
        self._last_changes: list[Change] = []
        self._cards: Meter | None = None
        #: As the last sweep began.
        self._run_times: Mapping[int, int] | None = None
        #: While ``at_rest`` has said so.
        self._rest: processes.Rest | None = None
        loop = asyncio.get_running_loop()
        report.setblocking(False)
        os.set_blocking(log_fd, False)
        loop.add_reader(report.fileno(), self._on_report)
        loop.add_reader(log_fd, self._on_log)

    def hold(self, group: Group) -> None:
        """The control group that its processes are in from the first."""
        self._group = group
        self.bounded = group.bounded

    async def wait_ready(self, seconds: float) -> None:
        """Until init has proven the layers and forked the kernel; raises StartError with the stage that failed."""
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), seconds)
        except asyncio.TimeoutError:
            raise StartError(f"the sandbox was not ready within {seconds:.0f} s") from None

    def _on_report(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._report, 65536, 4)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._heard_all = True
            self._finish()
            return
        self._buffer += data
        *lines, rest = bytes(self._buffer).split(b"\n")
        # Init is ours, but a sandbox that broke it could write here: bounded, and believed only for its own end.
        self._buffer = bytearray(rest[:_REPORT_BYTES])
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self._on_event(event, fds)
        for fd in fds:
            os.close(fd)

    def _on_event(self, event: dict[str, Any], fds: list[int]) -> None:
        kind = event.get("event")
        if kind == "init" and not self.pid:
            # From the monitor, before anything hostile exists.
            self.pid, self._monitor = int(event["pid"]), int(event.get("monitor", 0))
            self._cpu.before = float(event.get("spent", 0.0))
            self._pidfd = os.pidfd_open(self.pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._init_ended)
        elif kind == "scratch" and self._scratch < 0 and fds and not self._ready.done():
            self._scratch = fds.pop(0)
        elif kind == "ready" and self._scratch >= 0 and not self._ready.done():
            if event.get("watched"):
                layers = (*self.guarantees.get("syscalls", ()), "user notification")
                self.guarantees = {**self.guarantees, "syscalls": layers}
            processes.first_to_go(processes.first_child(self.pid))
            self._ready.set_result(None)
        elif kind == "failed" and not self._ready.done():
            self._ready.set_exception(_start_error(event))
        elif kind == "covered" and self._cover_reply is not None and not self._cover_reply.done():
            self._cover_reply.set_result([str(path) for path in event.get("failed", ())])
        elif kind == "refused":
            self._attempts.hear(event.get("attempts"))
        elif kind == "shared" and isinstance(event.get("held"), int):
            self._memory.shared.hear(event["held"], counted=event.get("counted") is True)
        elif kind == "exit" and isinstance(event.get("status"), int):
            self._status = event["status"]

    def _on_log(self) -> None:
        try:
            data = os.read(self._log_fd, 65536)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._log_fd)
            return
        self._log += data
        del self._log[:-_LOG_BYTES]

    def _init_ended(self) -> None:
        """Everything inside has ended; the monitor tells its last and follows."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        if self._heard_all:
            self._finish()
        else:
            loop.call_later(_LAST_REPORT_SECONDS, self._finish)

    def _finish(self) -> None:
        """The sandbox has ended: let go of everything once."""
        if self._ended.is_set():
            return
        if self._pidfd >= 0 and not _exited(self._pidfd):
            # The report socket closed first: its end follows within moments, and the pidfd tells.
            asyncio.get_running_loop().remove_reader(self._report.fileno())
            return
        self._last_changes = self.changes()
        self._used()
        self._ended.set()
        if self._cover_reply is not None and not self._cover_reply.done():
            self._cover_reply.set_result([])  # nothing is there any more that could see them
        loop = asyncio.get_running_loop()
        if self._report.fileno() >= 0:
            loop.remove_reader(self._report.fileno())
            self._report.close()
        self._on_log()
        loop.remove_reader(self._log_fd)
        os.close(self._log_fd)
        if self._pidfd >= 0:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self._scratch >= 0:
            os.close(self._scratch)
            self._scratch = -1
        self._wakes()
        if not self._ready.done():
            self._ready.set_exception(StartError("the sandbox ended while starting", hint=self.last_words() or None))
            self._ready.exception()  # nobody may wait for it any more
        for path in self.endpoints.channels.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for callback in self._callbacks:
            callback(self._status)

    def alive(self) -> bool:
        return not self._ended.is_set()

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        self._callbacks.append(callback)

    def on_attempts(self, callback: Callable[[list[Attempt]], None]) -> None:
        self._attempts.on(callback)

    def interrupt(self) -> None:
        self._signal(signal.SIGUSR1)  # init passes it on as SIGINT to the kernel's process group

    def deaf(self) -> bool:
        return processes.deaf(processes.first_child(self.pid), signal.SIGINT)

    def interpreter(self) -> tuple[int, int] | None:
        pid = processes.first_child(self.pid)
        start = processes.started(pid) if pid else 0
        return (pid, start) if start else None

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0 and self.alive():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def kill(self) -> None:
        # Pid 1 takes its whole namespace with it, and no process of a sandbox can leave that.
        self._signal(signal.SIGKILL)
        if not self.pid:
            self._finish()  # it never said that it exists; its monitor was ended by the caller
        try:
            await asyncio.wait_for(self._ended.wait(), _KILL_SECONDS)
        except asyncio.TimeoutError:
            if self._group is None:
                raise
            self._group.kill()
            await asyncio.wait_for(self._ended.wait(), _KILL_SECONDS)

    def enforced(self) -> Mapping[str, int]:
        return self._enforced

    def _used(self) -> Used:
        """What its control group says; notes what the kernel has ended by it."""
        used = self._group.used() if self._group is not None else Used()
        if used.oom_kills:
            self._enforced["memory"] = used.peak or used.memory or 0
        return used

    def cpu(self) -> float:
        self._require_life()
        counted = self._used().cpu
        return counted if counted is not None else processes.sample(self.pid, self._cpu, beside=self._monitor).cpu

    def _require_life(self) -> None:
        if not self.alive() or not self.pid:
            raise ProcessLookupError(self.pid)

    def measure(self, *, brief: bool = False) -> Usage:
        self._require_life()
        for record in self.records:
            record.touch()
        sample = processes.sample(self.pid, self._cpu, beside=self._monitor)
        step = max(1 << 20, self.plan.scratch_bytes // 16)
        scratch, rows = self._count_files(step, sample.pids)
        started = time.monotonic()
        # At most a tenth of the time goes into it, unless the disk filled.
        if started >= self._next_descriptors + brief * _BRIEF_SECONDS or any(folder.walked for folder in self._folders):
            self._look_at_descriptors(sample.pids)
            self._next_descriptors = started + 10 * (time.monotonic() - started)
        disk, files = self._on_disk(scratch, rows)
        if self._descriptors.nameless and (disk > self.plan.scratch_bytes or files > self._most_files):
            # What was there when it was counted may have lost its name since, or be gone: each file counts once.
            self._look_at_descriptors(sample.pids, anew=True)
            for folder in self._counted():
                _count_anew(folder)
            disk, files = self._on_disk(self._measure_scratch(), [folder.measure(step) for folder in self._folders])
        used = self._used()
        sockets = processes.sockets(self.pid) if self.namespaces else processes.Sockets(self._descriptors.sockets)
        memory = self._held(sample, scratch[0], sockets) if used.memory is None else used.memory
        gpu, gpu_allowed = self._cards.used(sample.pids) if self._cards is not None else (0, 0)
        return Usage(
            cpu=sample.cpu if used.cpu is None else used.cpu,
            memory=memory + self._unseen.held(sockets),  # which no control group counts either
            processes=max(0, sample.processes - 1),  # init is ours
            disk=disk,
            files=files,
            gpu=gpu,
            gpu_allowed=gpu_allowed,
        )

    def watch_cards(self, cards: Cards) -> None:
        """Count what its processes hold on graphics cards, from now on."""
        self._cards = meter = Meter(cards)
        self.on_exit(lambda _status: meter.stop())

    def _counted(self) -> list[WritableFolder]:
        """Folders on whose size only a walk tells."""
        return self._folders

    def _count_files(self, step: int, pids: Iterable[int]) -> tuple[tuple[int, int, int], list[tuple[int, int]]]:
        """(scratch space as ``_measure_scratch`` tells, each folder as ``measure`` does)."""
        if not any(folder.may_exceed(self.plan.scratch_bytes, self._most_files) for folder in self._counted()):
            return self._measure_scratch(), [folder.measure(step) for folder in self._folders]
        # Many processes make files faster than one counts them.
        with held_still(pid for pid in pids if pid != self.pid):
            return self._measure_scratch(), [folder.measure(step, HELD_SECONDS) for folder in self._folders]

    def _on_disk(self, scratch: tuple[int, int, int], rows: list[tuple[int, int]]) -> tuple[int, int]:
        """(bytes, files), with those that have no name any more."""
        held = self._descriptors
        named = sum(row[0] for row in rows) + held.deleted
        nameless = held.mapped
        if held.unsized:
            # No more than what has been written to their file systems since the start and is accounted for by nothing
            # else, and no more than one file may hold.
            grown = self._disks.grown(self._holdings.devices) - named - (0 if self.namespaces else scratch[1])
            nameless = max(nameless, min(held.unsized * self.plan.scratch_bytes, grown))
        return scratch[1] + named + nameless, scratch[2] + held.nameless + sum(row[1] for row in rows)

    def _held(self, sample: processes.Sample, scratch: int, sockets: processes.Sockets) -> int:
        sizes = {pid: size for pid, size in sample.sizes.items() if pid != self.pid}
        seen, guessed = map(of_mappings, self._holdings.mappings(sizes))
        kernel = of_sockets(sockets) + of_descriptors(self._descriptors)
        found = self._memory.held(sample, self.pid, scratch, kernel + seen + guessed)
        if found > self._memory.limit >= found - guessed:
            # No guess ends anything that can be looked at.
            self._look_at_descriptors(sample.pids, anew=True)
            seen, guessed = map(of_mappings, self._holdings.mappings(sizes))
            kernel = of_sockets(sockets) + of_descriptors(self._descriptors)
            found = self._memory.held(sample, self.pid, scratch, kernel + seen + guessed)
        if self._memory.hidden:
            raise PermissionError(f"/proc/{self._memory.hidden}/smaps_rollup")
        return found

    def _ask_to_count(self) -> bool:
        if self._cover_reply is not None and not self._cover_reply.done():
            return False  # what is being sent may not have gone in one piece
        try:
            self._report.send(b'{"count": true}\n')
        except OSError:
            return False
        return True

    def _measure_scratch(self) -> tuple[int, int, int]:
        """Of the scratch space: bytes that lie in memory, bytes, entries."""
        if self._scratch < 0:
            raise ProcessLookupError(self.pid)
        scratch = os.fstatvfs(self._scratch)
        used = (scratch.f_blocks - scratch.f_bfree) * scratch.f_frsize
        return used, used, scratch.f_files - scratch.f_ffree

    def _look_at_descriptors(self, pids: tuple[int, ...], *, anew: bool = False) -> None:
        """Raises PermissionError when a process keeps what it holds open to itself."""
        # Init is ours, and not dumpable: an ordinary user's supervisor may not look into it.
        inside = tuple(pid for pid in pids if pid != self.pid)
        self._descriptors = self._holdings.look_anew(inside) if anew else self._holdings.look(inside)
        if self._descriptors.hidden:
            raise PermissionError(f"/proc/{self._descriptors.hidden}/fd")

    async def hide_new_names(self) -> list[str]:
        found, own = await self._names_to_cover()
        # A link can't be covered, and need not be: it counts as the user's as long as it leads where it led.
        names = [f"{f.path}/{name}" for f, there in own for name, (kind, *_) in there.items() if kind != stat.S_IFLNK]
        now_there = {path: whereabouts.of_name(path) for path in (*found, *names) if path not in self._whiteouts}
        new = [path for path, identity in now_there.items() if self._covered.get(path) != identity]
        failed = await self._cover(new) if new and self.alive() else []
        hidden = set(found) - self._covered.keys()
        self._newly_hidden += [self._shown(path) for path in new if path in hidden and path not in failed]
        self._covered.update({path: now_there[path] for path in new if path not in failed})
        if own and self.untouched():  # nor has anything inside changed them before they were covered
            for folder, there in own:
                folder.adopt({name: there[name] for name in there if f"{folder.path}/{name}" not in failed})
            for record in self.records:
                record.renew()
        return failed

    def newly_hidden(self) -> list[str]:
        names, self._newly_hidden = self._newly_hidden, []
        return names

    def _shown(self, path: str) -> str:
        """As the user would name it."""
        return os.path.relpath(path, self.plan.project) if within(path, self.plan.project) else path

    async def _cover(self, new: list[str]) -> list[str]:
        """Hide these inside; those for which that failed."""
        loop = asyncio.get_running_loop()
        self._cover_reply = loop.create_future()
        try:
            await loop.sock_sendall(self._report, json.dumps({"cover": new}).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return []  # it is ending
        return await asyncio.wait_for(self._cover_reply, _COVER_SECONDS)

    async def _names_to_cover(self) -> tuple[list[str], list[tuple[WritableFolder, dict[str, Any]]]]:
        """What the policy hides, as the host has it now, and what programs act on that the user has put into writable
        folders. Looked for before every cell, but for a project so large that looking takes long: there at most a
        twentieth of the time, and in between nothing is found. Nothing that the code does puts a look off: neither
        what it writes nor what it keeps busy counts."""
        now = time.monotonic()
        if now < self._next_look:
            return [], []
        loop = asyncio.get_running_loop()
        try:
            found, own, spent = await asyncio.wait_for(loop.run_in_executor(None, self._look_for_names), _LOOK_SECONDS)
        except asyncio.TimeoutError:  # answered when the sandbox started, and no longer does
            raise reach.no_answer(self.plan.project) from None
        cost = spent.seconds if self.untouched() else spent.computing
        self._next_look = now + (20 * cost if cost > _QUICK_LOOK else 0.0)
        return found, own

    def _look_for_names(self) -> tuple[list[str], list[tuple[WritableFolder, dict[str, Any]]], Spent]:
        found, spent = self._find_hidden()
        own = [there for folder in self._folders if (there := self._put_there(folder))] if self.namespaces else []
        # Asked last: nothing inside can have made what was found before.
        return found, own if own and self.untouched() else [], spent

    def _put_there(self, folder: WritableFolder) -> tuple[WritableFolder, dict[str, Any]] | None:
        """What has appeared and only the user can have put there: no other sandbox that writes there has run either."""
        if not folder.new_names() or not self.untouched():
            return None
        before = left_behind.others(folder.place, self.records)
        there = folder.new_names()
        same = not before.awake and left_behind.others(folder.place, self.records) == before
        return (folder, there) if same else None

    def exact_above(self, resident: int, limit: int) -> None:
        self._memory.exact_above(resident, limit)

    def sweep(self) -> list[str]:
        alive = self.alive()
        self._wakes()
        self._run_times = processes.run_times(self.pid) if alive else None
        done = sweep_all(self._folders)
        if not all(folder.whole for folder in self._folders):
            self._run_times = None  # what is still there may be the sandbox's
        for record in self.records:
            if alive:
                record.rest(self.pid, self._run_times)
            else:
                record.remove()
        return done

    def quick_to_sweep(self) -> bool:
        # What has ended was not counted at its end.
        return self.alive() and sum(folder.entries for folder in self._folders) < _QUICK_ENTRIES

    def untouched(self) -> bool:
        return self._run_times is not None and self._run_times == processes.run_times(self.pid)

    def at_rest(self) -> bool:
        for record in self.records:
            record.touch()
        if self._rest is None and self._run_times is not None and self.untouched():
            with contextlib.suppress(OSError):
                self._rest = processes.Rest(self._run_times)
        if self._rest is not None and not self._rest.holds():
            self._wakes()
        # The look that is left out for a sandbox at rest is the one that ends it where there is too much to watch.
        return self._rest is not None and not any(folder.full for folder in self._folders)

    def _wakes(self) -> None:
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def mark(self) -> None:
        self._wakes()
        self._run_times = processes.run_times(self.pid)

    def dismiss(self) -> None:
        for record in self.records:
            record.remove()

    def renew_folders(self, fresh: list[WritableFolder]) -> bool:
        """Count from what lies in writable folders now, if there is no more and no less to protect than there was."""
        if any(now.before().differs(then.before()) for now, then in zip(fresh, self._folders, strict=True)):
            return False
        self._folders, self._disks = fresh, Disks(self.plan)
        self._next_look, self._next_descriptors = 0.0, time.monotonic()
        for record, folder in zip(self.records, fresh, strict=True):
            record.folder = folder
            record.rest(self.pid, self._run_times)  # until it runs
        return True

    def written(self) -> tuple[list[str], int]:
        names: list[str] = []
        for folder in self._folders:
            path, project = folder.path, Path(self.plan.project)
            shown = path.relative_to(project) if project in path.parents else path
            names += [f"{shown}/{name}" for name in folder.written]
        return sorted(names), sum(folder.written_total for folder in self._folders)

    def changes(self) -> list[Change]:
        if self._scratch < 0:
            return self._last_changes
        return changes(self._scratch, self._overlays, self.plan.project)

    def last_words(self) -> str:
        return clean_text(self._log.decode("utf-8", "replace"))


def _count_anew(folder: WritableFolder) -> None:
    """From the beginning; of a folder that is too large for that, what is known so far counts on."""
    folder.measure(_AT_ONCE, _COUNT_ANEW_SECONDS)
    if folder.walked:  # it may have been the end of a count that was on its way
        folder.measure(_AT_ONCE, _COUNT_ANEW_SECONDS)


def _exited(pidfd: int) -> bool:
    poller = select.poll()  # select() knows no descriptors above 1023
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _start_error(event: dict[str, Any]) -> StartError:
    stage, message = str(event.get("stage")), str(event.get("message"))
    hints = {
        "user namespace": "Run `ipysandbox doctor` for what this machine lacks and how to change it.",
        "files": "Check that the path exists and that you may read it; files.read and files.write name it.",
    }
    # A name that was made again after it was covered is seen by the self-test; each start is proven by its own.
    seen = stage == "self-test" and message.endswith(" is not hidden")
    gone = stage in ("files", "file rules") and event.get("errno") in _GONE
    kind = FilesChanged if gone or seen else StartError
    return kind(f"the sandbox was refused at the step '{stage}': {message}", hint=hints.get(stage))


async def until_files_hold(start: Callable[[], Awaitable[_T]]) -> _T:
    """What ``start`` gives, which makes its plan anew each time. Raises StartError."""
    for _ in range(_MOST_STARTS - 1):
        with contextlib.suppress(FilesChanged):
            return await start()
    return await start()


def new_key() -> bytes:
    return secrets.token_hex(32).encode()
