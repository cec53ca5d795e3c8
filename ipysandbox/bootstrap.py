"""How our own helper processes are started: this interpreter, isolated, with an import path that no project can reach.

A notebook's ``sys.path`` starts with its folder, where a stranger's ``logging.py`` may lie. Helpers import only from
the places of the interpreter itself and from where this package was found.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence

import ipysandbox


def import_path() -> list[str]:
    """Entries of ``sys.path`` that belong to the interpreter, its site folders, or this package's own place."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(ipysandbox.__file__)))
    paths = sysconfig.get_paths()
    roots = [sys.prefix, sys.base_prefix, sys.exec_prefix, paths["purelib"], paths["platlib"], paths["stdlib"]]
    roots += [*site.getsitepackages(), site.getusersitepackages()]
    roots = [os.path.realpath(root) for root in roots]

    def belongs(entry: str) -> bool:
        real = os.path.realpath(entry)
        if entry == package:
            return True
        name = os.path.basename(real)
        # A prefix may hold a project too (a notebook in a virtual environment's folder): only library folders count.
        library = (
            "site-packages" in real or "dist-packages" in real or "lib" in real.split(os.sep) or name.endswith(".zip")
        )
        return library and any(real == root or real.startswith(root + os.sep) for root in roots)

    found = [entry for entry in dict.fromkeys(sys.path) if os.path.isabs(entry) and belongs(entry)]
    return found if package in found else [*found, package]


def command(code: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs ``code`` with ``argv`` (a list) defined. No secret may be in either: others can read
    it."""
    setup = f"import sys; sys.path[:] = {import_path()!r}; argv = sys.argv[1:]; "
    return [sys.executable, "-I", "-c", setup + code, *arguments]
