"""What the relay makes of HTML with scripts where the policy asks for isolated frames; tests/browser shows them."""

from __future__ import annotations

import base64
import gzip
import html
import importlib.metadata
import re

import pytest

from ipysandbox.output import Cleaner
from ipysandbox.output.isolate import MAX_FRAME, isolate, needs_frame, policy
from ipysandbox.output.libraries import find_libraries

SCRIPT = "<p>a</p><script>top.ran = 1</script>"


def displayed(markup, mode):
    cleaner = Cleaner(html=mode)
    content = cleaner.clean("display_data", {"data": {"text/html": markup, "text/plain": "plain"}, "metadata": {}})
    return content["data"], cleaner.notes


def unpacked(frame):
    """The two documents of a frame, and what the inner one will mount."""
    outer = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])
    inner = html.unescape(re.search(r'srcdoc="([^"]*)"', outer)[1])
    parts = dict(re.findall(r'octet-stream" data-for="([^"]*)">([^<]*)<', inner))
    return outer, inner, {name: gzip.decompress(base64.b64decode(part)).decode() for name, part in parts.items()}


def test_a_script_stands_in_a_frame_without_origin_whatever_is_in_it():
    attack = "</script></iframe>\"'&quot;--><script>top.ran = 1</script>"
    frame, _ = isolate(attack)
    outer, inner, content = unpacked(frame)
    assert content == {"": attack}
    for document in (frame, outer, inner):
        assert "top.ran" not in document
    for document in (frame, outer):
        assert re.findall(r'sandbox="([^"]*)"', document) == ["allow-scripts"]
        assert document.count("<iframe ") == 1
    for document in (outer, inner):
        # The first thing in it, so that nothing comes before it.
        assert document.startswith('<!doctype html><html><head><meta charset="utf-8"><meta http-equiv="Content-Secur')
        assert policy() in document


def test_the_policy_of_a_frame_lets_nothing_out():
    words = dict(part.strip().split(" ", 1) for part in policy().split(";"))
    assert words["default-src"] == "'none'"
    for kind in ("connect", "frame", "child", "worker", "object", "manifest"):
        assert words[f"{kind}-src"] == "'none'"
    assert words["base-uri"] == words["form-action"] == "'none'"
    assert not re.search(r"https?:|\*|'self'|'nonce-|'strict-dynamic'", policy())
    # Text within a page runs by its hash only, so no `javascript:` address does.
    assert "unsafe-inline" not in words["script-src-elem"]


def test_frames_are_for_what_runs_and_only_where_the_policy_says_so():
    table = "<table><tr><td onclick='x()'>1</td></tr></table>"
    assert needs_frame(SCRIPT)
    assert needs_frame(table)
    assert not needs_frame("<style>a { color: red }</style><table><tr><td>1</td></tr></table>")
    plain, _ = displayed("<b>1</b>", "isolate")
    assert plain["text/html"] == "<b>1</b>"
    assert "<iframe" in displayed(SCRIPT, "isolate")[0]["text/html"]
    cleaned, notes = displayed(SCRIPT, "sanitize")
    assert cleaned == {"text/html": "<p>a</p>", "text/plain": "plain"}
    assert len(notes) == 1
    assert 'html = "isolate"' in notes[0]
    assert displayed(SCRIPT, "text")[0] == {"text/plain": "plain"}


def test_tooltips_and_values_hold_no_frame():
    cleaner = Cleaner(html="isolate")
    data = {"text/html": SCRIPT}
    inspected = cleaner.clean("inspect_reply", {"status": "ok", "found": True, "data": data, "metadata": {}})
    value = {"status": "ok", "data": data, "metadata": {}}
    replied = cleaner.clean("execute_reply", {"status": "ok", "user_expressions": {"x": value}})
    assert inspected["data"] == replied["user_expressions"]["x"]["data"] == {"text/html": "<p>a</p>"}


def test_an_output_too_large_for_a_frame_is_named():
    data, notes = displayed("<script>" + "x" * MAX_FRAME, "isolate")
    assert "text/html" not in data
    assert "the limit of a frame is" in notes[0]


def test_the_frame_is_as_tall_as_the_output_says_within_bounds():
    assert "height: 380px" in isolate("<div style='height:380px'></div>" + SCRIPT)[0]
    assert "height: 1200px" in isolate("<div style='height:9999px'></div>" + SCRIPT)[0]


def test_bokeh_comes_from_what_is_installed_and_only_in_its_version():
    pytest.importorskip("bokeh")
    have = importlib.metadata.version("bokeh")
    address = "https://cdn.bokeh.org/bokeh/release/bokeh-{}.min.js"
    frame, notes = isolate(f'<script src="{address.format(have)}"></script>')
    assert "Bokeh" in unpacked(frame)[2][address.format(have)]
    assert notes == []
    assert find_libraries(address.format("1.0.0")) == (
        {},
        [f"bokeh 1.0.0 is missing in the output: its version here is {have}; install here what wrote it"],
    )


def test_plotly_comes_from_what_is_installed():
    graph_objects = pytest.importorskip("plotly.graph_objects")
    markup = graph_objects.Figure().to_html(include_plotlyjs="cdn")
    found, notes = find_libraries(markup)
    assert [len(text) > 500_000 for text in found.values()] == [True]
    assert notes == []
    assert find_libraries("https://cdn.plot.ly/plotly-0.1.0.min.js")[1][0].startswith("plotly.js 0.1.0 is missing")


@pytest.mark.parametrize(
    "address",
    [
        "https://cdn.plot.ly/plotly-../../x.js",
        "https://cdn.bokeh.org/bokeh/release/bokeh-../../../etc/passwd-1.js",
        "https://cdn.bokeh.org/bokeh/release/bokeh-widgets/../../x-3.0.0.min.js",
    ],
)
def test_no_address_names_another_file_of_the_host(address):
    assert find_libraries(address)[0] == {}


def test_other_scripts_from_the_network_are_named():
    _, notes = find_libraries("<script src='https://cdn.example/leaflet.js'></script>")
    assert notes == ["a script in HTML left out: https://cdn.example/leaflet.js is not loaded; frames reach no network"]


def test_scripts_of_a_document_in_an_attribute_are_named_too() -> None:
    """As Folium writes its maps."""
    page = "".join(
        f'<script src="https://cdn.example/{name}.js"></script>' for name in ("leaflet", "jquery", "leaflet")
    )
    _, notes = isolate(f'<iframe srcdoc="{html.escape(page)}"></iframe>')
    assert notes == [
        "a script in HTML left out: https://cdn.example/leaflet.js and 1 more are not loaded; frames reach no network"
    ]
