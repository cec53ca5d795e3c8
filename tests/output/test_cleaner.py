"""Each message is rebuilt from known keys, in bounded size, and what honest code shows still looks right."""

from __future__ import annotations

import base64
import io
import json
import time

import html5lib
import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import findings

from ipysandbox.output import Cleaner
from ipysandbox.output.html import clean_html
from ipysandbox.output.images import BadImage, check_image
from ipysandbox.output.svg import clean_svg

matplotlib.use("agg")


@pytest.fixture
def cleaner():
    return Cleaner(sandbox="main")


def show(cleaner, data, **more):
    return cleaner.clean("display_data", {"data": data, "metadata": {}, "transient": {}, **more})["data"]


# ---- what honest code shows


def test_pandas_table_keeps_text_structure_and_classes(cleaner):
    frame = pd.DataFrame({"name": ["数据", "<b>"], "n": [1, 2]})
    data = show(cleaner, {"text/html": frame._repr_html_(), "text/plain": repr(frame)})
    root = html5lib.parse(data["text/html"], namespaceHTMLElements=False)
    assert [cell.text for cell in root.iter("td")] == ["数据", "1", "<b>", "2"]
    assert root.find(".//table").get("class") == "dataframe"
    assert "text-align: right" in data["text/html"]
    assert data["text/plain"] == repr(frame)
    assert cleaner.notes == []


def test_styler_keeps_its_colours_bars_and_captions(cleaner):
    frame = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"])
    styled = frame.style.background_gradient(subset="a").bar(subset="b").set_caption("Fit").highlight_max(color="gold")
    styled = styled.set_table_styles([{"selector": "th", "props": [("text-align", "left")]}])
    markup = show(cleaner, {"text/html": styled.to_html()})["text/html"]
    assert findings(markup) == []
    assert "linear-gradient(90deg, #d65f5f" in markup
    assert "background-color: #023858" in markup
    assert "<caption>Fit</caption>" in markup
    identity = html5lib.parse(markup, namespaceHTMLElements=False).find(".//table").get("id")
    assert f"#{identity} th {{ text-align: left }}" in markup
    assert f"#{identity}_row0_col0" in markup
    assert cleaner.notes == []


def test_sklearn_estimator_keeps_its_boxes_and_folds(cleaner):
    sklearn_pipeline = pytest.importorskip("sklearn.pipeline")
    linear = pytest.importorskip("sklearn.linear_model")
    scaling = pytest.importorskip("sklearn.preprocessing")
    estimator = sklearn_pipeline.make_pipeline(scaling.StandardScaler(), linear.LogisticRegression())
    markup = show(cleaner, {"text/html": estimator._repr_html_(), "text/plain": "x"})["text/html"]
    assert findings(markup) == []
    root = html5lib.parse(markup, namespaceHTMLElements=False)
    boxes = {box.get("id") for box in root.iter("input")}
    assert len(boxes) >= 3
    assert boxes <= {label.get("for") for label in root.iter("label")}
    assert "LogisticRegression" in "".join(root.itertext())
    assert "display: none" in markup  # the plain-text fallback stays hidden


def test_ipython_tables_and_pre_blocks_keep_their_looks(cleaner):
    style = 'white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo,"DejaVu Sans Mono",monospace'
    markup = f"<pre style='{style}'><span style='color: #800000'>a &lt; b</span>\n</pre>"
    cleaned = show(cleaner, {"text/html": markup})["text/html"]
    assert "font-family: Menlo,&quot;DejaVu Sans Mono&quot;,monospace" in cleaned
    assert '<span style="color: #800000">a &lt; b</span>' in cleaned


def test_progress_bar_of_a_notebook_is_kept(cleaner):
    markup = "<div><progress value='3' class='' max='5' style='width:300px; height:20px;'></progress>60%</div>"
    cleaned = html5lib.parse(show(cleaner, {"text/html": markup})["text/html"], namespaceHTMLElements=False)
    bar = cleaned.find(".//progress")
    assert (bar.get("value"), bar.get("max"), bar.get("style")) == ("3", "5", "width: 300px; height: 20px")


def figure(kind):
    import matplotlib.pyplot as plt

    out = io.BytesIO()
    fig, ax = plt.subplots(figsize=(2, 2))
    ax.scatter(*np.random.default_rng(0).random((2, 50)), c=range(50), clip_on=True)
    ax.set_title("a & b < $x^2$")
    fig.savefig(out, format=kind)
    plt.close(fig)
    return out.getvalue()


