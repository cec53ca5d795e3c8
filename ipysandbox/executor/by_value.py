"""Which modules a sandbox can't import, so that what they define has to travel by value.

cloudpickle sends what an importable module defines as its name. Inside, only installed packages and the project's
folder are there: not a test's module, nor what ``PYTHONPATH`` or an editable installation brings.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

#: cloudpickle's register is the process's own.
_turn = threading.Lock()


class Elsewhere:
    """Finds them; looks again when modules have been loaded since."""

    def __init__(self, project: Path) -> None:
        from ipysandbox.backends.linux.layout import interpreter_places

        package = Path(__file__).parent.parent
        self._importable = tuple(f"{place}/" for place in (*interpreter_places(), "/usr", package))
        self._project = os.path.realpath(project)
        self._known: dict[str, bool] = {}

    def modules(self) -> list[ModuleType]:
        found = []
        for name, module in [*sys.modules.items()]:
            if name not in self._known:
                self._known[name] = self._is_elsewhere(name, module)
            if self._known[name] and isinstance(module, ModuleType):
                found.append(module)
        return found

    def _is_elsewhere(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(file, str) or module.__name__ != name:
            return False
        path = os.path.realpath(file)
        if path.startswith(self._importable) or file.startswith(self._importable):
            return False
        # As it is named inside: below the folder in which the code runs.
        place = os.path.join(self._project, *name.split("."))
        return not path.startswith((f"{place}.", f"{place}{os.sep}"))


@contextmanager
def by_value(cloudpickle: Any, modules: list[ModuleType]) -> Iterator[None]:
    """Within, what these define travels by value."""
    with _turn:
        before = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in before]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)
