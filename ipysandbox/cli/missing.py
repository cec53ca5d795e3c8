"""Commands whose names are reserved for parts that this version does not have."""

from __future__ import annotations

import argparse
import sys

from . import status


def _missing(what: str) -> int:
    print(f"ipysandbox: {what} is not available in this version", file=sys.stderr)
    return status.USAGE


def kernelspec(_args: argparse.Namespace) -> int:
    return _missing("kernelspec install")
