"""multiprocessing's locks and shared memory in a folder of the sandbox's own, where it has no /dev/shm; psutil's files
in /proc through the monitor, since no rule can name a process that does not exist yet.

Every Python in the sandbox loads a copy of this at its start, as its ``sitecustomize``: it imports as little as it can.
"""

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]
import _posixshmem  # type: ignore[import-not-found]
import errno
import os
import sys
import time
from _thread import get_ident

TYPE_CHECKING = False  # typing takes longer to load than the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: From the kernel inside to the Pythons that it starts.
VARIABLE = "IPYSANDBOX_SHARED"
#: An ordinary way to open a file for reading that nothing else uses; the filter sends it to the monitor.
ASKING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY


def use(folder: str) -> None:
    """Before either is used."""

    class SemLock(FifoSemLock):
        where = folder

    def path(name: str) -> str:
        if "/" in name.lstrip("/"):
            raise OSError(errno.EINVAL, "a name without slashes is needed", name)
        return os.path.join(folder, name.lstrip("/"))

    def shm_open(name: str, flags: int = 0, mode: int = 0o777) -> int:
        return os.open(path(name), flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def sem_unlink(name: str) -> None:
        if os.path.lexists(path(name)):  # a tracker and a finalizer may both clean up
            os.unlink(path(name))

    _multiprocessing.SemLock = SemLock
    _multiprocessing.sem_unlink = sem_unlink
    _posixshmem.shm_open = shm_open
    _posixshmem.shm_unlink = lambda name: os.unlink(path(name))

    def elsewhere(heap: Any) -> None:
        heap.Arena._dir_candidates = []

    # Where it puts values and arrays: /dev/shm tells of free space, and takes nothing.
    _after_import("multiprocessing.heap", elsewhere)


def ask_for_proc() -> None:
    """Have psutil open files as the filter lets through to the monitor."""

    def opened(name: str, flags: int) -> int:
        return os.open(name, ASKING if flags == os.O_RDONLY | os.O_CLOEXEC else flags)

    def change(module: Any) -> None:
        size = module.FILE_READ_BUFFER_SIZE if hasattr(module, "FILE_READ_BUFFER_SIZE") else -1
        module.open_binary = lambda name: open(name, "rb", buffering=size, opener=opened)  # noqa: SIM115
        module.open_text = lambda name: open(name, errors="surrogateescape", opener=opened)  # noqa: SIM115

    for name in ("psutil._common", "psutil._pslinux"):
        _after_import(name, change)


_changes: dict[str, Callable[[Any], None]] = {}


def _after_import(name: str, change: Callable[[Any], None]) -> None:
    """``change`` a module as soon as it is there: to load it for that would take longer than all else."""
    if name in sys.modules:
        change(sys.modules[name])
        return
    if not _changes:
        sys.meta_path.insert(0, _Finder)
    _changes[name] = change


class _Finder:
    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> Any:
        change = _changes.pop(name, None)
        if change is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class FifoSemLock:
    """multiprocessing's semaphore, with a pipe for a counter: each byte in it is one that may be taken.

    As ``_multiprocessing.SemLock``: kind 0 may be taken again by the thread that has it, kind 1 not.
    """

    SEM_VALUE_MAX = 32767
    where = ""

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        path = os.path.join(self.where, name.lstrip("/"))
        os.mkfifo(path, 0o600)
        self._open(kind, maxvalue, name, path)
        os.write(self.handle, b"x" * value)
        if unlink:
            os.unlink(path)

    def _open(self, kind: int, maxvalue: int, name: str | None, path: str) -> None:
        self.kind, self.maxvalue, self.name = kind, maxvalue, name
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._holder: tuple[int, int] | None = None
        self._count = 0

    @classmethod
    def _rebuild(cls, _handle: int, kind: int, maxvalue: int, name: str | None) -> FifoSemLock:
        self = cls.__new__(cls)
        if name is None:
            raise OSError(errno.ENOENT, "a lock without a name can be inherited only")
        self._open(kind, maxvalue, name, os.path.join(cls.where, name.lstrip("/")))
        return self

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        import select

        me = (os.getpid(), get_ident())
        if self.kind == 0 and self._holder == me:
            self._count += 1
            return True
        until = None if timeout is None else time.monotonic() + max(0.0, timeout)
        while True:
            try:
                os.read(self.handle, 1)
                break
            except BlockingIOError:
                left = None if until is None else until - time.monotonic()
                if not block or (left is not None and left <= 0):
                    return False
                poller = select.poll()  # select() knows no descriptors above 1023
                poller.register(self.handle, select.POLLIN)
                poller.poll(None if left is None else left * 1000)
        self._holder, self._count = me, 1
        return True

    __enter__ = acquire

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def release(self) -> None:
        if self.kind == 0:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._count > 1:
                self._count -= 1
                return
        elif self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._holder, self._count = None, max(0, self._count - 1)
        os.write(self.handle, b"x")

    def _is_mine(self) -> bool:
        return self._count > 0 and self._holder == (os.getpid(), get_ident())

    def _get_value(self) -> int:
        import fcntl
        import termios

        waiting = fcntl.ioctl(self.handle, termios.FIONREAD, bytes(4))
        return int.from_bytes(waiting, "little")

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._count = 0


if os.environ.get(VARIABLE):
    use(os.environ[VARIABLE])
    ask_for_proc()
