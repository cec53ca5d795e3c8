"""Tells whether the environment's packages have changed on disk: what a zygote has loaded is then another's."""

from __future__ import annotations

import importlib.metadata
import os
import time

from ipysandbox import bootstrap

#: File systems take their times from a clock of their own.
_MARGIN = 1_000_000_000
_LIBRARIES = ("site-packages", "dist-packages")

Stamp = tuple[tuple[str, int], ...]


def stamp() -> Stamp:
    """Times of the folders that packages are installed in, where each has one named by its version (``.dist-info``)
    that an installer replaces, and of what says where else they lie (``.pth``). Some tenths of a millisecond; what is
    edited in place is not seen."""
    found: list[tuple[str, int]] = []
    for folder in bootstrap.import_path():
        if os.path.basename(folder) in _LIBRARIES:
            found.append((folder, _changed(folder)))
            found += [(path, _changed(path)) for path in _lists(folder)]
    return tuple(found)


def own_version() -> str:
    """Of this package, as it is installed now; empty where it is not."""
    try:
        return importlib.metadata.version("ipysandbox")
    except importlib.metadata.PackageNotFoundError:
        return ""


def stamp_since(began: int) -> Stamp:
    """The same for a zygote that was started at ``began`` (ns, of the clock); one that nothing equals where something
    has changed since, which it may have loaded before."""
    found = stamp()
    return () if any(began - _MARGIN <= changed <= time.time_ns() for _, changed in found) else found


def _lists(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [f"{folder}/{name}" for name in sorted(names) if name.endswith(".pth")]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
