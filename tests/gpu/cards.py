"""Runs a command where /dev holds files of graphics cards, as on a machine that has them: each is /dev/null in truth.

    python tests/gpu/cards.py COMMAND…

/dev is a folder of its own in a mount namespace (as an ordinary user in a user namespace too), and goes with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ipysandbox.backends.linux import libc

CARDS = ("nvidia0", "nvidia1", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_KEPT = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
_STAGE = "/mnt"


def main() -> None:
    uid, gid = os.getuid(), os.getgid()
    libc.unshare((libc.CLONE_NEWUSER if uid else 0) | libc.CLONE_NEWNS)
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    libc.mount(None, "/", None, libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("dev", _STAGE, "tmpfs", libc.MS_NOSUID, "mode=755")
    for name, source in [*((name, name) for name in _KEPT), *((name, "null") for name in CARDS)]:
        if os.path.exists(f"/dev/{source}"):
            Path(_STAGE, name).touch()
            libc.mount(f"/dev/{source}", f"{_STAGE}/{name}", None, libc.MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{_STAGE}/{name}")
        libc.mount(f"/dev/{name}", f"{_STAGE}/{name}", None, libc.MS_BIND | libc.MS_REC)
    os.symlink("/proc/self/fd", f"{_STAGE}/fd")
    os.symlink("pts/ptmx", f"{_STAGE}/ptmx")
    libc.mount(_STAGE, "/dev", None, libc.MS_BIND | libc.MS_REC)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
