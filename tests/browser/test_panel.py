"""The panel in a real JupyterLab: what it shows moves, what it stops stops, and what a sandbox says stays text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from pages import TOKEN, free_port, jupyterlab

Run = Callable[..., Any]

_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_SECRET = "kept-out-of-every-page-4711-0815"
_IDLE = """() => { const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
                   return kernel?.connectionStatus === "connected" && kernel?.status === "idle"; }"""
_COLUMNS = """(card) => getComputedStyle(card.querySelector(".jp-ipysandbox-charts"))
                .gridTemplateColumns.split(" ").length"""
#: Of a card's name, beside the widest badge.
_LINES = """(card) => {
              const [name, badge] = card.querySelector(".jp-ipysandbox-title").children, said = badge.lastChild.data;
              badge.lastChild.data = "waits for your answer";
              const text = document.createRange();
              text.selectNodeContents(name);
              const lines = text.getClientRects().length;
              badge.lastChild.data = said;
              return lines; }"""
#: Choices that are wider than the field, without its padding and its arrow.
_CUT_OFF = """[...document.querySelectorAll(".jp-ipysandbox-filters option")].filter((option) => {
                const field = option.closest("select"), pen = document.createElement("canvas").getContext("2d");
                pen.font = getComputedStyle(field).font;
                return !option.value.startsWith("/") && pen.measureText(option.text).width > field.clientWidth - 36;
              }).map((option) => option.text)"""
#: Of a button's letters with what is behind them, by WCAG 2.
_CONTRAST = """(button) => {
              const light = (colour) => { const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255)
                .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05; };
              const {color, backgroundColor} = getComputedStyle(button);
              const both = [light(color), light(backgroundColor)];
              return Math.max(...both) / Math.min(...both); }"""
_FILLS = """%%sandbox box-{0}
import socket
try:
    socket.create_connection(("192.0.2.7", 443), 1)
except OSError:
    pass
data = []
while True:
    data.append(bytearray(200_000))
    sum(range(1_000_000))
"""


class Watched:
    """A page, and all that it asked for, was answered and complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.bodies: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfinished", self._keep)
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: self.bodies.append(str(frame))))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _keep(self, request: Any) -> None:
        if "/ipysandbox/" in request.url and "export" not in request.url:
            self.bodies.append(request.response().text())

    def others(self, address: str) -> set[str]:
        """What went anywhere else."""
        places = {
            urlsplit(url).netloc for url in self.requests if urlsplit(url).scheme in ("http", "https", "ws", "wss")
        }
        return places - {urlsplit(address).netloc}


def notebook(folder: Path, *cells: str, name: str = "study") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "ipysandbox.toml").write_text('[limits]\nwall = "9min"\nmemory = "64GiB"\n')
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext ipysandbox", *cells)]
    nbformat.write(book, folder / f"{name}.ipynb")


def card(page: Any, name: str) -> Any:
    return page.locator(f".jp-ipysandbox-card[aria-label='Sandbox {name}']")


def tab(page: Any, name: str) -> None:
    page.locator(f"#ipysandbox-tab-{name}").click()


def serious(page: Any) -> list[str]:
    """What axe finds in the parts that are ours."""
    axe = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
    if not axe.exists():
        reason = f"no axe-core here ({axe}): `make .venv/.panel`"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    page.evaluate(axe.read_text())
    found = page.evaluate(
        """() => axe.run({include: ['Panel', 'StatusItem', 'shield'].map((part) => ['.jp-ipysandbox-' + part])})
                    .then((result) => result.violations)"""
    )
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def fits(page: Any) -> bool:
    return bool(
        page.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('#ipysandbox-view'))")
    )


