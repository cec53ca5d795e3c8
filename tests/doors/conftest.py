"""Real notebook kernels and the real command line, on a small project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

#: Far above what any cell here takes, on a busy machine too; seconds.
SECONDS = 60.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Ran:
    """What a cell of the notebook showed, and how it ended."""

    reply: dict[str, Any] = field(default_factory=dict)
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def stream(self, name: str) -> str:
        return "".join(c["text"] for kind, c in self.messages if kind == "stream" and c["name"] == name)

    @property
    def stdout(self) -> str:
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        return _COLOURS.sub("", self.stream("stderr"))

    @property
    def displays(self) -> list[dict[str, Any]]:
        return [c["data"] for kind, c in self.messages if kind == "display_data"]

    @property
    def notes(self) -> list[str]:
        texts = [data.get("text/plain", "") for data in self.displays]
        return [text for text in texts if text.startswith("ipysandbox: ")]

    @property
    def error(self) -> str:
        """The error as it is shown, without colours; empty if there was none."""
        return _COLOURS.sub("", "\n".join("\n".join(c["traceback"]) for kind, c in self.messages if kind == "error"))

    @property
    def ename(self) -> str:
        return str(self.reply.get("ename", ""))

    def ok(self) -> Ran:
        assert self.reply["status"] == "ok", self.error
        return self


class Notebook:
    """A plain ipykernel with the extension loaded, as a front end would drive it."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        # Not TCP: a port that was free when it was chosen may be another suite's by the time the kernel binds it.
        self._sockets = tempfile.TemporaryDirectory(prefix="nb-")
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{self._sockets.name}/kernel.json"
        )
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **environ})
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)
        self.run("%load_ext ipysandbox").ok()

    def run(
        self,
        code: str,
        *,
        on_message: Callable[[str, dict[str, Any]], None] = lambda _kind, _content: None,
        on_input: Callable[[dict[str, Any]], str] | None = None,
    ) -> Ran:
        ran = Ran()

        def take(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            ran.messages.append((kind, content))
            on_message(kind, content)

        def answer(message: dict[str, Any]) -> None:
            assert on_input is not None
            self.client.input(on_input(message["content"]))

        reply = self.client.execute_interactive(
            code, allow_stdin=on_input is not None, timeout=SECONDS, output_hook=take, stdin_hook=answer
        )
        ran.reply = reply["content"]
        return ran

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self._sockets.cleanup()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    (root / "data").mkdir()
    (root / "data" / "x.csv").write_text("a,b\n1,2\n")
    (root / "pyproject.toml").write_text("[project]\nname = 'study'\n")
    return root


@pytest.fixture(scope="module")
def notebook(study: Path) -> Iterator[Notebook]:
    """One for the whole module: its tests use sandboxes of their own names."""
    one = Notebook(study)
    yield one
    one.close()


@pytest.fixture
def cli(study: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*arguments: str, stdin: str = "", cwd: Path = study, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ipysandbox", *arguments],
            input=stdin,
            cwd=cwd,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    return call
