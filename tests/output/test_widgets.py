"""Widgets: every core model of ipywidgets passes whole; nothing that a hostile sandbox sends does harm in a page."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any

import comm
import comm.base_comm
import ipywidgets as w
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipywidgets.widgets import widget as registry

from ipysandbox.output import Cleaner, KnownSecrets
from ipysandbox.output.widget_models import BASE, CONTROLS, LAYOUT, MODELS, STYLE
from ipysandbox.output.widgets import (
    MOST_DEPTH,
    MOST_DRAWN,
    MOST_MODELS,
    MOST_STATE,
    MOST_TEXT,
    VIEW_MIME,
)

# They carry bytes, read other devices, take passwords, hold any output, or copy values from model to model in the page.
LEFT_OUT = {
    *("AudioModel", "VideoModel", "ImageModel", "FileUploadModel", "DOMWidgetModel", "PasswordModel", "OutputModel"),
    *("ControllerModel", "ControllerAxisModel", "ControllerButtonModel", "LinkModel", "DirectionalLinkModel"),
}
# They would lift a widget out of its place, or place a picture that can't be there.
UNPLACED = {"top", "right", "bottom", "left", "object_position"}
SECRET = "ghp_tests0123456789abcdefABCDEF456789xy"

Message = tuple[str, dict[str, Any]]


class Box:
    """A sandbox's end: what it says, and what of it the page gets."""

    def __init__(self, html: str = "sanitize") -> None:
        self.cleaner = Cleaner(html=html, sandbox="s", secrets=KnownSecrets({"TOKEN": [SECRET]}), widgets=True)
        self.count = 0

    def say(self, kind: str, content: Any) -> dict[str, Any] | None:
        """What passes, which must always be plain JSON."""
        cleaned = self.cleaner.clean(kind, json.loads(json.dumps(content)))
        assert json.loads(json.dumps(cleaned, allow_nan=False)) == cleaned
        return cleaned

    def open(self, name: str, /, module: str | None = None, **state: Any) -> str | None:
        """Open a model; the id that the page knows it by, and None if it gets none."""
        self.count += 1
        default = MODELS[name].module if name in MODELS else CONTROLS
        state = {"_model_name": name, "_model_module": module or default, **state}
        content = {"comm_id": f"m{self.count}", "target_name": "jupyter.widget", "data": {"state": state}}
        cleaned = self.say("comm_open", content)
        self.state = cleaned["data"]["state"] if cleaned else {}
        return cleaned["comm_id"] if cleaned else None

    def update(self, number: int, **state: Any) -> dict[str, Any]:
        """Change a model, by its number; what passes of the change."""
        cleaned = self.say("comm_msg", {"comm_id": f"m{number}", "data": {"method": "update", "state": state}})
        return cleaned["data"]["state"] if cleaned else {}

    def shown(self, model_id: str) -> dict[str, Any]:
        view = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        cleaned = self.say("display_data", {"data": {VIEW_MIME: view, "text/plain": "text"}, "metadata": {}})
        assert cleaned is not None
        return cleaned["data"]


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Message]]:
    """What ipywidgets sends in this test."""
    messages: list[Message] = []

    class Comm(comm.base_comm.BaseComm):
        def publish_msg(self, msg_type: str, data: Any = None, **rest: Any) -> None:
            keys = {key: rest[key] for key in rest if key not in ("metadata", "buffers")}
            content = json.loads(json.dumps({"comm_id": self.comm_id, "data": data, **keys}, default=str))
            messages.append((msg_type, content))

    monkeypatch.setattr(comm, "create_comm", Comm)
    yield messages
    w.Widget.close_all()


def classes() -> Iterator[tuple[str, str, str, str, type[w.Widget]]]:
    for (module, _, name, view_module, _, view), cls in registry._registry.items():
        if module.startswith("@jupyter-widgets/"):
            yield name, module, view, view_module, cls


