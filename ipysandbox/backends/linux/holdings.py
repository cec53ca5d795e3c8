"""What processes hold open or mapped, and nothing else shows: nameless files, sockets, pieces of address space."""

from __future__ import annotations

import functools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .patience import Patient
from .processes import LONG_LOOK, LOOK_SECONDS, PAGE, ends, read


@dataclass(frozen=True)
class Descriptors:
    """What processes hold open, and nothing else shows."""

    #: Bytes of files without a name, which live only as long as they are held.
    deleted: int = 0
    #: Files without a name of which nobody may tell us how large they are, and the bytes of them that are mapped.
    unsized: int = 0
    mapped: int = 0
    #: How many files without a name there are in all.
    nameless: int = 0
    sockets: int = 0
    #: All that are open, those of /proc among them, and of these what tells of a descriptor.
    open: int = 0
    records: int = 0
    told: int = 0
    #: A process that doesn't let itself be looked at, look after look, if there is one: it could hold anything.
    hidden: int = 0


@dataclass(frozen=True)
class _Held:
    #: By (device, inode): what they take on disk; of those in ``unsized``, how much of them is mapped.
    files: Mapping[tuple[int, int], int]
    unsized: Mapping[tuple[int, int], int]
    sockets: frozenset[int]
    #: Pieces of its address space; 0: it doesn't show them.
    mappings: int
    #: Descriptors: all, those of records of /proc, those of /proc/PID/fdinfo.
    open: int
    records: int
    told: int
    #: It doesn't let itself be looked at.
    hidden: bool


#: Looks in a row that may find a certain process hidden, and rounds that may find any at all.
_MOST_HIDDEN_LOOKS, _MOST_ROUNDS_WITH_HIDDEN = 3, 20