def test_matplotlib_figures_are_kept(cleaner):
    import matplotlib.pyplot as plt

    png = base64.encodebytes(figure("png")).decode()
    data = show(
        cleaner, {"image/png": png, "text/plain": "<Figure>"}, metadata={"image/png": {"width": 200, "evil": 1}}
    )
    before, after = (plt.imread(io.BytesIO(base64.b64decode(text))) for text in (png, data["image/png"]))
    assert np.array_equal(before, after)
    svg = show(cleaner, {"image/svg+xml": figure("svg").decode()})["image/svg+xml"]
    original = figure("svg").decode()
    assert findings(svg, svg=True) == []
    assert svg.count("<path") == original.count("<path")
    assert svg.count("<use") == original.count("<use")
    assert svg.count("url(#sbx-") == original.count("url(#")
    assert "stroke-linejoin: round" in svg


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_pictures_are_checked_against_their_type(kind):
    pil = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    pil.new("RGB", (3, 2)).save(out, kind)
    encoded = base64.b64encode(out.getvalue()).decode()
    assert check_image(f"image/{kind}", encoded) == encoded
    for other in {"png", "jpeg", "gif", "webp"} - {kind}:
        with pytest.raises(BadImage):
            check_image(f"image/{other}", encoded)


@pytest.mark.parametrize("text", ["", "<svg onload=x>", "iVBORw0KGgo=", "aGVsbG8=", "á", 'iVBORw0KGgo="onerror=x'])
def test_what_is_no_picture_is_refused(text):
    with pytest.raises(BadImage):
        check_image("image/png", text)


def test_picture_of_too_many_pixels_is_refused():
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0" + b"\0" * 8
    with pytest.raises(BadImage, match="pixels"):
        check_image("image/png", base64.b64encode(header).decode())


def test_embedded_picture_in_html_is_kept():
    encoded = check_image("image/png", base64.b64encode(figure("png")).decode())
    assert f'src="data:image/png;base64,{encoded}"' in (
        clean_html(f"<img src='data:image/png;base64,{encoded}'>")[0] or ""
    )


def test_svg_reads_the_same_after_cleaning_twice():
    once = clean_svg(figure("svg").decode())
    assert clean_svg(once) == once


# ---- types and names


@pytest.mark.parametrize(
    "mime",
    [
        "application/javascript",
        "Application/JavaScript",
        "application/javascript; charset=utf-8",
        " text/javascript ",
        "text/ecmascript",
        "application/vnd.jupyter.widget-view+json",
        "application/vnd.plotly.v1+json",
        "application/vnd.vega.v5+json",
        "application/vnd.bokehjs_exec.v0+json",
        "application/geo+json",
        "application/xhtml+xml",
        "text/xml",
        "video/mp4",
        "text/html\x00",
        "x",
        "",
    ],
)
def test_type_that_could_act_is_dropped_and_named(cleaner, mime):
    data = show(cleaner, {mime: "top.ran=1", "text/plain": "fallback"})
    assert data == {"text/plain": "fallback"}
    assert len(cleaner.notes) == 1
    only = show(cleaner, {mime: "top.ran=1"})
    assert list(only) == ["text/plain"]
    assert only["text/plain"].startswith("[output left out")


def test_types_are_recognised_in_any_spelling(cleaner):
    data = show(cleaner, {"TEXT/HTML; charset=utf-8": "<b>x</b><script>y</script>", " Text/Plain": "x"})
    assert data == {"text/html": "<b>x</b>", "text/plain": "x"}


def test_html_off_falls_back_to_text():
    cleaner = Cleaner(html="text")
    assert show(cleaner, {"text/html": "<b>x</b>", "text/plain": "x"}) == {"text/plain": "x"}
    assert show(cleaner, {"text/html": "<b>a &lt; b</b><script>z</script>"}) == {"text/plain": "a < b"}


def test_display_ids_are_the_sandboxs_own(cleaner):
    for kind in ("display_data", "update_display_data", "execute_result"):
        content = {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "host", "other": 1}}
        assert cleaner.clean(kind, content)["transient"] == {"display_id": "sandbox:main:host"}
    odd = cleaner.clean("display_data", {"data": {}, "transient": {"display_id": "x\n" * 1000}})["transient"]
    assert len(odd["display_id"]) < 60


# ---- messages


def test_reply_carries_no_payload_and_no_unknown_key(cleaner):
    content = {
        "status": "ok",
        "execution_count": 3,
        "payload": [
            {"source": "set_next_input", "text": "import os"},
            {"source": "page", "data": {"text/plain": "he\x1b]0;x\x07lp", "text/html": "<script>"}},
        ],
        "user_expressions": {"a": {"status": "ok", "data": {"text/html": "<script>1</script>", "text/plain": "1"}}},
        "comm_id": "x",
    }
    assert cleaner.clean("execute_reply", content) == {
        "status": "ok",
        "execution_count": 3,
        "payload": [],
        "user_expressions": {"a": {"status": "ok", "data": {"text/plain": "1"}, "metadata": {}}},
    }
    assert cleaner.pager_text(content) == "help"


