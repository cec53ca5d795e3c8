"""What a run has left behind on this machine: processes, mounts, control groups, sockets, folders, descriptors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ipysandbox.supervisor import runtime

_GROUPS = Path("/sys/fs/cgroup")


class Left:
    """Compares with how it was when this was made. Other work on the machine is not ours, as far as it can be told."""

    def __init__(self) -> None:
        self._before = _looks()

    def now(self) -> list[str]:
        """A line each."""
        after = _looks()
        return [f"left behind: {what} {name}" for what in after for name in sorted(after[what] - self._before[what])]


def _looks() -> dict[str, set[str]]:
    living = set(runtime.folders())
    return {
        "process": set(_processes()),
        "mount": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "control group": {str(path) for path in _GROUPS.rglob("*ipysandbox*") if _is_empty(path)},
        "folder": {str(path) for root in runtime.roots() if root.is_dir() for path in root.iterdir()}
        - {str(path) for path in living},
        "descriptor": {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")},
    }


def _is_empty(group: Path) -> bool:
    """Whether nobody's processes are in it any more, or below it."""
    try:
        return not any(file.read_text() for file in group.rglob("cgroup.procs"))
    except OSError:
        return False  # it is being removed


def _processes() -> list[str]:
    """Children of this process, and whatever else of ours this Python runs."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has ended
        ours = os.fsencode(sys.executable) in command and b"from ipysandbox." in command
        if int(parent) == os.getpid() or ours:
            found.append(f"{entry.name} {command.decode(errors='replace')[:80]}")
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process has by itself (proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))
