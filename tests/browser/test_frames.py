"""HTML of a sandbox in isolated frames: hostile outputs reach nothing, honest ones are drawn."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frames import gallery
from pages import LISTEN, TOKEN, attacks_notebook, converted, jupyterlab, run_all, served

from ipysandbox import Sandbox
from ipysandbox.output import Cleaner

# The page's own addresses on the internet (nbconvert's MathJax) are no name here.
_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
# WebRTC leaves this machine's own loopback out unless told not to.
_LOOPBACK = "--allow-loopback-in-peer-connection"
# Under which VS Code shows outputs of notebooks (backLayerWebView.ts).
_VSCODE = (
    "default-src 'none'; script-src https://x.example 'unsafe-inline' 'unsafe-eval'; "
    "style-src https://x.example 'unsafe-inline'; img-src https: http: data:; font-src https:; connect-src https:; "
    "child-src https: data:"
)
# Those that would take the page itself away, or wait for an answer, when nothing holds them.
_NOT_ALONE = {"top", "top-window", "parent", "dialog", "location-javascript", "siblings"}
# Without a frame these would be seen at the sink, or claim something: what the gallery is worth.
_WORK = 50

Run = Callable[..., Any]


def shown(markup: str) -> dict[str, Any]:
    """An output's data and metadata as the relay passes them on."""
    content = Cleaner(html="isolate").clean("display_data", {"data": {"text/html": markup}, "metadata": {}})
    assert content is not None
    return {"data": content["data"], "metadata": content["metadata"]}


def settle(page: Any, frames: int) -> None:
    page.wait_for_function(
        f"document.querySelectorAll('iframe.ipysandbox-frame').length === {frames} && mounted.size > {frames} - 1",
        timeout=60_000,
    )
    # Nothing tells that a request will never be made: this is how long one that works takes, many times over.
    page.wait_for_timeout(2000)


def state_of(page: Any) -> dict[str, Any]:
    """Everything about a page that an output could have changed."""
    page_state: dict[str, Any] = page.evaluate(
        """() => ({
          heard, url: location.href.split("?")[0], ran: window.ran ?? null, name: window.name,
          focus: document.activeElement?.tagName === "IFRAME",
          tallest: Math.max(...[...document.querySelectorAll("iframe.ipysandbox-frame")].map((f) => f.offsetHeight)),
        })"""
    )
    page_state["windows"] = len(page.context.pages)
    return page_state


def assert_untouched(seen: dict[str, Any], url: str, windows: int = 1) -> None:
    assert seen["heard"] == []
    assert (seen["url"], seen["ran"], seen["windows"]) == (url, None, windows)
    assert seen["name"] != "taken"
    assert not seen["focus"]
    assert 0 < seen["tallest"] <= 1200


@pytest.mark.parametrize("door", ["lab/tree", "notebooks"], ids=["jupyterlab", "notebook7"])
def test_hostile_outputs_reach_nothing(door: str, in_browser: Run, sink: Any, tmp_path: Path) -> None:
    folder, state = tmp_path / "study", tmp_path / "state"
    folder.mkdir()
    attacks = gallery(sink.address)
    path = attacks_notebook(folder, [{"text/html": text} for text in attacks.values()])

    def work(page: Any) -> dict[str, Any]:
        page.add_init_script(LISTEN)
        run_all(page, f"{address}/{door}/{path.name}?token={TOKEN}&reset")
        settle(page, len(attacks))
        return state_of(page)

    with jupyterlab(folder, state) as address:
        seen = in_browser(work, _OFFLINE, _LOOPBACK)
    assert sink.seen == []
    assert_untouched(seen, f"{address}/{door}/attacks.ipynb")


# Chromium gets a connection ready for a navigation before it asks the policy around the frame, which then forbids it.
# SECURITY.md says so.
_LOOKED_UP = {"link-clicked", "link-downloaded", "location", "location-replace", "navigate", "popup-self"}


def test_hostile_outputs_reach_nothing_in_nbconverts_page(in_browser: Run, sink: Any, tmp_path: Path) -> None:
    """Nor is a name looked up, since that alone can carry data, but where the browser does it of itself."""
    attacks = gallery(f"http://NAME.leak.test:{sink.port}/")
    log = tmp_path / "net.json"

    def work(page: Any) -> dict[str, Any]:
        page.add_init_script(LISTEN)
        page.goto(address, wait_until="domcontentloaded")
        settle(page, len(attacks))
        return state_of(page)

    rules = _OFFLINE.replace("MAP *", "MAP *.leak.test 127.0.0.1, MAP *")
    with served(converted([shown(text) for text in attacks.values()])) as address:
        seen = in_browser(work, rules, _LOOPBACK, f"--log-net-log={log}")
    assert sink.seen == []
    assert_untouched(seen, address)
    network = log.read_text(errors="replace")
    assert address in network
    assert set(re.findall(r"([\w-]+)\.leak\.test", network)) <= _LOOKED_UP


