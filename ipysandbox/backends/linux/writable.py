"""Keeps the folders that a sandbox writes directly (results/) within bounds and free of traps.

No kernel limit covers a plain folder, so its growth is measured: cheaply by the free space of its file system, exactly
by walking it when that moved.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ipysandbox.backends.base import NotLookedAt, Uncountable
from ipysandbox.errors import StartError
from ipysandbox.policy import compile_patterns
from ipysandbox.policy.names import REPOSITORY_OBEYED, in_repository

from .folders import SWAPPED, FilesChanged, HeldFolder, has
from .walk import MOST_ENTRIES, allow, is_deep, too_many, walk

#: Traps that a sweep names; the rest of what it disarmed is told as a number.
MOST_TRAPS = 10_000
#: A sweep ends after that long, however much lies there, and says so.
SWEEP_SECONDS = 60.0
#: Between two counts, where the file system tells of no growth.
_COUNT_SECONDS = 2.0
#: So long (seconds) one ``measure`` counts; the next goes on.
_LOOK_SECONDS = 0.03
#: The same while those who write are held still: they go on when it ends, and the next call has to catch up.
HELD_SECONDS = 0.1
#: Names that are kept of the files that were written; the rest is told as a number.
_MOST_WRITTEN = 200
#: CLOCK_REALTIME_COARSE of time.h, which Python doesn't name: file systems take their times from this one, and the
#: finer clock runs a few milliseconds ahead of it.
_FILE_CLOCK = 5


#: A name and what it names: (kind, device, inode), of a symbolic link its target as well.
Identity = tuple[int, int, int, str]
#: Kinds that are covered inside, where they bear a name that programs act on.
_COVERED = (stat.S_IFREG, stat.S_IFDIR)


@dataclass(frozen=True)
class Before:
    """What a folder was like when an earlier sandbox began: its mode, and what lay there of names programs act on.
    Only what has last changed (ns) between ``since`` and ``until`` can be that sandbox's."""

    mode: int
    here: Mapping[str, Identity]
    since: int
    until: int

    def differs(self, other: Before) -> bool:
        """Whether there is something else to protect."""
        return (self.mode, self.here) != (other.mode, other.here)


def by_path(patterns: Sequence[str], *, copies: bool) -> Callable[[str], bool]:
    """Whether one of the patterns means the entry at a relative path; ``copies``: or a copy of such."""
    matcher = compile_patterns(patterns, copies=copies)
    return lambda relative: matcher.match(_name(relative), relative)


class _Count:
    """Bytes and entries below a folder, as far as it has come: not beyond ``MOST_ENTRIES``."""

    def __init__(self, folder: HeldFolder) -> None:
        self.bytes = self.entries = 0
        #: Whether there are too many, and whether some lie too deep to be looked into.
        self.full = self.deep = False
        self._seen: set[tuple[int, int]] = set()
        self._walk = _entries(folder)

    def go_on(self, until: float) -> bool:
        """Until a moment of the monotonic clock; whether all is counted."""
        for info, relative, _ in self._walk:
            self.entries += 1
            self.full = self.entries >= MOST_ENTRIES
            if self.full:
                return True
            self.deep = self.deep or is_deep(relative)
            if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                if (info.st_dev, info.st_ino) in self._seen:  # a second name costs nothing
                    continue
                self._seen.add((info.st_dev, info.st_ino))
            self.bytes += info.st_blocks * 512
            if time.monotonic() >= until:
                return False
        return True


def _entries(folder: HeldFolder) -> Iterator[tuple[os.stat_result, str, int]]:
    """Nothing is opened before the first is asked for."""
    yield from walk(folder.open())


