"""Remembers, outside the project and by hash, which policy files the user has approved."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ipysandbox.errors import PolicyError

from .source import Document

_VERSION = 1


def trust_file(environ: Mapping[str, str], home: str) -> Path:
    """Where approvals are kept: the user's data folder, which no sandbox ever sees."""
    base = environ.get("XDG_DATA_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path(home, ".local", "share")
    return folder / "ipysandbox" / "trusted.json"


def place(path: Path) -> str:
    """What an approval is for: a name in a real folder. A link is not its target: the name tells how a policy's paths
    are meant, and so what the user saw."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def approved_hash(document: Document, store: Path) -> str | None:
    """The hash of the content that the user approved at this place; it need not be today's content."""
    return _load(store).get(place(document.path))


def approve(document: Document, store: Path) -> None:
    """Remember the approval of this content; the one of an earlier content is forgotten."""
    with _locked(store):
        _save(store, {**_load(store), place(document.path): document.sha256})


def withdraw(path: Path, store: Path) -> bool:
    """Forget an approval; False if there was none."""
    with _locked(store):
        entries = _load(store)
        found = entries.pop(place(path), None)
        if found is not None:
            _save(store, entries)
    return found is not None


def _load(store: Path) -> dict[str, str]:
    try:
        descriptor = os.open(store, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unusable(store, os.strerror(error.errno or 0), "make it readable, or delete it") from None
    status = os.fstat(descriptor)
    if sys.platform != "win32" and (
        not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022
    ):
        os.close(descriptor)
        raise _unusable(store, "others could have written it", f"check what it holds, then: chmod 600 {store}")
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read()
    try:
        data: Any = json.loads(raw)
    except (ValueError, RecursionError):
        data = None
    entries = data.get("trusted") if isinstance(data, dict) and data.get("version") == _VERSION else None
    if not isinstance(entries, dict) or not all(isinstance(digest, str) for digest in entries.values()):
        raise _unusable(store, "not what this version writes", "delete it, and approve your projects again")
    return entries


def _save(store: Path, entries: dict[str, str]) -> None:
    text = json.dumps({"version": _VERSION, "trusted": entries}, indent=1, sort_keys=True) + "\n"
    # A whole new file beside the old one, so that a crash leaves either the one or the other. mkstemp makes it 0600.
    descriptor, temporary = tempfile.mkstemp(prefix=".trusted-", dir=store.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, store)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _locked(store: Path) -> Iterator[None]:
    """One writer at a time: without it, two approvals at once would keep only the later."""
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(store.parent / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor):
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise _unusable(store, os.strerror(error.errno or 0), "make its folder writable") from None


def _unusable(store: Path, why: str, hint: str) -> PolicyError:
    return PolicyError(f"the list of approved policies can't be used: {why}", file=str(store), hint=hint)
