"""Tasks of every kind, good and bad. Each takes a number, and is whole in itself: nothing else goes with it."""

from __future__ import annotations

from typing import Any


def small(number: int) -> int:
    import numpy as np

    return int(np.arange(number).sum())


def megabytes(number: int) -> bytes:
    return bytes([number % 256]) * (4 << 20)


def array(number: int) -> Any:
    import numpy as np

    return np.full(500_000, number)


def raises(number: int) -> None:
    raise ValueError(f"task {number}")


def raises_own(number: int) -> None:
    class OwnError(Exception):
        pass

    raise OwnError(number)


def segfault(number: int) -> None:
    import ctypes

    ctypes.string_at(0)


def exits(number: int) -> None:
    import os

    os._exit(number % 4)


def kills(number: int) -> None:
    import os
    import signal

    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def refused(number: int) -> Any:
    return object()


def forged(number: int) -> None:
    """Writes what is no result to every descriptor that it has, then ends as if all were well."""
    import os

    for fd in range(3, 64):
        try:
            os.write(fd, b"\x80\x05cos\nsystem\n" * 50)
        except OSError:
            continue
    os._exit(0)


def memory(number: int) -> int:
    kept = []
    while True:
        kept.append(bytearray(32 << 20))


def disk(number: int) -> None:
    with open("/tmp/large", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
            file.flush()


def processes(number: int) -> None:
    import os
    import time

    while True:
        if os.fork() == 0:
            time.sleep(1000)


def cpu(number: int) -> None:
    while True:
        pass


def wall(number: int) -> None:
    import time

    time.sleep(1000)


def hangs(number: int) -> None:
    import signal
    import threading

    for name in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(name, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    threading.Event().wait(1000)


# They cross by value, as the functions of a notebook do: this module is not in the sandbox.
for _task in [value for value in globals().values() if hasattr(value, "__code__")]:
    _task.__module__ = "__main__"