@contextmanager
def zoomed(page: Any) -> Iterator[None]:
    """To 200 %, as the browser's own zoom does it: half as many pixels of CSS, each of them twice as large."""
    session = page.context.new_cdp_session(page)
    metrics = {"width": 600, "height": 450, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", metrics)
    page.wait_for_function("window.devicePixelRatio === 2 && window.innerWidth === 600")
    try:
        yield
    finally:
        session.send("Emulation.clearDeviceMetricsOverride")
        page.set_viewport_size({"width": 1200, "height": 900})


@pytest.mark.timeout(240)
def test_what_a_sandbox_does_is_seen_and_stopped_while_the_notebook_is_busy(in_browser: Run, tmp_path: Path) -> None:
    folder, name = tmp_path / "study", str(os.getpid())
    notebook(folder, _FILLS.format(name))
    environ = {**os.environ, "IPYSANDBOX_PANEL": "open", "STUDY_API_KEY": _SECRET}

    def work(page: Any) -> Watched:
        watched = Watched(page)
        page.goto(f"{address}/lab/tree/study.ipynb?token={TOKEN}&reset")
        page.wait_for_function(_IDLE, timeout=60_000)
        page.locator(".jp-ipysandbox-Panel").wait_for()
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")  # not until they end
        box = card(page, f"box-{name}")
        box.locator("[data-state=busy]").wait_for(timeout=60_000)
        page.locator(".jp-ipysandbox-shield[data-state=busy]").wait_for()
        # The meters move, though the notebook's kernel does nothing but wait.
        memory = box.locator("[role=meter][aria-label=Memory]").element_handle()
        first = float(memory.get_attribute("aria-valuenow"))
        page.wait_for_function("([one, first]) => Number(one.ariaValueNow) > first + 3e6", arg=[memory, first])
        page.wait_for_function("() => document.querySelector('.jp-ipysandbox-StatusItem').textContent.includes('%')")
        assert serious(page) == []

        tab(page, "policy")
        page.get_by_text("STUDY_API_KEY").wait_for()
        page.get_by_text("4\u202fGiB → 64\u202fGiB").wait_for()
        assert serious(page) == []
        page.get_by_role("button", name="project:2").click()
        page.wait_for_function(
            "window.jupyterapp.shell.currentWidget?.content.editor?.getCursorPosition?.().line === 1"
        )
        page.evaluate("() => { window.jupyterapp.commands.execute('docmanager:open', {path: 'study.ipynb'}); }")

        tab(page, "audit")
        refused = page.locator(".jp-ipysandbox-records li[data-severity=warning]", has_text="192.0.2.7:443")
        refused.wait_for()
        refused.locator("summary").click()
        refused.get_by_text("network.refused").wait_for()
        page.get_by_role("button", name="Verify").click()
        page.get_by_text("without a gap").wait_for()
        assert serious(page) == []
        with page.expect_download() as download:
            page.get_by_role("link", name="JSONL").click()
        actions = [json.loads(line)["action"] for line in Path(download.value.path()).read_text().splitlines()]
        assert "network.refused" in actions

        tab(page, "sandboxes")
        page.evaluate(
            "() => { window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'}); }"
        )
        page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
        page.wait_for_function(
            "getComputedStyle(document.querySelector('.jp-ipysandbox-Panel')).backgroundColor === 'rgb(33, 33, 33)'"
        )
        assert box.get_by_role("button", name="Kill").evaluate(_CONTRAST) >= 4.5
        assert serious(page) == []
        with zoomed(page):
            box.get_by_role("button", name="Kill").scroll_into_view_if_needed()
            assert fits(page)
            assert serious(page) == []
        # By keys alone.
        box.get_by_role("button", name="Kill").focus()
        page.keyboard.press("Enter")
        page.get_by_text("Lost: the running cell").wait_for()
        page.locator(".jp-Dialog").get_by_role("button", name="Kill").focus()
        page.keyboard.press("Enter")
        page.locator(".jp-OutputArea-output", has_text="ended by the panel's Kill").wait_for(timeout=30_000)
        box.locator(".jp-ipysandbox-state[data-state=dead]").wait_for()
        assert _SECRET not in page.content()
        return watched

    with jupyterlab(folder, tmp_path / "state", environ=environ) as address:
        watched = in_browser(work, _OFFLINE)
    assert any("STUDY_API_KEY" in body for body in watched.bodies)
    assert not any(_SECRET in body for body in watched.bodies)
    assert watched.others(address) == set()
    assert watched.complaints == []


@pytest.mark.timeout(240)
def test_two_notebooks_have_their_own_cards_and_what_stops_one_leaves_the_other(
    in_browser: Run, tmp_path: Path
) -> None:
    folder, number = tmp_path / "study", os.getpid()
    spins, stays = f"spins-{number}", f"stays-{number}"
    notebook(folder, f"%%sandbox {spins}\nwhile True: pass")
    notebook(folder, f"%%sandbox {stays}\nkept = 7", f"%%sandbox {stays}\nprint('still', kept)", name="other")

    def run_first_cells(page: Any, count: int) -> None:
        page.wait_for_function(_IDLE, timeout=60_000)
        page.evaluate(
            """(count) => { const {content, sessionContext} = window.jupyterapp.shell.currentWidget;
                 content.activeCellIndex = 0;
                 window.jupyterapp.commands.execute('notebook:run-cell-and-select-next').then(() => count > 1 &&
                     window.jupyterapp.commands.execute('notebook:run-cell-and-select-next')); }""",
            count,
        )

    def current(page: Any, name: str) -> None:
        page.wait_for_function("(name) => window.jupyterapp.shell.currentWidget?.context?.path === name", arg=name)

    def work(page: Any) -> Watched:
        watched = Watched(page)
        page.goto(f"{address}/lab/tree/study.ipynb?token={TOKEN}&reset")
        page.locator(".jp-ipysandbox-Panel").wait_for()
        run_first_cells(page, 2)
        card(page, spins).locator("[data-state=busy]").wait_for(timeout=60_000)
        page.evaluate("() => { window.jupyterapp.commands.execute('docmanager:open', {path: 'other.ipynb'}); }")
        current(page, "other.ipynb")
        run_first_cells(page, 2)
        card(page, stays).locator("[data-state=idle]").wait_for(timeout=60_000)
        page.get_by_text(re.compile(r"\d+ sandboxes")).wait_for()  # whoever runs this may have others
        for name, path in ((spins, "study.ipynb"), (stays, "other.ipynb")):
            card(page, name).get_by_role("button", name=path).click()
            current(page, path)
        page.set_viewport_size({"width": 1200, "height": 600})  # the cards need the scroll bar
        for name in (spins, stays):
            assert card(page, name).evaluate(_COLUMNS) == 2
            assert card(page, name).evaluate(_LINES) == 1
        tab(page, "audit")
        assert page.evaluate(_CUT_OFF) == []
        # What speaks of one notebook speaks of the one in front.
        tab(page, "policy")
        for path, name, command, lost in (
            ("other.ipynb", stays, "Restart", "Lost: all variables"),
            ("study.ipynb", spins, "Kill", "Lost: the running cell"),
            ("other.ipynb", stays, "Kill", "Lost: all variables"),
        ):
            page.evaluate("(path) => { jupyterapp.commands.execute('docmanager:open', {path}); }", path)
            current(page, path)
            page.wait_for_function(
                "(label) => document.querySelector('[aria-label=\"Whose policy\"]').selectedOptions[0].text === label",
                arg=f"{name} – {path}",
            )
            page.keyboard.press("Control+Shift+c")
            page.locator(".lm-CommandPalette-input:visible").fill("this notebook’s sandbox")
            page.locator(".lm-CommandPalette-item:visible", has_text=f"{command} This Notebook’s Sandbox").click()
            dialog = page.locator(".jp-Dialog", has_text=f'{command} sandbox "{name}" of {path}?')
            dialog.get_by_text(lost).wait_for()
            dialog.get_by_role("button", name="Cancel").click()
        tab(page, "sandboxes")
        card(page, spins).get_by_role("button", name="Kill").click()
        page.locator(".jp-Dialog").get_by_role("button", name="Kill").click()
        card(page, spins).locator(".jp-ipysandbox-state[data-state=dead]").wait_for()
        # The other notebook is in front, and its variables are there.
        page.wait_for_function(_IDLE, timeout=60_000)
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell-and-select-next'); }")
        page.locator(".jp-OutputArea-output:visible", has_text="still 7").wait_for(timeout=30_000)
        card(page, stays).locator("[data-state=idle]").wait_for()
        return watched

    environ = {**os.environ, "IPYSANDBOX_PANEL": "open"}
    with jupyterlab(folder, tmp_path / "state", environ=environ) as address:
        assert in_browser(work, _OFFLINE).complaints == []


@pytest.mark.timeout(240)
def test_a_notebook_is_offered_what_it_has_not_loaded_and_keeps_its_sandbox_when_it_is_renamed(
    in_browser: Run, tmp_path: Path
) -> None:
    folder, name = tmp_path / "study", f"box-{os.getpid()}"
    notebook(folder, name="plain")
    book = nbformat.read(folder / "plain.ipynb", 4)
    book.cells = [nbformat.v4.new_code_cell(f"# what it is for\n%%sandbox {name}\n1")]
    nbformat.write(book, folder / "plain.ipynb")

    def work(page: Any) -> None:
        page.goto(f"{address}/lab/tree/plain.ipynb?token={TOKEN}&reset")
        page.wait_for_function(_IDLE, timeout=60_000)
        page.keyboard.press("Control+Shift+c")
        page.locator(".lm-CommandPalette-input:visible").fill("show sandboxes")
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement?.closest('.jp-ipysandbox-Panel')")
        page.get_by_text("ipysandbox is not loaded in plain.ipynb").wait_for()
        page.locator(".jp-ipysandbox-toggle").click()
        page.locator(".jp-Dialog").get_by_text("Its kernel does not know %%sandbox yet").wait_for()
        page.locator(".jp-Dialog").get_by_role("button", name="Load it").click()
        page.get_by_text("ipysandbox is not loaded in plain.ipynb").wait_for(state="hidden", timeout=30_000)
        assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.source") == (
            "%load_ext ipysandbox"
        )
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        page.locator(".jp-ipysandbox-shield[data-state=idle]").wait_for(timeout=60_000)
        page.evaluate("() => window.jupyterapp.shell.currentWidget.context.rename('peak.ipynb')")
        card(page, name).get_by_role("button", name="peak.ipynb").wait_for()
        assert page.locator(".jp-ipysandbox-shield[data-state=idle]").count() == 1
        tab(page, "policy")
        page.locator("option", has_text=f"{name} – peak.ipynb").wait_for(state="attached")
        assert page.locator("select[aria-label='Whose policy']").input_value() != "here"

        # All that it asks for is read before it is approved, also what the dialog has no room for.
        folders = [tmp_path / f"data-{number:02}" for number in range(60)]
        for one in folders:
            one.mkdir()
        (folder / "ipysandbox.toml").write_text(f"[files]\nread = {json.dumps([str(one) for one in folders])}\n")
        page.get_by_role("button", name="Read the policy again").click()
        page.locator(".jp-ipysandbox-wishes", has_text="Reads (60)").wait_for()
        page.get_by_role("button", name="Approve…").click()
        listed = page.locator(".jp-Dialog .jp-ipysandbox-wishlist")
        assert listed.locator("code").all_inner_texts() == [str(one) for one in folders]
        assert listed.evaluate("(list) => list.scrollHeight > list.clientHeight")
        # Only the list scrolls: what it is about, and the buttons, stay in sight.
        assert page.locator(".jp-Dialog-body").evaluate("(body) => body.scrollHeight <= body.clientHeight")
        listed.locator("code").last.scroll_into_view_if_needed()
        page.locator(".jp-Dialog").get_by_role("button", name="Cancel").click()

        page.evaluate("() => { window.jupyterapp.commands.execute('ipysandbox:doctor'); }")
        report = page.locator(".jp-ipysandbox-DoctorDialog")
        report.locator("table").wait_for(timeout=60_000)
        assert page.locator(".jp-Dialog-body").evaluate("(body) => body.scrollHeight <= body.clientHeight")
        report.locator(".jp-ipysandbox-facts").scroll_into_view_if_needed()

    with jupyterlab(folder, tmp_path / "state") as address:
        in_browser(work, _OFFLINE)