def of_each_kind() -> list[Callable[[], w.Widget]]:
    day, moment = datetime.date(2026, 2, 3), datetime.datetime(2026, 2, 3, 4, 5, 6, 7000, tzinfo=datetime.timezone.utc)
    common: dict[str, Any] = {"description": "a < b", "tooltip": "what it is"}
    look = w.Layout
    return [
        lambda: w.IntSlider(3, max=9, orientation="vertical", style={"handle_color": "lightblue"}, **common),
        lambda: w.FloatSlider(0.5, readout_format=".3f", style={"description_width": "initial"}, **common),
        lambda: w.FloatLogSlider(10, base=2, **common),
        lambda: w.IntRangeSlider(value=(2, 5), readout_format="d", **common),
        lambda: w.FloatRangeSlider(value=(0.5, 2.5), layout=look(width="50%", border="1px solid red"), **common),
        lambda: w.IntProgress(3, bar_style="success", style={"bar_color": "#ffd700"}, **common),
        lambda: w.FloatProgress(0.25, max=1, layout=look(flex="2", min_width="10em"), **common),
        lambda: w.IntText(7, step=2, **common),
        lambda: w.FloatText(7.5, **common),
        lambda: w.BoundedIntText(7, max=9, **common),
        lambda: w.BoundedFloatText(7.5, step=0.25, **common),
        lambda: w.Play(interval=200, **common),
        lambda: w.Checkbox(True, indent=False, style={"background": "rgb(1, 2, 3)"}, **common),
        lambda: w.ToggleButton(True, icon="check", button_style="warning", **common),
        lambda: w.Valid(True, readout="not yet", **common),
        lambda: w.Button(icon="chart-line", style={"button_color": "lightgreen", "font_weight": "bold"}, **common),
        lambda: w.Dropdown(options=[("One", 1), ("Two", 2)], value=2, **common),
        lambda: w.RadioButtons(options=["a", "b"], orientation="horizontal", **common),
        lambda: w.Select(options=["a", "b"], rows=3, **common),
        lambda: w.SelectionSlider(options=["low", "high"], **common),
        lambda: w.SelectMultiple(options=["a", "b", "c"], value=("a", "c"), **common),
        lambda: w.SelectionRangeSlider(options=["a", "b", "c"], index=(0, 2), **common),
        lambda: w.ToggleButtons(options=["a", "b"], icons=["check", ""], tooltips=["first", "second"], **common),
        lambda: w.Text("x <b>", placeholder="name", **common),
        lambda: w.Textarea("a\nb\t\\url", rows=4, **common),
        lambda: w.Combobox("x", options=["x", "y"], ensure_option=True, **common),
        lambda: w.Label("$\\alpha$ and 5 < 6", style={"font_size": "20px", "text_color": "red"}),
        lambda: w.HTML("<b>hi</b> &amp; <i>you</i>", placeholder="empty", **common),
        lambda: w.HTMLMath("<b>$x^2$</b>", **common),
        lambda: w.ColorPicker(value="#ffd700", concise=True, **common),
        lambda: w.DatePicker(value=day, min=day, step=7, **common),
        lambda: w.TimePicker(value=moment.time(), step="any", **common),
        lambda: w.DatetimePicker(value=moment, **common),
        lambda: w.NaiveDatetimePicker(value=moment.replace(tzinfo=None), **common),
        lambda: w.TagsInput(value=["a"], allowed_tags=["a", "b"], tag_style="info", **common),
        lambda: w.ColorsInput(value=["red"], **common),
        lambda: w.IntsInput(value=[1, 2], min=0, max=9, **common),
        lambda: w.FloatsInput(value=[0.5], format=".1f", **common),
        lambda: w.HBox([w.Label("a"), w.VBox([w.IntSlider()])], layout=look(align_items="center"), box_style="info"),
        lambda: w.VBox([w.Label("a"), w.Label("b")]),
        lambda: w.Box([w.Label("a")], layout=look(display="flex", flex_flow="row wrap", overflow="auto")),
        lambda: w.GridBox([w.Label("a")], layout=look(grid_template_columns="repeat(2, 50px)", grid_gap="5px 10px")),
        lambda: w.Tab([w.Label("a"), w.Label("b")], titles=["A", "B"], selected_index=1),
        lambda: w.Accordion([w.Label("a")], titles=["A"]),
        lambda: w.Stack([w.Label("a")], selected_index=0),
    ]


