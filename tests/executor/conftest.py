"""What the executor's tests share: executors on the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipysandbox import SandboxExecutor


@pytest.fixture
def make_pool(project: Path) -> Iterator[Callable[..., SandboxExecutor]]:
    pools: list[SandboxExecutor] = []

    def make(workers: int = 2, **options: object) -> SandboxExecutor:
        pool = SandboxExecutor(workers, **{"project": project, **options})  # type: ignore[arg-type]
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def pool(make_pool: Callable[..., SandboxExecutor]) -> SandboxExecutor:
    return make_pool(timeout="20s")
