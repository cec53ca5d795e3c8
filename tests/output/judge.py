"""Parses cleaned output with html5lib, as a browser would, and names everything in it that could act on the page."""

from __future__ import annotations

import re

import html5lib

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
ACTIVE = {
    *("script", "object", "embed", "applet", "base", "frame", "frameset", "iframe", "portal", "fencedframe", "meta"),
    *("link", "form", "noscript", "template", "title", "textarea", "select", "button", "audio", "video", "source"),
    *("track", "canvas", "math", "dialog", "slot", "xmp", "plaintext", "noembed", "noframes", "bdo", "body", "html"),
    *("head", "param", "foreignObject", "animate", "animateMotion", "animateTransform", "set", "handler", "listener"),
    "feImage",
}
STRUCTURE = {"html", "head", "body"}  # added by the parser itself
REFERENCES = {
    *("href", "src", "srcset", "action", "formaction", "poster", "background", "data", "ping", "cite", "longdesc"),
    "usemap",
}
CSS_BAD = re.compile(
    r"url|@(?!media \(prefers-color-scheme: (?:dark|light)\))|expression|image-set|element\(|\\|behavior|-moz-", re.I
)
CSS_COVER = re.compile(
    r"(?<![\w-])position:(?!\s*(?:relative|static))|z-index|transform|animation|pointer-events", re.I
)


def findings(markup: str, *, svg: bool = False) -> list[str]:
    found: list[str] = []
    root = html5lib.parse(markup, treebuilder="etree", namespaceHTMLElements=True)
    added = set(STRUCTURE)
    for element in root.iter():
        if not isinstance(element.tag, str):
            found.append("a comment or instruction")
            continue
        namespace, _, name = element.tag.rpartition("}")
        if namespace + "}" == HTML and name in added:
            added.discard(name)  # once each
            if not element.attrib:
                continue
        if namespace + "}" not in ((SVG, HTML) if svg else (HTML,)):
            found.append(f"foreign <{name}>")
        if name in ACTIVE or ":" in name:
            found.append(f"<{name}>")
        if name == "input" and element.get("type") != "checkbox":
            found.append("an input to type in")
        if name == "style":
            found += sheet_findings(element.text or "", svg=svg)
        for key, value in element.attrib.items():
            found += attribute_findings(name, key.rpartition("}")[2].lower(), value, svg)
    return found


def attribute_findings(tag: str, key: str, value: str, svg: bool) -> list[str]:
    flat = re.sub(r"[\x00-\x20]+", "", value).lower()
    found = []
    forbidden = (
        "on",
        "data-",
        "form",
        "xmlns:",
        "is",
        "slot",
        "part",
        "name",
        "srcdoc",
        "autofocus",
        "contenteditable",
    )
    if key.startswith(forbidden):
        found.append(f"attribute {key}")
    if key in ("id", "for") and not value.startswith("sbx-"):
        found.append(f"{key}={value}")
    if key == "style":
        css = re.sub(r"url\(#sbx-[\w.:-]+\)", "", value) if svg else value
        found += [f"style {value}"] if CSS_BAD.search(css) or CSS_COVER.search(css) else []
    elif svg and "url(" in flat and not re.fullmatch(r"url\(#sbx-[\w.:-]+\)", flat):
        found.append(f"{key}={value}")
    if key in REFERENCES:
        link = tag == "a" and flat.startswith(("http://", "https://", "mailto:", "#sbx-"))
        picture = tag in ("img", "image") and re.match(r"data:image/(png|jpeg|gif|webp);base64,", flat)
        inside = svg and flat.startswith("#sbx-")
        if not (link or picture or inside):
            found.append(f"{tag} {key}={value}")
    if key == "class" and re.search(r"(?:^|\s)(?:jp|lm|cm)-", value):
        found.append(f"class {value}")
    return found


def sheet_findings(css: str, *, svg: bool = False) -> list[str]:
    found = []
    flat = re.sub(r"url\(#sbx-[\w.:-]+\)", "", css) if svg else css
    if CSS_BAD.search(flat) or CSS_COVER.search(flat):
        found.append(f"style sheet {css[:80]}")
    rules = re.sub(r"@media \(prefers-color-scheme: \w+\) \{ (.*) \}", r"\1", css)
    for rule in filter(None, rules.split("\n")):
        selectors = rule.partition("{")[0].split(",")
        found += [f"selector {s.strip()}" for s in selectors if not s.strip().startswith("#sbx-")]
    return found
