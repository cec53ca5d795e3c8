"""A person's machine in a temporary folder: a home, a project in it, and the policy resolved as the person would."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import policy


@dataclass
class Machine:
    home: Path
    project: Path
    etc: Path
    environ: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, text: str = "") -> Path:
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def project_policy(self, text: str) -> Path:
        return self.write("ipysandbox.toml", text)

    def user_policy(self, text: str) -> Path:
        return self.write(str(self.home / ".jupyter/ipysandbox.toml"), text)

    def administrator(self, text: str) -> Path:
        return self.write(str(self.etc / "ipysandbox.toml"), text)

    def resolve(self, given: Any = None, *, cwd: Path | None = None, **overrides: object) -> policy.Effective:
        return self.resolve_with({k.replace("__", "."): v for k, v in overrides.items()}, given, cwd=cwd)

    def resolve_with(
        self, overrides: Mapping[str, object], given: Any = None, *, cwd: Path | None = None
    ) -> policy.Effective:
        return policy.resolve(
            given,
            cwd=cwd or self.project,
            overrides=overrides,
            environ=self.environ,
            admin_files=[self.etc / "ipysandbox.toml"],
            system=self.etc.parent,
        )

    def trust(self, path: Path) -> str:
        return policy.trust(path, environ=self.environ)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = Path(os.path.realpath(tmp_path)) / "home"
    project = home / "study"
    (project / ".git").mkdir(parents=True)
    (project / "src").mkdir()
    (project / "data").mkdir()
    etc = home.parent / "etc"
    etc.mkdir()
    return Machine(home, project, etc, {"HOME": str(home), "PATH": "/usr/bin"})