def test_new_cells_begin_sandboxed_where_that_is_asked_for_and_notebook_7_has_the_panel(
    in_browser: Run, tmp_path: Path
) -> None:
    folder, name = tmp_path / "study", f"box-{os.getpid()}"
    notebook(folder, f"%%sandbox {name}\n1")

    def work(page: Any) -> None:
        page.goto(f"{address}/notebooks/study.ipynb?token={TOKEN}")
        page.wait_for_function(_IDLE, timeout=60_000)
        page.locator(".jp-ipysandbox-toggle").click()
        page.locator(".jp-Dialog").get_by_role("button", name="Load it").click()
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        page.locator(".jp-ipysandbox-shield[data-state=idle]").first.click(timeout=60_000)
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:insert-cell-below'); }")
        card(page, name).locator("[data-state=idle]").wait_for()
        page.wait_for_function(
            """() => window.jupyterapp.shell.currentWidget.content.widgets.some(
                 (cell) => cell.model.sharedModel.source === '%%sandbox\\n')"""
        )

    with jupyterlab(folder, tmp_path / "state") as address:
        in_browser(work, _OFFLINE)


# Names that a stranger's code gives itself and its files, and what the trail may hold of it.
_HOSTILE_HOST = """
import sys
from pathlib import Path
from ipysandbox import Sandbox
from ipysandbox.audit import AuditLog

markup = "<img src=x onerror=window.ran=1><script>window.ran=1</script>\\u202e\\u2066"
code = f'''
import ctypes, os, socket
evil = {{markup!r}}
ctypes.CDLL(None).prctl(15, b"<img src=x>\\\\xe2\\\\x80\\\\xae")
os.makedirs("results/" + evil.replace("/", "") + "/.git", exist_ok=True)
try:
    socket.create_connection(("192.0.2.8", 80), 1)
except OSError:
    pass
raise ValueError(evil * 100_000)
'''
with AuditLog() as log, Sandbox(name=sys.argv[1], project=sys.argv[2], notebook=f"/{{markup}}.ipynb") as box:
    box.run(code.format(markup=markup) if "{{markup" in code else code)
    log.record("limit.hit", sandbox=markup, notebook=markup * 9, severity="alert", details={{markup: markup * 50_000}})
    print("ready", flush=True)
    sys.stdin.readline()
    log.record("limit.hit", sandbox=sys.argv[1], details={{"limit": "while nobody listened"}})
    print("said", flush=True)
    sys.stdin.readline()
""".replace("{{", "{").replace("}}", "}")


