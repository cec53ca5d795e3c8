"""The warm pool: full before a sample that takes from it, off where a sample is about starts without it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from measure import CannotDo

from ipysandbox import PolicyError
from ipysandbox.policy import check_given

_SIZE = 2


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
