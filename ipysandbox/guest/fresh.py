"""Makes a process that was forked from the zygote one of its own: its random numbers, its caches, its names.

Siblings begin as copies of one process. What makes a program unique, and what libraries remember of the process that
loaded them, has to be made anew in each; what was opened or read for the user before is none: the zygote has nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing.process
import os
import random
import sys
import tempfile
from typing import Any


def after_fork() -> None:
    """Before any code of the user's, and after environment, folder and ``sys.argv`` are the sandbox's own.

    Cheap (well below a millisecond): only modules that are loaded are looked at, none is imported.
    """
    _reseed()
    _forget()
    _reset_logging()


def _reseed() -> None:
    """Without this, siblings would draw the same numbers. New generators (``numpy.random.default_rng()``,
    ``secrets``, ``uuid4``) ask the kernel for theirs."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "seed"):  # not while its import is under way or has failed
        torch.seed()


def _forget() -> None:
    """What libraries have kept of the process that loaded them: a folder for temporary files, a number, a home."""
    vars(tempfile)["tempdir"] = None
    vars(tempfile)["_name_sequence"] = None
    process: Any = multiprocessing.process
    # By these multiprocessing names its children, tells parent from child, and signs what they send each other.
    process._process_counter = itertools.count(1)
    process._children = set()
    current = process._current_process
    current._config["authkey"] = process.AuthenticationString(os.urandom(32))
    # In a child that is spawned (joblib's loky does so too) it stands for the '' of sys.path.
    process.ORIGINAL_DIR = os.getcwd()
    parts = sys.modules.get("uuid")
    if parts is not None:
        vars(parts)["_last_timestamp"] = None
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return
    for name in ("get_configdir", "get_cachedir"):
        # Remembered from a home that is none; the sandbox's own is in its environment.
        remembered = getattr(matplotlib, name, None)
        cells = getattr(remembered, "__closure__", None) or ()
        for variable, cell in zip(getattr(remembered, "__code__", _forget.__code__).co_freevars, cells, strict=False):
            if variable == "called":
                cell.cell_contents = False


def _reset_logging() -> None:
    """Handlers that a library has installed at its import write to what was there then."""
    root = logging.getLogger()
    for handler in [*root.handlers]:
        root.removeHandler(handler)
        with contextlib.suppress(Exception):  # its stream may be closed, and its class may be anybody's
            handler.close()
    root.setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)


def read_settings() -> None:
    """Of libraries that were loaded before there was a project: what they would have read in its folder, or where its
    environment says. Before the first code of the user's, as late as that."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return
    with contextlib.suppress(Exception):  # a file that can't be read; the library itself would warn
        file = matplotlib.matplotlib_fname()
        if os.path.dirname(os.path.abspath(file)) != matplotlib.get_data_path():
            chosen = matplotlib.rcParams._get("backend")
            matplotlib.rcParams.update(matplotlib.rc_params_from_file(file))
            matplotlib.rcParams._set("backend", chosen)
            vars(matplotlib)["rcParamsOrig"] = matplotlib.rcParams.copy()
