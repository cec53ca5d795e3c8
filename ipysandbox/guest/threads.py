"""Gives numeric libraries that were loaded before the fork their number of threads; later ones read the environment."""

from __future__ import annotations

import ctypes

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


def set_numeric_threads(count: int) -> None:
    """Set ``count`` threads in every numeric library that this process has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/" in line and ".so" in line}
    for path in paths:
        if any(name in path.rsplit("/", 1)[-1] for name in _LIBRARIES):
            library = ctypes.CDLL(path)
            for name in _SETTERS:
                setter = getattr(library, name, None)
                if setter is not None:
                    setter(ctypes.c_int(count))