class WritableFolder:
    """One writable path of a sandbox. ``protected`` tells, by relative path, the names that programs act on, ``hidden``
    those that no sandbox may read. ``before``: sweep what an earlier sandbox has left; it is not to be measured.
    ``awake``: other sandboxes that may be writing here just now, by their folders and what lay there before them; what
    else bears a name that programs act on does not count as having been here. Raises StartError where more lies here
    than can be watched, or where another sandbox has put a link in the way.

    All is done by a descriptor: other sandboxes that write around this folder can give its path to another one."""

    def __init__(
        self,
        path: Path,
        protected: Callable[[str], bool],
        hidden: Callable[[str], bool],
        before: Before | None = None,
        awake: Sequence[tuple[Path, Mapping[str, Identity]]] = (),
    ) -> None:
        self.path = path
        try:
            self._folder = HeldFolder(path)
        except OSError as exc:
            if exc.errno in (*SWAPPED, errno.ENOENT):
                raise FilesChanged(
                    f"files.write: {path} is gone, or a link has taken its place: another sandbox may write around it",
                    hint="Let that sandbox end first.",
                ) from None
            raise StartError(
                f"files.write: {path} can't be looked into ({os.strerror(exc.errno or 0)}): what is written there "
                "can't be watched",
                hint="Make it readable for you, or name another folder in files.write.",
            ) from None
        self.identity = self._folder.identity
        self.device = self.identity[0]
        self._protected, self._hidden = protected, hidden
        # Of a file, the time of its last change of any kind is the one that code can't set.
        self._since = time.clock_gettime_ns(_FILE_CLOCK)
        #: Of the files that were written since then, some names and the number, as the last ``sweep`` met them.
        self.written: list[str] = []
        self.written_total = 0
        self._mode = self._folder.mode
        #: Whether the last look at what lies here met all of it, and the last ``sweep`` disarmed all that it met.
        self.whole = True
        #: After so many entries that look gave up, if it did.
        self.stopped_after: int | None = None
        self._told: set[str] = set()
        # By name and inode: an old file can be moved to such a name, and what bore it be moved away with its folder.
        self._here_before: Mapping[str, Identity] = {} if before is None else before.here
        #: Whether more lies here than can be watched, as far as is known.
        self.full = False
        base = _Count(self._folder)
        if before is None:
            base.go_on(math.inf)
        if base.full:
            raise too_many(path)
        self._base_bytes, self._base_files, self._base_deep = base.bytes, base.entries, base.deep
        if before is None:
            found = (
                (relative, _identity(info, relative, folder)) for info, relative, folder, trap in self._look() if trap
            )
            self._here_before = {
                relative: identity for relative, identity in found if _was_there(self.place, relative, identity, awake)
            }
        else:
            # What the user may have narrowed since stays so, but for its owner.
            changed = self._folder.stat().st_ctime_ns > before.until
            self._mode = before.mode & (self._mode | 0o700 if changed else 0o7777)
        self._earlier = before
        # What programs act on is covered inside: it keeps its content and its name, wherever its folder is moved.
        self._trust(self._here_before)
        self.bytes = self.files = 0
        #: Whether the last ``measure`` has come to the end of a count.
        self.walked = False
        #: The one that is not at its end, what was free when it began, and how long it has taken so far.
        self._count: _Count | None = None
        self._free_then = (0, 0)
        self._took = 0.0
        self._free = self._filesystem()
        self._next = time.monotonic() + _COUNT_SECONDS

    @property
    def place(self) -> Path:
        """Where it lies now."""
        return Path(os.readlink(f"/proc/self/fd/{self._folder.fd}"))

    def before(self) -> Before:
        """What a later sweep of what this sandbox leaves has to know; until when it writes is for others to say."""
        return Before(self._mode, self._here_before, self._since, 0)

    def may_exceed(self, most_bytes: int, most_files: int) -> bool:
        """Whether more than that may have been added, for all that the file system tells since the last whole count."""
        free = self._filesystem()
        return self.bytes + self._free[0] - free[0] > most_bytes or self.files + self._free[1] - free[1] > most_files

    def measure(self, step_bytes: int, seconds: float | None = None) -> tuple[int, int]:
        """(bytes, files) grown since the start. ``step_bytes``: how much growth of the file system asks for a count.

        A folder that takes longer than ``seconds`` (None: what one look may take) is counted by several calls: until
        then what is told is the last figure, or what this count has met so far where that is more. Raises Uncountable.
        """
        seconds = _LOOK_SECONDS if seconds is None else seconds
        now = time.monotonic()
        free = self._filesystem()
        moved = self._free[0] - free[0] >= step_bytes or self._free[1] - free[1] >= 1000
        # At least every few seconds, and never more than a tenth of the time.
        if self._count is None and (moved or now >= self._next):
            self._count, self._free_then, self._took = _Count(self._folder), free, 0.0
        self.walked = False
        count = self._count
        if count is not None:
            self.walked = count.go_on(now + seconds)
            used, files = count.bytes - self._base_bytes, count.entries - self._base_files
            if not self.walked:
                used, files = max(used, self.bytes), max(files, self.files)
            self.bytes, self.files = max(0, used), max(0, files)
            self._took += time.monotonic() - now
            # What hides in depth is as much as can be.
            full = count.full or (count.deep and not self._base_deep)
            self.full = full or (self.full and not self.walked)
        if self.walked:
            self._count, self._free = None, self._free_then
            self._next = now + max(_COUNT_SECONDS, 10 * self._took)
        if self.full:
            raise Uncountable(self.path.name, MOST_ENTRIES)
        return self.bytes, self.files

    @property
    def entries(self) -> int:
        """How many lay here when they were last counted."""
        return self._base_files + self.files

    def _filesystem(self) -> tuple[int, int]:
        try:
            v = os.statvfs(self._folder.fd)
        except OSError:
            return 0, 0
        return v.f_bfree * v.f_frsize, v.f_ffree

    def _look(
        self, *, below_new: bool = False, until: float | None = None
    ) -> Generator[tuple[os.stat_result, str, int, bool], None, None]:
        """Every entry, as ``walk`` yields it, and whether it is a trap. Below a folder that programs act on nothing is
        looked at: it is covered as a whole, and a repository changes whenever its owner works in it. ``below_new``: but
        for one that was not here before. ``until``: when to give up, by the clock; else after ``MOST_ENTRIES``."""
        passed, met = "/", 0
        self.whole, self.stopped_after = True, None
        with contextlib.closing(walk(self._folder.open())) as entries:
            for info, relative, folder in entries:
                if met >= MOST_ENTRIES if until is None else time.monotonic() > until:
                    self.whole, self.stopped_after = False, met
                    return
                met += 1
                if relative.startswith(passed):
                    continue
                trap = self._trap(info, relative, folder)
                if stat.S_ISDIR(info.st_mode):
                    if trap and not (below_new and not self._was_here(info, relative, folder)):
                        passed = f"{relative}/"
                    elif is_deep(relative):
                        self.whole = False
                yield info, relative, folder, trap

    def new_names(self) -> dict[str, Identity]:
        """What the next ``sweep`` would disarm, but for set-id files."""
        return {
            relative: _identity(info, relative, folder)
            for info, relative, folder, trap in self._look()
            if trap
            and not (stat.S_ISREG(info.st_mode) and info.st_mode & 0o6000)
            and not self._was_here(info, relative, folder)
        }

    def adopt(self, names: Mapping[str, Identity]) -> None:
        """From now on these count as having been here before: the user has put them here, and what isn't a link is
        covered inside."""
        self._trust({**self._here_before, **names})

    def _trust(self, names: Mapping[str, Identity]) -> None:
        self._here_before = names
        self._covered = {(there, _name(relative)) for relative, there in names.items() if there[0] in _COVERED}

    def _was_here(self, info: os.stat_result, relative: str, folder: int) -> bool:
        identity = _identity(info, relative, folder)
        return self._here_before.get(relative) == identity or (identity, _name(relative)) in self._covered

    def _in_time(self, info: os.stat_result) -> bool:
        return self._earlier is None or self._earlier.since <= info.st_ctime_ns <= self._earlier.until

    def _trap(self, info: os.stat_result, relative: str, folder: int) -> bool:
        kind = stat.S_IFMT(info.st_mode)
        if kind == stat.S_IFLNK and self._leads_out(relative, folder):
            return True
        plain = kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
        set_id = kind == stat.S_IFREG and bool(info.st_mode & 0o6000)
        return not plain or set_id or self._acts(relative, folder)

    def _leads_out(self, relative: str, folder: int) -> bool:
        """By itself, or through one that the user had here before and that does."""
        target = _target(relative, folder)
        if target is None:
            return False
        # "." and "..": of folders, whose names in this one they take back
        inside = os.path.normpath("/".join((*relative.split("/")[:-1], *target))).split("/")
        through = ("/".join(inside[:count]) for count in range(1, len(inside) + 1))
        return _goes_up(relative, target) or any(path in self._here_before for path in through)

    def _acts(self, relative: str, folder: int) -> bool:
        """Whether programs act on this name, by itself or for what lies beside it."""
        if self._protected(relative):
            return True
        return _name(relative) in REPOSITORY_OBEYED and in_repository(functools.partial(has, folder))

    def sweep(self) -> list[str]:
        """Disarm what was left and should not have been; what was there before stays as it is.

        A name that programs act on is renamed, and what lies below it looked at too; a pipe, socket or device is
        removed; set-id bits are cleared. Returns what was done, one phrase each. However many there are, it takes no
        longer than ``SWEEP_SECONDS``: see ``stopped_after``.
        """
        done: list[str] = []
        more = 0
        self.written, self.written_total = [], 0
        entries = self._look(below_new=True, until=time.monotonic() + SWEEP_SECONDS)
        here: dict[str, Identity] = {}
        met = 0
        for info, relative, folder, trap in entries:
            met += 1
            if trap and self._was_here(info, relative, folder):
                here[relative] = _identity(info, relative, folder)
            if stat.S_ISDIR(info.st_mode) and is_deep(relative):
                self._tell_once(done, f"{relative[:60]}… is nested too deep to be looked into")
            if not trap:
                self._note_written(info, relative)
            if not trap or self._was_here(info, relative, folder) or not self._in_time(info):
                continue
            try:
                text = self._disarm(info, _name(relative), folder, relative)
            except OSError as exc:
                self.whole = False
                text = f"{relative} could not be disarmed ({exc.strerror}): look at it before you use this folder"
                self._tell_once(done, text)
                continue
            if len(done) < MOST_TRAPS:
                done.append(text)
            else:
                more += 1
        self.full = met >= MOST_ENTRIES or self.stopped_after is not None
        if more:
            done.append(f"… and {more:,} more")
        if self.whole and self._earlier is None:
            # What has gone, by its owner's hand or another sandbox's sweep, is not trusted when it comes again.
            self._trust(here)
        if stat.S_IMODE(self._folder.stat().st_mode) != self._mode:
            os.fchmod(self._folder.fd, self._mode)
        return done

    def _tell_once(self, done: list[str], text: str) -> None:
        """What every sweep meets again, and can't change."""
        if text not in self._told:
            self._told.add(text)
            done.append(text)

    def _note_written(self, info: os.stat_result, relative: str) -> None:
        if not stat.S_ISREG(info.st_mode) or info.st_ctime_ns < self._since:
            return
        self.written_total += 1
        if len(self.written) < _MOST_WRITTEN:
            self.written.append(relative)

    def _disarm(self, info: os.stat_result, name: str, folder: int, relative: str) -> str:
        kind = stat.S_IFMT(info.st_mode)
        allow(folder, 0o700)
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            os.unlink(name, dir_fd=folder)
            return f"{relative} removed (not a file)"
        if kind == stat.S_IFLNK and self._leads_out(relative, folder):
            os.unlink(name, dir_fd=folder)
            return f"{relative} removed (a link out of this folder)"
        if not self._acts(relative, folder):
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(os.fstat(fd).st_mode) & 0o1777)
            finally:
                os.close(fd)
            return f"{relative} lost its set-user-id bit"
        harmless = self._harmless_name(name, folder, relative)
        os.rename(name, harmless, src_dir_fd=folder, dst_dir_fd=folder)
        return f"{relative} renamed to {harmless} (programs act on that name)"

    def _harmless_name(self, name: str, folder: int, relative: str) -> str:
        """One that nothing acts on; a hidden one for what is hidden: the user may have put a secret there meanwhile."""
        parent = relative[: -len(name)]
        stem = name.strip(".")[:100] or "file"
        hidden, ending = self._hidden(relative), ".env" if self._hidden(relative) else ""
        for number in range(10_000):
            for candidate in (f"{stem}.untrusted{number or ''}{ending}", f"untrusted-{number}{ending}"):
                if self._protected(parent + candidate) or (hidden and not self._hidden(parent + candidate)):
                    continue
                try:
                    os.stat(candidate, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    return candidate
        raise FileExistsError(17, "no free name left")


def sweep_all(folders: Iterable[WritableFolder]) -> list[str]:
    """What was done in each, as ``Instance.sweep`` tells it."""
    done: list[str] = []
    for folder in folders:
        name = folder.path.name
        done += [f"{name}/{text}" for text in folder.sweep()]
        if folder.stopped_after is not None:
            done.append(
                NotLookedAt(
                    f"{name} holds more than could be looked at in {SWEEP_SECONDS:.0f} s ({folder.stopped_after:,} "
                    "entries were): links out of it, .git, conftest.py and such may lie among the rest. Start no "
                    f"program in {name}, copy what you need out of it by name, and remove it"
                )
            )
    return done


def _was_there(
    folder: Path, relative: str, identity: Identity, awake: Sequence[tuple[Path, Mapping[str, Identity]]]
) -> bool:
    """Whether it lay here before each of the others that may write at this place."""
    place = folder / relative
    return all(
        here.get(str(place.relative_to(other))) == identity for other, here in awake if place.is_relative_to(other)
    )


def _name(relative: str) -> str:
    return relative.rsplit("/", 1)[-1]


def _identity(info: os.stat_result, relative: str, folder: int) -> Identity:
    kind = stat.S_IFMT(info.st_mode)
    target = "/".join(_target(relative, folder) or ()) if kind == stat.S_IFLNK else ""
    return kind, info.st_dev, info.st_ino, target


def _target(relative: str, folder: int) -> list[str] | None:
    """The parts of a symbolic link's target; None where it is gone."""
    try:
        return [part for part in os.readlink(_name(relative), dir_fd=folder).split("/") if part != "."]
    except OSError:
        return None


def _goes_up(relative: str, target: list[str]) -> bool:
    """Whether a symbolic link may lead out of the writable folder: what the host writes there next would go elsewhere.

    Leading ".." are exact, since the link's own folder was reached through no link; one further on may follow a link.
    """
    parents = relative.split("/")[:-1]
    up = 0
    while up < len(target) and target[up] == "..":
        up += 1
    return target[:1] == [""] or up > len(parents) or ".." in target[up:]
