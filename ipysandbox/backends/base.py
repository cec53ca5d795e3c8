"""The contract between the supervisor and a way of isolating code: enough to write a third backend from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ipysandbox.policy import Effective

from .attempt import Attempt


@dataclass(frozen=True)
class Usage:
    """What a sandbox holds at one moment; bytes and seconds, summed over all its processes."""

    cpu: float = 0.0
    memory: int = 0
    processes: int = 0
    #: Scratch space (temporary files, shared memory, changed project files) plus what was written to writable paths.
    disk: int = 0
    files: int = 0
    #: Of the graphics card where it is nearest to its share: bytes held, and the share (0: it has no card).
    gpu: int = 0
    gpu_allowed: int = 0


@dataclass(frozen=True)
class Change:
    """One path of the project that differs inside the sandbox; ``path`` is relative to the project."""

    path: str
    kind: str  # added | changed | removed
    size: int = 0


class Uncountable(Exception):
    """A folder that the sandbox writes holds more than can be counted while it runs: it can't be held to its limits
    any more."""

    def __init__(self, folder: str, most: int) -> None:
        super().__init__(folder)
        self.folder, self.most = folder, most


class NotLookedAt(str):
    """Among the phrases of a sweep: it could not look at everything in a folder, which this one is about."""


@dataclass(frozen=True)
class Endpoints:
    """Where the kernel inside listens: a unix socket path per channel, and the key its messages are signed with."""

    channels: Mapping[str, str]
    key: bytes


@dataclass(frozen=True)
class StartRequest:
    name: str
    effective: Effective
    #: A folder of the supervisor's, 0700, for this sandbox's sockets; the backend may fill it and must empty it.
    directory: Path
    #: Whether what it shows goes to a page, where widgets can be seen.
    page: bool = False
    #: Whether nothing but ours runs in it until it is renewed.
    waits: bool = False


class Instance(ABC):
    """One running sandbox. Its processes and files are hostile; every method must end, whatever they do."""

    endpoints: Endpoints
    #: Names of the layers that hold each guarantee, for people.
    guarantees: Mapping[str, tuple[str, ...]]
    #: Those that are held in a weaker form than elsewhere, with what is weaker, for people.
    weaker: Mapping[str, str] = MappingProxyType({})
    #: Whether what is written in the project goes to an overlay, and there is a loopback.
    namespaces: bool = True
    #: Limits that the kernel holds to the byte or the task, by name: they need no watching.
    bounded: frozenset[str] = frozenset()
    #: Host process whose end is the end of everything inside.
    pid: int

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        """Call ``callback`` once when the sandbox has ended, with the kernel's exit status if known (untrusted)."""

    @abstractmethod
    def on_attempts(self, callback: Callable[[list[Attempt]], None]) -> None:
        """Call ``callback`` with what the code tried and was refused, about once a second, those of before included.
        Its text is harmless to show. A backend that can't tell never calls it."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ask the code to stop, as Ctrl-C would. May be ignored by the code."""

    @abstractmethod
    def deaf(self) -> bool:
        """Whether the code is known not to hear an interrupt: waiting for it to stop would be in vain."""

    @abstractmethod
    def interpreter(self) -> tuple[int, int] | None:
        """The host's process that runs the cells, (number, start time in ticks), whose memory whoever started it may
        read; None where there is none to read."""

    @abstractmethod
    async def kill(self) -> None:
        """End every process inside, however it hides; returns when they are gone."""

    @abstractmethod
    def measure(self, *, brief: bool = False) -> Usage:
        """Cheap enough for 20 calls a second. ``brief``: what costs most may be half a second old. Raises
        ProcessLookupError when the sandbox has ended, PermissionError when a process hides what it holds open, and
        Uncountable."""

    @abstractmethod
    def cpu(self) -> float:
        """Processor seconds of all that ever ran inside, and nothing else: cheaper. Raises as ``measure`` does."""

    @abstractmethod
    def enforced(self) -> Mapping[str, int]:
        """Limits for which the kernel itself has ended processes inside, by name, and the most that was held (bytes);
        as of the last ``measure``, or of the end."""

    @abstractmethod
    async def hide_new_names(self) -> list[str]:
        """Hide what has appeared on the host since the start and has a name to hide; paths that could not be hidden."""

    @abstractmethod
    def newly_hidden(self) -> list[str]:
        """What ``hide_new_names`` has found under the policy's hidden names since the last call of this, each name
        once, relative to the project where it lies in it: inside it is there, and empty. Untrusted text."""

    @abstractmethod
    def exact_above(self, resident: int, limit: int) -> None:
        """From now on ``measure`` may give quick upper bounds of memory as long as they are below ``resident`` (bytes),
        and somewhat larger ones than the truth, but no smaller, up to ``limit``."""

    @abstractmethod
    def sweep(self) -> list[str]:
        """Disarm what the code left in writable paths and nobody should meet there: protected names that are new,
        pipes, sockets, devices, set-id bits. Returns one phrase for each, ``NotLookedAt`` for each folder of which it
        could not see all. Slow: call it from a thread, unless it is ``quick_to_sweep``."""

    @abstractmethod
    def quick_to_sweep(self) -> bool:
        """Whether a sweep takes no longer than ``measure``, by what was last counted."""

    @abstractmethod
    def untouched(self) -> bool:
        """Whether nothing inside has run since the last ``sweep`` began: what is new since then is somebody else's."""

    @abstractmethod
    def at_rest(self) -> bool:
        """The same for who asks again and again: cheap, and true for some milliseconds after something has begun."""

    @abstractmethod
    def mark(self) -> None:
        """All that runs inside so far is ours: ``untouched`` counts from here."""

    @abstractmethod
    def dismiss(self) -> None:
        """It has ended, and nothing but ours has run in it: there is nothing to sweep."""

    @abstractmethod
    def written(self) -> tuple[list[str], int]:
        """Files in writable paths that were written since the start, as the last ``sweep`` met them: some of them,
        relative to the project where they lie in it, and how many there are."""

    @abstractmethod
    def changes(self) -> list[Change]:
        """Files of the project that differ inside, bounded in number."""

    @abstractmethod
    def last_words(self) -> str:
        """The end of what the kernel process itself wrote outside any cell (a crash report); untrusted text."""


class Backend(ABC):
    """Starts sandboxes of one kind; owned by one supervisor."""

    name: str

    @abstractmethod
    async def recover(self, request: StartRequest, done: list[str]) -> None:
        """Disarm what the sandboxes of supervisors that were killed left in its writable paths, as ``Instance.sweep``
        does; called before each ``start``. ``done`` takes the phrases. Raises StartError when not all was possible."""

    @abstractmethod
    async def start(self, request: StartRequest) -> Instance:
        """Start a sandbox that holds every guarantee of the policy, or raise StartError and leave nothing behind."""

    @abstractmethod
    async def renew(self, instance: Instance, request: StartRequest) -> bool:
        """Whether a sandbox in which only ours has run (see ``Instance.mark``) is what ``start`` would give now: the
        same files shown, hidden and covered, the same packages. From now on it counts as started now. Where this is
        False it is not to be used."""

    @abstractmethod
    def outdated(self, instance: Instance) -> bool:
        """Whether ``renew`` would say no for sure, as far as is known without a look: the packages have changed."""

    @abstractmethod
    def not_loaded(self, effective: Effective) -> Mapping[str, str]:
        """Libraries of ``start.preload`` that its sandboxes don't find loaded, and why, as far as is known."""

    @abstractmethod
    async def close(self) -> None:
        """End every sandbox and helper process."""
