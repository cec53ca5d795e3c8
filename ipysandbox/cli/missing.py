"""What is answered where there is no command to do: none was given, or it is reserved for a later version."""

from __future__ import annotations

import argparse
import sys

from . import status
from .parser import build


def command(_args: argparse.Namespace) -> int:
    build().print_help(sys.stderr)
    return status.USAGE


def kernelspec(_args: argparse.Namespace) -> int:
    print(
        "ipysandbox: kernelspec is not available in this version: no kernel runs all of its cells in a sandbox. "
        "Put %%sandbox on top of the cells instead.",
        file=sys.stderr,
    )
    return status.USAGE
