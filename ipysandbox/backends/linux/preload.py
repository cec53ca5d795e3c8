"""Loads libraries into the zygote for its children to share: installed ones only, and none that a fork would break."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import ipysandbox
from ipysandbox.guest import first_use
from ipysandbox.guest import threads as numeric_threads

from . import holes, libc

#: Loaded by many, started by few: their threads, pools or handles on a card do not survive a fork.
_UNFIT = {
    "grpc": "gRPC does not survive a fork",
    "tensorflow": "TensorFlow does not survive a fork",
    "jax": "JAX does not survive a fork",
    "polars": "Polars does not survive a fork",
    "ray": "Ray does not survive a fork",
    "cupy": "CUDA does not survive a fork",
    "pycuda": "CUDA does not survive a fork",
    "numba.cuda.cudadrv.driver": "CUDA does not survive a fork",
}
#: Bytes that the zygote may hold (resident): every sandbox's fork copies the tables of them.
MOST_BYTES = 1 << 30
#: A trial of one library, in a process of its own; importing the largest takes some seconds.
TRIAL_SECONDS = 60
_LIBRARIES = ("site-packages", "dist-packages")
_FINDERS = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, importlib.machinery.PathFinder)


class Verdict(NamedTuple):
    """What became of a library: why children don't find it, if so; whether the process is ``spoiled`` by it."""

    problem: str = ""
    spoiled: bool = False


@contextlib.contextmanager
def installed_only() -> Iterator[None]:
    """Within, imports come from the environment's own packages: not from where a development install points to, by a
    finder or by this package's checkout. Children have all that again."""
    finders, path = sys.meta_path[:], sys.path[:]
    own = os.path.dirname(os.path.dirname(os.path.abspath(ipysandbox.__file__)))
    sys.meta_path[:] = [finder for finder in finders if finder in _FINDERS]
    sys.path[:] = [entry for entry in path if entry != own or os.path.basename(own) in _LIBRARIES]
    before = [*sys.meta_path]
    try:
        yield
    finally:
        new = [finder for finder in sys.meta_path if finder not in before]  # what a library has put there for itself
        sys.meta_path[:] = finders + new
        sys.path[:] = path


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def load(name: str) -> Verdict:
    """Import ``name`` into this process."""
    problem = ""
    with installed_only():
        try:
            importlib.import_module(name)
            first_use.of(name)
        except ModuleNotFoundError as exc:
            missing = exc.name is not None and (name + ".").startswith(exc.name + ".")
            problem = "it is not installed" if missing else f"{type(exc).__name__}: {exc}"
        except BaseException as exc:  # noqa: BLE001 - a broken library is the cell's to meet, with its own traceback
            problem = f"{type(exc).__name__}: {exc}"
    unfit = why_unfit()
    return Verdict(problem or unfit, bool(unfit))


def why_unfit() -> str:
    """Why nothing should be forked from a process that has loaded what this one has."""
    count = threads()
    if count > 1:
        return f"it starts threads ({count - 1}), which a fork would lose"
    for name, why in _UNFIT.items():
        if name in sys.modules:
            return why
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA does not survive a fork"
    if resident() > MOST_BYTES:
        return f"with it more than {MOST_BYTES >> 20} MiB would be held"
    return ""


def settle() -> None:
    """Before forking: what children need not look for, and what is to be left alone in each of them."""
    numeric_threads.find()
    gc.collect()
    holes.fill()
    gc.freeze()


class Trial:
    """One library, imported in a child that ends with it: what it does to the process does not matter there."""

    def __init__(self, name: str, close: tuple[int, ...]) -> None:
        self.name = name
        self.fd, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.set_wakeup_fd(-1)
                signal.alarm(TRIAL_SECONDS)
                for fd in close:
                    os.close(fd)
                os.write(write, json.dumps(load(name).problem[:1000]).encode())
            finally:
                os._exit(0)
        os.close(write)

    def verdict(self) -> str:
        """Once ``fd`` can be read: empty, or why it is not loaded."""
        data = os.read(self.fd, 1 << 16)
        os.close(self.fd)
        os.waitpid(self.pid, 0)
        try:
            found: Any = json.loads(data)
        except ValueError:
            return "the process that tried it ended"
        return str(found)
