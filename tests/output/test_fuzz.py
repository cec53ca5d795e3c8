"""Whatever markup comes, cleaning is stable and leaves nothing forbidden when a browser's parser reads it."""

from __future__ import annotations

from gallery import HTML, SVG
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import findings

from ipysandbox.output.css import clean_declarations, clean_sheet
from ipysandbox.output.html import clean_html, html_to_text
from ipysandbox.output.markdown import clean_markdown
from ipysandbox.output.svg import BadSvg, clean_svg

TAGS = st.sampled_from(
    "a b p i div span table tr td th tbody thead caption colgroup col li ul ol dl dd dt h1 h2 pre style script svg "
    "math template select option textarea title noscript iframe form input button img br hr details summary font ruby "
    "rt foreignObject mtext mglyph desc frameset body html head xmp plaintext x-y".split(" ")
)
ATTRIBUTES = st.sampled_from(
    [
        "",
        " id=main",
        " class='jp-x data'",
        " onclick=x",
        " style='color:red;position:fixed'",
        " href='javascript:x'",
        " href=https://a.test/?a&b",
        " src=x",
        ' title="a<b>\'&quot;"',
        " title='-->'",
        "/",
        " type=checkbox",
        " =x",
        " a=\"'",
    ]
)
TOKENS = st.one_of(
    st.builds("<{}{}>".format, TAGS, ATTRIBUTES),
    st.builds("</{}>".format, TAGS),
    st.sampled_from(
        ["<!--", "-->", "--!>", "<!-->", "<![CDATA[", "]]>", "<?x", "<", ">", "&", "&lt;", "&#x3c;", "&amp;lt;"]
    ),
    st.sampled_from(
        ["\n", "\r", " ", "x", "\x00", "\x0c", "\u202e", "&#13;", "&#0;", "&nbsp;", "\\href", "$", "{", "}", "/*"]
    ),
    st.sampled_from(list(HTML.values())),
    st.text(max_size=6),
)
MARKUP = st.lists(TOKENS, max_size=14).map("".join)


@given(MARKUP)
@settings(max_examples=700, deadline=None)
def test_html_is_stable_and_clean(markup):
    cleaned, _ = clean_html(markup)
    assert cleaned is not None
    assert findings(cleaned) == []
    assert clean_html(cleaned)[0] == cleaned


@given(MARKUP)
@settings(max_examples=200, deadline=None)
def test_html_as_text_and_markdown_are_stable(markup):
    html_to_text(markup)
    cleaned = clean_markdown(markup)
    assert clean_markdown(cleaned) == cleaned


CSS = st.lists(
    st.one_of(
        st.sampled_from(
            "body .jp-x #main * a:hover { } ; : , > color red position fixed url( ) https://a.test \\75rl( /* */ "
            "@import @media (prefers-color-scheme: dark) \" ' < </style> --x var(--x) margin -5px content calc( "
            "!important :not( :root z-index 9999 expression( <!-- --> \\ \n".split(" ")
        ),
        st.text(max_size=4),
    ),
    max_size=25,
).map(" ".join)


@given(CSS)
@settings(max_examples=700, deadline=None)
def test_style_sheets_stay_in_their_output(css):
    sheet, _ = clean_sheet(css)
    assert findings(f"<style>{sheet}</style>") == []
    assert clean_sheet(sheet)[0] == sheet
    plain = clean_declarations(css)
    assert findings(f"<p style='{plain.replace(chr(39), '&#39;')}'></p>") == []
    assert clean_declarations(plain) == plain


@given(
    st.lists(
        st.one_of(st.sampled_from(list(SVG.values())), st.sampled_from(["<g>", "</g>", "<text>a&lt;b", "</text>"])),
        max_size=6,
    )
)
@settings(max_examples=150, deadline=None)
def test_svg_is_stable_and_clean(parts):
    try:
        cleaned = clean_svg(f"<svg xmlns='http://www.w3.org/2000/svg'>{''.join(parts)}</svg>")
    except BadSvg:
        return
    assert findings(cleaned, svg=True) == []
    assert clean_svg(cleaned) == cleaned
