"""What a sandbox will see and hold: a plain description, made by the supervisor and carried out by ``launch``.

It crosses a socket as JSON, so it is made of strings, numbers, lists and mappings only. Paths are absolute host paths
and are the same inside: a traceback or a relative path means the same thing on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Bind:
    """A host path shown at the same path (or at ``target``); with all its submounts."""

    source: str
    writable: bool = False
    target: str = ""
    #: The policy names it: reached without following links, and files of the host's root are shown as the sandbox
    #: user's own (where the host user is root).
    from_policy: bool = False
    #: A system file that this machine may lack.
    optional: bool = False

    @property
    def where(self) -> str:
        return self.target or self.source


@dataclass(frozen=True)
class Overlay:
    """A host folder (or nothing, ``source == ""``) shown at ``target`` through overlayfs; changes stay in the scratch
    space.

    Going through an overlay also cuts off what a bind would pass on: unix sockets and pipes of the host.
    """

    target: str
    source: str = ""
    writable: bool = True
    #: Relative paths that do not exist inside, although they do in ``source``.
    hidden: tuple[str, ...] = ()
    #: Relative paths of folders or files that must exist as mount points although ``source`` lacks them.
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return self.target


@dataclass(frozen=True)
class Plan:
    binds: tuple[Bind, ...]
    overlays: tuple[Overlay, ...]
    #: Covered by something empty and read-only: hidden names inside writable binds.
    covered: tuple[str, ...]
    links: Mapping[str, str]  # link path -> what it holds
    texts: Mapping[str, str]  # path -> content of small files of ours (/etc/passwd, …)
    home: str
    cwd: str
    project: str
    environment: Mapping[str, str]
    scratch_bytes: int
    scratch_inodes: int
    rlimits: Mapping[str, int]  # name without RLIMIT_ -> soft and hard
    cpus: tuple[int, ...]
    landlock_abi: int
    outside_uid: int
    outside_gid: int
    inside_id: int
    #: Host paths that must be unreachable; the self-test looks for them.
    absent: tuple[str, ...]
    #: Device files shown at the same path, besides the few that every sandbox has: graphics cards.
    devices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def private(self) -> tuple[str, ...]:
        """Folders of the sandbox's own, all on one sized file system."""
        return ("/tmp", "/var/tmp", "/dev/shm", "/run", self.home)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The inverse; the sender is the supervisor, so a wrong shape is a bug and raises TypeError or KeyError."""
        binds = tuple(Bind(**row) for row in data["binds"])
        overlays = tuple(
            Overlay(**{**row, **{k: tuple(row[k]) for k in ("hidden", "folders", "files")}}) for row in data["overlays"]
        )
        rest = {k: v for k, v in data.items() if k not in ("binds", "overlays")}
        for name in ("covered", "cpus", "absent", "devices"):
            rest[name] = tuple(rest[name])
        return cls(binds=binds, overlays=overlays, **rest)
