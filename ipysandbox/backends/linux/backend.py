"""Starts Linux sandboxes: keeps the zygote, makes the plan, hands over sockets, waits until the layers are proven."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import itertools
import json
import math
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ipysandbox.backends.base import Backend, Endpoints, Instance, StartRequest
from ipysandbox.errors import StartError
from ipysandbox.guest import CHANNELS
from ipysandbox.policy import Effective
from ipysandbox.policy.model import PRELOAD

from . import choice, confined_plan, fonts, gpu, layout, left_behind, machine, scratch, whereabouts
from .confined_instance import ConfinedInstance
from .confined_plan import ConfinedPlan
from .folders import FilesChanged, make_folder
from .group_keeper import GroupKeeper
from .groups import Bounds
from .instance import LinuxInstance, new_key, until_files_hold
from .plan import Bind, Plan
from .task_room import TaskRoom, Tools
from .uses import KERNELS
from .writable import WritableFolder
from .zygote_handle import START_SECONDS, Spawned
from .zygotes import Zygote, Zygotes, until_fit

_T = TypeVar("_T")
_INSIDE_ID = 1000
#: Where the folder of the sockets is full.
SOCKETS_HINT = "Free some space there, or set XDG_RUNTIME_DIR to another folder of yours."
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")


class LinuxBackend(Backend):
    name = "linux"

    def __init__(self, runtime_dir: Path, spawned: Spawned | None = None) -> None:
        """``spawned``: a zygote that was started ahead."""
        self._runtime_dir = runtime_dir
        self.machine = machine.probe()
        self.choice = choice.choose(self.machine)
        host = os.getpid() if spawned is None else spawned.host
        self.zygotes = Zygotes(runtime_dir, host, self.machine.cgroup, spawned)
        self._counter = itertools.count(1)
        self._first = (PRELOAD, KERNELS) if spawned is None else (spawned.preload, spawned.use)

    async def prepare(self) -> None:
        """Start the zygote ahead of the first sandbox; failures are told by ``start``."""
        if not self.choice.gaps:
            preload, use = self._first
            async with self.zygotes.one(preload, use=use) as zygote:
                self._choose(zygote.groups)

    async def recover(self, request: StartRequest, done: list[str]) -> None:
        await _in_thread(left_behind.disarm, request.effective.write, done)

    async def start(self, request: StartRequest) -> Instance:
        self._make_ready(request.effective)
        cards = await self._cards(request.effective)
        once = functools.partial(self._start, request, cards)
        return await until_files_hold(lambda: until_fit(self.zygotes, request.effective.policy.start, once))

    def _make_ready(self, effective: Effective) -> None:
        """Raises StartError unless every guarantee can be held here, as fully as the policy requires."""
        self._require_guarantees(effective)
        for path in effective.write:
            _make_folder(path)

    def _require_guarantees(self, effective: Effective) -> None:
        if self.choice.gaps:
            first = self.choice.gaps[0]
            names = ", ".join(gap.guarantee for gap in self.choice.gaps)
            raise StartError(f"{names} can't be held on this machine: {first.reason}", hint=first.remedy)
        weaker = choice.refused(self.choice, effective.policy.require)
        if weaker is not None:
            raise StartError(f"require: {weaker.guarantee}: {weaker.reason}", hint=weaker.remedy)

    async def _start(self, request: StartRequest, cards: gpu.Cards | None, zygote: Zygote) -> Instance:
        self._choose(zygote.groups)
        folders = await _in_thread(_writable_folders, request.effective)
        threads = _threads(request.effective)
        confined = self.choice.tier == "confined"
        plan: Plan | ConfinedPlan
        if confined:
            own = scratch.make(self._runtime_dir, request.directory.name, fonts.cached())
            plan = self._confined_plan(request.effective, own)
        else:
            plan = self._plan(request.effective)
        if cards is not None and isinstance(plan, Plan):
            plan = cards.extend(plan)
        # After all that may refuse: from here on there is something to leave behind.
        key = new_key()
        listeners, channels = _listen(request.directory)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        log_r, log_w = os.pipe2(os.O_CLOEXEC)
        hidden = functools.partial(layout.hidden_paths, request.effective)
        endpoints = Endpoints(channels, key)
        instance: LinuxInstance
        if isinstance(plan, ConfinedPlan):
            instance = ConfinedInstance(plan, endpoints, self.choice.layers, ours, log_r, folders, hidden)
        else:
            instance = LinuxInstance(plan, endpoints, self.choice.layers, ours, log_r, folders, hidden)
        instance.zygote = zygote
        identifier = f"{request.name}-{next(self._counter)}"
        own_folder = plan.scratch if isinstance(plan, ConfinedPlan) else None
        program = {"key": key.decode(), "threads": threads, "confined": own_folder}
        program["widgets"] = request.page and request.effective.policy.output.widgets
        program["waits"] = request.waits
        program["gpu"] = cards.program() if cards is not None else None
        limits = request.effective.policy.limits
        groups, group = zygote.groups, zygote.groups.plan()
        try:
            fds = [theirs.fileno(), log_w, *(s.fileno() for s in listeners)]
            owners = None if isinstance(plan, ConfinedPlan) else (plan.outside_uid, plan.outside_gid)
            monitor = await zygote.handle.fork(identifier, fds, group.folders if group else [], owners)
            # The monitor waits for its plan: nothing of the sandbox runs outside its group.
            bounds = Bounds(limits.memory, limits.processes + 2, limits.cpus)
            if group is not None and groups.fill(group, monitor, bounds):
                instance.hold(group)
                instance.on_exit(lambda _status: groups.drop(group))
            else:
                instance.guarantees = self._choose(groups).layers
            self.zygotes.took(zygote)
            instance.on_exit(lambda _status: self.zygotes.let_go(zygote))
            instance.weaker = self.choice.weaker
            # Before anything hostile exists; with the end of these two everything inside has ended.
            pids = (zygote.handle.pid, monitor)
            for folder in folders:
                instance.records.append(await _in_thread(left_behind.Record, folder, request.effective, pids))
                if request.waits:
                    instance.records[-1].rest(0, {})
            # What a control group counts, the monitor need not.
            shared = 0 if "memory" in instance.bounded else limits.memory
            wanted = {"tier": self.choice.tier, "plan": plan.to_json(), "program": program, "shared": shared}
            wanted["held"] = [(str(folder.path), *folder.identity) for folder in folders]
            await _send_plan(ours, wanted)
            theirs.close()
            os.close(log_w)
            log_w = -1
            await instance.wait_ready(START_SECONDS)
            if cards is not None:
                instance.watch_cards(cards)
        except BaseException:
            if instance.alive():
                if not instance.pid:
                    zygote.handle.kill(identifier)
                await instance.kill()
            with contextlib.suppress(OSError):
                await _in_thread(instance.sweep)
            raise
        finally:
            theirs.close()
            if log_w >= 0:
                os.close(log_w)
            for sock in listeners:
                sock.close()
        return instance

    def task_room(
        self, request: StartRequest, workers: int, preload: Sequence[str], suggested: Sequence[str]
    ) -> TaskRoom:
        """Where the tasks of an executor run, each in a sandbox of its own; ``TaskRoom.open`` starts it. ``preload``:
        modules for them to share; ``suggested``: those that may be left out."""
        tools = Tools(
            runtime_dir=self._runtime_dir,
            zygotes=self.zygotes,
            choice=lambda: self.choice,
            choose=self._choose,
            make_ready=self._make_ready,
            plan=self._plan,
            confined_plan=self._confined_plan,
        )
        return TaskRoom(tools, request, workers, preload, suggested)

    async def renew(self, instance: Instance, request: StartRequest) -> bool:
        assert isinstance(instance, LinuxInstance)
        try:
            self._require_guarantees(request.effective)
            return await _in_thread(self._renew, instance, request.effective) and instance.alive()
        except (StartError, OSError):  # what a start meets as well, which tells it
            return False

    def _renew(self, instance: LinuxInstance, effective: Effective) -> bool:
        """In a thread. Nothing inside can have changed what is compared as long as it is untouched, so that comes
        last."""
        if not instance.zygote.is_current():
            return False
        then = instance.plan
        now = self._plan(effective) if isinstance(then, Plan) else self._confined_plan(effective, Path(then.scratch))
        if now != then or whereabouts.of_plan(now) != instance.sources:
            return False
        return instance.renew_folders(_writable_folders(effective)) and instance.untouched()

    def outdated(self, instance: Instance) -> bool:
        assert isinstance(instance, LinuxInstance)
        return self.zygotes.outdated(instance.zygote)

    def not_loaded(self, effective: Effective) -> Mapping[str, str]:
        start = effective.policy.start
        return self.zygotes.problems(start.preload) if start.mode == "fork" else {}

    def _choose(self, groups: GroupKeeper) -> choice.Choice:
        """Which layers there are, by what holds now: a control group may have been refused."""
        self.machine = dataclasses.replace(self.machine, cgroup=groups.facts)
        self.choice = choice.choose(self.machine)
        return self.choice

    def _plan(self, effective: Effective) -> Plan:
        limits = effective.policy.limits
        outside_uid, outside_gid = machine.outside_ids(self.machine)
        font_cache = fonts.cached()
        extra = tuple(
            Bind(str(path), target=f"{layout.HOME}/.config/matplotlib/{path.name}", optional=True)
            for path in font_cache
        )
        shown = layout.layout(effective, inside_id=_INSIDE_ID, extra=extra)
        return Plan(
            binds=shown.binds,
            overlays=shown.overlays,
            covered=shown.covered,
            links=shown.links,
            texts=shown.texts,
            home=layout.HOME,
            cwd=str(effective.folder),
            project=str(effective.project),
            environment=_environment(effective, _threads(effective), home=layout.HOME, temporary=_temporary(effective)),
            scratch_bytes=limits.disk,
            scratch_inodes=max(1024, min(limits.disk >> 14, 131072)),
            rlimits=_rlimits(effective),
            cpus=_cpus(effective),
            landlock_abi=self.machine.landlock_abi,
            outside_uid=outside_uid,
            outside_gid=outside_gid,
            inside_id=_INSIDE_ID,
            absent=(str(self._runtime_dir),),
        )

    async def _cards(self, effective: Effective) -> gpu.Cards | None:
        """The graphics cards that the policy gives, if any."""
        wanted = effective.policy.limits.gpu
        if not wanted.devices:
            return None
        if self.choice.tier != "namespaces":
            raise gpu.needs_namespaces()
        return await gpu.find(wanted.devices, wanted.memory_fraction)

    def _confined_plan(self, effective: Effective, folder: Path) -> ConfinedPlan:
        limits = effective.policy.limits
        rules, hidden = confined_plan.rules(effective, folder, tuple(fonts.cached()))
        home, temporary = f"{folder}/home", f"{folder}/tmp"
        return ConfinedPlan(
            rules=rules,
            writable=(*map(str, effective.write), str(folder)),
            scratch=str(folder),
            cwd=str(effective.folder),
            project=str(effective.project),
            environment=_environment(effective, _threads(effective), home=home, temporary=temporary),
            # RLIMIT_NPROC counts all tasks of a user id on the machine, those in other containers included: how many
            # that are can't be seen, so the monitor counts.
            rlimits={name: value for name, value in _rlimits(effective).items() if name != "NPROC"},
            processes=limits.processes,
            cpus=_cpus(effective),
            landlock_abi=self.machine.landlock_abi,
            absent=(str(self._runtime_dir),),
            hidden=hidden,
            scratch_bytes=limits.disk,
        )

    async def close(self) -> None:
        await self.zygotes.close()


async def _in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _writable_folders(effective: Effective) -> list[WritableFolder]:
    return [left_behind.writable(path, effective) for path in effective.write]


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise FilesChanged(
                f"files.write: a link has taken the place of {folder} or of one above it",
                hint="Let the sandbox end that writes around it.",
            ) from None
        raise StartError(
            f"files.write: can't make the folder {folder}: {exc.strerror}",
            hint="Make it yourself, or name another folder in files.write.",
        ) from None


def _listen(directory: Path) -> tuple[list[socket.socket], dict[str, str]]:
    """Listening sockets for the kernel inside: only their descriptors go in, their folder stays out of its sight."""
    listeners, channels = [], {}
    for name in CHANNELS:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listeners.append(sock)
        channels[name] = str(directory / f"k-{name}")
        try:
            sock.bind(channels[name])
            os.chmod(channels[name], 0o600)
        except OSError as exc:
            _close(listeners, channels)
            raise StartError(f"the sandbox's sockets can't be made in {directory}: {exc}", hint=SOCKETS_HINT) from None
        sock.listen(16)
        sock.setblocking(False)
    return listeners, channels


def _close(listeners: list[socket.socket], channels: Mapping[str, str]) -> None:
    for sock, path in zip(listeners, channels.values(), strict=True):
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(path)


def _rlimits(effective: Effective) -> dict[str, int]:
    limits = effective.policy.limits
    wanted = {
        # A little below the limit on memory, so that one greedy process meets a MemoryError before the watchdog acts.
        "DATA": int(limits.memory * 0.95),
        # The monitor and init count as well.
        "NPROC": limits.processes + 2,
        "NOFILE": limits.open_files,
        "FSIZE": limits.disk,
        # At 1 the kernel drops a dump of any kind; at 0 it still feeds it to the program that a core_pattern with "|"
        # names, as root and outside (core(5)). The filter lets nobody change it.
        "CORE": 1,
        "MEMLOCK": 8 << 20,
        "MSGQUEUE": 0,
        # Counted for the user as a whole, by whom the rest of the machine's share has to be had as well.
        "SIGPENDING": 1024,
        "NICE": 0,
        "RTPRIO": 0,
    }
    result = {}
    for name, value in wanted.items():
        hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]
        result[name] = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return result


def _threads(effective: Effective) -> int:
    """Threads for each numeric library: as many as whole processors, so that they start under the limit on tasks."""
    return max(1, math.floor(min(effective.policy.limits.cpus, len(os.sched_getaffinity(0)))))


def _cpus(effective: Effective) -> tuple[int, ...]:
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed[: max(1, min(len(allowed), math.ceil(effective.policy.limits.cpus)))])


def _temporary(effective: Effective) -> str:
    """Programs make sockets and pipes in it, which is refused where a folder of the host lies below."""
    return "/var/tmp" if any(Path("/tmp") in path.parents for path in effective.write) else "/tmp"


def _environment(effective: Effective, threads: int, *, home: str, temporary: str) -> dict[str, str]:
    """Everything the code finds in its environment; nothing of the host's unless the policy passes it by name."""
    prefix_bin = os.path.dirname(sys.executable)
    base_bin = os.path.join(sys.base_prefix, "bin")
    path = dict.fromkeys([prefix_bin, base_bin, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    env = {
        "PATH": ":".join(path),
        "HOME": home,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": temporary,
        "MPLCONFIGDIR": f"{home}/.config/matplotlib",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": f"{home}/.ipython",
        # Compiled files next to the project's sources would show up as changes of the project.
        "PYTHONDONTWRITEBYTECODE": "1",
        "IPYSANDBOX": "1",
    }
    if not effective.policy.network.allow:
        # pip asks an unreachable index five times, with pauses.
        env |= {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if effective.policy.output.html == "isolate":
        # The one of Plotly's own settings under which each figure is a page for itself.
        env |= {"IPYSANDBOX_HTML": "isolate", "PLOTLY_RENDERER": "colab"}
    if effective.policy.output.stdin == "off":
        env["IPYSANDBOX_STDIN"] = "off"
    env.update(dict.fromkeys(_THREADS, str(threads)))
    if sys.prefix != sys.base_prefix:
        env["VIRTUAL_ENV"] = sys.prefix
    env.update(effective.environment)
    return env


async def _send_plan(sock: socket.socket, request: Mapping[str, Any]) -> None:
    data = json.dumps(request).encode()
    await asyncio.get_running_loop().sock_sendall(sock, struct.pack("!I", len(data)) + data)