def test_without_the_frame_most_of_the_gallery_gets_through(in_browser: Run, sink: Any) -> None:
    attacks = {name: text for name, text in gallery(sink.address).items() if name not in _NOT_ALONE}
    frames = [f'<iframe srcdoc="{html.escape("<!doctype html>" + text)}"></iframe>' for text in attacks.values()]

    surely = {"frame-document", "frame-text", "frame-written", "frame-xml", "frame-xml-inner"}
    surely |= {"fetch", "location", "webrtc", "cookie", "page", "markup-image"}

    def through(heard: list[list[str]]) -> set[str]:
        words = " ".join(sink.seen)
        udp = {"webrtc"} if "UDP" in words else set()
        return udp | {name for name in attacks if re.search(rf"/{name}[ ?]", words) or name in dict(heard)}

    def work(page: Any) -> set[str]:
        page.add_init_script(LISTEN)
        page.goto(address, wait_until="commit")  # some of these never have loaded
        for _ in range(300):
            if len(found := through(page.evaluate("heard"))) >= _WORK and found >= surely:
                break
            page.wait_for_timeout(100)
        return found

    with served("<!doctype html>" + "".join(frames)) as address:
        found = in_browser(work, _OFFLINE, _LOOPBACK)
    assert len(found) >= _WORK, sorted(set(attacks) - found)
    assert found >= surely


def test_a_frame_that_never_rests_leaves_the_page_alive(in_browser: Run) -> None:
    endless = shown("<script>for (;;) ;</script>")

    def work(page: Any) -> int:
        page.goto(address, wait_until="domcontentloaded")
        page.wait_for_selector("iframe.ipysandbox-frame")
        page.wait_for_timeout(1000)
        page.set_default_timeout(10_000)
        return int(page.evaluate("6 * 7"))

    with served(converted([endless])) as address:
        assert in_browser(work, _OFFLINE) == 42


_FIGURES = """
import plotly.graph_objects as go
from bokeh.plotting import figure, show
from IPython.display import HTML, display
go.Figure(go.Bar(y=[1, 3, 2]), layout={"height": 380, "title": "a plotly figure"}).show()
one = figure(width=500, height=300, title="a bokeh figure")
one.line([1, 2, 3], [3, 1, 2])
show(one)
display(HTML('''<div id="own" style="height: 200px"></div><button onclick="this.textContent = 'clicked'">x</button>
<script>var text = 'drawn';</script><script>document.getElementById('own').textContent = text</script>'''))
"""

_DRAWN = """() => ({
  bars: document.querySelectorAll(".plotly .bars path").length,
  canvas: (() => {
    const seen = [];
    const look = (root) => root.querySelectorAll("*").forEach((one) => {
      if (one.localName === "canvas") seen.push(one.width);
      if (one.shadowRoot) look(one.shadowRoot);
    });
    look(document);
    return seen.filter((width) => width > 100).length;
  })(),
  own: document.getElementById("own")?.textContent ?? "",
})"""


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The outputs of a real sandbox that draws with real libraries."""
    pytest.importorskip("plotly")
    pytest.importorskip("bokeh")
    project = tmp_path_factory.mktemp("study")
    with Sandbox(project=project, overrides={"output.html": "isolate"}) as box:
        result = box.run(_FIGURES)
    assert result.status == "ok", result.error
    outputs = [{"data": one["data"], "metadata": {}} for one in result.outputs if "text/html" in one.get("data", {})]
    assert len(outputs) == 3
    return outputs


@pytest.mark.parametrize("place", ["nbconvert", "vscode"])
def test_honest_outputs_are_drawn(in_browser: Run, figures: list[dict[str, Any]], place: str, tmp_path: Path) -> None:
    outputs = figures
    markup = "".join(one["data"]["text/html"] for one in outputs)
    page_text = converted(outputs) if place == "nbconvert" else f"<!doctype html>{markup}"

    def work(page: Any) -> tuple[list[dict[str, Any]], list[int]]:
        page.add_init_script(LISTEN)
        page.goto(address, wait_until="domcontentloaded")
        page.wait_for_function("mounted.size === 3", timeout=30_000)
        inner = [one for one in page.frames if one.parent_frame and one.parent_frame.parent_frame]
        inner[0].wait_for_selector(".plotly .bars path", timeout=30_000)
        inner[1].wait_for_function(f"({_DRAWN})().canvas > 0", timeout=30_000)
        inner[2].locator("button").click()
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert inner[2].locator("button").text_content() == "clicked"
        heights = page.evaluate(
            "[...document.querySelectorAll('iframe.ipysandbox-frame')].map((one) => one.offsetHeight)"
        )
        return [one.evaluate(_DRAWN) for one in inner], heights

    with served(page_text, {"Content-Security-Policy": _VSCODE} if place == "vscode" else None) as address:
        (plotly, bokeh, own), heights = in_browser(work, _OFFLINE)
    assert plotly["bars"] == 3
    assert bokeh["canvas"] >= 1
    assert own["own"] == "drawn"
    # As tall as what is in them, as far as it says so.
    assert heights[0] == 380
    assert 295 < heights[1] < 340
    assert 200 < heights[2] < 260
