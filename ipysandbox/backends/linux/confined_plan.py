"""What a sandbox without namespaces may reach: a policy and the interpreter's places in, Landlock rules out.

There is no root of its own to show things in, so paths are the host's, and what is not named stays where it is but
can't be opened. Landlock knows only "this and all below": a folder that holds a name to hide is opened up entry by
entry.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ipysandbox.errors import StartError
from ipysandbox.policy import Effective, compile_patterns
from ipysandbox.policy.paths import without_inner

from . import landlock
from .layout import find_hidden, find_protected, interpreter_places, system_parts

#: Rules that name the entries of one policy's folders; each costs a few microseconds at the start.
_MOST_RULES = 20_000
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: Which system this is. Here a file that may not be opened is refused, not missing, and few programs expect that.
_ETC = ("debian_version", "lsb-release", "nsswitch.conf", "os-release", "redhat-release")
#: Of /proc what tells about the machine and not about anybody's processes.
_PROC = (
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "uptime",
    "version",
    "vmstat",
    "sys/fs/file-max",
    "sys/fs/nr_open",
    "sys/kernel/cap_last_cap",
    "sys/kernel/ngroups_max",
    "sys/kernel/osrelease",
    "sys/kernel/ostype",
    "sys/kernel/pid_max",
    "sys/kernel/random/boot_id",
    "sys/kernel/random/uuid",
    "sys/kernel/threads-max",
    "sys/kernel/version",
    "sys/vm/max_map_count",
    "sys/vm/overcommit_memory",
)


@dataclass(frozen=True)
class ConfinedPlan:
    """Crosses a socket as JSON, as ``plan.Plan`` does: strings, numbers and lists only."""

    #: (path, rights of ``landlock``); the path is reached without following a link anywhere. Without rights it is
    #: shown, and its files are not.
    rules: tuple[tuple[str, int], ...]
    #: Where files may be changed: the policy's writable folders and the sandbox's own.
    writable: tuple[str, ...]
    #: Of the sandbox alone, 0700: its home and its temporary files lie in it.
    scratch: str
    cwd: str
    project: str
    environment: Mapping[str, str]
    rlimits: Mapping[str, int]
    #: Tasks at a time, threads included.
    processes: int
    cpus: tuple[int, ...]
    landlock_abi: int
    #: Host paths that exist and must not open; the self-test tries.
    absent: tuple[str, ...]
    #: Absolute paths left out of the rules.
    hidden: tuple[str, ...]
    scratch_bytes: int

    @property
    def home(self) -> str:
        return f"{self.scratch}/home"

    @property
    def temporary(self) -> str:
        return f"{self.scratch}/tmp"

    #: Nothing is laid over anything here.
    overlays = ()
    covered = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ConfinedPlan:
        """The inverse; the sender is the supervisor, so a wrong shape is a bug and raises TypeError or KeyError."""
        rest = {**data, "rules": tuple((path, rights) for path, rights in data["rules"])}
        for name in ("writable", "cpus", "absent", "hidden"):
            rest[name] = tuple(rest[name])
        return cls(**rest)


def rules(
    effective: Effective, scratch: Path, extra: tuple[Path, ...] = ()
) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """(rules, paths that were left out because they are hidden).

    Raises StartError when the policy can't be held this way.
    """
    found: list[tuple[str, int]] = []
    for bind in system_parts()[0]:
        found.append((os.path.realpath(bind.source), landlock.READ))
    places = interpreter_places()
    found += [(os.path.realpath(path), landlock.READ) for path in (*places, *extra)]
    found += [(os.path.realpath(f"/etc/{name}"), landlock.READ_FILE) for name in _ETC]
    found += [(f"/proc/{name}", landlock.READ_FILE) for name in _PROC]
    found += [(f"/dev/{name}", landlock.DEVICE) for name in _DEVICES]
    hidden = compile_patterns(effective.hidden)
    left_out: list[str] = []
    for path in without_inner(effective.read):
        names = find_hidden(path, hidden, places=places, leave_out=effective.write) if path.is_dir() else []
        left_out += (f"{path}/{name}" for name in names)
        found += _readable(path, names)
    for path in effective.write:
        _refuse_covered(effective, path)
        found.append((str(path), landlock.WRITE))
    found.append((os.path.realpath(scratch), landlock.PRIVATE))
    if len(found) > _MOST_RULES:
        raise StartError(
            f"files.hide: what is hidden lies among too many files ({len(found)}) to name each of the others",
            hint='List the folders that the code needs in the policy, for example files.read = ["data", "src"].',
        )
    return tuple((path, rights) for path, rights in found if os.path.lexists(path)), tuple(left_out)


def _readable(top: Path, hidden: list[str]) -> list[tuple[str, int]]:
    """All of ``top`` but ``hidden`` (relative paths). Folders on the way to a hidden name are the monitor's to open."""
    if not hidden:
        return [(str(top), landlock.READ)]
    found = [(str(top), 0)]
    stack = [""]
    out = set(hidden)
    while stack and len(found) <= _MOST_RULES:
        prefix = stack.pop()
        with os.scandir(top / prefix) as rows:
            for row in rows:
                relative = prefix + row.name
                if relative in out or row.is_symlink():
                    continue  # a link needs no right of its own: what it leads to does
                if any(name.startswith(relative + "/") for name in hidden):
                    stack.append(relative + "/")
                elif row.is_file(follow_symlinks=False) or row.is_dir(follow_symlinks=False):
                    found.append((row.path, landlock.READ))
    return found


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    return False


def _refuse_covered(effective: Effective, folder: Path) -> None:
    """A writable folder is writable all the way down: a name in it that must be hidden or kept can't be."""
    hidden, protected = compile_patterns(effective.hidden), compile_patterns(effective.protected, copies=False)
    found = {"hidden": find_hidden(folder, hidden, writable=True), "protected": find_protected(folder, protected)}
    for what, names in found.items():
        if names and _answers(folder / names[0]):
            raise StartError(
                f"files.write: {folder} holds {names[0]}, a pipe or socket, by which a program outside could answer; "
                "without namespaces it can't be covered",
                hint="Remove it or move it out of that folder, or name another folder in files.write.",
            )
        if names:
            raise StartError(
                f"files.write: {folder} holds {names[0]}, which must stay {what}; without namespaces that can't be "
                "held inside a folder that may be written",
                hint="Move it out of that folder, or name another folder in files.write.",
            )
