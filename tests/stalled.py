"""Runs a command where real file systems stall: FUSE, or autofs as root, mounted with nobody to answer them.

    python tests/stalled.py fuse:/some/folder autofs:/another -- COMMAND…

The mounts are in a mount namespace of their own (as an ordinary user in a user namespace too) and go with it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _check(_libc.mount(*arguments), f"mount {kind} on {target}")


def _own_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid:
        _check(_libc.unshare(_NEWUSER | _NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    else:
        _check(_libc.unshare(_NEWNS), "unshare")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE, "")


def _stall_fuse(path: str) -> None:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)  # held open, never read
    owner = f"rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    _mount("stalled", path, "fuse", _MS_NOSUID | _MS_NODEV, f"fd={fd},{owner}")


def _stall_autofs(path: str) -> None:
    _, write = os.pipe()  # requests go here, and nobody reads them
    _mount("stalled", path, "autofs", 0, f"fd={write},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect")


def main(arguments: list[str]) -> int:
    at = arguments.index("--")
    _own_namespace()
    os.setpgid(0, 0)  # autofs lets its daemon's process group through
    for word in arguments[:at]:
        kind, _, path = word.partition(":")
        {"fuse": _stall_fuse, "autofs": _stall_autofs}[kind](path)
    return subprocess.run(arguments[at + 1 :], start_new_session=True).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
