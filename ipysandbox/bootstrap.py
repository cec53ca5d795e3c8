"""How our own helper processes are started: this interpreter, isolated, with an import path that no project can reach.

A notebook's ``sys.path`` starts with its folder, where a stranger's ``logging.py`` may lie. Helpers import only from
the places of the interpreter itself and from where this package was found.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType

import ipysandbox

from . import reach


def import_path() -> list[str]:
    """Entries of ``sys.path`` that belong to the interpreter, its site folders, or this package's own place."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(ipysandbox.__file__)))
    paths = sysconfig.get_paths()
    roots = [sys.prefix, sys.base_prefix, sys.exec_prefix, paths["purelib"], paths["platlib"], paths["stdlib"]]
    roots += [*site.getsitepackages(), site.getusersitepackages()]
    absolute = [entry for entry in dict.fromkeys(sys.path) if os.path.isabs(entry)]
    # What does not answer is left out: a helper that imports from it would hang, and so would a look at its real path.
    silent = set(reach.stalled([*roots, *absolute, package]))
    roots = [os.path.realpath(root) for root in roots if os.path.abspath(root) not in silent]

    def belongs(entry: str) -> bool:
        real = os.path.realpath(entry)
        if entry == package:
            return True
        name = os.path.basename(real)
        # A prefix may hold a project too (a notebook in a virtual environment's folder): only libraries count.
        library = (
            "site-packages" in real or "dist-packages" in real or "lib" in real.split(os.sep) or name.endswith(".zip")
        )
        return library and any(real == root or real.startswith(root + os.sep) for root in roots)

    found = [entry for entry in absolute if os.path.abspath(entry) not in silent and belongs(entry)]
    return found if package in found else [*found, package]


def command(code: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs ``code`` with ``argv`` (a list) defined. No secret may be in either: others can read
    it."""
    setup = f"import sys; sys.path[:] = {import_path()!r}; argv = sys.argv[1:]; "
    return [sys.executable, "-I", "-c", setup + code, *arguments]


class _TrustedFinder:
    """Finds top-level modules in ``import_path`` only, for threads that asked for it; the others never notice."""

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}
        self.path = import_path()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Inside a package, the package's own folder is searched, and it was found here.
        if path is not None or threading.get_ident() not in self.threads:
            return None
        if name in sys.builtin_module_names or importlib.machinery.FrozenImporter.find_spec(name) is not None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, self.path, target)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r} outside the project", name=name)
        return spec


_finder: _TrustedFinder | None = None


@contextlib.contextmanager
def trusted_imports() -> Iterator[None]:
    """Within, this thread imports nothing from the project, though a notebook's ``sys.path`` starts with it.

    What a sandbox sends decides which library is needed to rebuild it; the project must not decide what that is.
    """
    global _finder
    if _finder is None:
        _finder = _TrustedFinder()
        sys.meta_path.insert(0, _finder)
    me = threading.get_ident()
    _finder.threads[me] = _finder.threads.get(me, 0) + 1
    try:
        yield
    finally:
        _finder.threads[me] -= 1
        if not _finder.threads[me]:
            del _finder.threads[me]
