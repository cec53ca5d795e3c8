"""One line under a cell that takes long: what it uses so far, and of how much. For front ends without the panel."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ipysandbox.display import one_line
from ipysandbox.errors import SandboxError
from ipysandbox.policy.units import format_duration
from ipysandbox.sandbox import Sandbox
from ipysandbox.supervisor.limits import size

#: A cell that takes no longer (seconds) gets none; then it is renewed so often.
_AFTER, _PACE = 3.0, 1.0


def words(state: Mapping[str, Any]) -> str:
    """``state`` is the control API's."""
    usage, limits, cell = state["usage"], state["limits"], state["cell"]
    elapsed = cell["elapsed"] if cell else 0.0
    return " · ".join(
        (
            f"{one_line(state['name'])}: {elapsed:.0f} s of {format_duration(limits['wall'])}",
            f"processor {usage['cpu']:.1f} s of {format_duration(limits['cpu'])}",
            f"memory {size(usage['memory'], limits['memory'])} of {size(limits['memory'], limits['memory'])}",
            f"processes {usage['processes']} of {limits['processes']}",
        )
    )


class Line:
    """Around a cell. What it has said last stays with the outputs."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box
        self._done = threading.Event()
        # Outputs of a thread belong to the cell that it was started in only where it has that one's context.
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._follow,), name="ipysandbox-progress", daemon=True
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _follow(self) -> None:
        from IPython.display import DisplayHandle

        handle: DisplayHandle | None = None
        wait = _AFTER
        while not self._done.wait(wait):
            wait = _PACE
            try:
                state = self._box.status()
            except SandboxError:
                return  # the cell itself says why
            if not state["cell"]:
                continue
            text = {"text/plain": words(state)}
            if handle is None:
                handle = DisplayHandle()  # type: ignore[no-untyped-call]
                handle.display(text, raw=True)  # type: ignore[no-untyped-call]
            else:
                handle.update(text, raw=True)  # type: ignore[no-untyped-call]