def test_what_passes_is_what_ipywidgets_has() -> None:
    known = {name: (view, module, view_module, cls) for name, module, view, view_module, cls in classes()}
    assert set(known) - set(MODELS) == LEFT_OUT
    assert set(MODELS) <= set(known)
    for name, kind in MODELS.items():
        view, module, view_module, cls = known[name]
        assert (kind.view, kind.module, kind.view_module) == (view, module, view_module)
        missing = set(cls.class_traits(sync=True)) - set(kind.keys) - set(kind.fixed) - {"_model_name", "_view_count"}
        assert missing == (UNPLACED if name == "LayoutModel" else set())


def test_each_core_widget_passes_and_nothing_of_it_is_lost(sent: list[Message], box: Box) -> None:
    made = [make() for make in of_each_kind()]
    drawn = {name for name, kind in MODELS.items() if kind.view not in ("LayoutView", "StyleView")}
    assert {widget._model_name for widget in made} == drawn
    opened = [content for kind, content in sent if kind == "comm_open"]
    passed = [box.say("comm_open", content) for content in opened]
    pairs = zip(opened, passed, strict=True)
    ids = {f"IPY_MODEL_{old['comm_id']}": f"IPY_MODEL_{new['comm_id']}" for old, new in pairs if new}
    assert len(ids) == len(opened)

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return ids.get(value, value) if isinstance(value, str) else value

    for old, new in zip(opened, passed, strict=True):
        assert new is not None
        expected = {key: renamed(value) for key, value in old["data"]["state"].items()}
        dropped = UNPLACED if expected["_model_name"] == "LayoutModel" else set()
        assert {key: expected[key] for key in expected if key not in dropped | {"_view_count"}} == new["data"]["state"]
        assert new["comm_id"] != old["comm_id"]
    assert box.cleaner.notes == []


def test_changes_pass_too_and_so_does_the_end(sent: list[Message], box: Box) -> None:
    bar, text = w.IntProgress(), w.HTML()
    bar.value = 5
    text.value = "<b>half</b>"
    bar.close()
    passed = [box.say(kind, content) for kind, content in sent]
    changes = [content["data"]["state"] for content in passed if content and "method" in content["data"]]
    assert changes == [{"value": 5}, {"value": "<b>half</b>"}]
    closed = [content for (kind, _), content in zip(sent, passed, strict=True) if kind == "comm_close"]
    assert len(closed) == 1
    assert box.say("comm_msg", sent[-1][1]) is None  # nothing of it is known any more


def test_a_display_names_its_widget_by_the_pages_id_and_keeps_its_text(box: Box) -> None:
    page_id = box.open("IntSliderModel", value=1)
    assert box.shown("m1") == {
        VIEW_MIME: {"version_major": 2, "version_minor": 0, "model_id": page_id},
        "text/plain": "text",
    }


def test_the_page_is_told_of_the_widgets_of_this_sandbox_alone(box: Box) -> None:
    page_id = box.open("IntSliderModel")
    told = box.say("comm_info_reply", {"status": "ok", "comms": {"forged": {"target_name": "jupyter.widget"}}})
    assert told == {"status": "ok", "comms": {page_id: {"target_name": "jupyter.widget"}}}


def test_without_the_policys_word_no_comm_passes() -> None:
    box = Box()
    box.cleaner = Cleaner()
    assert box.open("IntSliderModel") is None
    assert box.update(1, value=3) == {}
    assert box.shown("m1") == {"text/plain": "text"}
    assert box.cleaner.to_sandbox("comm_msg", {"comm_id": "m1", "data": {"method": "update"}}) is None
    assert len(box.cleaner.notes) == 1
    assert "widgets = true" in box.cleaner.notes[0]


