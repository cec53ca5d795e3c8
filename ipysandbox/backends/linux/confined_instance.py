"""One running sandbox without namespaces, seen from the supervisor: its root is the monitor, its end the monitor's."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ipysandbox.backends.base import Endpoints, Usage

from . import processes, scratch, tasks
from .confined_plan import ConfinedPlan
from .instance import LinuxInstance
from .layout import Spent
from .writable import WritableFolder

#: The monitor ends everything within moments; a person's machine may be slow.
_END_SECONDS = 12.0


def _nothing(_relative: str) -> bool:
    return False


class ConfinedInstance(LinuxInstance):
    """What differs where nothing is mounted: no scratch file system, no overlay, no pid 1 that takes all with it."""

    namespaces = False

    def __init__(
        self,
        plan: ConfinedPlan,
        endpoints: Endpoints,
        guarantees: Mapping[str, tuple[str, ...]],
        report: socket.socket,
        log_fd: int,
        folders: list[WritableFolder],
        hidden: Callable[[], tuple[list[str], Spent]],
    ) -> None:
        super().__init__(plan, endpoints, guarantees, report, log_fd, folders, hidden)
        self._scratch_path = plan.scratch
        self._known_hidden = frozenset(plan.hidden)
        self._scratch_folder = WritableFolder(Path(plan.scratch), _nothing, _nothing)
        self._holdings.devices |= {self._scratch_folder.device}

    def _on_event(self, event: dict[str, Any], fds: list[int]) -> None:
        if event.get("event") == "ready" and not self._ready.done():
            self._ready.set_result(None)
        else:
            super()._on_event(event, fds)

    async def kill(self) -> None:
        """Ask the monitor, by the end of its report socket; end it and all below it if it does not answer."""
        with contextlib.suppress(OSError):
            self._report.shutdown(socket.SHUT_WR)
        if not self.pid:
            self._finish()
        try:
            await asyncio.wait_for(self._ended.wait(), _END_SECONDS)
        except asyncio.TimeoutError:
            for pid in reversed(processes.tree(self.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self._group is not None:
                self._group.kill()
            await asyncio.wait_for(self._ended.wait(), _END_SECONDS)

    def _finish(self) -> None:
        super()._finish()
        if self._ended.is_set():
            threading.Thread(target=scratch.remove_tree, args=(self._scratch_path,)).start()

    def measure(self, *, brief: bool = False) -> Usage:
        """``processes`` counts threads too: nothing of the kernel's bounds them here, and the monitor is a program."""
        return dataclasses.replace(super().measure(brief=brief), processes=tasks.count(self.pid))

    def _measure_scratch(self) -> tuple[int, int, int]:
        return 0, *self._scratch_folder.measure(1 << 20)

    def _counted(self) -> list[WritableFolder]:
        return [*super()._counted(), self._scratch_folder]

    async def hide_new_names(self) -> list[str]:
        """Nothing can be hidden later: what has appeared among files that may be read is told."""
        found, _ = await self._names_to_cover()
        return [path for path in found if path not in self._known_hidden]
