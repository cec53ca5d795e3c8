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


TEX = ["href", "style", "bbox", "mmlToken", "htmlClass", "includegraphics", "csname", "require"]
APART = [
    "<wbr>",
    "<br>",
    "<!-- c -->",
    "<custom>",
    "</custom>",
    "<b>",
    "</b>",
    "<i></i>",
    "<wbr><!--c--><wbr title='\\'>",
    "<?x?>",
]


def typeset(markup: str) -> list[str]:
    """The texts of ``markup`` as MathJax joins them, and all of it as one, as a sanitizer might leave it."""
    texts, joined = [""], []
    walker = html5lib.getTreeWalker("etree")(html5lib.parse(markup))
    for token in walker:
        kind, name = token["type"], token.get("name")
        if kind in ("Characters", "SpaceCharacters"):
            texts[-1] += token["data"]
            joined.append(token["data"])
        elif kind == "EmptyTag" and name == "br":
            texts[-1] += "\n"
        elif kind != "Comment" and name != "wbr":
            texts.append("")
    return [*texts, "".join(joined)]


@pytest.mark.parametrize("apart", APART)
@pytest.mark.parametrize("command", TEX)
@pytest.mark.parametrize(
    "math", ["$ \\alpha {} $", "\\{apart}({}\\{apart})", "\\be{apart}gin{{matrix}}{}\\end{{matrix}}"]
)
def test_no_tag_hides_a_command_of_tex(math, command, apart):
    middle = len(command) // 2
    for cut in (f"\\{apart}{command}", f"\\{command[:middle]}{apart}{command[middle:]}", f"\\{command}{apart}"):
        markup = math.format(cut + "{/logout}{x}", apart=apart)
        cleaned, _ = clean_html(f"<p>{markup}</p>")
        assert cleaned is not None
        for text in typeset(cleaned):
            assert f"\\{command}" not in text, cleaned
        assert clean_html(cleaned)[0] == cleaned


@pytest.mark.parametrize("character", ["&#92;", "&bsol;", "&#x5c;"])
@pytest.mark.parametrize("letter", ["h", "&#104;", "&#x68;", "<wbr>&#104;"])
def test_no_entity_hides_a_command_of_tex(character, letter):
    cleaned, _ = clean_html(f"<p>&dollar;{character}{letter}ref{{/logout}}{{x}}&dollar;</p>")
    assert not any("\\href" in text for text in typeset(cleaned or ""))
    data = Cleaner().clean("display_data", {"data": {"text/latex": f"${character}{letter}ref{{/logout}}{{x}}$"}})[
        "data"
    ]
    assert not any("\\href" in text for text in typeset(data["text/latex"]))  # some pages take it for HTML


def test_no_command_of_tex_is_in_the_texts_of_a_drawing():
    for text in ("$\\href{/logout}{x}$", "$\\<tspan>href</tspan>{/logout}{x}$", "$\\<!-- c -->href{/logout}{x}$"):
        cleaned = clean_svg(f"<svg xmlns='http://www.w3.org/2000/svg'><text>{text}</text></svg>")
        assert not any("\\href" in text for text in typeset(cleaned))
        assert clean_svg(cleaned) == cleaned


def test_text_beside_tex_stays_as_it_is():
    shown = "a very_<wbr>long_name $x<br>y$ and <code>C:\\data</code> for \\alpha"
    assert clean_html(shown)[0] == shown.replace("\\data", "\\ data")
    assert clean_html("C:\\<wbr>data")[0] == "C:\\<wbr>data"


def test_judge_sees_what_an_uncleaned_output_holds():
    seen = [name for name in HTML if findings(HTML[name]) or SINK in HTML[name]]
    assert len(seen) > 0.9 * len(HTML)
    assert sheet_findings("body { color: red }")
