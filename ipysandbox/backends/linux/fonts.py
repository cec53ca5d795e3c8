"""Matplotlib's list of fonts, made once outside: a fresh home would spend seconds on it at the first plot."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

from ipysandbox import bootstrap, reach

_started: list[subprocess.Popen[bytes]] = []


def folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "ipysandbox" / "matplotlib"


def cached() -> list[Path]:
    """The finished lists (their names carry matplotlib's own version of the format)."""
    return sorted(folder().glob("fontlist-v*.json")) if reach.answers(folder()) else []


def prepare() -> None:
    """Make the list in the background if it is missing; a sandbox that starts before it is done makes its own."""
    _started[:] = [process for process in _started if process.poll() is None]
    if _started or cached() or importlib.util.find_spec("matplotlib") is None:
        return
    target = folder()
    if not reach.answers(target):
        return
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return  # no home to keep it in: every sandbox makes its own
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "MPLCONFIGDIR": str(target)}
    _started.append(
        subprocess.Popen(
            bootstrap.command("import matplotlib.font_manager", []),
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )


def stop() -> None:
    """End a list that is still being made (it would outlive its reason)."""
    for process in _started:
        process.kill()
        process.wait()
    _started.clear()
