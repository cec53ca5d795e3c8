"""What this machine's control groups offer to this process: read once, with no decision taken and nothing made.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

#: What a sandbox's group bounds.
CONTROLLERS = ("memory", "pids", "cpu")
#: In version 1 the meter of processor time is a controller of its own.
V1_CONTROLLERS = (*CONTROLLERS, "cpuacct")
#: Not looked up on PATH: folders there may be anybody's, or hang.
BUSCTL = "/usr/bin/busctl"


@dataclass(frozen=True)
class Facts:
    """How a sandbox can get a control group of its own; ``version`` 0: not at all, and ``reason`` says why."""

    version: int = 0
    #: "v1", "subtree" (a folder that is ours to divide), "systemd scope" (systemd gives us one), or "".
    how: str = ""
    controllers: tuple[str, ...] = ()
    #: By controller, the folder in which a sandbox's group is made; in version 2 one for all, under "". A scope's is
    #: known only when there is one.
    places: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    #: Address of the systemd that would give a scope.
    bus: str = ""
    #: Where version 2 is mounted.
    mount: str = ""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups, and where this process is in it."""

    version: int
    controllers: tuple[str, ...]
    mount: str
    own: str
    readonly: bool


class Look(Protocol):
    """How files are read; a test gives a table instead."""

    def read(self, path: str) -> str:
        """Its content; "" where it can't be read."""

    def writable(self, path: str) -> bool: ...
    def exists(self, path: str) -> bool: ...


class FileLook:
    """The real files: cgroupfs, /proc and /run lie in memory, so none of these can hang."""

    def read(self, path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def writable(self, path: str) -> bool:
        return os.access(path, os.W_OK, effective_ids=True)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)


def probe() -> Facts:
    """Look at this process's groups. Asks no other process, so that it can't wait for one."""
    return facts(FileLook(), uid=os.geteuid(), runtime_dir=os.environ.get("XDG_RUNTIME_DIR", ""))


def facts(look: Look, *, uid: int, runtime_dir: str = "") -> Facts:
    """The best way there is. Version 1 where memory is bounded by it, since a controller is in one version only."""
    found = hierarchies(look.read("/proc/self/cgroup"), look.read("/proc/self/mountinfo"))
    if any("memory" in row.controllers for row in found if row.version == 1):
        return _version_1(look, found)
    unified = next((row for row in found if row.version == 2), None)
    if unified is None:
        return Facts(reason="no control groups are mounted")
    return _version_2(look, unified, uid, runtime_dir)


def hierarchies(cgroup: str, mountinfo: str) -> list[Hierarchy]:
    """From /proc/self/cgroup and /proc/self/mountinfo; what is out of reach through the mounts is left out."""
    own: dict[str, str] = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number.isdigit() and path:
            own.update(dict.fromkeys(names.split(","), path))
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 6 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        controllers = tuple(name for name in kind[2].split(",") if name in V1_CONTROLLERS) if version == 1 else ()
        key = "" if version == 2 else next(iter(controllers), None)
        inside = None if key is None else _below(own.get(key, "/.."), _unescape(fields[3]))
        if inside is None:
            continue
        mount = _unescape(fields[4])
        readonly = "ro" in fields[5].split(",")
        found.append(Hierarchy(version, controllers, mount, os.path.normpath(f"{mount}/{inside}"), readonly))
    return found


def _below(path: str, root: str) -> str | None:
    """``path`` as seen from a mount of ``root``; None where that does not show it."""
    if path.startswith("/.."):
        return None
    if root == "/":
        return path.lstrip("/")
    if path == root or path.startswith(root + "/"):
        return path[len(root) :].lstrip("/")
    return None


def _unescape(text: str) -> str:
    """mountinfo writes blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _version_1(look: Look, found: Sequence[Hierarchy]) -> Facts:
    places = {}
    for row in found:
        if row.version == 1 and not row.readonly and look.writable(row.own) and look.writable(f"{row.own}/tasks"):
            places.update(dict.fromkeys(row.controllers, row.own))
    if "memory" not in places:
        return Facts(reason="control groups of version 1 are not writable for this user")
    controllers = tuple(name for name in V1_CONTROLLERS if name in places)
    return Facts(1, "v1", controllers, {name: places[name] for name in controllers})


def _version_2(look: Look, row: Hierarchy, uid: int, runtime_dir: str) -> Facts:
    bus = _bus(look, uid, runtime_dir)
    scope = Facts(2, "systemd scope", (), {}, bus=bus, mount=row.mount)
    if row.readonly:
        return Facts(reason="control groups are mounted read-only")
    if uid == 0 and bus:  # root may write anywhere, but where systemd rules, it gives out the folders
        return scope
    subtree = _subtree(look, row)
    if subtree is not None:
        return subtree
    if bus:
        return scope
    return Facts(reason="no control group is delegated to this user, and no systemd of his answers")


def _subtree(look: Look, row: Hierarchy) -> Facts | None:
    """A folder that may hold groups with controllers: our own, or the one above it.

    A group with processes can't hand controllers down, unless it is the root of all (cgroup-v2.rst, "No Internal
    Process Constraint"): our own has at least us.
    """
    above = os.path.dirname(row.own)
    for place in [row.own, *([above] if row.own != row.mount else [])]:
        if not (look.writable(place) and look.writable(f"{place}/cgroup.procs")):
            continue
        offered = look.read(f"{place}/cgroup.controllers").split()
        handed = look.read(f"{place}/cgroup.subtree_control").split()
        can_hand = look.writable(f"{place}/cgroup.subtree_control") and (
            not look.exists(f"{place}/cgroup.type") or not look.read(f"{place}/cgroup.procs").strip()
        )
        usable = tuple(name for name in CONTROLLERS if name in handed or (can_hand and name in offered))
        if "memory" in usable:
            return Facts(2, "subtree", usable, {"": place}, mount=row.mount)
    return None


def _bus(look: Look, uid: int, runtime_dir: str) -> str:
    """Address of the systemd in charge of this user's processes, "" where none is seen."""
    if not look.exists(BUSCTL):
        return ""
    if uid == 0:
        path, there = "/run/dbus/system_bus_socket", look.exists("/run/systemd/system")
    else:
        folder = runtime_dir if os.path.isabs(runtime_dir) else f"/run/user/{uid}"
        path, there = f"{folder}/bus", True
    return f"unix:path={path}" if there and look.exists(path) else ""
