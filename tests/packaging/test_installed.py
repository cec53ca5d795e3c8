"""What `pip install` promises: commands, types, the panel and its server part, with nothing to switch on by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed() -> metadata.Distribution:
    try:
        found = metadata.distribution("ipysandbox")
    except metadata.PackageNotFoundError:
        pytest.skip("ipysandbox is not installed in this environment, only imported from its folder: use `make test`")
    return found


def test_the_version_is_the_panels(installed: metadata.Distribution) -> None:
    assert installed.version == json.loads((ROOT / "package.json").read_text())["version"]


@pytest.mark.parametrize("command", ["ipysandbox", "jupyter-sandbox"])
def test_the_commands_are_on_path(installed: metadata.Distribution, command: str) -> None:
    script = Path(sysconfig.get_path("scripts"), command)
    result = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "run" in result.stdout
    assert "doctor" in result.stdout


def test_its_types_are_seen_by_others(installed: metadata.Distribution) -> None:
    assert Path(str(installed.locate_file("ipysandbox/py.typed"))).is_file()


def test_jupyterlab_finds_the_panel(installed: metadata.Distribution) -> None:
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    listed = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout + result.stderr)
    assert re.search(r"ipysandbox v\S+ enabled OK", listed), listed


def test_jupyter_server_loads_the_server_part(installed: metadata.Distribution) -> None:
    command = [sys.executable, "-m", "jupyter", "server", "extension", "list"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    listed = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout + result.stderr)
    assert re.search(r"ipysandbox\.server enabled", listed), listed
    assert re.search(r"ipysandbox\.server \S* ?OK", listed), listed


def test_a_user_downloads_a_small_panel(installed: metadata.Distribution) -> None:
    static = Path(sys.prefix, "share/jupyter/labextensions/ipysandbox/static")
    scripts = list(static.glob("*.js"))
    assert scripts
    assert sum(script.stat().st_size for script in scripts) < 150_000


def test_importing_the_package_loads_neither_jupyter_nor_numpy() -> None:
    code = (
        "import sys, ipysandbox; print([m for m in ('jupyter_server', 'IPython', 'numpy', 'zmq') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert result.stdout.strip() == "[]", result.stderr
