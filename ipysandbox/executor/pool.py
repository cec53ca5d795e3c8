"""``SandboxExecutor``: the interface of ``concurrent.futures``, and a fresh sandbox for each call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures import TimeoutError as FuturesTimeout
from pathlib import Path
from types import TracebackType
from typing import Any

from ipysandbox.bootstrap import trusted_imports
from ipysandbox.cwd import absolute
from ipysandbox.errors import SandboxClosed, SandboxError
from ipysandbox.given import duration, settings
from ipysandbox.policy import Policy, check_given

from .call import Packer, parts
from .local import Runner, TaskFuture, TaskRunner
from .modules import named_in
from .outcome import Outcome
from .printed import Printed
from .progress import bar, total_of
from .verdict import error_of, value_of

#: Calls that may wait to be run, before ``submit`` waits itself: in number, and in bytes.
MOST_WAITING, MOST_WAITING_BYTES = 4096, 256 << 20
#: Results of ``map`` that may be ahead of the one that is taken next, for each worker and at least.
_AHEAD, _LEAST_AHEAD = 4, 32


class SandboxExecutor(Executor):
    """Runs calls in sandboxes, a fresh one for each, up to ``max_workers`` (default: the processors) at a time.

        with SandboxExecutor(timeout="30s") as pool:
            results = list(pool.map(simulate, seeds))

    The function and its arguments go in by cloudpickle, its result comes out as plain data (what ``Sandbox.get`` can
    bring), its exception as the built-in class of that name or as TaskError, with the traceback in the sandbox as its
    cause. A limit raises LimitExceeded, a crash SandboxDied, a value that can't cross ValueRefused: of this one task.

    ``policy``, ``project``, ``overrides``: as of ``Sandbox``; every limit is each task's own. ``timeout`` is
    ``limits.wall``, in seconds or as ``"30s"``; ``limits`` are others by name, as ``{"memory": "512MiB"}``.
    ``preload``: names of installed modules to load once, before the sandboxes are made, instead of in each task; those
    that the first call names are loaded so in any case.
    ``client``: a ``dask.distributed.Client``; the calls run on the workers of its cluster, each with a supervisor of
    its own, under the policy as it is resolved here. A worker that can't hold it is not used; a call whose worker is
    lost is begun again elsewhere, up to three times in all, so it may run twice.
    ``cancel()`` of a future whose task runs kills it. ``submit`` waits while 4096 calls, or 256 MiB of them, wait to be
    run, and ``map`` takes from its iterables only what is soon run: a million tasks need no memory for a million.

    The check that reads cells before they run does not read functions: what holds is the sandbox.

    The first call raises PolicyError or StartError where no sandbox can be had; then nothing was run.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        policy: str | Path | Mapping[str, Any] | Policy | None = None,
        project: str | Path | None = None,
        timeout: float | str | None = None,
        limits: Mapping[str, object] | None = None,
        overrides: Mapping[str, object] | None = None,
        preload: Iterable[str] = (),
        allow_secrets: bool = False,
        client: Any = None,
        runner: Runner | None = None,
    ) -> None:
        """``runner``: where tasks run, instead of on this machine; the executor closes it."""
        try:
            max_workers = None if max_workers is None else operator.index(max_workers)
        except TypeError:
            what = type(max_workers).__name__
            raise TypeError(f"max_workers must be a whole number, not of type {what}") from None
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        wanted = settings("overrides", overrides)
        wanted |= {f"limits.{name}": value for name, value in settings("limits", limits).items()}
        if timeout is not None:
            wanted["limits.wall"] = duration("timeout", timeout)
        names = {key: f"overrides[{key!r}]" for key in overrides or {}}
        names |= {f"limits.{name}": f"limits[{name!r}]" for name in limits or {}}
        check_given(policy, wanted, names if timeout is None else {**names, "limits.wall": "timeout"})
        self._packer = Packer(absolute(project), allow_secrets=allow_secrets)
        kind = _kind_of_runner(client)
        self._workers = max_workers or _processors(client, runner)
        self._open = functools.partial(
            kind,
            policy=policy,
            project=project,
            overrides=wanted,
            workers=self._workers if client is None else max_workers,
            preload=tuple(preload),
            on_notice=_show_notice,
        )
        self._runner: Runner | None = runner
        self._printed = Printed()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._futures: set[Future[Any]] = set()
        self._waiting_bytes = 0
        self._shut = False
        #: Threads that a callback of ours runs in: one that waited there would wait for itself.
        self._inside = threading.local()

    @property
    def guarantees(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the layers that hold each guarantee of the policy."""
        return self._running().guarantees

    def _running(self, first: bytes = b"") -> Runner:
        """``first``: the call that it is started for."""
        with self._lock:
            if self._shut:
                raise SandboxClosed("the executor is shut down", hint="Make a new one.")
            if self._runner is None:
                with trusted_imports():
                    self._runner = self._open(suggested=named_in(*parts(first)) if first else ())
                # One that nobody shut down ends when nobody holds it or a future of it any more.
                weakref.finalize(self, _close_aside, self._runner).atexit = False
            return self._runner

    # -- calls

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn(*args, **kwargs)`` in a sandbox. Waits where too much waits already. Raises ValueRefused for what
        can't go in, or holds a secret of this process."""
        return self._submit(self._packer.call(self._packer.function(fn), args, kwargs))

    def _submit(self, call: bytes) -> Future[Any]:
        runner = self._running(call)
        self._wait_for_room(len(call))
        try:
            running = runner.submit(call)
        except BaseException:
            self._leave(None, len(call))
            raise
        future = TaskFuture(running.cancel, running.running)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(lambda done: self._leave(done, len(call)))
        running.add_done_callback(lambda done: self._told(done, future))
        return future

    def _wait_for_room(self, size: int) -> None:
        with self._idle:
            if not getattr(self._inside, "here", False):
                self._idle.wait_for(lambda: self._shut or self._has_room())
            self._waiting_bytes += size

    def _has_room(self) -> bool:
        return len(self._futures) < MOST_WAITING and self._waiting_bytes < MOST_WAITING_BYTES

    def _leave(self, future: Future[Any] | None, size: int) -> None:
        with self._idle:
            if future is not None:
                self._futures.discard(future)
            self._waiting_bytes -= size
            self._idle.notify_all()

    def _told(self, done: Future[Outcome], future: TaskFuture) -> None:
        """A task has ended; in a thread of the runner's."""
        self._inside.here = True
        try:
            if done.cancelled():
                future.cancel()
            elif not future.done():
                outcome = done.result()
                with contextlib.suppress(Exception):  # a stream of the caller's own; the result matters more
                    self._printed.show(outcome)
                self._resolve(future, outcome)
        finally:
            future.let_go()
            self._inside.here = False

    @staticmethod
    def _resolve(future: Future[Any], outcome: Outcome) -> None:
        try:
            value = value_of(outcome) if outcome.status == "ok" else None
            error = None if outcome.status == "ok" else error_of(outcome)
        except SandboxError as exc:
            error = exc
        if error is None:
            settle(future.set_result, value)
        else:
            settle(future.set_exception, error)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,  # noqa: ARG002 - of executors that put several calls into one process
        buffersize: int | None = None,
        progress: bool = False,
    ) -> Iterator[Any]:
        """As that of every executor: results in order, the exception of a call where its result would be.

        ``chunksize`` changes nothing, since each call has a sandbox of its own. ``buffersize``: how many results may be
        ahead of the one taken next. ``progress`` shows a bar. When the iterator is closed, or a call raises, the calls
        that are left are cancelled.
        """
        until = None if timeout is None else time.monotonic() + timeout
        function = self._packer.function(fn)
        ahead = buffersize or max(_LEAST_AHEAD, _AHEAD * self._workers)
        total = total_of(iterables) if progress else None
        calls = (self._packer.call(function, args, {}) for args in zip(*iterables, strict=False))
        waiting = deque(self._submit(call) for call in itertools.islice(calls, ahead))
        return self._results(calls, waiting, until, total if progress else -1)

    def _results(
        self, calls: Iterator[bytes], waiting: deque[Future[Any]], until: float | None, total: int | None
    ) -> Iterator[Any]:
        with bar(total) if total != -1 else _no_bar() as step:
            try:
                while waiting:
                    yield self._result(waiting.popleft(), until)
                    step()
                    waiting.extend(self._submit(call) for call in itertools.islice(calls, 1))
            finally:
                for future in waiting:
                    future.cancel()

    @staticmethod
    def _result(future: Future[Any], until: float | None) -> Any:
        try:
            return future.result(None if until is None else max(0.0, until - time.monotonic()))
        except FuturesTimeout:
            if future.done():  # the task's own exception
                raise
            future.cancel()
            raise

    # -- end

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. ``cancel_futures``: and cancel those that have not begun. ``wait``: return when all have
        ended and nothing of them is left; else that goes on by itself."""
        with self._idle:
            self._shut = True
            futures = list(self._futures)
            self._idle.notify_all()
        if cancel_futures:
            for future in futures:
                if not future.running():
                    future.cancel()
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end, name="ipysandbox-shutdown").start()

    def _end(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._futures)
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Waits for what was submitted; where an exception leaves the block, cancels and kills it."""
        if kind is not None:
            with self._lock:
                futures = list(self._futures)
            for future in futures:
                future.cancel()
        self.shutdown()


def _kind_of_runner(client: Any) -> Callable[..., Runner]:
    if client is None:
        return _on_this_machine
    from .dask import DaskRunner, require_usable

    require_usable(client)
    return functools.partial(DaskRunner, client)


def _on_this_machine(**options: Any) -> TaskRunner:
    runner = TaskRunner(**options)
    for notice in runner.notices:
        _show_notice(notice)
    return runner


def _processors(client: Any, runner: Runner | None) -> int:
    if runner is not None:
        return runner.workers
    if client is not None:
        return max(1, sum(int(threads) for threads in client.nthreads().values()))
    return len(os.sched_getaffinity(0))


def _close_aside(runner: Runner) -> None:
    """Not in the thread that the collector happens to run in."""
    threading.Thread(target=runner.close, name="ipysandbox-close").start()


def settle(setter: Callable[[Any], None], value: object) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled at this very moment
        setter(value)


class _no_bar:  # noqa: N801 - used like a function
    def __enter__(self) -> Callable[[], None]:
        return lambda: None

    def __exit__(self, *_exc: object) -> None:
        pass


def _show_notice(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
        print(f"ipysandbox: {text}", file=sys.stderr)
