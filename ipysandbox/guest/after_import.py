"""Fits libraries to the sandbox from the moment that code imports them; nothing is imported here by itself."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Action = Callable[[Any], None]


class _Loader(importlib.abc.Loader):
    """Another loader, and an action once the module has been executed."""

    def __init__(self, inner: Any, action: Action) -> None:
        self._inner, self._action = inner, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner  # what looks at a module finds the loader it knows
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        try:
            self._action(module)
        except Exception as exc:  # noqa: BLE001 - the library's own; it works without, and is watched from outside
            name = module.__name__
            warnings.warn(f"{name} could not be fitted to the sandbox: {exc!r}", stacklevel=2)


class AfterImport(importlib.abc.MetaPathFinder):
    """Runs an action after the first import of a module, by name; for all else it is not there."""

    def __init__(self, actions: dict[str, Action]) -> None:
        self._actions = actions

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Taken out first: the search below asks this finder again.
        action = self._actions.pop(fullname, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            self._actions[fullname] = action  # it may be installed later
            return None
        spec.loader = _Loader(spec.loader, action)
        return spec


def after_import(actions: dict[str, Action]) -> None:
    """Call each action with its module once code has imported that, whoever finds and loads it; at once where it was
    loaded before this process was forked."""
    loaded = [name for name in actions if name in sys.modules]
    sys.meta_path.insert(0, AfterImport({name: actions[name] for name in actions if name not in loaded}))
    for name in loaded:
        actions[name](sys.modules[name])