@pytest.mark.timeout(240)
def test_a_hostile_sandbox_changes_nothing_but_text_and_a_restart_of_the_server_loses_nothing(
    in_browser: Run, tmp_path: Path
) -> None:
    folder, state, name, port = tmp_path / "study", tmp_path / "state", f"box-{os.getpid()}", free_port()
    folder.mkdir()
    environ = {**os.environ, "IPYSANDBOX_PANEL": "open", "XDG_STATE_HOME": str(state / "xdg_state_home")}

    def work(page: Any) -> Watched:
        watched = Watched(page)
        page.goto(f"{address}/lab?token={TOKEN}&reset")
        card(page, name).wait_for(timeout=60_000)
        tab(page, "audit")
        page.locator(".jp-ipysandbox-records li[data-severity=alert]").wait_for()
        for summary in page.locator(".jp-ipysandbox-records summary").all():
            summary.click()
        page.locator(".jp-ipysandbox-details", has_text="<img src=x onerror=window.ran=1>").first.wait_for()
        assert fits(page)
        text = page.locator("#ipysandbox-view").inner_text()
        assert len(text) < 100_000
        assert not set(text) & set("\u202e\u2066\x1b")
        page.locator("select[aria-label=Sandbox]").select_option(index=1)
        tab(page, "policy")
        page.locator("select[aria-label='Whose policy'] option", has_text=name).wait_for(state="attached")
        page.get_by_text("Withheld, maybe secret").wait_for()
        assert fits(page)
        tab(page, "sandboxes")
        assert fits(page)
        inside = ".jp-ipysandbox-Panel :is(img, script, iframe, object, [onerror])"
        assert page.locator(inside).count() == 0
        assert page.evaluate("window.ran ?? null") is None
        assert watched.complaints == []

        server.close()
        page.get_by_text("The connection to the server is lost").wait_for(timeout=30_000)
        assert card(page, name).count() == 0
        tell("said")
        server.enter_context(jupyterlab(folder, state, port=port, environ=environ))
        card(page, name).wait_for(timeout=60_000)
        page.keyboard.press("Escape")  # JupyterLab's own word about the lost connection
        tab(page, "audit")
        page.locator("select[aria-label=Sandbox]").select_option(index=0)
        page.locator(".jp-ipysandbox-records li", has_text="while nobody listened").wait_for()
        return watched

    command = [sys.executable, "-c", _HOSTILE_HOST, name, str(folder)]
    with (
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host,
        ExitStack() as server,
    ):

        def tell(answer: str) -> None:
            assert host.stdin is not None
            assert host.stdout is not None
            host.stdin.write("\n")
            host.stdin.flush()
            assert host.stdout.readline().strip() == answer

        try:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
            address = server.enter_context(jupyterlab(folder, state, port=port, environ=environ))
            watched = in_browser(work, _OFFLINE)
            assert watched.others(address) == set()
        finally:
            host.kill()
