"""New cells of a notebook whose shield is pressed: however one is made and entered, its code runs in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from pages import TOKEN, jupyterlab

Run = Callable[..., Any]

_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_LOADED = """() => { const notebook = window.jupyterapp?.shell.currentWidget;
                     const kernel = notebook?.sessionContext?.session?.kernel;
                     return kernel?.connectionStatus === "connected" && kernel?.status === "idle" &&
                            notebook.content.widgets[0].model.executionCount; }"""
#: Ends with a line's end, as most of what is copied does.
_CODE = 'import os\nprint("home:", os.path.expanduser("~"), "end")\n'


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    state, folder = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("study")
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell("%load_ext ipysandbox")]
    nbformat.write(book, folder / "study.ipynb")
    with jupyterlab(folder, state) as found:
        yield found


def press(*keys: str) -> Callable[[Any], None]:
    """From command mode, with the only cell selected."""

    def work(page: Any) -> None:
        for key in keys:
            page.keyboard.press(key)

    return work


def click_first_line(page: Any) -> None:
    page.locator(".jp-Cell .cm-line", has_text="%%sandbox").click(position={"x": 2, "y": 5})


def toolbar(page: Any) -> None:
    page.locator("[data-jp-item-name=insert] jp-button").click()
    page.keyboard.press("Enter")


def click(page: Any) -> None:
    page.keyboard.press("b")
    click_first_line(page)


def click_again(page: Any) -> None:
    """Shift+Enter gives it the focus; many click into it all the same."""
    page.keyboard.press("Shift+Enter")
    click_first_line(page)


def undo(page: Any) -> None:
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("wrong")
    for _ in range(3):
        page.keyboard.press("Control+z")


_WAYS = {
    "below": press("b", "Enter"),
    "above": press("a", "Enter"),
    "shift-enter": press("Shift+Enter"),
    "alt-enter": press("Alt+Enter"),
    "arrow": press("b", "k", "Enter", "ArrowDown", "ArrowDown"),
    "toolbar": toolbar,
    "click": click,
    "click-again": click_again,
    "undo": undo,
}


def open_loaded(page: Any, address: str) -> None:
    page.goto(f"{address}/lab/tree/study.ipynb?token={TOKEN}&reset")
    page.locator(".jp-ipysandbox-toggle").wait_for(timeout=60_000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell'); }")
    page.wait_for_function(_LOADED, timeout=60_000)


@pytest.mark.parametrize(("way", "how"), [*((way, "pasted") for way in _WAYS), ("shift-enter", "typed")])
def test_code_of_a_new_cell_runs_in_the_sandbox(in_browser: Run, address: str, way: str, how: str) -> None:
    def work(page: Any) -> tuple[str, str]:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        open_loaded(page, address)
        page.locator(".jp-ipysandbox-toggle").click()
        page.locator(".jp-Cell .jp-InputPrompt").click()
        _WAYS[way](page)
        page.locator(".jp-Cell .cm-editor.cm-focused .cm-line", has_text="%%sandbox").wait_for()
        if how == "pasted":
            page.evaluate("(code) => navigator.clipboard.writeText(code)", _CODE)
            page.keyboard.press("Control+v")
        else:
            page.keyboard.type(_CODE)
        page.keyboard.press("Control+Enter")
        shown = page.locator(".jp-OutputArea-output", has_text="home:").inner_text(timeout=60_000)
        source = page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.source")
        return source, shown

    source, shown = in_browser(work, _OFFLINE)
    assert source == f"%%sandbox\n{_CODE}"
    assert shown.startswith("home: ")
    assert f"home: {Path.home()} end" not in shown


_SOURCES = "window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.sharedModel.source)"


@pytest.mark.parametrize("mode", ["edit", "command"])
def test_the_empty_cell_that_is_there_is_a_new_cell_and_a_split_leaves_no_part_outside(
    in_browser: Run, address: str, mode: str
) -> None:
    def work(page: Any) -> tuple[list[str], str, list[str]]:
        open_loaded(page, address)
        page.locator(".jp-Cell .jp-InputPrompt").click()
        page.keyboard.press("b")
        if mode == "edit":
            page.keyboard.press("Enter")
        # Its button keeps no key: those that follow are the notebook's.
        page.locator(".jp-ipysandbox-toggle").click()
        page.locator(".jp-Cell .cm-line", has_text="%%sandbox").wait_for()
        if mode == "command":
            page.keyboard.press("Enter")
        page.keyboard.type("kept = 'home:'\n")
        page.keyboard.press("Control+Shift+Minus")
        page.wait_for_function(f"{_SOURCES}.length === 3")
        page.keyboard.type("import os\nprint(kept, os.path.expanduser('~'), 'end')")
        parts = page.evaluate(_SOURCES)[1:]
        page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Shift+Enter")
        shown = page.locator(".jp-OutputArea-output", has_text="home:").inner_text(timeout=60_000)
        page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:merge-cell-below'); }")
        return parts, shown, page.evaluate(_SOURCES)[1:2]

    parts, shown, merged = in_browser(work, _OFFLINE)
    code = "import os\nprint(kept, os.path.expanduser('~'), 'end')"
    assert parts == ["%%sandbox\nkept = 'home:'", f"%%sandbox\n{code}"]
    assert shown.startswith("home: ")
    assert f"home: {Path.home()} end" not in shown
    assert merged == [f"%%sandbox\nkept = 'home:'\n\n{code}"]
