"""What lay in a writable folder before a sandbox, on disk for as long as the sandbox may write there.

A supervisor that is killed disarms nothing any more. The next start on that folder does, by its record: without one it
would take what was left there for what has always been there. And whoever else writes there meanwhile takes for the
user's only what no sandbox that is awake can have put there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipysandbox import reach, state
from ipysandbox.errors import StartError
from ipysandbox.policy import Effective

from . import processes
from .folders import SWAPPED, FilesChanged, HeldFolder
from .writable import Before, Identity, WritableFolder, by_path, sweep_all

_NAME, _ENDING = "left-behind", ".json"
#: Beside a record: since its last sweep nothing of its sandbox has run.
_REST = ".rest"
#: How often the time of a record is set, which says until when its sandbox lived.
_TOUCH_SECONDS = 5.0
#: What has last changed later than that after this time is the user's. A record is at most _TOUCH_SECONDS old when its
#: supervisor is killed, and the sandbox ends within two of it; the rest is for a machine that has far too much to do.
_MARGIN_SECONDS = 20.0
#: Of a sandbox whose supervisor was killed: how long its end is waited for.
_END_SECONDS = 10.0
#: Until another start has looked at what lies in its folders: somewhat more than a sweep takes.
_TURN_SECONDS = 75.0
#: Bytes of a record, and of them those for names: at least ten thousand.
_MOST_BYTES, _MOST_LISTED = 16 << 20, 15 << 20
#: Looks at a folder in which others keep starting and ending.
_TRIES = 5
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: What reading something raises that is not what we write.
_BROKEN = (ValueError, KeyError, TypeError, RecursionError)
_HINT = "Set XDG_STATE_HOME to a folder of your own on a disk with space, or correct the file named."


#: Which folder each record is for: its name is random, so that never changes. Used by who holds the folder of records.
_folders: dict[str, Path] = {}


class Record:
    """One folder's, for one sandbox; locked for as long as its supervisor lives."""

    def __init__(self, folder: WritableFolder, effective: Effective, pids: Sequence[int]) -> None:
        """``pids``: with their end all of the sandbox has ended. Raises StartError: as with the audit trail, what could
        not be undone after a crash is not begun."""
        self.path = state.folder(_NAME) / (secrets.token_hex(8) + _ENDING)
        self.folder, self._effective, self._pids = folder, effective, pids
        self._next = 0.0
        self._fd = self._rest = -1
        with _alone() as directory:
            self._write(directory)

    def _write(self, directory: int) -> None:
        """Anew, in one step; locked before it is there."""
        part = self.path.name + ".part"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=directory)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(fd, "w", encoding="ascii", closefd=False) as file:
                json.dump(_fields(self.folder, self._effective, self._pids), file)
            os.rename(part, self.path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=directory)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd

    def renew(self) -> None:
        """What the folder now counts as having been here before, for others who write there."""
        if self._fd >= 0:
            with contextlib.suppress(StartError), _alone() as directory:  # then others will not take it for the user's
                self._write(directory)

    def rest(self, root: int, times: Mapping[int, int] | None) -> None:
        """All that the sandbox has left is swept, and below the process ``root`` (0: nothing runs) nothing has run
        since ``times``, as ``processes.run_times`` gives them; None: that can't be said any more."""
        if times is None or self._fd < 0:
            self._let_go_of_rest()
            return
        # In place, and read by nobody who doesn't compare it with what has run by then: what was read in the middle is
        # broken, or true of each thread by itself.
        data = json.dumps({"root": root, "times": [*times.items()]}).encode("ascii")
        try:
            if self._rest < 0:
                self._rest = os.open(self.path.with_suffix(_REST), os.O_WRONLY | os.O_CREAT | _OPEN, 0o600)
            os.pwrite(self._rest, data, 0)
            os.ftruncate(self._rest, len(data))
        except OSError:  # a full disk: it counts as awake
            self._let_go_of_rest()

    def _let_go_of_rest(self) -> None:
        with contextlib.suppress(OSError):
            self.path.with_suffix(_REST).unlink()
        if self._rest >= 0:
            os.close(self._rest)
            self._rest = -1

    def touch(self) -> None:
        """The sandbox lives. Cheap enough to be called whenever that is looked at."""
        now = time.monotonic()
        if self._fd >= 0 and now >= self._next:
            self._next = now + _TOUCH_SECONDS
            with contextlib.suppress(OSError):  # a full disk: the audit trail, on the same, refuses the next cell
                os.utime(self._fd)

    def remove(self) -> None:
        """All has been swept; what could not be looked at to its end is for the next start."""
        if self._fd >= 0:
            if self.folder.stopped_after is None:
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()
            self._let_go_of_rest()
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True)
class Others:
    """The sandboxes that may write in a folder, or in one above or below it, as their records say: so that those of
    other notebooks count too."""

    #: Those that may have put something there since they were last swept: their folder, what lay there before them.
    awake: tuple[tuple[Path, Mapping[str, Identity]], ...]
    #: By record, of the rest: what each says of being at rest. Two of these are the same if none has run in between.
    resting: Mapping[str, bytes]


