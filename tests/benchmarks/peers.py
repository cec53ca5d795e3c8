"""Other ways to run a piece of Python, found where they are installed; each gets the same work and libraries.

The interpreter and its packages are those of this run, mounted or allowed where they are; variables, and so the number
of threads, are the sandbox's own. Each is told to hold what it can of what a sandbox holds by default: the project to
read, ``results`` to write, no home, no network.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from measure import CannotDo

#: A command that answers at all does so within this; seconds.
ANSWER_SECONDS = 60.0
#: What takes longer to start is measured in few parts with ``--quick``; seconds.
_BRISK_SECONDS = 5.0
#: Says that it is ready, then does nothing until its input ends.
IDLE = "import sys\n{setup}\nprint('ready', flush=True)\nsys.stdin.read()"


class Missing(Exception):
    """It is not here, or does not run here; a word why."""


class Peer(Protocol):
    """A way to run ``python -c``."""

    @property
    def name(self) -> str: ...

    @property
    def chooses(self) -> bool:
        """Whether paths to read can be chosen."""
        ...

    def run(self, code: str, folder: Path) -> str:
        """What ``code`` printed, run in ``folder``. Raises CannotDo."""
        ...

    def idle(self, setup: str, folder: Path) -> contextlib.AbstractContextManager[list[int]]:
        """One that has run ``setup`` and waits: the processes below which all that it needs is found."""
        ...

    def reading(self, paths: Sequence[str]) -> Peer:
        """The same with these paths to read instead of the whole project."""
        ...


@dataclass(frozen=True)
class Command:
    """A peer that is a command put before Python's. ``wrap`` makes it, from Python's and the paths to read."""

    name: str
    wrap: Callable[[list[str], Sequence[str]], list[str]]
    environ: Mapping[str, str]
    paths: tuple[str, ...] = ()
    chooses: bool = True
    #: Where more of it runs than below the command.
    elsewhere: Callable[[], list[int]] = list

    def _command(self, code: str) -> list[str]:
        return self.wrap([sys.executable, "-c", code], self.paths)

    def run(self, code: str, folder: Path) -> str:
        try:
            done = subprocess.run(
                self._command(code), cwd=folder, env=dict(self.environ), check=True, capture_output=True,
                stdin=subprocess.DEVNULL, timeout=ANSWER_SECONDS,
            )  # fmt: skip
        except subprocess.CalledProcessError as exc:
            raise CannotDo(last_line(exc.stderr) or f"status {exc.returncode}") from None
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise CannotDo(f"{type(exc).__name__}") from None
        return done.stdout.decode()

    @contextlib.contextmanager
    def idle(self, setup: str, folder: Path) -> Iterator[list[int]]:
        before = set(self.elsewhere())
        with subprocess.Popen(
            self._command(IDLE.format(setup=setup)), cwd=folder, env=dict(self.environ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdin is not None
            if b"ready" not in process.stdout.readline():
                raise CannotDo("did not get ready")
            yield [process.pid, *set(self.elsewhere()) - before]
            process.stdin.close()

    def reading(self, paths: Sequence[str]) -> Command:
        return replace(self, paths=tuple(paths))


def last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:100] if lines else ""


def to_read() -> list[str]:
    """What a dynamically linked Python and its environment need."""
    system = [path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache") if os.path.exists(path)]
    python = [path for path in (sys.base_prefix, sys.prefix) if not path.startswith("/usr")]
    return [*system, *dict.fromkeys(python)]


@dataclass(frozen=True)
class Found:
    """The peers that run here, and for the others a word why not. ``brisk`` are those that start within seconds."""

    all: list[Peer]
    brisk: list[Peer]
    skipped: dict[str, str]


def find(folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Found:
    """``stack`` clears up what they need."""
    from peers_commands import COMMANDS
    from peers_libraries import LIBRARIES

    plain = Command("python -c", lambda command, _paths: command, environ, chooses=False)
    found = Found([plain], [plain], {})
    for name, make in {**COMMANDS, **LIBRARIES}.items():
        try:
            peer = make(name, folder, environ, stack)
            begin = time.monotonic()
            if peer.run("print(1 + 1)", folder).strip() != "2":
                raise Missing("unusable")
            found.all.append(peer)
            if time.monotonic() - begin < _BRISK_SECONDS:
                found.brisk.append(peer)
        except Missing as exc:
            found.skipped[name] = str(exc)
        except CannotDo as exc:
            found.skipped[name] = f"refused ({exc})"
    return found
