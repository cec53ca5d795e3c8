"""How much memory this machine, or the container that this process is in, can give at all.

A limit above that holds nothing: the machine would run out first, and its kernel ends whichever process it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

#: Of the whole: the rest is for the notebook itself and what else runs there.
SHARE = 0.75
#: Less than this is no sandbox; what a kernel needs to start is refused by the limits' own minimum.
_UNIT = 1 << 20
#: By version of control groups: where they are mounted, and the file of the limit on memory.
_GROUPS = {1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes"), 2: ("sys/fs/cgroup", "memory.max")}


def most_memory(root: Path) -> int | None:
    """Bytes that a sandbox may be given here; None where the system doesn't say. ``root`` is where /proc and /sys are.

    Source: proc(5), meminfo; the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    sizes = [*_machine(root), *_groups(root)]
    return int(min(sizes) * SHARE) // _UNIT * _UNIT if sizes else None


def _machine(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            yield int(line.split()[1]) * 1024


def _groups(root: Path) -> Iterator[int]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        mount, name = _GROUPS[2 if number == "0" else 1]
        # A container may see the folder of its own group as the topmost.
        for folder in (path, *map(str, Path(path).parents)):
            text = _read(root / mount / folder.strip("/") / name).strip()
            if text.isdecimal():
                yield int(text)


def _read(path: Path) -> str:
    try:
        # At most a page or two, whatever it is.
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
