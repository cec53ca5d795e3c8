"""The control group of one sandbox: made before its first process, read while it runs, removed when it has ended.

A process of a sandbox can't leave its group: no cgroup file system exists inside, and none can be mounted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .cgroup import CONTROLLERS, Facts

#: A quarter of the kernel's longest period: short enough that throttling is not felt as hanging.
_PERIOD = 100_000
#: Version 1 only: in version 2 they are memory as any other.
_TCP = "memory.kmem.tcp"
_PREFIX = "ipysandbox-"
_OURS = re.compile(r"ipysandbox-[0-9a-f]{12}-[0-9]+")
_KILL_ROUNDS = 100
_REMOVE_SECONDS, _REMOVE_STEP = 5.0, 0.01


@dataclass(frozen=True)
class Bounds:
    memory: int
    tasks: int
    #: Processors' worth of time; may be a fraction.
    cpus: float


@dataclass(frozen=True)
class Used:
    """What the group's meters say; None where its controller is missing."""

    #: Processor seconds of all that ever ran in it.
    cpu: float | None = None
    #: Bytes that can't be taken back: anonymous, shared memory and tmpfs, sockets, tables of the kernel.
    memory: int | None = None
    #: The most that was ever charged, files' pages included.
    peak: int | None = None
    #: Processes that the kernel ended because the limit on memory was reached.
    oom_kills: int = 0


def name(runtime_id: str, number: int) -> str:
    """A name by which a leftover is known as ours."""
    return f"{_PREFIX}{runtime_id}-{number}"


class Group:
    """One folder in each hierarchy; ``paths`` by controller, or under "" in version 2."""

    def __init__(self, facts: Facts, group_name: str) -> None:
        self._version, self._controllers = facts.version, facts.controllers
        self.paths = {controller: f"{place}/{group_name}" for controller, place in facts.places.items()}

    @property
    def folders(self) -> list[str]:
        return list(dict.fromkeys(self.paths.values()))

    @property
    def bounded(self) -> frozenset[str]:
        """Limits of the policy that it holds."""
        return frozenset({"memory"} & set(self._controllers))

    def make(self, bounds: Bounds) -> None:
        """Make it with its limits set. Raises OSError."""
        for folder in self.folders:
            os.mkdir(folder, 0o755)
        if self._version == 1:
            _bound_1(self.paths, bounds)
        else:
            _bound_2(self.paths[""], self._controllers, bounds)

    def add(self, pid: int) -> None:
        """Put a process of ours in. What it forks from now on is in it as well."""
        for folder in self.folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def used(self) -> Used:
        return _used_1(self.paths) if self._version == 1 else _used_2(self.paths[""], self._controllers)

    def cpu(self) -> float:
        """Processor seconds, as ``used`` tells; 0 where nothing counts them."""
        if self._version == 1:
            return (_number(f"{self.paths['cpuacct']}/cpuacct.usage") or 0) / 1e9 if "cpuacct" in self.paths else 0.0
        return _fields(f"{self.paths['']}/cpu.stat").get("usage_usec", 0) / 1e6

    def oom_kills(self) -> int:
        """As ``used`` tells, without the rest."""
        if self._version == 1:
            return _fields(f"{self.paths['memory']}/memory.oom_control").get("oom_kill", 0)
        return _fields(f"{self.paths['']}/memory.events").get("oom_kill", 0)

    def kill(self) -> None:
        """End every process in it, whatever it forks meanwhile."""
        if self._version == 2:
            with contextlib.suppress(FileNotFoundError, OSError):
                _write(f"{self.paths['']}/cgroup.kill", "1")  # kernel 5.14
            return
        folder = self.folders[0]
        for _ in range(_KILL_ROUNDS):
            pids = _read(f"{folder}/cgroup.procs").split()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            if not pids:
                return

    def remove(self) -> bool:
        """Remove it; False while something in it has not quite ended."""
        gone = [_remove(folder) for folder in self.folders]  # every one is tried
        return all(gone)


def hand_down(place: str) -> tuple[str, ...]:
    """Let groups below ``place`` have controllers (version 2); those that it can hand down."""
    for controller in CONTROLLERS:
        with contextlib.suppress(OSError):
            _write(f"{place}/cgroup.subtree_control", f"+{controller}")
    handed = _read(f"{place}/cgroup.subtree_control").split()
    return tuple(controller for controller in CONTROLLERS if controller in handed)


