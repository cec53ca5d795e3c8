"""Peers that are called as libraries, since that is how they are meant: sandlock from Python, Pyodide from Node.js."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import CannotDo
from peers import ANSWER_SECONDS, IDLE, Command, Missing, Peer, last_line, to_read

Make = Callable[[str, Path, Mapping[str, str], ExitStack], Peer]


@dataclass(frozen=True)
class Sandlock:
    """Landlock and seccomp around a command, set up by the calling process; it has to be importable here."""

    name: str
    folder: Path
    environ: Mapping[str, str]
    module: Any
    paths: tuple[str, ...] = ()
    chooses: bool = True

    def make(self, **more: Any) -> Any:
        return self.module.Sandbox(
            fs_readable=[*to_read(), "/dev", "/proc", *(self.paths or (str(self.folder),))],
            fs_writable=[f"{self.folder}/results", "/tmp", "/dev/null"],
            cwd=str(self.folder),
            clean_env=True,
            env=dict(self.environ),
            **more,
        )

    def run(self, code: str, folder: Path) -> str:
        result = self.make().run([sys.executable, "-c", code], timeout=ANSWER_SECONDS)
        if not result.success:
            raise CannotDo(last_line(result.stderr) or f"status {result.exit_code}")
        return str(result.stdout.decode())

    def forks(self, setup: str, task: Callable[[int], None], count: int) -> list[str]:
        """What ``count`` forks of one process in one sandbox printed; ``setup`` was run there before."""
        box = self.make(init_fn=lambda: exec(setup), work_fn=task)  # our own text
        return str(box.reduce(["/bin/cat"], box.fork(count)).stdout.decode()).splitlines()

    @contextlib.contextmanager
    def idle(self, setup: str, folder: Path) -> Iterator[list[int]]:
        """The part of it that is in the calling process, a few threads, is not seen."""
        mode = self.module.StdioMode.PIPED
        command = [sys.executable, "-c", IDLE.format(setup=setup)]
        with self.make().popen(command, stdin=mode, stdout=mode) as process:
            if b"ready" not in process.stdout.readline():
                raise CannotDo("did not get ready")
            yield [process.pid]
            process.kill()

    def reading(self, paths: Sequence[str]) -> Sandlock:
        return Sandlock(self.name, self.folder, self.environ, self.module, tuple(paths))


def _sandlock(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Sandlock:
    try:
        import sandlock
    except ImportError:
        raise Missing("missing") from None
    return Sandlock(name, folder, environ, sandlock)


#: Its own memory is a WebAssembly heap; the project is the one folder of the host that it sees.
_PYODIDE = """
import {{ loadPyodide }} from {module};
const folder = {folder}, code = process.argv[2];
const pyodide = await loadPyodide({{ env: {environ} }});
pyodide.FS.mkdirTree(folder);
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, {{ root: folder }}, folder);
pyodide.FS.chdir(folder);
const wanted = ["numpy", "pandas"].filter((name) => code.includes("import " + name) || code.includes(name + " as"));
await pyodide.loadPackage(wanted, {{ messageCallback: () => {{}}, errorCallback: () => {{}} }});
await pyodide.runPythonAsync(code);
"""


@dataclass(frozen=True)
class Pyodide(Command):
    """CPython as WebAssembly. Its numpy and pandas are not in its package: it fetches them once, where it may."""

    def run(self, code: str, folder: Path) -> str:
        if "numpy" in code or "pandas" in code:
            _require_packages(Path(self.wrap([], ())[1]).parent)
        return super().run(code, folder)


def _require_packages(scripts: Path) -> None:
    where = Path(json.loads((scripts / "pyodide.json").read_text()))
    if not any(where.glob("numpy-*.whl")):
        raise CannotDo("its numpy and pandas are not here (it fetches them when asked for the first time)")


def _pyodide(name: str, folder: Path, environ: Mapping[str, str], stack: ExitStack) -> Command:
    node = shutil.which("node")
    package = _node_package("pyodide") if node else None
    if node is None or package is None:
        raise Missing("missing")
    (folder.parent / "pyodide.json").write_text(json.dumps(str(package)))
    script = folder.parent / "pyodide.mjs"
    script.write_text(
        _PYODIDE.format(
            module=json.dumps(str(package / "pyodide.mjs")), folder=json.dumps(str(folder)),
            environ=json.dumps(dict(environ)),
        )
    )  # fmt: skip

    def wrap(command: list[str], _paths: Sequence[str]) -> list[str]:
        return [node, str(script), *command[2:]]

    return Pyodide(name, wrap, {**os.environ, **environ}, chooses=False)


def _node_package(name: str) -> Path | None:
    """Below a folder of ``NODE_PATH`` or where ``npm install --global`` puts it."""
    places = [Path(place) for place in os.environ.get("NODE_PATH", "").split(":") if place]
    npm = shutil.which("npm")
    if npm is not None:
        asked = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, check=False)
        places.append(Path(asked.stdout.strip() or "/nonexistent"))
    return next((place / name for place in places if (place / name / "pyodide.mjs").exists()), None)


LIBRARIES: dict[str, Make] = {"sandlock": _sandlock, "pyodide": _pyodide}
