"""Asks systemd for a control group that is ours to divide: a transient scope around the zygote.

Only systemd may make groups in its tree (systemd.io/CGROUP_DELEGATION). A scope ends with its last process, and systemd
removes what is below it, so nothing is left whatever is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import groups
from .cgroup import BUSCTL, Facts

#: A bus or a systemd that takes longer, and longer than the zygote to load, is one to do without.
SCOPE_SECONDS = 2.0
#: systemd answers before it has moved the process.
_LOOK_SECONDS = 0.01


async def obtain(facts: Facts, zygote_pid: int, scope_name: str, started: asyncio.Future[None]) -> Facts:
    """Move the zygote into a scope of its own and divide that. What holds from now on: version 0 with the reason if
    none came by the time that the zygote had ``started``, or in two seconds."""
    work = asyncio.ensure_future(_obtain(facts, zygote_pid, scope_name))
    await asyncio.wait({work}, timeout=SCOPE_SECONDS)
    either: set[asyncio.Future[Any]] = {work, started}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        return Facts(reason=f"systemd gave no control group within {SCOPE_SECONDS:.0f} s")
    return work.result()


async def _obtain(facts: Facts, zygote_pid: int, scope_name: str) -> Facts:
    try:
        await _request(facts.bus, zygote_pid, scope_name)
        while not (place := _place(facts.mount, zygote_pid, scope_name)):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(_LOOK_SECONDS)
        controllers = _divide(place, zygote_pid)
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
        *(BUSCTL, f"--address={bus}", "--quiet", "call"),
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