def sweep(facts: Facts) -> None:
    """Remove what supervisors left that were killed together with their zygote. The kernel keeps groups in use; a
    supervisor that loses one before its first process makes it again."""
    for place in dict.fromkeys(facts.places.values()):
        with contextlib.suppress(OSError):
            for entry in os.listdir(place):
                if _OURS.fullmatch(entry):
                    _remove(f"{place}/{entry}")


def remove_all(folders: list[str]) -> None:
    """Remove groups whose processes have been killed a moment ago: waits until the kernel lets go of them."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while folders := [folder for folder in folders if not _remove(folder)]:
        if time.monotonic() > deadline:
            return
        time.sleep(_REMOVE_STEP)  # it tells nobody


def _bound_1(paths: Mapping[str, str], bounds: Bounds) -> None:
    memory = paths["memory"]
    _write(f"{memory}/memory.limit_in_bytes", str(bounds.memory))
    with contextlib.suppress(FileNotFoundError):  # only where the kernel accounts for swap
        _write(f"{memory}/memory.memsw.limit_in_bytes", str(bounds.memory))
    with contextlib.suppress(FileNotFoundError):
        # Without a limit of their own TCP's buffers are not counted at all; they count beside the others.
        _write(f"{memory}/{_TCP}.limit_in_bytes", str(bounds.memory))
    if "pids" in paths:
        _write(f"{paths['pids']}/pids.max", str(bounds.tasks))
    if "cpu" in paths:
        _write(f"{paths['cpu']}/cpu.cfs_period_us", str(_PERIOD))
        _write(f"{paths['cpu']}/cpu.cfs_quota_us", str(_quota(bounds)))


def _bound_2(folder: str, controllers: tuple[str, ...], bounds: Bounds) -> None:
    if "memory" in controllers:
        _write(f"{folder}/memory.max", str(bounds.memory))
        # A sandbox is one thing: code that has lost a process in the middle would go on in a state nobody meant.
        _write(f"{folder}/memory.oom.group", "1")
        with contextlib.suppress(FileNotFoundError):
            _write(f"{folder}/memory.swap.max", "0")
    if "pids" in controllers:
        _write(f"{folder}/pids.max", str(bounds.tasks))
    if "cpu" in controllers:
        _write(f"{folder}/cpu.max", f"{_quota(bounds)} {_PERIOD}")


def _quota(bounds: Bounds) -> int:
    """The kernel takes no less than a millisecond of a period."""
    return max(1000, int(bounds.cpus * _PERIOD))


def _used_1(paths: Mapping[str, str]) -> Used:
    memory = paths["memory"]
    cpu = _number(f"{paths['cpuacct']}/cpuacct.usage") if "cpuacct" in paths else None
    charged = _number(f"{memory}/memory.usage_in_bytes")
    # The lines without "total_" are this group's own; it has none below it. "cache" holds shared memory too.
    stat = _fields(f"{memory}/memory.stat")
    return Used(
        cpu=cpu / 1e9 if cpu is not None else None,
        memory=_kept(charged, stat.get("cache", 0) - stat.get("shmem", 0), _number(f"{memory}/{_TCP}.usage_in_bytes")),
        peak=_number(f"{memory}/memory.max_usage_in_bytes"),
        oom_kills=_fields(f"{memory}/memory.oom_control").get("oom_kill", 0),
    )


def _used_2(folder: str, controllers: tuple[str, ...]) -> Used:
    cpu = _fields(f"{folder}/cpu.stat").get("usage_usec")  # there without its controller as well
    seconds = cpu / 1e6 if cpu is not None else None
    if "memory" not in controllers:
        return Used(cpu=seconds)
    charged = _number(f"{folder}/memory.current")
    stat = _fields(f"{folder}/memory.stat")
    return Used(
        cpu=seconds,
        memory=_kept(charged, stat.get("file", 0) - stat.get("shmem", 0) + stat.get("slab_reclaimable", 0)),
        peak=_number(f"{folder}/memory.peak"),  # kernel 5.19
        oom_kills=_fields(f"{folder}/memory.events").get("oom_kill", 0),
    )


def _kept(charged: int | None, reclaimable: int, more: int | None = None) -> int | None:
    """Without pages of files, which the kernel takes back before it refuses or ends anything; with ``more``."""
    return None if charged is None else max(0, charged - max(0, reclaimable)) + (more or 0)


def _fields(path: str) -> dict[str, int]:
    """A file of "name number" lines."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("ascii", "replace")
    except OSError:
        return ""  # the group has been removed, or this kernel lacks the file


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as exc:
        raise OSError(exc.errno, f"{path}: {os.strerror(exc.errno or 0)}") from None
    finally:
        os.close(fd)


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError as exc:
        return exc.errno == errno.ENOENT
    return True