# ---- what does not pass


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("AnyModel", "anywidget"),
        ("IntSliderModel", "anywidget"),
        ("IntSliderModel", "@jupyter-widgets/base"),
        ("IntSliderModel", "@jupyter-widgets/controls/../../evil"),
        ("OutputModel", "@jupyter-widgets/output"),
        ("FigureModel", "bqplot"),
        ("LinkModel", "@jupyter-widgets/controls"),
        ("DirectionalLinkModel", "@jupyter-widgets/controls"),
        ("FileUploadModel", "@jupyter-widgets/controls"),
        ("PasswordModel", "@jupyter-widgets/controls"),
        ("constructor", "@jupyter-widgets/controls"),
        ("Evil\n\x1b[2J", "x"),
    ],
)
def test_other_models_are_refused_and_named_in_one_line(box: Box, name: str, module: str) -> None:
    assert box.open(name, module=module, _esm="export default {}", value="x") is None
    (note,) = box.cleaner.notes
    assert name.split("\n")[0] in note
    assert "\n" not in note
    assert "\x1b" not in note
    assert box.shown("m1") == {"text/plain": "text"}


@pytest.mark.parametrize("target", ["hv-comm", "jupyter.widget.control", "", None, 5])
def test_other_comms_are_refused(box: Box, target: Any) -> None:
    content = {"comm_id": "a", "target_name": target, "target_module": "evil", "data": {"state": {}}}
    assert box.say("comm_open", content) is None
    assert box.cleaner.notes


def test_what_a_model_is_and_what_draws_it_is_not_the_sandboxs_to_say(box: Box) -> None:
    forged = {"_view_name": "EvilView", "_view_module": "https://evil.example/x.js", "_view_module_version": "9"}
    box.open("IntSliderModel", **forged, _model_module_version="../../x", _esm="alert(1)", __proto__={"a": 1})
    assert {key: box.state[key] for key in box.state if key.startswith("_")} == {
        "_model_name": "IntSliderModel",
        "_model_module": CONTROLS,
        "_model_module_version": "2.0.0",
        "_view_module": CONTROLS,
        "_view_module_version": "2.0.0",
        "_view_name": "IntSliderView",
    }
    assert box.update(1, **forged, _model_name="OutputModel", _esm="alert(1)") == {}


def test_no_model_refers_to_one_of_somebody_else(box: Box) -> None:
    other = Box()
    foreign = other.open("LabelModel")
    own = box.open("LabelModel")
    children = [f"IPY_MODEL_{name}" for name in (foreign, "m1", "of-the-notebook", own)] + ["m1", None, {"a": 1}]
    box.open("VBoxModel", children=children, layout=f"IPY_MODEL_{foreign}")
    assert box.state["children"] == [f"IPY_MODEL_{own}"]
    assert "layout" not in box.state
    for name in (foreign, own, "of-the-notebook", None, ["m1"]):
        assert VIEW_MIME not in box.shown(name)  # type: ignore[arg-type]
        assert box.say("comm_msg", {"comm_id": name, "data": {"method": "update", "state": {"value": "x"}}}) is None
        assert box.say("comm_close", {"comm_id": name, "data": {}}) is None


def test_an_id_that_is_taken_is_not_taken_again(box: Box) -> None:
    page_id = box.open("LabelModel", value="first")
    box.count -= 1
    assert box.open("HTMLModel", value="second") is None
    assert box.shown("m1")[VIEW_MIME]["model_id"] == page_id


def test_a_layout_is_a_layout_and_a_style_a_style(box: Box) -> None:
    box.open("VBoxModel")
    box.open("ButtonStyleModel")
    box.open("LayoutModel")
    box.open("ButtonModel", layout="IPY_MODEL_m1", style="IPY_MODEL_m3")
    assert "layout" not in box.state
    assert "style" not in box.state
    box.open("VBoxModel", children=["IPY_MODEL_m2", "IPY_MODEL_m3"])
    assert box.state["children"] == []
    assert VIEW_MIME not in box.shown("m2")


def test_a_description_is_text(box: Box) -> None:
    box.open("IntSliderModel", description="<img src=x onerror=alert(1)>", description_allow_html=True)
    assert box.state["description_allow_html"] is False
    assert box.update(1, description_allow_html=True) == {"description_allow_html": False}


