"""A real JupyterLab whose notebook has a flooding sandbox: the page answers, and nothing of the notebook is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from pages import TOKEN, jupyterlab

Run = Callable[..., Any]

_CELLS = [
    "%load_ext ipysandbox",
    "%%sandbox\nfor n in range(200_000): print(n, 'x' * 90)",
    "%%sandbox\nfor n in range(3_500): print(n, flush=True)\nfor n in range(1_500): display(n)",
    "for n in range(20): print('the notebook says', n, flush=True)\n6 * 7",
]
#: Of a page that is of use, in milliseconds: from a wish to its turn on the page's one thread.
_USABLE = 1_000


def test_jupyterlab_stays_usable_after_a_flood(in_browser: Run, tmp_path: Path) -> None:
    folder, state = tmp_path / "study", tmp_path / "state"
    folder.mkdir()
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    book.cells = [nbformat.v4.new_code_cell(text) for text in _CELLS]
    nbformat.write(book, folder / "floods.ipynb")

    def work(page: Any) -> tuple[list[float], list[list[dict[str, Any]]]]:
        page.goto(f"{address}/lab/tree/floods.ipynb?token={TOKEN}&reset")
        page.wait_for_function(
            """() => { const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
                       return kernel?.connectionStatus === "connected" && kernel?.status === "idle"; }""",
            timeout=60_000,
        )
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        outputs = "window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.outputs.toJSON())"
        page.wait_for_function(f"() => JSON.stringify({outputs}[3]).includes('42')", timeout=100_000, polling=500)
        turns = page.evaluate(
            """async () => { const turns = [];
                 for (let n = 0; n < 20; n++) {
                   const began = performance.now();
                   await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                   turns.push(performance.now() - began); }
                 return turns; }"""
        )
        return turns, page.evaluate(outputs)

    with jupyterlab(folder, state) as address:
        turns, (_, flood, fast, ours) = in_browser(work)
    assert sorted(turns)[10] < _USABLE
    text = "".join(output["text"] for output in flood if output["output_type"] == "stream")
    assert text.startswith("0 xxx")
    assert "199999 xxx" in text
    assert len(text) < 1_200_000
    assert sum("not shown here; all of it: " in str(output) for output in flood) == 1
    # All of these came through the server's limit, and what the notebook says itself.
    assert "".join(o["text"] for o in fast if o["output_type"] == "stream").split() == [str(n) for n in range(3_500)]
    assert [o["data"]["text/plain"] for o in fast if o["output_type"] == "display_data"] == [
        str(n) for n in range(1_500)
    ]
    said = "".join(output.get("text", "") for output in ours)
    assert said.splitlines() == [f"the notebook says {n}" for n in range(20)]
