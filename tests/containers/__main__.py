"""Runs a command in a Docker container under the engine's default confinement, on this machine's own system.

    python tests/containers [--user UID:GID] [--show PATH ...] -- COMMAND [ARGUMENT ...]

The container shows /usr, /etc, this Python's environment and the given paths, read-only, at the places they have here;
/home and /tmp are its own. No image is fetched: its image is empty folders. An engine that runs already is used;
otherwise one is started for this command (needs root), without network and with its files in a temporary folder, and
ended after it. The exit status is the command's.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

IMAGE = "ipysandbox-tests"
_START_SECONDS = 60.0
_FOLDERS = {"tmp": 0o1777, "var/tmp": 0o1777, "home": 0o1777, **dict.fromkeys(("proc", "sys", "dev", "run"), 0o755)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--user", default="1000:1000", metavar="UID:GID")
    parser.add_argument("--show", action="append", default=[], metavar="PATH", help="one more path, read-only")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with engine() as environment:
        _make_image(environment)
        return subprocess.run(_run(options.user, options.show, options.command), env=environment).returncode


@contextlib.contextmanager
def engine() -> Iterator[dict[str, str]]:
    """An environment in which ``docker`` reaches an engine."""
    environment = dict(os.environ)
    if _answers(environment):
        yield environment
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        sys.exit("No Docker engine answers here. As root, with docker.io installed, this command starts one.")
    # A short path: the engine's sockets lie in it.
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        environment["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
        command = ["dockerd", "--iptables=false", "--bridge=none", "-H", environment["DOCKER_HOST"]]
        command += [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + _START_SECONDS
            while not _answers(environment):
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit(f"The Docker engine did not start:\n{Path(folder, 'log').read_text()[-2000:]}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
            yield environment
        finally:
            process.terminate()
            process.wait()


def _answers(environment: dict[str, str]) -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "version"], env=environment, capture_output=True)
    return asked.returncode == 0


def _make_image(environment: dict[str, str]) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, mode in _FOLDERS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if os.path.islink(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(f"/{name}")
                archive.addfile(entry)
    command = ["docker", "import", "-", IMAGE]
    subprocess.run(command, input=data.getvalue(), env=environment, check=True, stdout=subprocess.DEVNULL)


def _run(user: str, show: list[str], command: list[str]) -> list[str]:
    places = dict.fromkeys(["/usr", "/etc", sys.prefix, sys.base_prefix, os.getcwd(), *map(os.path.abspath, show)])
    shown = [path for path in places if path == "/usr" or not path.startswith("/usr/")]
    binds = [f"--volume={path}:{path}:ro" for path in shown]
    settings = [
        "--rm",
        "--network=none",
        f"--user={user}",
        "--env=HOME=/home/work",
        f"--workdir={os.getcwd()}",
    ]
    # The shell stays, as the pid 1 that orphans come to.
    inside = ["sh", "-c", 'mkdir -p "$HOME" && "$@"; exit $?', "sh", *command]
    return ["docker", "run", *settings, *binds, IMAGE, *inside]


if __name__ == "__main__":
    sys.exit(main())
