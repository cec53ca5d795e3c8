"""A task that is done leaves nothing: not its value on the host, and nothing in the process that starts the next."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from typing import Any

from ipysandbox import SandboxExecutor
from ipysandbox.backends.linux.processes import tree
from ipysandbox.executor.outcome import Outcome
from ipysandbox.supervisor.spawn import Supervisor


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


def test_the_process_that_starts_tasks_holds_nothing_of_those_that_have_ended(
    make_pool: Callable[..., SandboxExecutor],
) -> None:
    pool = make_pool(1)

    def one(kind: int) -> None:
        if kind == 1:
            os._exit(1)
        if kind == 2:
            os.kill(os.getpid(), 11)
        if kind == 3:
            for _ in range(3):
                if os.fork() == 0:
                    import time

                    time.sleep(1000)
        if kind == 4:
            import ctypes

            ctypes.CDLL(None).unshare(0x10000000)  # refused, and told

    def run(count: int) -> None:
        for future in [pool.submit(one, number % 5) for number in range(count)]:
            future.exception()

    def held() -> dict[int, int]:
        supervisor = Supervisor.current()
        found = {}
        for pid in tree(supervisor.pid):
            with contextlib.suppress(PermissionError):  # of the zygote, only root may look at it
                found[pid] = len(os.listdir(f"/proc/{pid}/fd"))
        return found

    run(5)
    before = held()
    run(20)
    assert held() == before
