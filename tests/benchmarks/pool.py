"""The warm pool: full before a sample that takes from it, off where a sample is about starts without it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from measure import CannotDo

from ipysandbox import PolicyError, Sandbox
from ipysandbox.policy import check_given

_SIZE = 2
#: Until as many are ready, which nobody is told; and how often that is looked at, in seconds.
_FILL_SECONDS, _LOOK_SECONDS = 60.0, 0.05


@cache
def _has_pool() -> bool:
    try:
        check_given(None, {"start.pool": _SIZE})
    except PolicyError:
        return False
    return True


def without_pool() -> Mapping[str, object]:
    return {"start.pool": 0} if _has_pool() else {}


class Pool:
    """One of ``_SIZE`` sandboxes for ``project``."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.overrides: Mapping[str, object] = {"start.pool": _SIZE}

    def fill(self) -> None:
        """Until it is full. Raises CannotDo."""
        if not _has_pool():
            raise CannotDo("not in this version")
        end = time.monotonic() + _FILL_SECONDS
        with Sandbox(project=self.project, overrides=self.overrides) as box:
            while box.status()["start"]["pool"]["ready"] < _SIZE:
                if time.monotonic() > end:
                    raise CannotDo("none gets ready")
                time.sleep(_LOOK_SECONDS)
