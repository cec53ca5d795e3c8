"""Takes the README's pictures of the panel: `python tests/browser/screenshots.py [FOLDER]` (labextension/pictures)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from pages import TOKEN, jupyterlab

_CELLS = (
    "%load_ext ipysandbox",
    '%%sandbox\nimport numpy as np\n\nrng = np.random.default_rng(7)\nprint("in the sandbox")',
    """%%sandbox --timeout 2min
import socket, time

try:
    socket.create_connection(("192.0.2.7", 443), 1)
except OSError as error:
    print(error)
kept = []
for step in range(10_000):
    kept.append(rng.random((300, 300)))
    np.linalg.svd(kept[-1])
    if step % 7 == 0:
        time.sleep(0.1)""",
)
_IDLE = """() => { const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
                   return kernel?.connectionStatus === "connected" && kernel?.status === "idle"; }"""


def main(target: Path) -> None:
    from playwright.sync_api import sync_playwright

    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "study")
        folder.mkdir()
        (folder / "ipysandbox.toml").write_text('[limits]\nmemory = "512MiB"\nprocesses = 64\n')
        book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
        book.cells = [nbformat.v4.new_code_cell(text) for text in _CELLS]
        nbformat.write(book, folder / "study.ipynb")
        environ = {**os.environ, "IPYSANDBOX_PANEL": "open"}
        with jupyterlab(folder, Path(temporary, "state"), environ=environ) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1100, "height": 620})
            page.goto(f"{address}/lab/tree/study.ipynb?token={TOKEN}&reset")
            page.wait_for_function(_IDLE, timeout=60_000)
            page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
            page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
            page.locator(".jp-ipysandbox-state[data-state=busy]").wait_for(timeout=60_000)
            page.wait_for_timeout(60_000)  # until the charts have something to show
            page.screenshot(path=target / "sandboxes.png")
            page.locator("#ipysandbox-tab-audit").click()
            refused = page.locator(".jp-ipysandbox-records li[data-severity=warning]", has_text="192.0.2.7:443")
            refused.locator("summary").click()
            refused.get_by_text("network.refused").wait_for()
            page.get_by_role("button", name="Verify").click()
            page.get_by_text("without a gap").wait_for()
            page.screenshot(path=target / "audit.png")
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "labextension/pictures")
