"""Reads what a sandbox's processes use from /proc, starting at its init: every process inside descends from it."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from .patience import Patient

_TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
#: More than any limit on tasks allows; a bound for this reader only.
_MOST = 20_000
#: States of a thread that runs no more.
_ENDED = (b"Z", b"X")
#: PF_EXITING of the kernel's sched.h, in the flags of /proc/PID/stat.
_EXITING = 0x4
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
    #: Of ``residents``, the tables in which the kernel keeps where pages are, where they could matter.
    tables: Mapping[int, int]
    #: Bytes of address space by number.
    sizes: Mapping[int, int] = field(default_factory=dict)

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

    def knows(self, pid: int, start: int) -> bool:
        """Whether an earlier look met the process: from then on its own meter is read."""
        return (pid, start) in self._seen

    def add(self, rows: list[tuple[int, int, float, float]], young: list[int], now: float) -> float:
        """``rows``: (pid, start time, own seconds, own and waited children's seconds); ``young``: threads of processes
        that no earlier look met, which want a processor right now."""
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
    return [int(child) for task in _threads(pid) for child in read(f"/proc/{pid}/task/{task}/children").split()]


def _share(pid: int) -> float:
    """How much of the time that ``pid`` wanted a processor it had one (Documentation/scheduler/sched-stats.rst)."""
    fields = read(f"/proc/{pid}/schedstat").split()
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
            fields, counted = _stat(thread), read(f"/proc/{thread}/schedstat").split()
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
    rows, young = [], []
    residents: dict[int, int] = {}
    sizes: dict[int, int] = {}
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
        if not meter.knows(pid, start):
            young += _running(pid, fields, meter.processors)
        if fields[0] in _ENDED:
            pid = _living_thread(pid)
            fields = _stat(pid) if pid else []
        if fields:
            sizes[pid], residents[pid] = int(fields[20]), int(fields[21]) * PAGE
    cpu = meter.add(rows, young, time.monotonic())
    tables = _tables(sizes)
    for pid, size in tables.items():
        residents[pid] += size
    return Sample(cpu, sum(residents.values()), len(found), residents, tables, sizes)


def _running(pid: int, fields: list[bytes], most: int) -> list[int]:
    """Threads of ``pid`` that want a processor right now, no more than ``most``; ``fields`` as ``_stat`` gave them,
    which tell only of the first thread whether it does."""
    found = [pid] if fields[0] == b"R" else []
    if int(fields[17]) > 1:
        for thread in _threads(pid):
            if len(found) >= most:
                break
            if thread != pid and _stat(thread)[:1] == [b"R"]:
                found.append(thread)
    return found


#: So much address space needs one byte of tables where all of it has been touched: a table has 8 bytes for a page.
_TABLE_REACH = PAGE // 8
#: So much of all processes' tables is not looked for: 32 GiB of address space in all.
_TABLES = 64 << 20


def _tables(sizes: Mapping[int, int]) -> dict[int, int]:
    """Bytes of page tables by number, of those whose address space (``sizes``) could make them matter."""
    if sum(sizes.values()) // _TABLE_REACH <= _TABLES:
        return {}
    share = _TABLES // len(sizes)
    return {pid: _status_kib(pid, b"VmPTE:") for pid, size in sizes.items() if size // _TABLE_REACH > share}


def _status_kib(pid: int, key: bytes) -> int:
    text = read(f"/proc/{pid}/status")
    found = text.partition(b"\n" + key)[2].split(maxsplit=1)
    return int(found[0]) * 1024 if found else 0


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the third on (proc(5)); none when it is gone."""
    text = read(f"/proc/{pid}/stat")
    # The name may hold anything, parentheses and newlines too: fields start after the last ")".
    return text[text.rindex(b")") + 2 :].split() if text else []


def started(pid: int) -> int:
    """When it began, in ticks since the machine did: with its number, what names it for good; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def state(pid: int) -> bytes:
    """The letter that proc(5) gives it; none when it is gone."""
    return (_stat(pid) or [b""])[0]


def _living_thread(pid: int) -> int:
    """Of a process whose first thread has ended: one that goes on, and by whose number memory and files are found in
    /proc; 0 where there is none, which is a process that only waits to be collected."""
    return next((task for task in _threads(pid) if (_stat(task) or [b"Z"])[0] not in _ENDED), 0)


def first_child(pid: int) -> int:
    """The oldest living child of a process; 0 where there is none."""
    return int((read(f"/proc/{pid}/task/{pid}/children").split() or [b"0"])[0])


def ends(pid: int) -> bool:
    """Whether all its threads are past their end: its entries in /proc are root's by then, and what it held open is
    being closed."""
    return all(int(fields[6]) & _EXITING for fields in map(_stat, _threads(pid)) if fields)


def deaf(pid: int, number: int) -> bool:
    """Whether the main thread of ``pid`` is stopped, or ignores or blocks the signal ``number``."""
    rows = (line.split(b":", 1) for line in read(f"/proc/{pid}/status").split(b"\n") if b":" in line)
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


@dataclass(frozen=True)
class _Share:
    """What a process had at the last look at it; ``resident`` as its sample told."""

    anonymous: int
    shared: int
    resident: int


#: A look at many processes, or at much that they hold, takes so long (seconds) and one process more; the next goes on.
LOOK_SECONDS = 0.03
#: Before processes count that no look has met yet, and before a limit is said to be exceeded, it takes so long.
LONG_LOOK = 0.25
#: What a process had when it was first met is not counted for so long, if no look has reached it: most of what a fork
#: has is shared.
_LATEST_LOOK = 5.0


class Shares:
    """Each process's share of memory (PSS), read one after the other. One that a look does not reach counts with its
    share at the last and what it has grown by since; the shares of those that have ended, which may have become
    others', until all others have been read again."""

    def __init__(self) -> None:
        self._known: dict[int, _Share] = {}
        #: Not reached yet: what it had when it was first met, and when that was.
        self._met: dict[int, tuple[int, float]] = {}
        self._left: list[int] = []
        self._ended: list[_Share] = []
        self._ended_before = 0
        self._patient = Patient[tuple[int, int]]()

    @property
    def hidden(self) -> int:
        """A process that keeps itself from being looked at, if there is one."""
        return self._patient.hidden

    def look(self, sample: Sample, init: int, limit: int, seconds: float = LOOK_SECONDS) -> tuple[int, int]:
        """(anonymous, shared-memory) bytes, page tables with the first. ``limit``: see ``LONG_LOOK``.

        Where a process hides its map (not dumpable), its whole resident set counts; of ``init``, which is ours,
        without the files that it has mapped.
        """
        began = time.monotonic()
        self._ended += [share for pid, share in self._known.items() if pid not in sample.residents]
        self._known = {pid: share for pid, share in self._known.items() if pid in sample.residents}
        self._keep_late(sample, began)
        new = {pid: size for pid, size in sample.residents.items() if pid not in self._known}
        self._met = {pid: self._met.get(pid, (size, began)) for pid, size in new.items()}
        # The largest first.
        for pid in sorted(new, key=new.__getitem__, reverse=True):
            if time.monotonic() > began + LONG_LOOK or not self._read(pid, sample, init, began + LONG_LOOK):
                break
        self._go_on(sample, init, began + seconds)
        found = self._sum(sample)
        if sum(found) > limit:
            self._go_on(sample, init, began + LONG_LOOK)
            found = self._sum(sample)
        return found

    def _go_on(self, sample: Sample, init: int, until: float) -> None:
        """Read those that are left of this round, or begin one; to its end, or as long as there is time."""
        self._keep_late(sample, until)
        if not self._left:
            self._left, self._ended_before = [*sample.residents], len(self._ended)
        while self._left and time.monotonic() < until:
            pid = self._left[-1]
            if pid in sample.residents and not self._read(pid, sample, init, until):
                break
            self._left.pop()
        if not self._left:
            del self._ended[: self._ended_before]
            self._ended_before = 0

    def _read(self, pid: int, sample: Sample, init: int, until: float) -> bool:
        """Whether it has answered."""
        resident = sample.residents[pid]
        share = self._patient.ask(pid, functools.partial(_share_of, pid, init), until, resident)
        if share is not None:
            self._keep(pid, share, resident, sample)
        return share is not None

    def _keep_late(self, sample: Sample, until: float) -> None:
        late = self._patient.late(until)
        if late is not None and late[0] in sample.residents:
            self._keep(*late, sample)

    def _keep(self, pid: int, share: tuple[int, int], resident: int, sample: Sample) -> None:
        anonymous, shared = share
        self._known[pid] = _Share(anonymous + sample.tables.get(pid, 0), shared, resident)
        self._met.pop(pid, None)

    def _sum(self, sample: Sample) -> tuple[int, int]:
        shares = [*self._known.values(), *self._ended]
        grown = sum(max(0, sample.residents[pid] - share.resident) for pid, share in self._known.items())
        now = time.monotonic()
        for pid, (size, met) in self._met.items():
            grown += max(0, sample.residents[pid] - (size if now - met < _LATEST_LOOK else 0))
        return sum(share.anonymous for share in shares) + grown, sum(share.shared for share in shares)


def _share_of(pid: int, init: int) -> tuple[int, int]:
    rollup = read(f"/proc/{pid}/smaps_rollup")
    if rollup:
        values = {
            parts[0]: int(parts[1]) * 1024
            for parts in (line.split() for line in rollup.split(b"\n"))
            if len(parts) == 3 and parts[2] == b"kB"
        }
        return values.get(b"Pss_Anon:", 0), values.get(b"Pss_Shmem:", 0)
    statm = read(f"/proc/{pid}/statm").split()
    if len(statm) < 2:
        return 0, 0
    files = int(statm[2]) if pid == init else 0
    return (int(statm[1]) - files) * PAGE, 0


@dataclass(frozen=True)
class Sockets:
    #: Of all kinds, and those of TCP among them.
    used: int = 0
    tcp: int = 0
    #: Bytes of TCP's buffers, of the whole machine.
    tcp_bytes: int = 0


def sockets(pid: int) -> Sockets:
    """Those in the network namespace of ``pid``, whoever holds them: those that wait to be accepted, and those that are
    on their way between processes, are no process's."""
    text = read(f"/proc/{pid}/net/sockstat") + read(f"/proc/{pid}/net/sockstat6")
    rows = {name: numbers.split() for name, _, numbers in (line.partition(b":") for line in text.splitlines())}

    def figure(name: bytes, key: bytes) -> int:
        row = rows.get(name, [])
        return int(row[row.index(key) + 1]) if key in row else 0

    tcp = figure(b"TCP", b"inuse") + figure(b"TCP6", b"inuse")
    return Sockets(figure(b"sockets", b"used"), tcp, figure(b"TCP", b"mem") * PAGE)


def machine_shared() -> int:
    """Bytes of shared memory and of files in memory, of the whole machine."""
    found = read("/proc/meminfo").partition(b"\nShmem:")[2].split(maxsplit=1)
    return int(found[0]) * 1024 if found else 1 << 62


def read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