def test_error_is_cleaned_and_clipped(cleaner):
    content = {
        "ename": "Err\x1b]52;c;x\x07or" * 500,
        "evalue": "v\x9d" * 10**6,
        "traceback": ["\x1b[31mline\x1b[0m\x1b[2J"] * 5000,
    }
    cleaned = cleaner.clean("error", content)
    assert cleaned["ename"].startswith("Error")
    assert len(cleaned["ename"]) < 1000
    assert len(cleaned["evalue"]) < 200_000
    assert cleaned["traceback"][0] == "\x1b[31mline\x1b[0m"
    assert len(cleaned["traceback"]) == 1000


def test_a_long_row_of_a_traceback_hides_nothing_around_it(cleaner):
    rows = ["Traceback", "----> 2 x = '" + "A" * 10**6 + "'", "FileNotFoundError: no such file"]
    (shown,) = cleaner.clean("error", {"ename": "E", "evalue": "", "traceback": ["\n".join(rows)]})["traceback"]
    assert shown.startswith("Traceback\n----> 2 x = 'AAA")
    assert shown.endswith("AAA'\nFileNotFoundError: no such file")
    assert "characters left out" in shown
    assert len(shown) < 11_000


@pytest.mark.parametrize("end", [("status", {"execution_state": "idle"}), ("execute_reply", {"status": "ok"})])
def test_stream_cleans_across_messages_until_the_cell_ends(cleaner, end):
    assert cleaner.clean("stream", {"name": "stdout", "text": "a\x1b]52;c;"}) == {"name": "stdout", "text": "a"}
    assert cleaner.clean("stream", {"name": "stderr", "text": "b"}) == {"name": "stderr", "text": "b"}
    assert cleaner.clean("stream", {"name": "stdout", "text": "eA=="}) is None
    cleaner.clean(*end)
    assert cleaner.clean("stream", {"name": "stdout", "text": "next"}) == {"name": "stdout", "text": "next"}


@pytest.mark.parametrize(
    "kind", ["comm_open", "comm_msg", "debug_event", "unknown_kind", "execute_request", "", None, 5]
)
def test_message_of_another_kind_is_dropped(cleaner, kind):
    assert cleaner.clean(kind, {"data": {"text/html": "<script>1</script>"}}) is None


@pytest.mark.parametrize("content", [None, [], "x", 5])
def test_content_that_is_no_dict_is_dropped(cleaner, content):
    assert cleaner.clean("display_data", content) is None


def test_kernel_info_names_no_class_and_no_link(cleaner):
    content = {
        "status": "ok",
        "language_info": {
            "name": "python",
            "nbconvert_exporter": "os.system",
            "codemirror_mode": {"name": "ipython", "version": 3},
        },
        "help_links": [{"text": "x", "url": "javascript:1"}],
        "banner": "hi\x1b]0;x\x07",
    }
    cleaned = cleaner.clean("kernel_info_reply", content)
    assert cleaned["language_info"]["nbconvert_exporter"] == ""
    assert cleaned["language_info"]["codemirror_mode"] == {"name": "ipython", "version": 3}
    assert cleaned["help_links"] == []
    assert cleaned["banner"] == "hi"


def test_completions_are_single_clean_lines(cleaner):
    content = {
        "status": "ok",
        "matches": ["print", "a\nimport os\x1b]0;x\x07", 5],
        "cursor_start": 0,
        "cursor_end": -5,
        "metadata": {"x": 1},
    }
    assert cleaner.clean("complete_reply", content) == {
        "status": "ok", "matches": ["print", "a import os", ""], "cursor_start": 0, "cursor_end": 0, "metadata": {},
    }  # fmt: skip


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=10,
)
KEYS = st.sampled_from(
    "data metadata transient display_id text name status payload user_expressions traceback ename evalue matches found "
    "text/html text/plain application/json image/png image/svg+xml text/markdown text/latex execution_state "
    "language_info codemirror_mode _jupyter_types_experimental indent cursor_start execution_count".split(" ")
)
CONTENT = st.recursive(JSON, lambda inner: st.dictionaries(KEYS, inner, max_size=6), max_leaves=8)


@given(st.sampled_from(sorted(Cleaner()._handlers)), CONTENT)
@settings(max_examples=400, deadline=None)
def test_no_content_makes_the_cleaner_raise_or_send_what_json_cannot(kind, content):
    cleaned = Cleaner().clean(kind, content)
    if cleaned is not None:
        assert len(json.dumps(cleaned, allow_nan=False, ensure_ascii=False).encode("utf-8")) < 100_000


