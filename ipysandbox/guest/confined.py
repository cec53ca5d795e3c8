"""What a kernel does otherwise where its sandbox has no file systems of its own: no terminals, no /dev/shm.

Conveniences, not walls: code that goes around them meets the kernel's refusal.
"""

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]
import _posixshmem  # type: ignore[import-not-found]
import array
import codecs
import errno
import fcntl
import os
import select
import subprocess
import sys
import termios
import threading
import time
from typing import Any

#: In the sandbox's own folder; stands for /dev/shm.
_FOLDER = "shm"


def prepare(scratch: str) -> None:
    """Give multiprocessing's locks and shared memory a place in ``scratch``. Before either is used."""
    folder = os.path.join(scratch, _FOLDER)

    class SemLock(_FifoSemLock):
        where = folder

    def path(name: str) -> str:
        if "/" in name.lstrip("/"):
            raise OSError(errno.EINVAL, "a name without slashes is needed", name)
        return os.path.join(folder, name.lstrip("/"))

    def shm_open(name: str, flags: int = 0, mode: int = 0o777) -> int:
        return os.open(path(name), flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    _multiprocessing.SemLock = SemLock
    _multiprocessing.sem_unlink = lambda name: os.unlink(path(name))
    _posixshmem.shm_open = shm_open
    _posixshmem.shm_unlink = lambda name: os.unlink(path(name))


class _FifoSemLock:
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
    def _rebuild(cls, _handle: int, kind: int, maxvalue: int, name: str | None) -> _FifoSemLock:
        self = cls.__new__(cls)
        if name is None:
            raise OSError(errno.ENOENT, "a lock without a name can be inherited only")
        self._open(kind, maxvalue, name, os.path.join(cls.where, name.lstrip("/")))
        return self

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        me = (os.getpid(), threading.get_ident())
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
                select.select([self.handle], [], [], left)
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
        return self._count > 0 and self._holder == (os.getpid(), threading.get_ident())

    def _get_value(self) -> int:
        waiting = array.array("i", [0])
        fcntl.ioctl(self.handle, termios.FIONREAD, waiting)
        return waiting[0]

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._count = 0


def use_pipes(shell: Any) -> None:
    """Have ``!command`` go through a pipe: a new terminal would be the host's."""

    def system(command: str) -> None:
        text = shell.var_expand(command, depth=1)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with subprocess.Popen(
            text, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            while data := process.stdout.read1(65536):  # type: ignore[attr-defined]
                sys.stdout.write(decoder.decode(data))
                sys.stdout.flush()
        status = process.returncode
        shell.user_ns["_exit_code"] = status if status >= 0 else 128 - status

    shell.system = system
