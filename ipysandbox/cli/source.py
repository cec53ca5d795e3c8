"""Reads a file that should be Python: bytes first, since nobody promised what is in it."""

from __future__ import annotations

import io
import os
import sys
import tokenize
from dataclasses import dataclass

from ipysandbox.display import whole

#: The largest file that is read, in bytes; the check refuses far smaller ones.
MOST_BYTES = 32 << 20
#: What code from standard input is called, as Python calls it.
STDIN = "<stdin>"


class NotReadable(Exception):
    """The file can't be had at all: a wrong path, no permission, a folder."""


@dataclass(frozen=True)
class Source:
    """The text of a file; or, in ``problem``, why it is no text."""

    name: str
    text: str = ""
    problem: str = ""


def read(path: str) -> Source:
    """The code in ``path`` ("-": standard input). Raises NotReadable."""
    name = STDIN if path == "-" else path
    named = whole(name)
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(os.fspath(path), "rb") as file:
                data = file.read(MOST_BYTES + 1)
    except IsADirectoryError:
        raise NotReadable(f"{name} is a folder: name a file in it") from None
    except (OSError, ValueError) as exc:
        raise NotReadable(f"{named} can't be read: {getattr(exc, 'strerror', None) or exc}") from None
    if len(data) > MOST_BYTES:
        raise NotReadable(f"{named} is larger than {MOST_BYTES >> 20} MiB: not a file of code")
    if name.endswith(".ipynb"):
        raise NotReadable(
            f"{named} is a notebook: put %%sandbox on its cells, or convert it with jupyter nbconvert --to script"
        )
    try:
        # PEP 263: UTF-8, with or without a byte order mark, unless one of the first two lines names another encoding.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return Source(name, data.decode(encoding))
    except (SyntaxError, UnicodeDecodeError, LookupError) as exc:
        why = exc.msg if isinstance(exc, SyntaxError) else str(exc)
        return Source(name, problem=f"{named} is not Python source text ({why})")
