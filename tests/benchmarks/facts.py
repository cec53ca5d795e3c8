"""What a reader has to know about the machine to judge figures: no names of hosts, users or paths."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("ipysandbox", "ipykernel", "jupyter_client", "pyzmq", "numpy", "pandas")


def facts() -> dict[str, str]:
    """In the order in which they are shown."""
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return {
        "processor": f"{_processor()}, {cores} core{'s' if cores > 1 else ''}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "run as": "root" if os.geteuid() == 0 else "a plain user",
        "load at the start": f"{load:.1f}" + (" (busy: expect wide spreads)" if load > cores else ""),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from a checkout"
