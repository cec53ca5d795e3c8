"""Hosts under a container engine's filter, and their sandboxes, as a test talks to them."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Set
from pathlib import Path
from typing import Any

from ipysandbox.audit import iter_records

_TESTS = Path(__file__).parents[1]

_PATIENCE = 20.0  # seconds: a loaded machine's


def recorded(name: str, told: Set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Name and detail of what the trail says was refused in the sandbox ``name``, once ``told`` is among it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        rows = [row["details"] for row in iter_records(sandbox=name) if row["action"] == "syscall.refused"]
        found = {(row["name"], row["detail"]) for row in rows}
        if told <= found:
            return found
        assert time.monotonic() < deadline, found
        select.select([], [], [], 0.05)  # other processes write it


class Host:
    """One host process under tests/pod.py."""

    def __init__(self, statements: str = "") -> None:
        command = [sys.executable, str(_TESTS / "pod.py"), sys.executable, str(_TESTS / "confined/host.py"), statements]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"do": do, **details}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        assert line, f"the host has ended: {self.process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which was told
            self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Box:
    """One sandbox of a ``Host``."""

    def __init__(self, host: Host, name: str, project: Path, **options: Any) -> None:
        self.host, self.name = host, name
        started = host.ask("start", name=name, project=str(project), **options)
        assert "refused" not in started, started
        #: Of the monitor, which is the sandbox's root.
        self.pid: int = started["pid"]
        self.supervisor: int = started["supervisor"]
        self.weaker: dict[str, str] = started["weaker"]

    def run(self, code: str, **options: Any) -> dict[str, Any]:
        return self.host.ask("run", name=self.name, code=code, **options)

    def out(self, code: str, **options: Any) -> str:
        """What ``code`` prints; the cell must succeed."""
        result = self.run(code, **options)
        assert result.get("status") == "ok", "\n".join([str(result), *result.get("traceback", [])])
        text: str = result["stdout"]
        return text

    def close(self) -> None:
        self.host.ask("close", name=self.name)