class Holdings:
    """What processes hold open, mapped or run, looked at one after the other: what was found of one counts until the
    next look that reaches it, or its end. Files count on ``devices`` only, with all that they take on disk; ``shown``:
    which of these /proc/PID/maps means by other numbers. ``places``: where the code may write. What was removed
    elsewhere, a library that the host has replaced, counts with what is mapped of it."""

    def __init__(
        self, devices: Iterable[int] = (), shown: Mapping[int, int] | None = None, places: Iterable[str] = ()
    ) -> None:
        self.devices = frozenset(devices)
        self.places = tuple(places)
        self.shown = shown or {}
        self._held: dict[int, _Held] = {}
        #: In how many looks in a row each was hidden.
        self._hidden: dict[int, int] = {}
        self._hidden_rounds = 0
        self._left: list[int] = []
        self._patient = Patient[_Held]()

    def look_anew(self, pids: tuple[int, ...]) -> Descriptors:
        """Before a limit is said to be exceeded: nothing of an earlier look counts of those that this one reaches."""
        self._left = []
        return self.look(pids, LONG_LOOK)

    def mappings(self, sizes: Mapping[int, int]) -> tuple[int, int]:
        """Pieces of address space: those that were seen, and as many more as there may be in processes that no look has
        reached, by the sizes (bytes) of all. Such a one may have as many as any: it may be its fork."""
        known = {pid: held.mappings for pid, held in self._held.items() if held.mappings and pid in sizes}
        most = max(known.values(), default=0)
        return sum(known.values()), sum(min(most, size // PAGE) for pid, size in sizes.items() if pid not in known)

    def look(self, pids: tuple[int, ...], seconds: float = LOOK_SECONDS) -> Descriptors:
        """Go on for ``seconds``; at least one process is reached."""
        alive, until = set(pids), time.monotonic() + seconds
        self._held = {pid: held for pid, held in self._held.items() if pid in alive}
        self._hidden = {pid: count for pid, count in self._hidden.items() if pid in alive}
        late = self._patient.late(until)
        if late is not None and late[0] in alive:
            self._keep(late[0], late[1])
        # Asked again at once, which costs little: how long one stays hidden must not depend on the others.
        asked = [*self._hidden]
        for pid in asked:
            self._look_at(pid, until)
        if not self._left:
            self._left = [pid for pid in reversed(pids) if pid not in asked]
        while self._left:
            pid = self._left[-1]
            if pid in alive and pid not in asked and not self._look_at(pid, until):
                break
            self._left.pop()
            if pid in alive and time.monotonic() >= until:
                break
        if not self._left:
            # A process that has just been forked, or executes another program right now, is hidden for a moment only;
            # where many come and go, there is often one of that kind, but not for long at every look.
            self._hidden_rounds = self._hidden_rounds + 1 if self._hidden else 0
        return self._sum()

    def _look_at(self, pid: int, until: float) -> bool:
        """Whether it has answered."""
        look = functools.partial(_held_by, pid, self.devices, self.shown, self.places)
        held = self._patient.ask(pid, look, until)
        if held is not None:
            self._keep(pid, held)
        return held is not None

    def _keep(self, pid: int, held: _Held) -> None:
        self._held[pid] = held
        if held.hidden:
            self._hidden[pid] = self._hidden.get(pid, 0) + 1
        else:
            self._hidden.pop(pid, None)

    def _sum(self) -> Descriptors:
        files: dict[tuple[int, int], int] = {}
        for held in self._held.values():
            for key, size in held.files.items():
                files[key] = max(files.get(key, 0), size)
        unsized: dict[tuple[int, int], int] = {}
        for held in self._held.values():
            for key, size in held.unsized.items():
                if key not in files:  # another process has it open
                    unsized[key] = max(unsized.get(key, 0), size)
        connections = frozenset[int]().union(*(held.sockets for held in self._held.values()))
        longest = max(self._hidden, key=self._hidden.__getitem__, default=0)
        many = self._hidden_rounds >= _MOST_ROUNDS_WITH_HIDDEN
        hidden = longest if many or self._hidden.get(longest, 0) >= _MOST_HIDDEN_LOOKS else self._patient.hidden
        return Descriptors(
            deleted=sum(files.values()),
            unsized=len(unsized),
            mapped=sum(unsized.values()),
            nameless=len(files) + len(unsized),
            sockets=len(connections),
            open=sum(held.open for held in self._held.values()),
            records=sum(held.records for held in self._held.values()),
            told=sum(held.told for held in self._held.values()),
            hidden=hidden,
        )


def _held_by(pid: int, devices: frozenset[int], shown: Mapping[int, int], places: tuple[str, ...]) -> _Held:
    """As ``Holdings`` was made for."""
    files: dict[tuple[int, int], int] = {}
    unsized: dict[tuple[int, int], int] = {}
    sockets: set[int] = set()
    number = records = told = 0
    hidden = False
    try:
        for place, info in _open_files(pid):
            number += 1
            if stat.S_ISSOCK(info.st_mode):
                sockets.add(info.st_ino)
            elif info.st_nlink == 0 and info.st_dev in devices:
                files[info.st_dev, info.st_ino] = info.st_blocks * 512
            elif _is_record(info):
                records += 1
                told += _tells_of_a_descriptor(place)
    except PermissionError:
        hidden = not ends(pid)
    maps = read(f"/proc/{pid}/maps")
    within = tuple(os.fsencode(place).replace(b"\n", b"\\012") + b"/" for place in places)
    for (device, inode), span, path in _mapped_deleted(maps):
        key = shown.get(device, device), inode
        if key[0] not in devices or key in files:
            continue
        size = None if key in unsized else _mapped_size(pid, span, inode)
        if size is None and not path.startswith(within):
            files[key] = len(span)
        elif size is None:
            unsized[key] = max(unsized.get(key, 0), len(span))
        else:
            files[key] = size
    return _Held(files, unsized, frozenset(sockets), maps.count(b"\n"), number, records, told, hidden)


def _open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """Of the program that it runs and of each descriptor, but for those that are closed meanwhile. Raises
    PermissionError where that is hidden."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended
    for name in ("exe", *(f"fd/{name}" for name in names)):
        place = f"/proc/{pid}/{name}"
        try:
            yield place, os.stat(place)
        except (FileNotFoundError, ProcessLookupError):
            continue  # code that opens and closes all the time hides nothing but that


def _is_record(info: os.stat_result) -> bool:
    """Whether the kernel makes up what is read: a file of /proc, or an empty one on another file system without a
    disk."""
    return stat.S_ISREG(info.st_mode) and not info.st_size and not info.st_blocks and not os.major(info.st_dev)


_FDINFO = re.compile(r"/\d+/fdinfo/\d+$")


def _tells_of_a_descriptor(place: str) -> bool:
    try:
        return _FDINFO.search(os.readlink(place)) is not None
    except OSError:
        return False


_DELETED = b" (deleted)\n"


def _mapped_deleted(maps: bytes) -> Iterator[tuple[tuple[int, int], range, bytes]]:
    """((device, inode), addresses, path that it had) of the pieces of nameless files in a /proc/PID/maps."""
    # There may be tens of thousands of others: only these lines are looked at one by one.
    at = maps.find(_DELETED)
    while at >= 0:
        line = maps[maps.rfind(b"\n", 0, at) + 1 : at]
        span, _, _, device, inode, path = line.split(maxsplit=5)
        major, minor = (int(part, 16) for part in device.split(b":"))
        start, end = (int(part, 16) for part in span.split(b"-"))
        yield (os.makedev(major, minor), int(inode)), range(start, end), path
        at = maps.find(_DELETED, at + 1)


def _mapped_size(pid: int, span: range, inode: int) -> int | None:
    """Bytes that a mapped file takes on disk. None where the kernel doesn't tell: it wants CAP_CHECKPOINT_RESTORE of
    the machine for that, whatever else of the process one may see (proc(5), /proc/PID/map_files)."""
    try:
        info = os.stat(f"/proc/{pid}/map_files/{span.start:x}-{span.stop:x}")
    except OSError:
        return None
    return info.st_blocks * 512 if info.st_ino == inode else None  # another lies there by now
