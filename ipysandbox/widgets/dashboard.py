"""Meters and buttons for this notebook's sandboxes, as ipywidgets: for front ends that don't have the panel."""

from __future__ import annotations

import html
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ipysandbox import bootstrap
from ipysandbox.display import one_line
from ipysandbox.errors import SandboxError
from ipysandbox.policy.units import format_duration
from ipysandbox.sandbox import Sandbox
from ipysandbox.supervisor.limits import size

#: Between two looks (seconds).
_PACE = 1.0
#: From here on a bar warns.
_NEAR = 0.8
_SURE = "Variables will be lost: press again"

Measured = tuple[float, float, str]


def meters(state: Mapping[str, Any]) -> dict[str, Measured]:
    """What a sandbox uses, its limit, and both in words. ``state`` is the control API's."""
    usage, limits, cell = state["usage"], state["limits"], state["cell"]

    def bytes_of(key: str) -> Measured:
        return (
            float(usage[key]),
            float(limits[key]),
            f"{size(usage[key], limits[key])} of {size(limits[key], limits[key])}",
        )

    def seconds(used: float, limit: float) -> Measured:
        return used, limit, f"{used:.1f} s of {format_duration(limit)}"

    found = {
        "Memory": bytes_of("memory"),
        "Disk": bytes_of("disk"),
        "Output": bytes_of("output"),
        "Processes": (usage["processes"], limits["processes"], f"{usage['processes']} of {limits['processes']}"),
        "CPU time": seconds(usage["cpu"], limits["cpu"]),
    }
    if cell:
        found["Time"] = seconds(cell["elapsed"], limits["wall"])
    return found


class _Row:
    """One sandbox's part."""

    def __init__(self, widgets: Any, box: Sandbox) -> None:
        # The page keeps a widget as long as it shows it; the sandbox must not live on for it.
        self._box = weakref.ref(box)
        self._title = widgets.HTML()
        self._bars = {
            name: (
                widgets.FloatProgress(max=1.0, description=name, style={"description_width": "80px"}),
                widgets.Label(),
            )
            for name in ("Memory", "Disk", "Output", "Processes", "CPU time", "Time")
        }
        self._buttons = [
            self._button(widgets, "Interrupt", "Stop the cell and keep the variables", box.interrupt, sure=False),
            self._button(widgets, "Restart", "Start it anew: variables are lost", box.restart, sure=True),
            self._button(widgets, "Kill", "End every process at once: variables are lost", box.kill, sure=True),
        ]
        lines = [widgets.HBox(list(pair)) for pair in self._bars.values()]
        self.widget = widgets.VBox([self._title, *lines, widgets.HBox(self._buttons)])
        self.update()

    def _button(self, widgets: Any, label: str, tip: str, action: Callable[[], None], *, sure: bool) -> Any:
        button = widgets.Button(description=label, tooltip=tip, layout=widgets.Layout(width="auto"))

        def pressed(_button: Any) -> None:
            if sure and button.description == label:
                button.description = _SURE
                return
            button.description = label
            try:
                action()
            except SandboxError as error:
                self._title.value = html.escape(error.message)
            else:
                self.update()

        button.on_click(pressed)
        # ipykernel 7.4 hands what the page says to the shell that spoke last on this comm, which a cell keeps busy.
        # This leaves it where the page put it: in a thread of its own. The name is private; without it a press waits.
        button.comm._reply_subshell_for = lambda _data, asked: asked
        return button

    def update(self) -> bool:
        """Show how it is now; whether it is there at all."""
        box = self._box()
        try:
            state = box.status() if box is not None else None
        except SandboxError:
            state = None
        cell = state["cell"] if state is not None else None
        for button in self._buttons:
            idle = cell is None and button.description == "Interrupt"
            button.disabled = idle or state is None or state["state"] == "dead"
        if state is None:
            self._title.value = "<i>This sandbox has ended.</i>"
            return False
        doing = f"runs cell {cell['number']}" if cell else {"dead": "has ended"}.get(state["state"], "is idle")
        self._title.value = f"<b>{html.escape(one_line(state['name']))}</b> {doing}"
        measured = meters(state)
        for name, (bar, label) in self._bars.items():
            value, limit, words = measured.get(name, (0.0, 1.0, ""))
            bar.value = min(1.0, value / limit) if limit else 1.0
            bar.bar_style = "danger" if bar.value >= 1 else "warning" if bar.value >= _NEAR else ""
            label.value = words
        return True


def show(boxes: list[Sandbox]) -> bool:
    """Display them, and keep them up to date while they are there; False where ipywidgets can't be had."""
    with bootstrap.trusted_imports():
        try:
            import ipywidgets
        except ImportError:
            return False
    from IPython.display import display

    rows = [_Row(ipywidgets, box) for box in boxes]
    display(ipywidgets.VBox([row.widget for row in rows]))  # type: ignore[no-untyped-call]
    pace = threading.Event()  # never set

    def follow() -> None:
        while not pace.wait(_PACE):
            there = [row.update() for row in rows]
            if not any(there):
                return

    # A thread that only looks: what holds limits is the supervisor.
    threading.Thread(target=follow, name="ipysandbox-dashboard", daemon=True).start()
    return True
