"""joblib's backend "ipysandbox": what scikit-learn and others run by ``n_jobs`` runs in sandboxes, a fresh one a job.

import ipysandbox
ipysandbox.register_joblib()
with joblib.parallel_config("ipysandbox", n_jobs=4, timeout="60s"):
    cross_val_score(model, X, y)
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ipysandbox.errors import NotAvailable, SandboxError

from .pool import SandboxExecutor

NAME = "ipysandbox"


def register() -> None:
    """Make the backend known to joblib. Raises NotAvailable where there is no joblib."""
    try:
        joblib = importlib.import_module("joblib")
    except ImportError:
        raise NotAvailable("joblib is not installed", hint="pip install joblib") from None
    joblib.register_parallel_backend(NAME, _backend_class())


def _end(executor: SandboxExecutor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)


def _backend_class() -> type[Any]:
    """joblib's own classes are the base, so that they are needed only where it is used."""
    backends = importlib.import_module("joblib._parallel_backends")
    base: Any = importlib.import_module("joblib.parallel").ParallelBackendBase
    cpu_count: Callable[[], int] = importlib.import_module("joblib").cpu_count

    class SandboxBackend(base):  # type: ignore[misc]
        """One executor for as long as joblib holds the backend: a ``parallel_config``, or one ``Parallel``. Options are
        those of ``SandboxExecutor``."""

        supports_retrieve_callback = True
        default_n_jobs = -1

        def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
            options.pop("inner_max_num_threads", None)  # libraries have as many as processors are left for each job
            super().__init__(nesting_level=nesting_level or 0)
            self._options = options
            self._jobs = 1
            self._executor: SandboxExecutor | None = None
            self._close: Any = None
            self._running: set[Future[Any]] = set()

        def __reduce__(self) -> Any:
            raise TypeError("a sandbox starts no sandboxes")

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            if n_jobs is None:
                return 1
            return int(n_jobs) if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)

        def configure(self, n_jobs: int | None = 1, parallel: Any = None, **_options: Any) -> int:
            self.parallel = parallel
            jobs = self.effective_n_jobs(n_jobs)
            if jobs != self._jobs:
                self._drop()
            self._jobs = jobs
            return jobs

        def get_nested_backend(self) -> tuple[Any, None]:
            return backends.SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
            future: Future[Any] = Future()
            try:
                if self._executor is None:
                    self._executor = SandboxExecutor(self._jobs, **self._options)
                    self._close = weakref.finalize(self, _end, self._executor)
                    self._close.atexit = False  # the supervisor ends with this process
                future = self._executor.submit(func)
            except SandboxError as exc:  # raised here, it would be lost: jobs are also sent from callbacks
                future.set_exception(exc)
            self._running.add(future)
            future.add_done_callback(self._running.discard)
            if callback is not None:
                future.add_done_callback(callback)
            return future

        def retrieve_result_callback(self, out: Future[Any]) -> Any:
            return out.result()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            for future in [*self._running]:
                future.cancel()
            if not ensure_ready:
                self._drop()

        def _drop(self) -> None:
            if self._executor is not None:
                self._executor = None
                self._close()

        def terminate(self) -> None:
            """A call of ``Parallel`` is over; the next one of a ``parallel_config`` finds the executor ready."""

    return SandboxBackend