@pytest.mark.parametrize("html", ["sanitize", "isolate", "text"])
@pytest.mark.parametrize("name", ["HTMLModel", "HTMLMathModel"])
@pytest.mark.parametrize("key", ["value", "placeholder"])
@pytest.mark.parametrize(
    "attack",
    [
        "<b>x</b><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<img src='http://evil.example/x.png'>",
        "<iframe srcdoc='<script>top.ran=1</script>'></iframe>",
        "<a href='javascript:alert(1)'>x</a>",
        "<style>body { background: url(http://evil.example/) }</style><div class='jp-Dialog'>x</div>",
        "<svg><script>alert(1)</script></svg>",
        "<p data-commandlinker-command='kernelmenu:run'>x</p>",
        "$\\href{javascript:alert(1)}{x}$",
    ],
)
def test_html_is_sanitized_whatever_the_policy_does_with_outputs(html: str, name: str, key: str, attack: str) -> None:
    box = Box(html)
    box.open(name, **{key: attack})
    changed = box.update(1, **{key: attack})
    for shown in (box.state[key], changed[key]):
        text = shown.lower()
        for word in ("<script", "onerror=", "<iframe", "evil.example", "<svg", "jp-dialog", "commandlinker", "\\href"):
            assert word not in text.replace("&lt;", "~"), shown
        assert "href=" not in text


def test_a_label_is_no_tex_that_could_link_or_load(box: Box) -> None:
    box.open("LabelModel", value="$\\href{javascript:alert(1)}{x} \\require{html}$", description="$\\style{a}{b}$")
    assert "\\href" not in box.state["value"]
    assert "\\require" not in box.state["value"]
    assert "\\style" not in box.state["description"]


@pytest.mark.parametrize(
    "value",
    [
        "url(http://evil.example/x)",
        "URL (//evil.example)",
        "image-set('http://evil.example' 1x)",
        "red; position: fixed",
        "expression(alert(1))",
        "u\\72l(http://evil.example)",
        "red/**/",
        "}",
        "var(--x, url(x))",
        {"a": 1},
        5,
    ],
)
def test_layouts_and_styles_load_nothing_and_break_out_of_nothing(box: Box, value: Any) -> None:
    box.open("LayoutModel", **dict.fromkeys(LAYOUT, value), position="fixed", top="0", z_index="9999", left="0")
    assert set(box.state) == {"_model_name", *MODELS["LayoutModel"].fixed}
    box.open("ButtonStyleModel", **dict.fromkeys(STYLE, value))
    assert set(box.state) == {"_model_name", *MODELS["ButtonStyleModel"].fixed}
    box.open("ColorPickerModel", value=value)
    assert "value" not in box.state
    box.open("ColorsInputModel", value=["red", value])
    assert "value" not in box.state


def test_a_margin_pulls_no_widget_over_its_neighbours(box: Box) -> None:
    assert box.open("LayoutModel", margin="-500px 0", width="100px")
    assert "margin" not in box.state
    assert box.state["width"] == "100px"


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("ButtonModel", {"icon": 'x" onclick="alert(1)'}),
        ("ButtonModel", {"icon": "../../x"}),
        ("ButtonModel", {"button_style": "constructor"}),
        ("ButtonModel", {"_dom_classes": ["jp-Dialog", "lm-mod-hidden"]}),
        ("IntSliderModel", {"value": "1; alert(1)"}),
        ("IntSliderModel", {"value": True}),
        ("IntSliderModel", {"value": 10**400}),
        ("IntSliderModel", {"value": [1, 2]}),
        ("IntSliderModel", {"orientation": "sideways"}),
        ("FloatSliderModel", {"readout_format": "999999999d"}),
        ("FloatSliderModel", {"readout_format": ".99999999f"}),
        ("LabelModel", {"value": {"__html": "x"}}),
        ("DropdownModel", {"_options_labels": "abc"}),
        ("DropdownModel", {"_options_labels": [["a"], {}]}),
        ("DatePickerModel", {"value": {"year": "2026", "month": 1, "date": 1}}),
        ("CheckboxModel", {"value": "true"}),
    ],
)
def test_a_value_of_another_kind_is_left_out(box: Box, name: str, state: dict[str, Any]) -> None:
    box.open(name, **state)
    (key,) = state
    assert box.state.get(key, []) == []


