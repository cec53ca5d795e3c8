"""Outputs of a sandbox on a page that holds the user's session: shown, pointed at, pressed, saved and opened again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bundles import bundles
from nbconvert import HTMLExporter
from pages import TOKEN, attacks_notebook, jupyterlab, run_all, served

_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
# Of the attacks, those that reach the sink or run from a plain kernel, at least.
_WORK = 40
_DOORS = {"jupyterlab": "lab/tree", "notebook7": "notebooks"}

Run = Callable[..., Any]


# A link that a person presses goes where it says; front ends make links of addresses in plain text too.
_LEAVE_LINKS = """addEventListener("click", (event) => {
  const link = event.target.closest?.("a");
  if (link && /^https?:$/.test(link.protocol)) event.preventDefault();
}, true);"""


def touch(page: Any) -> None:
    """Point at everything that was shown, and press what can be pressed."""
    page.evaluate(
        """() => {
          const shown = [...document.querySelectorAll(".jp-OutputArea-output, .jp-OutputArea-output *")];
          for (const element of shown) {
            for (const kind of ["pointerover", "mouseover", "mouseenter", "mousemove", "focus"])
              element.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
            if (element.matches("a, button, input, rect, summary, text, mtext, b, p")) {
              element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, view: window }));
            }
          }
        }"""
    )
    for element in page.locator(".jp-OutputArea-output a, .jp-OutputArea-output button").all():
        if element.is_visible():
            element.hover(force=True)
            element.click(force=True, no_wait_after=True)
    # Nothing tells that a request will never be made: this is how long one that works takes, many times over.
    page.wait_for_timeout(1000)


def state_of(page: Any, folder: Path) -> dict[str, Any]:
    return {
        "url": re.split("[?#]", page.url)[0],
        "ran": page.evaluate("window.ran ?? null"),
        "windows": len(page.context.pages),
        "files": sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")),
    }


@pytest.mark.parametrize("door", _DOORS)
def test_hostile_outputs_do_nothing_to_the_page(door: str, in_browser: Run, sink: Any, tmp_path: Path) -> None:
    folder, state = tmp_path / "study", tmp_path / "state"
    folder.mkdir()
    attacks = bundles(sink.address)
    path = attacks_notebook(folder, list(attacks.values()))

    def work(page: Any) -> list[dict[str, Any]]:
        page.add_init_script(_LEAVE_LINKS)
        place = f"{address}/{_DOORS[door]}/{path.name}"
        run_all(page, f"{place}?token={TOKEN}&reset")
        assert page.locator(".jp-OutputArea-output").count() > len(attacks) / 2
        seen = [state_of(page, folder)]
        touch(page)
        seen.append(state_of(page, folder))
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        page.goto(place, wait_until="domcontentloaded")
        page.locator(".jp-OutputArea-output").first.wait_for(timeout=60_000)
        touch(page)
        return [*seen, state_of(page, folder)]

    with jupyterlab(folder, state, 'html = "sanitize"') as address:
        before = sorted(["results", *(one.name for one in folder.iterdir())])
        seen = in_browser(work, _OFFLINE)
    assert sink.seen == []
    expected = {"url": f"{address}/{_DOORS[door]}/{path.name}", "ran": None, "windows": 1, "files": before}
    assert seen == [expected] * 3

    def saved(page: Any) -> Any:
        page.add_init_script(_LEAVE_LINKS)
        page.goto(address, wait_until="domcontentloaded")
        touch(page)
        return page.evaluate("window.ran ?? null")

    with served(str(HTMLExporter().from_notebook_node(nbformat.read(path, 4))[0])) as address:
        assert in_browser(saved, _OFFLINE) is None
    assert sink.seen == []


def test_from_a_plain_kernel_they_do(in_browser: Run, sink: Any, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    # These take the page itself away.
    attacks = {name: data for name, data in bundles(sink.address).items() if name not in ("refresh", "form-outside")}
    path = attacks_notebook(folder, list(attacks.values()), sandboxed=False)

    def work(page: Any) -> str:
        run_all(page, f"{address}/lab/tree/{path.name}?token={TOKEN}&reset")
        page.evaluate("document.querySelectorAll('form').forEach((form) => { form.target = 'other'; })")
        touch(page)
        return " ".join(sink.seen)

    with jupyterlab(folder, tmp_path / "state") as address:
        words = in_browser(work, _OFFLINE)
    worked = {name for name in attacks if re.search(rf"/{name}[ ?#]", words)}
    assert len(worked) >= _WORK, sorted(worked)
    assert worked >= {"script", "handler", "handler-click", "image", "style-import", "javascript"}
