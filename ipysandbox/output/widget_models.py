"""The widgets that may pass: ipywidgets' core models, the keys of their state, and of which kind each value is.

Written after the classes of ipywidgets 8 and what their views do with each key. Left out on purpose: models that carry
bytes (Image, Audio, Video, FileUpload), that read other devices or hidden words (Controller, Password), that hold any
output (Output), and links between models in the page, which could put a text where HTML is expected.
"""

from __future__ import annotations

from dataclasses import dataclass

from .words import words

BASE, CONTROLS = "@jupyter-widgets/base", "@jupyter-widgets/controls"
#: Of both modules; the page's own libraries go by it.
VERSION = "2.0.0"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of model: the view that draws it, and the kind of value of each key."""

    view: str
    keys: dict[str, str]
    module: str = CONTROLS
    view_module: str = CONTROLS
    #: What its view tells the sandbox besides changes of the state.
    events: frozenset[str] = frozenset()

    @property
    def fixed(self) -> dict[str, str | None]:
        """What a model says of itself: written here, whatever the sandbox says."""
        return {
            "_model_module": self.module,
            "_model_module_version": VERSION,
            "_view_module": self.view_module,
            "_view_module_version": VERSION,
            "_view_name": self.view,
        }


def _named(**kinds: str) -> dict[str, str]:
    return {name: kind for kind, names in kinds.items() for name in sorted(words(names))}


_DOM = _named(label="tooltip", flag="tabbable", layout="layout", classes="_dom_classes")
_DESCRIBED = _DOM | _named(label="description", no="description_allow_html", style="style", flag="disabled")
_BUTTON = _DOM | _named(label="description", flag="disabled", look="button_style", icon="icon", style="style")
_RANGE = _named(number="min max step", flag="continuous_update")
_SLIDER = (
    _DESCRIBED
    | _RANGE
    | _named(flag="readout", direction="orientation", behavior="behavior", format="readout_format", number="base")
)
_MOMENTS = _DESCRIBED | _named(moment="value min max", step="step")
_TAGS = _DESCRIBED | _named(label="placeholder", flag="allow_duplicates", look="tag_style")
_SELECT = _DESCRIBED | _named(labels="_options_labels", flag="readout continuous_update", direction="orientation")
_SELECT |= _named(behavior="behavior", rows="rows", icons="icons", labels="tooltips", look="button_style")
_TYPED = _DESCRIBED | _named(label="placeholder", flag="continuous_update", rows="rows")
_BOX = _DOM | _named(models="children", look="box_style", labels="titles", number="selected_index")
_HTML = _DESCRIBED | _named(html="value placeholder")
_CLICK, _SUBMIT = frozenset({"click"}), frozenset({"submit"})


def _all(names: str, keys: dict[str, str], *, view: str = "", events: frozenset[str] = frozenset()) -> dict[str, Kind]:
    return {f"{name}Model": Kind(f"{view or name}View", keys, events=events) for name in sorted(words(names))}


#: As CSS names them; those that lift a widget out of its place are no key of any model here.
LAYOUT = words(
    "align_content align_items align_self border_bottom border_left border_right border_top display flex flex_flow",
    "grid_area grid_auto_columns grid_auto_flow grid_auto_rows grid_column grid_gap grid_row grid_template_areas",
    "grid_template_columns grid_template_rows height justify_content justify_items margin max_height max_width",
    "min_height min_width object_fit order overflow padding visibility width",
)
#: The property that each key of a style sets.
STYLE = {
    "description_width": "width",
    "button_width": "width",
    **dict.fromkeys(("bar_color", "button_color", "handle_color", "text_color"), "color"),
    **{
        name: name.replace("_", "-")
        for name in words("background font_family font_size font_style font_variant font_weight text_decoration")
    },
}
_LAYOUT_KEYS = {name: f"css:{name.replace('_', '-')}" for name in sorted(LAYOUT)}
_STYLE_KEYS = {name: f"css:{css}" for name, css in STYLE.items()}
_STYLES = words(
    "ButtonStyle CheckboxStyle DescriptionStyle HTMLMathStyle HTMLStyle LabelStyle ProgressStyle SliderStyle",
    "TextStyle ToggleButtonStyle ToggleButtonsStyle",
)

MODELS: dict[str, Kind] = {
    "LayoutModel": Kind("LayoutView", _LAYOUT_KEYS, BASE, BASE),
    **{f"{name}Model": Kind("StyleView", _STYLE_KEYS, view_module=BASE) for name in sorted(_STYLES)},
    **_all("IntSlider FloatSlider FloatLogSlider", _SLIDER | _named(number="value")),
    **_all("IntRangeSlider FloatRangeSlider", _SLIDER | _named(numbers="value")),
    **_all(
        "IntProgress FloatProgress",
        _DESCRIBED | _RANGE | _named(number="value", look="bar_style", direction="orientation"),
        view="Progress",
    ),
    **_all("IntText BoundedIntText", _DESCRIBED | _RANGE | _named(number="value"), view="IntText"),
    **_all("FloatText BoundedFloatText", _DESCRIBED | _RANGE | _named(number="value"), view="FloatText"),
    **_all(
        "Play",
        _DESCRIBED | _RANGE | _named(number="value", interval="interval", flag="playing repeat show_repeat"),
    ),
    **_all("Box GridBox HBox VBox Accordion Tab Stack", _BOX),
    **_all("Button", _BUTTON, events=_CLICK),
    **_all("ToggleButton", _BUTTON | _named(no="description_allow_html", flag="value")),
    **_all("Checkbox", _DESCRIBED | _named(flag="value indent")),
    **_all("Valid", _DESCRIBED | _named(flag="value", label="readout")),
    **_all("Dropdown RadioButtons Select SelectionSlider ToggleButtons", _SELECT | _named(number="index")),
    **_all("SelectMultiple SelectionRangeSlider", _SELECT | _named(numbers="index")),
    **_all("Label", _DESCRIBED | _named(label="value placeholder")),
    **_all("HTML HTMLMath", _HTML),
    **_all("Text", _TYPED | _named(typed="value"), events=_SUBMIT),
    **_all("Textarea", _TYPED | _named(typed="value")),
    **_all("Combobox", _TYPED | _named(typed="value", labels="options", flag="ensure_option"), events=_SUBMIT),
    **_all("ColorPicker", _DESCRIBED | _named(color="value", flag="concise")),
    **_all("DatePicker Time Datetime NaiveDatetime", _MOMENTS),
    **_all("TagsInput", _TAGS | _named(labels="value allowed_tags")),
    **_all("ColorsInput", _TAGS | _named(colors="value allowed_tags")),
    **_all("IntsInput FloatsInput", _TAGS | _RANGE | _named(numbers="value allowed_tags", format="format")),
}
# Both kinds of dates with a time are drawn by one view.
MODELS["NaiveDatetimeModel"] = MODELS["DatetimeModel"]
