"""`%sandbox dashboard`: meters and buttons in the notebook itself, also while it is busy; text without ipywidgets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Notebook

VIEW = "application/vnd.jupyter.widget-view+json"


def test_the_meters_move_and_the_buttons_work_while_the_notebook_is_busy(study: Path) -> None:
    pytest.importorskip("ipywidgets", reason="no ipywidgets here: the dashboard is text")
    page = Notebook(study)
    widgets: dict[str, dict[str, Any]] = {}
    try:
        page.run("%%sandbox seen\ntext = '<b>'").ok()
        page.client.session.send(page.client.control_channel.socket, "create_subshell_request", {})
        subshell = page.client.get_control_msg(timeout=30)["content"]["subshell_id"]

        def take(kind: str, content: dict[str, Any]) -> None:
            if kind == "comm_open":
                widgets[content["comm_id"]] = dict(content["data"]["state"])
            elif kind == "comm_msg" and content["data"].get("method") == "update":
                widgets[content["comm_id"]].update(content["data"]["state"])

        def find(key: str, value: str) -> str:
            return next(comm for comm, state in widgets.items() if state.get(key) == value)

        ran = page.run("%sandbox dashboard", on_message=take).ok()
        [shown] = [data for data in ran.displays if VIEW in data]
        number = ran.reply["execution_count"] + 1
        assert shown[VIEW]["model_id"] in widgets
        pressed: list[float] = []

        def press(kind: str, content: dict[str, Any]) -> None:
            take(kind, content)
            title = next((one["value"] for one in widgets.values() if "runs cell" in str(one.get("value"))), None)
            button = widgets[find("tooltip", "Stop the cell and keep the variables")]
            if title and not button["disabled"] and not pressed:
                assert title == f"<b>seen</b> runs cell {number}"
                pressed.append(time.monotonic())
                data = {"method": "custom", "content": {"event": "click"}}
                comm = find("tooltip", "Stop the cell and keep the variables")
                message = page.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
                message["header"]["subshell_id"] = subshell
                page.client.shell_channel.send(message)

        ran = page.run("%%sandbox seen --allow-error\nwhile True: pass", on_message=press)
        assert "interrupted" in ran.stderr
        assert "kept its variables" in ran.stderr
    finally:
        page.close()


def test_from_then_on_a_long_cell_has_one_line_that_follows_it_and_a_short_one_has_none(study: Path) -> None:
    page = Notebook(study)
    said: list[tuple[str, str]] = []

    def take(kind: str, content: dict[str, Any]) -> None:
        if kind in ("display_data", "update_display_data"):
            said.append((kind, content["data"]["text/plain"]))

    wait = "%%sandbox seen\nimport time\nend = time.time() + {}\nwhile time.time() < end: pass\nprint('done')"
    try:
        assert page.run(wait.format(3.5), on_message=take).ok().stdout == "done\n"
        assert not said
        page.run("%sandbox dashboard").ok()
        page.run(wait.format(0.1), on_message=take).ok()
        assert not said
        assert page.run(wait.format(6), on_message=take).ok().stdout == "done\n"
    finally:
        page.close()
    [(first, line), *later] = said
    assert first == "display_data"
    assert {kind for kind, _ in later} == {"update_display_data"}
    parts = line.split(" · ")
    assert [part.split()[0] for part in parts] == ["seen:", "processor", "memory", "processes"]
    assert all(" of " in part for part in parts)


def test_without_ipywidgets_it_is_text(study: Path) -> None:
    page = Notebook(study)
    try:
        page.run("import sys\nsys.modules['ipywidgets'] = None").ok()
        assert "No sandbox runs yet" in page.run("%sandbox dashboard").ok().stdout
        page.run("%%sandbox seen\n1").ok()
        assert "memory" in page.run("%sandbox dashboard").ok().stdout
    finally:
        page.close()
