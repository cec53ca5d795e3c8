"""Nothing in the gallery of hostile outputs keeps anything that could run, load, cover or pose as the page."""

from __future__ import annotations

import html
import re

import html5lib
import markdown_it
import mistune
import pytest
from gallery import HTML, MARKDOWN, SINK, SVG, SVG_REFUSED
from judge import findings, sheet_findings

from ipysandbox.output import Cleaner
from ipysandbox.output.html import clean_html
from ipysandbox.output.markdown import clean_markdown
from ipysandbox.output.svg import BadSvg, clean_svg


@pytest.mark.parametrize("name", HTML)
def test_html_keeps_nothing_that_acts(name):
    cleaned, _ = clean_html(HTML[name])
    assert cleaned is not None
    assert findings(cleaned) == []
    assert "sink.test" not in cleaned or name.startswith("tex-")  # there it is words
    assert clean_html(cleaned)[0] == cleaned


@pytest.mark.parametrize("name", HTML)
@pytest.mark.parametrize(
    "around",
    ["<table><tr><td>{}</td></tr></table>", "<p><b>{}", "<div title='{}'>", "</div></table>{}<p>", "<pre>\n{}"],
)
def test_html_keeps_nothing_that_acts_inside_other_markup(name, around):
    cleaned, _ = clean_html(around.format(HTML[name]))
    assert cleaned is not None
    assert findings(cleaned) == []
    assert clean_html(cleaned)[0] == cleaned


@pytest.mark.parametrize("name", SVG)
def test_svg_keeps_nothing_that_acts(name):
    cleaned = clean_svg(f"<svg xmlns='http://www.w3.org/2000/svg'>{SVG[name]}</svg>")
    assert findings(cleaned, svg=True) == []  # as a page that shows it inline reads it
    assert "sink.test" not in cleaned
    assert clean_svg(cleaned) == cleaned


@pytest.mark.parametrize("name", SVG_REFUSED)
def test_svg_that_is_not_a_drawing_is_refused(name):
    with pytest.raises(BadSvg):
        clean_svg(SVG_REFUSED[name])


RENDERERS = {
    "commonmark": markdown_it.MarkdownIt("commonmark", {"html": True}).render,
    "gfm-like": markdown_it.MarkdownIt("js-default", {"html": True, "linkify": False}).render,
    "mistune": mistune.create_markdown(escape=False, plugins=["table", "footnotes", "strikethrough"]),
}


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown_renders_to_nothing_that_acts(name, renderer):
    cleaned = clean_markdown(MARKDOWN[name])
    rendered = RENDERERS[renderer](cleaned)
    for element in html5lib.parse(rendered, namespaceHTMLElements=False).iter():
        assert element.tag not in ("img", "script", "iframe", "div")
        assert not any(key.startswith("on") or key == "src" for key in element.attrib)
        link = element.get("href", "").strip().lower()
        assert link.startswith(("https://", "http://", "mailto:")) or not re.match(r"[\w+.-]*:|[/\\]", link)
    assert "\\href" not in html.unescape(rendered)
    assert clean_markdown(cleaned) == cleaned


@pytest.mark.parametrize(
    "control", ["\x00", "\x01", "\x08", "\r", "\x1b[0m", "\x1b]0;x\x07", "\x9b1m", "\ud800", "\x7f"]
)
@pytest.mark.parametrize(
    "markup",
    ["!{}[x](http://sink.test/a)", "[x]{}(javascript:alert(1))", "[x](java{}script:alert(1))", "<{}img src=x>",
     "&#36;{}\\href{{javascript:alert(1)}}{{x}}&#36;",
     "[r]{}: javascript:alert(1)\n\n[r]", "$\\h{}ref{{javascript:alert(1)}}{{x}}$"],
)  # fmt: skip
@pytest.mark.parametrize("renderer", RENDERERS)
def test_markdown_that_is_pieced_together_by_what_is_taken_out_is_cleaned_as_a_whole(control, markup, renderer):
    text = markup.format(control)
    data = Cleaner().clean("display_data", {"data": {"text/markdown": text, "text/latex": text}})["data"]
    assert findings(RENDERERS[renderer](data["text/markdown"])) == []
    assert "\\href" not in data["text/markdown"] + data["text/latex"]
    assert "<img" not in data["text/latex"]


def test_judge_sees_what_an_uncleaned_output_holds():
    seen = [name for name in HTML if findings(HTML[name]) or SINK in HTML[name]]
    assert len(seen) > 0.9 * len(HTML)
    assert sheet_findings("body { color: red }")
