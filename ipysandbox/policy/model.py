"""What a policy says, as frozen data; what it comes to on this machine and for this project is ``Effective``."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .names import DEFAULT_HIDE
from .units import format_duration, format_size


@dataclass(frozen=True, slots=True)
class Gpu:
    """Graphics cards by number or identifier, and the share of each one's memory that the sandbox may hold."""

    devices: tuple[str, ...] = ()
    memory_fraction: float = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """``cpu`` and ``wall`` are seconds of one cell; the rest is for the whole sandbox, sizes in bytes."""

    cpu: float = 300.0
    wall: float = 600.0
    memory: int = 4 * 2**30
    disk: int = 2**30
    processes: int = 256
    cpus: float = 2.0
    output: int = 32 * 2**20
    open_files: int = 1024
    gpu: Gpu = Gpu()


@dataclass(frozen=True, slots=True)
class Files:
    """Paths as they were written, relative to the project; ``hide`` holds name patterns."""

    read: tuple[str, ...] = (".",)
    write: tuple[str, ...] = ("results",)
    hide: tuple[str, ...] = DEFAULT_HIDE
    workspace: str = "overlay"
    review: str = "rest"


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts that may be reached; none in this version."""

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """How the check reads the code before it runs; it explains, it is never the boundary."""

    profile: str = "default"
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What becomes of HTML on its way out, whether the code may ask (``input()``), and whether widgets pass."""

    html: str = "sanitize"
    stdin: str = "visible"
    widgets: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """Names of host variables that the sandbox sees too."""

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Data:
    """A read-only data set outside the project, named to the code by DATA_SOURCE_PATH."""

    source_path: str | None = None


#: Loaded once, for sandboxes to share. What each saves a sandbox that imports it (processor time), and adds to the one
#: process that is forked from (Python 3.11 on a Xeon): numpy 0.07 s and 13 MB, pandas (with pyarrow) 0.24 s and 64 MB,
#: matplotlib.pyplot 0.39 s and 29 MB; with all of them a fork takes 1.3 ms instead of 0.6. Left out: scipy.stats 0.8 s
#: and 56 MB, scikit-learn 0.2 s and 22 MB, which fewer cells import; polars, which starts threads.
PRELOAD = ("numpy", "numpy.random", "pandas", "matplotlib.pyplot")


@dataclass(frozen=True, slots=True)
class Start:
    """How a sandbox comes to be: forked from a process that has loaded ``preload``, or from one of its own that was
    started for it (``exec``, nothing loaded); how many of this policy wait ready."""

    mode: str = "fork"
    preload: tuple[str, ...] = PRELOAD
    pool: int = 1