def nest(levels, wrap):
    value: object = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}], ids=["lists", "dicts"])
@pytest.mark.parametrize(
    "where",
    ["data", "metadata", "transient", "user_expressions", "traceback", "payload", "application/json"],
)
def test_depth_is_bounded(cleaner, wrap, where):
    deep = nest(100_000, wrap)
    content = {"data": {where: deep}} if "/" in where else {where: deep}
    for kind in ("display_data", "execute_reply", "error", "inspect_reply"):
        json.dumps(cleaner.clean(kind, content))


def test_json_is_kept_but_bounded(cleaner):
    value = {"a": [1, 2.5, None, True, "x\x1b]0;y\x07"], "big": 10**30, "nan": float("nan")}
    assert show(cleaner, {"application/json": value})["application/json"] == {
        "a": [1, 2.5, None, True, "x"],
        "big": "an integer of 100 bits",
        "nan": "nan",
    }
    wide = show(cleaner, {"application/json": list(range(10**6))})["application/json"]
    assert len(wide) <= 100_001


BOMBS = {
    "nested": "<div>" * 100_000,
    "formatting-reopened": "<p>" + "".join(f"<b id=a{i}>" for i in range(2000)) + "</p>" + "<p>x</p>" * 50_000,
    "moved-out-of-table": "<table>" + "<i>x</i>" * 50_000,
    "references": "a&amp;" * 150_000,
    "references-in-attribute": "<p title='" + "&amp;" * 150_000 + "'>",
    "open-comments": "<!--" * 100_000,
    "open-quotes": "<a b='" * 100_000,
    "attributes": "<p " + "".join(f"a{i}=1 " for i in range(50_000)) + ">",
    "braces": "<style>" + "{" * 100_000 + "}" * 100_000,
    "selectors": "<style>" + "a " * 50_000 + "{color:red}</style>",
    "unended-sheets": "<style>" * 50_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_html_takes_bounded_time_and_space(name):
    start = time.process_time()
    cleaned, _ = clean_html(BOMBS[name])
    assert time.process_time() - start < 8
    assert cleaned is not None
    assert len(cleaned) <= 6 * len(BOMBS[name])


@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/html", f"<img src='data:image/png;base64,{' ' * 300_000}!'>"),
        ("text/html", f"<img src='{' ' * 300_000}data:image/png;base64,!'>"),
        ("image/svg+xml", f"<svg><image href='data:image/png;base64,{'A ' * 150_000}!'/></svg>"),
        ("text/markdown", f"]({' ' * 300_000}"),
        ("text/markdown", "](" * 100_000 + " " * 100_000),
        ("text/markdown", f"]:<{' ' * 300_000}"),
    ],
)
def test_space_without_end_takes_one_look(cleaner, mime, text):
    """A pattern that tries two ways to share it out would take hours, and the supervisor with it."""
    shown = cleaner.clean("display_data", {"data": {mime: text, "text/plain": "x"}})
    assert shown["data"]["text/plain"] == "x"


def test_a_question_is_words_alone(cleaner):
    prompt = "\r\x1b[2K\x1b[31mPassword\x08\x08 for sudo\n\u202e: "
    asked = cleaner.clean("input_request", {"prompt": prompt, "password": False})
    assert asked == {"prompt": "[2K[31mPassword for sudo\n‹U+202E›: ", "password": False}


def test_notes_are_bounded(cleaner):
    for i in range(10_000):
        show(cleaner, {f"application/x-{i}": "x" * 10})
    assert len(cleaner.notes) <= 100
    assert all(len(note) < 700 for note in cleaner.notes)


def test_history_is_rebuilt_row_by_row_and_bounded(cleaner):
    rows = [[1, 2, "x = 1"], [1, 3, ["y\x1b]0;t\x07", "'out'"]], [1, 4, ["z", None]], "row", [1, 2], [[], {}, {"a": 1}]]
    reply = cleaner.clean("history_reply", {"status": "ok", "history": rows})
    assert reply == {
        "status": "ok",
        "history": [[1, 2, "x = 1"], [1, 3, ["y", "'out'"]], [1, 4, ["z", None]], [0, 0, ""]],
    }
    many = cleaner.clean("history_reply", {"status": "ok", "history": [[1, n, "x" * 200_000] for n in range(1500)]})
    assert many["history"][-1][1] == 1499
    assert len(many["history"]) == 1000
    assert max(len(row[2]) for row in many["history"]) < 100_100
