"""Other ways to run a piece of Python, as prefixes of a command line: none at all, bubblewrap, Docker.

Each gets the same interpreter and libraries: those of this run, mounted where they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

#: A command that answers at all does so within this; seconds.
_ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Peer:
    """A way to run ``python -c``; ``prefix`` is put before it."""

    name: str
    prefix: tuple[str, ...]
    environ: Mapping[str, str]

    def run(self, code: str, folder: Path) -> str:
        """What ``code`` printed. Raises CalledProcessError."""
        command = [*self.prefix, sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, env=dict(self.environ), check=True, capture_output=True)
        return done.stdout.decode()


def find(folder: Path, environ: Mapping[str, str], stack: ExitStack) -> tuple[list[Peer], dict[str, str]]:
    """Those that run here, and for the others a word why not. ``stack`` clears up what they need."""
    found, skipped = [Peer("python -c", (), environ)], {}
    for name, make in (("bubblewrap", _bubblewrap), ("docker run", _docker)):
        try:
            peer = Peer(name, make(folder, environ, stack), {**os.environ, **environ})
            if peer.run("print(1 + 1)", folder).strip() != "2":
                raise _Skipped("unusable")
            found.append(peer)
        except _Skipped as exc:
            skipped[name] = str(exc)
        except subprocess.CalledProcessError:
            skipped[name] = "refused"
    return found, skipped


class _Skipped(Exception):
    pass


def _mounted(folder: Path) -> tuple[list[str], list[str]]:
    """(read-only, writable) paths: what a dynamically linked Python needs, its environment, the project."""
    system = [path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache") if os.path.exists(path)]
    python = [path for path in (sys.base_prefix, sys.prefix) if not path.startswith("/usr")]
    return [*system, *dict.fromkeys(python), str(folder)], [str(folder / "results")]


def _bubblewrap(folder: Path, environ: Mapping[str, str], stack: ExitStack) -> tuple[str, ...]:
    if shutil.which("bwrap") is None:
        raise _Skipped("missing")
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    read, write = _mounted(folder)
    for path in read:
        command += ["--ro-bind", path, path]
    for path in write:
        command += ["--bind", path, path]
    return (*command, "--chdir", str(folder), "--clearenv", *_each(environ, lambda k, v: ("--setenv", k, v)), "--")


def _docker(folder: Path, environ: Mapping[str, str], stack: ExitStack) -> tuple[str, ...]:
    """An image with nothing in it, so that no registry is needed and the libraries are the same as everywhere."""
    if shutil.which("docker") is None:
        raise _Skipped("missing")
    image = f"ipysandbox-benchmark-{uuid.uuid4().hex[:8]}"
    empty_archive = bytes(10240)
    try:
        subprocess.run(
            ["docker", "import", "-", image], input=empty_archive, check=True, capture_output=True,
            timeout=_ANSWER_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _Skipped("silent") from None
    except subprocess.CalledProcessError:
        raise _Skipped("stopped") from None
    stack.callback(subprocess.run, ["docker", "rmi", "--force", image], capture_output=True, check=False)
    command = ["docker", "run", "--rm", "--network", "none", "--tmpfs", "/tmp", "--workdir", str(folder)]
    read, write = _mounted(folder)
    for path in read:
        command += ["--volume", f"{path}:{path}:ro"]
    for path in write:
        command += ["--volume", f"{path}:{path}"]
    return (*command, *_each(environ, lambda k, v: ("--env", f"{k}={v}")), image)


def _each(environ: Mapping[str, str], words: Callable[[str, str], tuple[str, ...]]) -> list[str]:
    return [word for name, value in environ.items() for word in words(name, value)]