def test_secrets_are_redacted_in_every_text(box: Box) -> None:
    box.open("LabelModel", value=f"the token is {SECRET}", description=SECRET, tooltip=SECRET)
    box.open("HTMLModel", value=f"<b>{SECRET}</b>", placeholder=f"{SECRET[:10]}<i>{SECRET[10:]}</i>")
    assert box.state["value"] == "<b>•••TOKEN•••</b>"
    assert box.state["placeholder"] == ""
    box.open("TextareaModel", value=SECRET)
    box.open("DropdownModel", _options_labels=["a", SECRET])
    assert box.state["_options_labels"] == ["a", "•••TOKEN•••"]
    said = [box.say("comm_msg", {"comm_id": "m1", "data": {"method": "echo_update", "state": {"value": SECRET}}})]
    assert SECRET not in json.dumps([said, box.state, box.cleaner.notes])


def test_a_secret_in_two_labels_one_after_the_other_is_not_shown(box: Box) -> None:
    box.open("LabelModel", value=SECRET[:20])
    first = box.state["value"]
    box.open("LabelModel", value=SECRET[20:])
    assert SECRET not in first + box.state["value"]
    assert SECRET[8:20] not in first


def test_messages_that_take_the_focus_do_not_pass(box: Box) -> None:
    box.open("TextModel")
    content = {"comm_id": "m1", "data": {"method": "custom", "content": {"do": "focus"}}}
    assert box.say("comm_msg", content) is None


# ---- too much


def test_widgets_are_bounded_in_number_and_closed_ones_do_not_count(box: Box) -> None:
    for _ in range(MOST_MODELS):
        box.open("ButtonStyleModel")
    assert box.open("LabelModel") is None
    assert "were left out" in box.cleaner.notes[0]
    assert box.say("comm_close", {"comm_id": "m1", "data": {}}) is not None
    assert box.open("LabelModel") is not None


