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
    parts = sys.modules.get("uuid")
    if parts is not None:
        vars(parts)["_last_timestamp"] = None
    matplotlib = sys.modules.get("matplotlib")
    for name in ("get_configdir", "get_cachedir", "_get_xdg_config_dir", "_get_xdg_cache_dir"):
        # Cached from a home that is none; the sandbox's own is in its environment.
        clear = getattr(getattr(matplotlib, name, None), "cache_clear", None)
        if clear is not None:
            clear()


def _reset_logging() -> None:
    """Handlers that a library has installed at its import write to what was there then."""
    root = logging.getLogger()
    for handler in [*root.handlers]:
        root.removeHandler(handler)
        with contextlib.suppress(Exception):  # its stream may be closed, and its class may be anybody's
            handler.close()
    root.setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)
