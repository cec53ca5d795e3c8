"""The command-line door: ``ipysandbox …``, also as ``jupyter sandbox …``."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from ipysandbox.errors import PolicyError, SandboxError

from . import status
from .parser import build
from .say import say


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        # Under LANG=C an "é" in an output is no reason to fail.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    args = build().parse_args(argv)
    try:
        return int(args.do(args))
    except PolicyError as exc:
        return complain(exc, status.USAGE)
    except SandboxError as exc:
        return complain(exc, status.NOT_STARTED)
    except BrokenPipeError:
        # Nobody reads any more. The interpreter's own flush at the end must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status.BROKEN_PIPE
    except OSError as exc:
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        # As Python's own: nothing more can be written where the output goes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return complain(SandboxError(f"the output can't be written: {exc.strerror}"), status.UNWRITTEN)
    except KeyboardInterrupt:
        return status.INTERRUPTED


def _open_streams() -> None:
    """A shell may start us with streams closed (``>&-``). What is opened later must not be taken for one of them."""
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as this process runs


def complain(error: SandboxError, code: int) -> int:
    say(str(error))
    return code
