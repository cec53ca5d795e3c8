"""IPython's shell, made once by the zygote: kernels share what it takes, and each makes it its own as it starts.

A kernel of its own would spend 10 ms of a processor and a megabyte on it.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.profiledir import ProfileDir
from traitlets.config import Config, SingletonConfigurable

#: The one that was made, and the settings that it was made with.
_made: tuple[Any, dict[str, Any]] | None = None


def make(config: Config) -> None:
    """Before there is a sandbox. What a shell leaves in a process for others to see is taken back: libraries that are
    loaded next must not take the zygote for a notebook."""
    global _made
    with _unseen():
        shell: Any = ZMQInteractiveShell.instance(
            config=deepcopy(config),  # it writes into its own
            profile_dir=ProfileDir(),  # none yet, and none is made
            ipython_dir=os.sep,
            compiler_class=IPythonKernel.compiler_class.default_value,
        )
        use(shell)
        ZMQInteractiveShell.clear_instance()
        atexit.unregister(shell.atexit_operations)
    _made = shell, _settings(config)


def use(shell: Any) -> None:
    """What IPython does for the first time with the first cell (milliseconds) is done before one is waited for."""
    shell.run_cell("None", silent=True)
    shell.display_formatter.format(0)


def adopt(app: Any) -> dict[str, Any] | None:
    """In a kernel that is about to make its shell, which so finds this one: its variables. None where there is none, or
    not of this kernel's settings."""
    if _made is None or _made[1] != _settings(app.config):
        return None
    shell = _made[0]
    shell.profile_dir, shell.ipython_dir, shell.starting_dir = app.profile_dir, app.ipython_dir, os.getcwd()
    shell.history_manager.dir_hist[:] = [Path.cwd()]
    for part in (shell.init_environment, shell.init_pushd_popd_magic, shell.init_builtins, shell.init_prompts):
        part()
    sys.modules["__main__"] = shell.user_module
    for kind in type(shell).mro():
        if issubclass(kind, SingletonConfigurable) and kind is not SingletonConfigurable:
            kind._instance = shell
    namespace: dict[str, Any] = shell.user_ns
    return namespace


def _settings(config: Config) -> dict[str, Any]:
    """Those that a shell looks at; sections without any come and go."""
    return {name: dict(section) for name, section in config.items() if section and name != "Session"}


@contextmanager
def _unseen() -> Iterator[None]:
    """Within, a shell is made; after it, the process looks as before."""
    environment, main = dict(os.environ), sys.modules["__main__"]
    names = {module: dict(vars(module)) for module in (sys, builtins)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.modules["__main__"] = main
        for module, before in names.items():
            for name in vars(module).keys() - before.keys():
                delattr(module, name)
