"""A task that is done keeps nothing of its value: thousands of large ones take no more memory than one."""

from __future__ import annotations

import gc
from typing import Any

from ipysandbox import SandboxExecutor
from ipysandbox.executor.outcome import Outcome


def test_values_are_let_go_when_their_futures_are(pool: SandboxExecutor) -> None:
    def large() -> Any:
        import numpy as np

        return np.ones(1_000_000)

    assert pool.submit(large).result().shape == (1_000_000,)
    gc.collect()
    gc.disable()
    try:
        futures = [pool.submit(large) for _ in range(4)]
        assert sum(float(future.result().sum()) for future in futures) == 4_000_000.0
        pool.submit(abs, 1).result()  # the thread that told of the last one has gone on
        del futures
        kept = [found for found in gc.get_objects() if isinstance(found, (Outcome, memoryview))]
        assert not [found for found in kept if len(found.value if isinstance(found, Outcome) else found) > 1_000_000]
        assert not [found for found in kept if isinstance(found, Outcome) and found.buffers]
    finally:
        gc.enable()