def others(path: Path, own: Sequence[Record] = ()) -> Others:
    """All but ``own``. One whose record can't be read may have put anything anywhere. Raises StartError."""
    real, mine = Path(os.path.realpath(path)), {record.path.name for record in own}
    awake: list[tuple[Path, Mapping[str, Identity]]] = []
    resting: dict[str, bytes] = {}
    with _alone() as directory:
        for name in _names(directory):
            if not name.endswith(_ENDING) or name in mine:
                continue
            other = _folders.get(name)
            if other is not None and not _overlap(other, real):
                continue
            marker = _at_rest(name, directory) if other is not None else None
            if marker is not None:
                resting[name] = marker
                continue
            try:
                record = _record(name, _content(name, directory))
            except FileNotFoundError:
                continue
            except (*_BROKEN, OSError):
                awake.append((Path("/"), {}))
                continue
            other = _folders[name]
            if not _overlap(other, real):
                continue
            marker = _at_rest(name, directory)
            if marker is not None:
                resting[name] = marker
            else:
                awake.append((other, {there: tuple(identity) for there, identity in record["here"].items()}))
    return Others(tuple(awake), resting)


def _names(directory: int) -> list[str]:
    """Of what lies there; forgets what no longer does."""
    names = sorted(os.listdir(directory))
    for gone in _folders.keys() - set(names):
        del _folders[gone]
    return names


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _record(name: str, content: bytes) -> dict[str, Any]:
    """The record of that name; which folder it is for is kept. Raises what ``_BROKEN`` names."""
    record = _checked(json.loads(content))
    _folders[name] = Path(record["path"])
    return record


def writable(path: Path, effective: Effective) -> WritableFolder:
    """A folder as a sandbox finds it that begins now: what others who write there may have laid is not trusted."""
    protected, hidden = by_path(effective.protected, copies=False), by_path(effective.hidden, copies=True)
    before = others(path)
    for _ in range(_TRIES):
        folder = WritableFolder(path, protected, hidden, awake=before.awake)
        after = others(folder.place)
        if after == before:
            break
        before = after
    return folder


def _content(name: str, directory: int) -> bytes:
    with open(os.open(name, os.O_RDONLY | _OPEN, dir_fd=directory), "rb") as file:
        return file.read(_MOST_BYTES)


def _at_rest(name: str, directory: int) -> bytes | None:
    """What its marker says, if it still holds."""
    try:
        data = _content(name.removesuffix(_ENDING) + _REST, directory)
        marker = json.loads(data)
        root, times = int(marker["root"]), {int(thread): int(ran) for thread, ran in marker["times"]}
    except (*_BROKEN, OSError):
        return None
    return data if root == 0 or processes.run_times(root) == times else None


def disarm(paths: Sequence[Path], done: list[str]) -> None:
    """Sweep what sandboxes of killed supervisors left in these folders, and above or below them; ``done`` takes what
    was done, one phrase each. Slow: call it from a thread. Raises StartError when not all could be looked at."""
    real = [Path(os.path.realpath(path)) for path in paths]
    with _alone() as directory:
        names = _names(directory)
        for name in names:
            if not name.endswith(_REST):
                _take(name, directory, real, done)
            elif name[: -len(_REST)] + _ENDING not in names:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def _alone() -> Iterator[int]:
    """The folder of the records. One start at a time: none may take for its own what another is about to disarm."""
    try:
        directory = state.open_folder(_NAME)
        try:
            _lock(directory)
            yield directory
        finally:
            os.close(directory)
    except OSError as exc:
        place = state.folder(_NAME)
        raise StartError(f"what lies in writable folders can't be recorded in {place}: {exc}", hint=_HINT) from None


def _lock(directory: int) -> None:
    latest = time.monotonic() + _TURN_SECONDS
    while True:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > latest:
                raise OSError(errno.EAGAIN, "another sandbox's start does not end") from None
        time.sleep(0.01)


def _take(name: str, directory: int, paths: Sequence[Path], done: list[str]) -> None:
    """Follow one record, if it is for these folders and nobody holds it, and remove it."""
    if name in _folders and not any(_overlap(_folders[name], other) for other in paths):
        return
    try:
        fd = os.open(name, os.O_RDWR | _OPEN, dir_fd=directory)
    except FileNotFoundError:
        return  # its sandbox has just ended in order
    except OSError:
        done += _broken(name, directory)
        return
    with open(fd, "rb") as file:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if name.endswith(_ENDING):  # else its supervisor was killed before the sandbox began
            try:
                record = _record(name, file.read(_MOST_BYTES))
            except (*_BROKEN, OSError):
                done += _broken(name, directory)
                return
            path = _folders[name]
            if not any(_overlap(path, other) for other in paths):
                return
            _follow(path, record, os.fstat(fd).st_mtime_ns, done)
        for gone in (name, name.removesuffix(_ENDING) + _REST):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(gone, dir_fd=directory)


