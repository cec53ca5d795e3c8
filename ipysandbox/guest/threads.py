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


#: As last found.
_found: list[Any] = []


def find() -> None:
    """Look for what this process has loaded; who is forked from it need not."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line and ".so" in line}
    _found.clear()
    for path in sorted(paths):
        if any(name in path.rsplit("/", 1)[-1] for name in _LIBRARIES):
            library = ctypes.CDLL(path)
            _found.extend(setter for name in _SETTERS if (setter := getattr(library, name, None)) is not None)


def set_numeric_threads(count: int) -> None:
    """Set ``count`` threads in every numeric library that was found."""
    for setter in _found:
        setter(ctypes.c_int(count))