#: What a backend can promise, by name; see SECURITY.md.
GUARANTEES = (
    "files.read",
    "files.write",
    "network",
    "processes",
    "syscalls",
    "memory",
    "cpu",
    "disk",
    "tasks",
    "devices",
    "environment",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything a policy can say; without arguments it is the built-in profile "default"."""

    limits: Limits = Limits()
    files: Files = Files()
    network: Network = Network()
    credentials: tuple[str, ...] = ()
    code: Code = Code()
    output: Output = Output()
    environment: Environment = Environment()
    data: Data = Data()
    start: Start = Start()
    backend: str = "linux"
    #: Guarantees that must be held without a weaker point, or nothing starts.
    require: tuple[str, ...] = ()

    def get(self, key: str) -> Any:
        """The value of a dotted key such as "limits.cpu"."""
        value: Any = self
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def with_value(self, key: str, value: Any) -> Policy:
        """The same policy with one dotted key changed."""
        changed: Policy = _replaced(self, key.split("."), value)
        return changed

    def to_mapping(self) -> dict[str, Any]:
        """Shaped like the TOML file, with units; JSON can carry it."""
        mapping: dict[str, Any] = _plain(self)
        limits = mapping["limits"]
        for name in ("cpu", "wall"):
            limits[name] = format_duration(limits[name])
        for name in ("memory", "disk", "output"):
            limits[name] = format_size(limits[name])
        # TOML has no null: a key that isn't set isn't there.
        mapping["data"] = {name: value for name, value in mapping["data"].items() if value is not None}
        mapping["credentials"] = dict.fromkeys(self.credentials)
        return mapping


def _replaced(node: Any, names: list[str], value: Any) -> Any:
    inner = value if len(names) == 1 else _replaced(getattr(node, names[0]), names[1:], value)
    return dataclasses.replace(node, **{names[0]: inner})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


#: Of what decides isolation, how people know it where that is not its name: mostly the key in a policy's file.
_KEYS = {
    "project": "the project's folder",
    "project_is_home": "the project's folder",
    "folder": "the folder it begins in",
    "read": "files.read",
    "write": "files.write",
    "hidden": "files.hide",
    "protected": "the names that are never written through",
    "workspace": "files.workspace",
    "network": "network.allow",
    "environment": "environment.allow",
    "source_path": "data.source_path",
    "stdin": "output.stdin",
    "widgets": "output.widgets",
    "frames": "output.html",
    "start": "start.mode",
}


def _limit_keys(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {f"limits.{name}": value for name, value in limits.items()}


@dataclass(frozen=True)
class Effective:
    """A policy after all its layers, for one project on this machine.

    Every path in ``read`` and ``write`` was free of symbolic links when it was resolved. Whoever opens one later must
    refuse to follow links on the way (openat2 with RESOLVE_NO_SYMLINKS): code that ran in between could plant one.
    """

    policy: Policy
    project: Path
    #: Where the code begins: the folder that it is run for, the notebook's, where the sandbox shows that.
    folder: Path
    project_is_home: bool
    read: tuple[Path, ...]
    write: tuple[Path, ...]
    hidden: tuple[str, ...]
    protected: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    withheld: tuple[str, ...]
    dropped: tuple[str, ...]
    unset: tuple[str, ...]
    sources: Mapping[str, str]
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For display; variables by name only."""
        return {
            "policy": self.policy.to_mapping(),
            "project": str(self.project),
            "folder": str(self.folder),
            "project_is_home": self.project_is_home,
            "read": [str(p) for p in self.read],
            "write": [str(p) for p in self.write],
            "hidden": list(self.hidden),
            "protected": list(self.protected),
            "environment": {
                "passed": sorted(self.environment),
                "withheld": list(self.withheld),
                "not_passed": list(self.dropped),
                "unset": list(self.unset),
            },
            "sources": dict(self.sources),
            "notices": list(self.notices),
            "digest": self.digest(),
        }

    def writable_names(self) -> tuple[str, ...]:
        """The folders in ``write`` as code can name them: from where it begins, and in full."""
        return (*(os.path.relpath(path, self.folder) for path in self.write), *map(str, self.write))

    def digest(self) -> str:
        """SHA-256 of what decides isolation: two sandboxes with the same digest may do the same.

        Left out are values of variables, and what is decided per cell or outside the sandbox: cpu, wall, check, HTML
        but for frames.
        """
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        # Paths that aren't UTF-8 hold lone surrogates; ASCII escapes keep them apart without failing.
        return hashlib.sha256(json.dumps(self._decides(), sort_keys=True).encode("ascii")).hexdigest()

    def differs_in(self, other: Effective) -> list[str]:
        """Of what decides isolation, what another policy says something else of, as the policy's file names it."""
        ours, theirs = ({**_limit_keys(one.pop("limits")), **one} for one in (self._decides(), other._decides()))
        return list(dict.fromkeys(_KEYS.get(name, name) for name in ours if ours[name] != theirs[name]))

    def _decides(self) -> dict[str, Any]:
        limits = dataclasses.replace(self.policy.limits, cpu=0.0, wall=0.0)
        return {
            "limits": _plain(limits),
            "project": str(self.project),
            "folder": str(self.folder),
            "project_is_home": self.project_is_home,
            "read": sorted(str(p) for p in self.read),
            "write": sorted(str(p) for p in self.write),
            "hidden": list(self.hidden),
            "protected": sorted(self.protected),
            "workspace": self.policy.files.workspace,
            "network": sorted(self.policy.network.allow),
            "environment": sorted(self.environment),
            "source_path": self.environment.get("DATA_SOURCE_PATH"),
            "stdin": self.policy.output.stdin,
            "backend": self.policy.backend,
            "widgets": self.policy.output.widgets,
            # Plotly and its like are told inside, when the sandbox starts; between the others nothing differs there.
            "frames": self.policy.output.html == "isolate",
            "start": self.policy.start.mode,
        }