def test_states_are_bounded_in_size_however_they_grow(box: Box) -> None:
    text = "x" * MOST_TEXT
    for _ in range(MOST_STATE // MOST_TEXT + 2):
        box.open("TextareaModel")
    grown = [bool(box.update(number, value=text)) for number in range(1, box.count + 1)]
    assert not grown[-1]
    assert sum(grown) * MOST_TEXT <= MOST_STATE
    assert box.update(1, value="short") == {"value": "short"}
    assert box.update(box.count, value="y" * (MOST_TEXT // 2))


def test_long_texts_and_lists_are_cut(box: Box) -> None:
    box.open("TextareaModel", value="x" * (MOST_TEXT * 4))
    assert len(box.state["value"]) < MOST_TEXT + 100
    box.open("DropdownModel", _options_labels=["x"] * 1_000_000)
    assert len(box.state["_options_labels"]) <= 5000


def test_a_box_in_itself_is_left_out(box: Box) -> None:
    for _ in range(3):
        box.open("VBoxModel")
    assert box.update(1, children=["IPY_MODEL_m1"]) == {}
    assert box.update(1, children=["IPY_MODEL_m2"])
    assert box.update(2, children=["IPY_MODEL_m3"])
    assert box.update(3, children=["IPY_MODEL_m1"]) == {}
    assert any("box of widgets" in note for note in box.cleaner.notes)
    assert box.update(3, children=[])["children"] == []


def test_boxes_are_nested_to_a_depth_that_a_page_draws(box: Box) -> None:
    assert box.open("LabelModel")
    for number in range(1, MOST_DEPTH):
        box.open("VBoxModel", children=[f"IPY_MODEL_m{number}"])
        assert len(box.state["children"]) == 1
    box.open("VBoxModel", children=[f"IPY_MODEL_m{box.count}"])
    assert "children" not in box.state
    # From above as well: what holds a box that grows is drawn with it.
    box.open("VBoxModel", children=[])
    box.open("VBoxModel", children=[f"IPY_MODEL_m{box.count}"])
    assert box.update(box.count - 1, children=[f"IPY_MODEL_m{MOST_DEPTH}"]) == {}


def test_boxes_do_not_multiply_what_is_drawn(box: Box) -> None:
    box.open("LabelModel")
    drawn = 1
    while drawn <= MOST_DRAWN:
        box.open("HBoxModel", children=[f"IPY_MODEL_m{box.count}"] * 2)
        drawn = drawn * 2 + 1
    assert "children" not in box.state
    box.open("HBoxModel", children=["IPY_MODEL_m1"] * (MOST_DRAWN + 1))
    assert "children" not in box.state


# ---- from the page to the sandbox


def inward(box: Box, page_id: str | None, **data: Any) -> Any:
    return box.cleaner.to_sandbox("comm_msg", {"comm_id": page_id, "data": data})


def test_what_people_do_with_a_widget_reaches_the_sandbox_under_its_own_id(box: Box) -> None:
    slider, button, text = box.open("IntSliderModel"), box.open("ButtonModel"), box.open("TextModel")
    day = box.open("DatePickerModel")
    assert inward(box, slider, method="update", state={"value": 7}, buffer_paths=[]) == {
        "comm_id": "m1",
        "data": {"method": "update", "state": {"value": 7}, "buffer_paths": []},
    }
    click = {"method": "custom", "content": {"event": "click"}}
    assert inward(box, button, **click) == {"comm_id": "m2", "data": click}
    submit = {"method": "custom", "content": {"event": "submit"}}
    assert inward(box, text, **submit) == {"comm_id": "m3", "data": submit}
    assert inward(box, text, method="update", state={"value": "<b>"})["data"]["state"] == {"value": "<b>"}
    date = {"year": 2026, "month": 1, "date": 2}
    assert inward(box, day, method="update", state={"value": date})["data"]["state"] == {"value": date}
    assert inward(box, slider, method="request_state")["data"] == {"method": "request_state"}


def test_nothing_else_reaches_the_sandbox(box: Box) -> None:
    slider, html, button = box.open("IntSliderModel"), box.open("HTMLModel"), box.open("ButtonModel")
    other = Box().open("IntSliderModel")
    assert inward(box, other, method="update", state={"value": 7}) is None
    assert inward(box, "m1", method="update", state={"value": 7}) is None
    assert inward(box, html, method="update", state={"value": "<b>"}) is None
    assert inward(box, slider, method="update", state={"layout": "IPY_MODEL_x", "max": 3, "_esm": "x"}) is None
    assert inward(box, slider, method="update", state={"value": {"a": [1]}}) is None
    assert inward(box, slider, method="custom", content={"event": "click"}) is None
    assert inward(box, button, method="custom", content={"event": "other"}) is None
    assert box.cleaner.to_sandbox("comm_open", {"comm_id": slider, "data": {"state": {}}}) is None


def test_a_widget_that_the_page_closed_is_gone(box: Box) -> None:
    page_id = box.open("IntSliderModel")
    assert box.cleaner.to_sandbox("comm_close", {"comm_id": page_id}) == {"comm_id": "m1", "data": {}}
    assert inward(box, page_id, method="update", state={"value": 1}) is None
    assert box.update(1, value=2) == {}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_key = st.sampled_from(sorted({key for kind in MODELS.values() for key in kind.keys}))


@given(name=st.sampled_from(sorted(MODELS)), state=st.dictionaries(_key, _json, max_size=8), other=_json)
def test_whatever_comes_nothing_breaks_and_only_known_keys_pass(name: str, state: dict[str, Any], other: Any) -> None:
    box = Box()
    box.open(name, **state)
    assert set(box.state) <= {"_model_name", *MODELS[name].fixed, *MODELS[name].keys}
    assert {box.state["_model_module"], box.state["_view_module"]} <= {BASE, CONTROLS}
    box.update(1, **state)
    for kind in ("comm_open", "comm_msg", "comm_close"):
        box.say(kind, {"comm_id": other, "target_name": other, "data": other})
        box.say(kind, {"comm_id": "m1", "data": {"method": "update", "state": other}})
        box.cleaner.to_sandbox(kind, {"comm_id": other, "data": {"method": "update", "state": other}})
