"""Asks systemd for a control group that is ours to divide: a transient scope around the zygote.

Only systemd may make groups in its tree (systemd.io/CGROUP_DELEGATION). A scope ends with its last process, and systemd
removes what is below it, so nothing is left whatever is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from . import groups
from .cgroup import BUSCTL, Facts

#: A bus or a systemd that takes longer is one to do without: the first sandbox waits for this.
SCOPE_SECONDS = 2.0
#: systemd answers before it has moved the process, and the kernel tells nobody about that.
_LOOK_SECONDS = 0.01


async def obtain(facts: Facts, zygote_pid: int, scope_name: str) -> Facts:
    """Move the zygote into a scope of its own and divide that. What holds from now on: version 0 with the reason if
    none came in time."""
    deadline = time.monotonic() + SCOPE_SECONDS
    try:
        await asyncio.wait_for(_request(facts.bus, zygote_pid, scope_name), SCOPE_SECONDS)
        while not (place := _place(facts.mount, zygote_pid, scope_name)):
            if time.monotonic() > deadline:
                raise asyncio.TimeoutError
            await asyncio.sleep(_LOOK_SECONDS)
        controllers = _divide(place, zygote_pid)
    except asyncio.TimeoutError:
        return Facts(reason=f"systemd gave no control group within {SCOPE_SECONDS:.0f} s")
    except OSError as exc:
        return Facts(reason=f"systemd gave no control group: {exc.strerror or exc}")
    if "memory" not in controllers:
        return Facts(reason="systemd delegates no memory controller to this user")
    return replace(facts, controllers=controllers, places={"": place})


async def _request(bus: str, pid: int, scope_name: str) -> None:
    """StartTransientUnit(name, mode, properties, auxiliary units) of org.freedesktop.systemd1(5)."""
    properties = ["PIDs", "au", "1", str(pid), "Delegate", "b", "true", "CollectMode", "s", "inactive-or-failed"]
    properties += ["Description", "s", "ipysandbox"]
    process = await asyncio.create_subprocess_exec(
        *(BUSCTL, f"--address={bus}", "--quiet", f"--timeout={SCOPE_SECONDS:.0f}", "call"),
        *("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"),
        *("StartTransientUnit", "ssa(sv)a(sa(sv))", scope_name, "fail", "4", *properties, "0"),
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise OSError(errors.decode("utf-8", "replace").strip()[-300:] or "busctl failed")


def _place(mount: str, pid: int, scope_name: str) -> str:
    """The scope's folder once the process is in it, "" before."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        if line.startswith("0::") and line.endswith(f"/{scope_name}"):
            return os.path.normpath(mount + line.removeprefix("0::"))
    return ""


def _divide(place: str, zygote_pid: int) -> tuple[str, ...]:
    """A group with processes can't hand controllers down: the zygote goes into one of its own first."""
    leaf = f"{place}/zygote"
    os.mkdir(leaf)
    Path(leaf, "cgroup.procs").write_text(str(zygote_pid))
    return groups.hand_down(place)
