"""Peers that are commands: bubblewrap, firejail, srt, Docker, gVisor's runsc. Each was run to write this."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from peers import ANSWER_SECONDS, Command, Missing, last_line, to_read

Make = Callable[[str, Path, Mapping[str, str], ExitStack], Command]


def _required(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Missing("missing")
    return found


def _with_ours(environ: Mapping[str, str]) -> dict[str, str]:
    """For a command that needs the person's variables itself (PATH, DOCKER_HOST); ``environ`` is what is measured."""
    return {**os.environ, **environ}


def _bubblewrap(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    start = [_required("bwrap"), "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    start += ["--tmpfs", "/tmp", "--clearenv"]
    for key, value in environ.items():
        start += ["--setenv", key, value]

    def wrap(command: list[str], paths: Sequence[str]) -> list[str]:
        read = [word for path in (*to_read(), *(paths or [str(folder)])) for word in ("--ro-bind", path, path)]
        write = ["--bind", f"{folder}/results", f"{folder}/results", "--chdir", str(folder)]
        return [*start, *read, *write, "--", *command]

    return Command(name, wrap, _with_ours(environ))


def _firejail(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    """Its own way of choosing paths is to lay the chosen ones of a home folder into an empty one (whitelist)."""
    start = [_required("firejail"), "--quiet", "--noprofile", "--net=none", "--private-tmp", "--private-dev"]
    start += ["--caps.drop=all", "--nonewprivs", "--seccomp"]
    home = os.path.realpath(Path.home())
    python = [path for path in to_read() if path.startswith(home + "/")]
    results = f"{folder}/results"

    def wrap(command: list[str], paths: Sequence[str]) -> list[str]:
        shown = [f"--whitelist={path}" for path in (*python, *(paths or [str(folder)]), results)]
        return [*start, *shown, f"--read-only={folder}", f"--read-write={results}", "--", *command]

    # It passes on what it is started with.
    return Command(name, wrap, environ)


def _srt(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    """Reads all but what is denied: a home but for what is allowed in it comes nearest."""
    program = _required("srt")
    home = os.path.realpath(Path.home())

    def wrap(command: list[str], paths: Sequence[str]) -> list[str]:
        allowed = [path for path in (*to_read(), *(paths or [str(folder)])) if path.startswith(home + "/")]
        files = {"denyRead": [home], "allowRead": allowed, "allowWrite": [f"{folder}/results", "/tmp"], "denyWrite": []}
        settings = folder.parent / f"srt-{len(paths)}.json"
        if not settings.exists():
            network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
            settings.write_text(json.dumps({"network": network, "filesystem": files}))
        return [program, "--settings", str(settings), "-c", shlex.join(command)]

    return Command(name, wrap, _with_ours(environ))


def _docker(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    """An image with nothing in it, so that no registry is needed and the libraries are the same as everywhere."""
    program = _required("docker")
    image = f"ipysandbox-benchmark-{uuid.uuid4().hex[:8]}"
    empty_archive = bytes(10240)
    try:
        subprocess.run(
            [program, "import", "-", image], input=empty_archive, check=True, capture_output=True,
            timeout=ANSWER_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Missing("silent") from None
    except subprocess.CalledProcessError as exc:
        raise Missing("stopped" if b"daemon" in exc.stderr else last_line(exc.stderr)) from None
    stack.callback(subprocess.run, [program, "rmi", "--force", image], capture_output=True, check=False)
    start = [program, "run", "--rm", "--interactive", "--network", "none", "--tmpfs", "/tmp"]
    start += [word for key, value in environ.items() for word in ("--env", f"{key}={value}")]

    def wrap(command: list[str], paths: Sequence[str]) -> list[str]:
        read = [word for path in (*to_read(), *(paths or [str(folder)])) for word in ("--volume", f"{path}:{path}:ro")]
        write = ["--volume", f"{folder}/results:{folder}/results", "--workdir", str(folder)]
        return [*start, *read, *write, image, *command]

    return Command(name, wrap, _with_ours(environ), elsewhere=_shims)


def _shims() -> list[int]:
    """Each container's is a process of the engine's, above the container's first (containerd-shim(8))."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has ended
            if b"containerd-shim" in command.partition(b"\0")[0]:
                found.append(int(entry.name))
    return found


def _runsc(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    """``runsc do``: the host's files read-only under an overlay. It is meant for trying things out, says its help."""
    start = [_required("runsc"), "--network=none"]
    start += [] if os.geteuid() == 0 else ["--rootless", "--ignore-cgroups"]
    return Command(name, lambda command, _paths: [*start, "do", *command], environ, chooses=False)


COMMANDS: dict[str, Make] = {
    "bubblewrap": _bubblewrap,
    "firejail": _firejail,
    "srt": _srt,
    "docker run": _docker,
    "runsc do": _runsc,
}
