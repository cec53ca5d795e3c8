"""Hosts under a container engine's filter, and their sandboxes, as a test talks to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]


class Host:
    """One host process under tests/pod.py."""

    def __init__(self, statements: str = "") -> None:
        command = [sys.executable, str(_TESTS / "pod.py"), sys.executable, str(_TESTS / "confined/host.py"), statements]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the host has ended: {self.process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
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
