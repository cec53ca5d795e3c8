"""Reads what a sandbox's processes use from /proc, starting at its init: every process inside descends from it."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: More than any limit on tasks allows; a bound for this reader only.
_MOST = 20_000
#: States of a thread that runs no more.
_ENDED = (b"Z", b"X")
#: Between two looks (seconds): what passed in a longer break of the watching stands for nothing.
_LONGEST_LOOK = 1.0


@dataclass(frozen=True)
class Sample:
    cpu: float
    #: Pages in memory, file pages included and shared ones counted once per process: never less than the truth.
    resident: int
    processes: int
    #: ``resident`` by number, of those in ``pids``.
    residents: Mapping[int, int]

    @property
    def pids(self) -> tuple[int, ...]:
        """By which numbers what they hold is found; those that wait to be collected hold nothing."""
        return tuple(self.residents)


@dataclass
class CpuMeter:
    """Processor seconds of a process tree, those of processes that have ended included.

    A parent that waits inherits its children's times; one that ignores SIGCHLD does not, so what was last seen of every
    process is kept as well. Those that live too briefly to be seen twice are estimated: a look meets one of them as
    often as they run. The largest of the three sums counts.
    """

    #: Processors that the tree may use.
    processors: int = 1
    #: Seconds that the process beside the tree had used when the tree began.
    before: float = 0.0
    _seen: dict[tuple[int, int], float] = field(default_factory=dict)
    _most: float = 0.0
    _brief: float = 0.0
    _last_look: float = 0.0

    def add(self, rows: list[tuple[int, int, float, float]], running: list[tuple[int, int]], now: float) -> float:
        """``rows``: (pid, start time, own seconds, own and waited children's seconds); ``running``: (pid, start time)
        of those that want a processor right now."""
        young = [pid for pid, start in running if (pid, start) not in self._seen]
        if self._last_look:
            passed = min(now - self._last_look, _LONGEST_LOOK)
            self._brief += passed * min(self.processors, sum(map(_share, young)))
        self._last_look = now
        for pid, start, own, _ in rows:
            self._seen[pid, start] = own
        if len(self._seen) > _MOST:
            # Fold the ended ones into one entry.
            alive = {(pid, start) for pid, start, _, _ in rows}
            ended = sum(v for k, v in self._seen.items() if k not in alive)
            self._seen = {k: v for k, v in self._seen.items() if k in alive} | {(0, 0): ended}
        self._most = max(self._most, sum(self._seen.values()), sum(row[3] for row in rows), self._brief)
        return self._most


def children(pid: int) -> list[int]:
    """Processes that ``pid`` is the parent of, ended ones that nobody has waited for included."""
    return [int(child) for task in _threads(pid) for child in _read(f"/proc/{pid}/task/{task}/children").split()]


def _share(pid: int) -> float:
    """How much of the time that ``pid`` wanted a processor it had one (Documentation/scheduler/sched-stats.rst)."""
    fields = _read(f"/proc/{pid}/schedstat").split()
    had, waited = (int(fields[0]), int(fields[1])) if len(fields) == 3 else (1, 0)
    return had / (had + waited) if had + waited else 1.0


def tree(root: int) -> list[int]:
    """``root`` and all its descendants."""
    found: list[int] = []
    queue = [root]
    while queue and len(found) < _MOST:
        pid = queue.pop()
        found.append(pid)
        queue += children(pid)
    return found


def run_times(root: int) -> Mapping[int, int] | None:
    """Nanoseconds that each thread below ``root`` has run; None while one runs, or where the kernel doesn't count it.

    As long as this stays the same, nothing in the tree has done anything: the kernel adds a thread's time up when it
    leaves the processor (schedstat), which a thread that is asleep has done.
    """
    times: dict[int, int] = {}
    for pid in tree(root)[1:]:
        for thread in _threads(pid):
            fields, counted = _stat(thread), _read(f"/proc/{thread}/schedstat").split()
            if (fields and fields[0] == b"R") or (fields and not counted):
                return None
            if fields:
                times[thread] = int(counted[0])
    return times if any(times.values()) else None


class Rest:
    """Threads that have come to rest, held so that asking again costs a hundredth of ``run_times``: as long as the
    kernel counts no more for any of them, none has run, and no other can have come without one of them. What has begun
    to run in the last few milliseconds may not be counted yet."""

    def __init__(self, times: Mapping[int, int]) -> None:
        """``times``: as ``run_times`` gave them. Raises OSError: one has ended, or there are too many files."""
        self._held: list[tuple[int, bytes]] = []
        try:
            for thread, ran in times.items():
                self._held.append((os.open(f"/proc/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC), b"%d" % ran))
        except OSError:
            self.close()
            raise

    def holds(self) -> bool:
        try:
            return all(os.pread(fd, 64, 0).partition(b" ")[0] == ran for fd, ran in self._held)
        except ProcessLookupError:
            return False

    def close(self) -> None:
        for fd, _ in self._held:
            os.close(fd)
        self._held.clear()


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def sample(root: int, meter: CpuMeter, *, beside: int = 0) -> Sample:
    """One pass over the tree. Raises ProcessLookupError when ``root`` has ended.

    :param beside: a process outside the tree that works for it: its processor time counts, and nothing else.
    """
    rows, running = [], []
    residents: dict[int, int] = {}
    found = tree(root)
    if beside:
        fields = _stat(beside)
        if fields:
            own = max(0.0, (int(fields[11]) + int(fields[12])) / _TICK - meter.before)
            rows.append((beside, int(fields[19]), own, own))
    for pid in found:
        fields = _stat(pid)
        if pid == root and (not fields or fields[0] in _ENDED):
            raise ProcessLookupError(root)
        if not fields:
            continue
        utime, stime, cutime, cstime, start = (int(fields[n]) for n in (11, 12, 13, 14, 19))
        rows.append((pid, start, (utime + stime) / _TICK, (utime + stime + cutime + cstime) / _TICK))
        if fields[0] == b"R":
            running.append((pid, start))
        if fields[0] in _ENDED:
            pid = _living_thread(pid)
            fields = _stat(pid) if pid else []
        if fields:
            residents[pid] = int(fields[21]) * _PAGE
    cpu = meter.add(rows, running, time.monotonic())
    return Sample(cpu, sum(residents.values()), len(found), residents)


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the third on (proc(5)); none when it is gone."""
    text = _read(f"/proc/{pid}/stat")
    # The name may hold anything, parentheses and newlines too: fields start after the last ")".
    return text[text.rindex(b")") + 2 :].split() if text else []


def started(pid: int) -> int:
    """When it began, in ticks since the machine did: with its number, what names it for good; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def _living_thread(pid: int) -> int:
    """Of a process whose first thread has ended: one that goes on, and by whose number memory and files are found in
    /proc; 0 where there is none, which is a process that only waits to be collected."""
    return next((task for task in _threads(pid) if (_stat(task) or [b"Z"])[0] not in _ENDED), 0)


def first_child(pid: int) -> int:
    """The oldest living child of a process; 0 where there is none."""
    return int((_read(f"/proc/{pid}/task/{pid}/children").split() or [b"0"])[0])


def deaf(pid: int, number: int) -> bool:
    """Whether the main thread of ``pid`` is stopped, or ignores or blocks the signal ``number``."""
    rows = (line.split(b":", 1) for line in _read(f"/proc/{pid}/status").split(b"\n") if b":" in line)
    status = {key: value.strip() for key, value in rows}
    masks = int(status.get(b"SigIgn", b"0"), 16) | int(status.get(b"SigBlk", b"0"), 16)
    return status.get(b"State", b"")[:1] in (b"T", b"t") or bool(masks >> (number - 1) & 1)


#: Thousandths of the machine's memory that a sandbox seems to hold besides what it does, where one has to go.
_OOM_MORE = 300


def first_to_go(pid: int) -> None:
    """When the machine itself runs out of memory, the kernel is to end ``pid`` and its children to come before the
    user's own work. They can't lower it again; where it can't be raised, nothing is lost."""
    path = f"/proc/{pid}/oom_score_adj"
    with contextlib.suppress(OSError, ValueError), open(path, "r+b", buffering=0) as file:
        if int(file.read()) < _OOM_MORE:
            file.write(b"%d" % _OOM_MORE)


def memory(pids: tuple[int, ...], init: int = 0) -> tuple[int, int]:
    """(anonymous, shared-memory) bytes of ``pids``, each shared page divided among its users (PSS).

    Where a process hides its map (not dumpable), its whole resident set counts; of ``init``, which is ours, without
    the files that it has mapped.
    """
    anonymous = shared = 0
    for pid in pids:
        rollup = _read(f"/proc/{pid}/smaps_rollup")
        if rollup:
            values = {
                parts[0]: int(parts[1]) * 1024
                for parts in (line.split() for line in rollup.split(b"\n"))
                if len(parts) == 3 and parts[2] == b"kB"
            }
            anonymous += values.get(b"Pss_Anon:", 0)
            shared += values.get(b"Pss_Shmem:", 0)
            continue
        statm = _read(f"/proc/{pid}/statm").split()
        if len(statm) > 1:
            files = int(statm[2]) if pid == init else 0
            anonymous += (int(statm[1]) - files) * _PAGE
    return anonymous, shared


@dataclass(frozen=True)
class Descriptors:
    """What processes hold open, and nothing else shows."""

    #: Bytes of files without a name, which live only as long as they are held.
    deleted: int = 0
    sockets: int = 0
    #: Processes that don't let themselves be looked at: they could hold anything.
    hidden: frozenset[int] = frozenset()


#: PF_EXITING of the kernel's sched.h, in the flags of /proc/PID/stat.
_EXITING = 0x4


def descriptors(pids: tuple[int, ...], devices: frozenset[int]) -> Descriptors:
    """Look at every descriptor; files count on ``devices`` only, and those that are only mapped count as well."""
    files: dict[tuple[int, int], int] = {}
    sockets: set[int] = set()
    hidden = set()
    for pid in pids:
        try:
            for info in _open_files(pid):
                if stat.S_ISSOCK(info.st_mode):
                    sockets.add(info.st_ino)
                elif info.st_nlink == 0 and info.st_dev in devices:
                    files[info.st_dev, info.st_ino] = info.st_blocks * 512
        except PermissionError:
            if not _ends(pid):
                hidden.add(pid)
        for key, size in _mapped_deleted(pid):
            if key[0] in devices:
                files[key] = max(files.get(key, 0), size)
    return Descriptors(sum(files.values()), len(sockets), frozenset(hidden))


def _ends(pid: int) -> bool:
    """Whether all its threads are past their end: its entries in /proc are root's by then, and what it held open is
    being closed."""
    return all(int(fields[6]) & _EXITING for fields in map(_stat, _threads(pid)) if fields)


def _open_files(pid: int) -> Iterator[os.stat_result]:
    """Of each descriptor, but for those that are closed meanwhile. Raises PermissionError where that is hidden."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended
    for name in names:
        try:
            yield os.stat(f"/proc/{pid}/fd/{name}")
        except (FileNotFoundError, ProcessLookupError):
            continue  # code that opens and closes all the time hides nothing but that


def _mapped_deleted(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """((device, inode), bytes) of the parts of nameless files that ``pid`` maps."""
    for line in _read(f"/proc/{pid}/maps").split(b"\n"):
        if line.endswith(b" (deleted)"):
            span, _, _, device, inode = line.split(maxsplit=5)[:5]
            major, minor = (int(part, 16) for part in device.split(b":"))
            start, end = (int(part, 16) for part in span.split(b"-"))
            yield (os.makedev(major, minor), int(inode)), end - start


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