def _broken(name: str, directory: int) -> list[str]:
    """Of whatever folder it was: no list says any more what was the user's there, so nothing is touched."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
    return [
        f"nothing by {name}, which is damaged: look for new links, .git, .envrc and such before you use the folders"
    ]


def _follow(path: Path, record: dict[str, Any], lived: int, done: list[str]) -> None:
    for pid, started in record["processes"]:
        if not _ended(pid, started):
            raise StartError(
                f"a sandbox whose supervisor was killed has not ended, and may write in {path} (process {pid})",
                hint="Try again in a moment; if it stays so, end that process.",
            )
    reach.require([path])
    try:
        held = HeldFolder(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        if exc.errno not in SWAPPED:  # it may be looked at another time
            raise
        held = None
    if held is None or held.identity[1] != record["inode"]:
        done.append(f"nothing in {path}, which is another folder than it was: look into that one before you use it")
        return
    # Of some file systems the number differs after the machine's next start.
    devices = {record["device"]: held.identity[0]}
    here = {name: (kind, devices.get(device, device), *rest) for name, (kind, device, *rest) in record["here"].items()}
    # Of what is not listed, an older one is the user's.
    since = 0 if record["whole"] else record["since"]
    before = Before(record["mode"], here, since, lived + int(_MARGIN_SECONDS * 1e9))
    protected, hidden = by_path(record["protected"], copies=False), by_path(record["hidden"], copies=True)
    folder = WritableFolder(path, protected, hidden, before)
    if folder.identity != held.identity:
        raise FilesChanged(f"{path} is being moved about", hint="End the sandbox that writes around it.")
    done += sweep_all([folder])
    if folder.stopped_after is not None:
        raise StartError(
            f"{path} holds more than can be looked at: what an earlier sandbox left there could not all be disarmed",
            hint=f"Copy what you need out of {path} by name and remove it, or point files.write at another folder.",
        )


def _ended(pid: int, started: int) -> bool:
    """Whether a process has ended; it is given some time to."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as exc:
        if exc.errno in (errno.ESRCH, errno.EINVAL):  # none, or one that is a thread's number by now
            return True
        raise
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return processes.started(pid) != started or bool(poller.poll(_END_SECONDS * 1000))
    finally:
        os.close(fd)


def _fields(folder: WritableFolder, effective: Effective, pids: Sequence[int]) -> dict[str, Any]:
    before, (device, inode) = folder.before(), folder.identity
    here: dict[str, Identity] = {}
    room = _MOST_LISTED
    for name, identity in before.here.items():
        room -= 100 + 12 * (len(name) + len(identity[3]))  # as JSON at most
        if room < 0:
            break
        here[name] = identity
    return {
        "path": str(folder.place),
        "device": device,
        "inode": inode,
        "mode": before.mode,
        "since": before.since,
        "here": here,
        "whole": len(here) == len(before.here),
        # As they were: under a later policy, or version, more names may be protected, which are not listed here.
        "protected": list(effective.protected),
        "hidden": list(effective.hidden),
        "processes": [(pid, processes.started(pid)) for pid in pids],
    }


def _checked(record: Any) -> dict[str, Any]:
    """The record, if it is what ``_fields`` writes. Raises ValueError, KeyError or TypeError."""
    numbers = [record[name] for name in ("device", "inode", "mode", "since")]
    for pid, started in record["processes"]:
        numbers += [pid, started]
        if type(pid) is not int or not 0 < pid < 1 << 31:
            raise ValueError("no process")
    texts = [record["path"]]
    for name in ("protected", "hidden"):
        if type(record[name]) is not list:
            raise ValueError("no patterns")
        texts += record[name]
    if type(record["here"]) is not dict:
        raise ValueError("no names")
    for kind, device, inode, target in record["here"].values():
        numbers += [kind, device, inode]
        texts.append(target)
    if any(type(number) is not int or not 0 <= number < 1 << 64 for number in numbers) or record["mode"] > 0o7777:
        raise ValueError("no number")
    if any(type(text) is not str for text in texts) or type(record["whole"]) is not bool:
        raise ValueError("no text")
    path = record["path"]
    if not os.path.isabs(path) or os.path.normpath(path) != path or "\0" in path:
        raise ValueError("no path")
    checked: dict[str, Any] = record
    return checked
