"""Gives numeric libraries that were loaded before the fork their number of threads; later ones read the environment."""

from __future__ import annotations

import ctypes
from typing import Any

#: Setters by library: OpenBLAS under the names that numpy's and scipy's wheels and distributions give it, MKL, OpenMP.
_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
    "omp_set_num_threads",
)
_LIBRARIES = ("openblas", "libmkl_rt", "libgomp", "libomp", "libiomp")
#: What OpenBLAS itself has run before a fork (driver/others/blas_server.c): it ends its threads, and the first
#: calculation that is worth them starts others.
_END_THREADS = "blas_thread_shutdown_"

#: As last found: setters, and what ends the threads that they have started.
_found: list[tuple[Any, Any]] = []


def find() -> None:
    """Look for what this process has loaded; who is forked from it need not."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line and ".so" in line}
    _found.clear()
    for path in sorted(paths):
        if any(name in path.rsplit("/", 1)[-1] for name in _LIBRARIES):
            library = ctypes.CDLL(path)
            end = getattr(library, _END_THREADS, None)
            _found.extend((setter, end) for name in _SETTERS if (setter := getattr(library, name, None)) is not None)


def set_numeric_threads(count: int) -> None:
    """Set ``count`` threads in every numeric library that was found.

    OpenBLAS starts them at once, and each looks for work at full speed for some tens of milliseconds before it sleeps:
    as long as a sandbox takes to start, on a processor that the start could use.
    """
    for setter, end in _found:
        setter(ctypes.c_int(count))
        if end is not None:
            end()
