"""Pages that hold outputs: any HTML on a server with a cookie, a notebook as nbconvert writes it, a real JupyterLab."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

TOKEN = "a-token-that-nothing-may-read"
COOKIE = "session=a-cookie-that-nothing-may-read"

# In the page before anything else: keeps what frames say, and which of them have been mounted.
LISTEN = """
window.heard = [];
window.mounted = new Set();
addEventListener("message", ({ data, source }) => {
  if (data && data.claim) heard.push([data.claim, String(data.value)]);
  for (const frame of document.querySelectorAll("iframe.ipysandbox-frame"))
    if (frame.contentWindow && frame.contentWindow[0] === source) mounted.add(frame);
});
"""


@contextlib.contextmanager
def served(page: str, headers: dict[str, str] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in {"Content-Type": "text/html", "Set-Cookie": COOKIE, **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.encode() if self.path == "/" else b"")

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def attacks_notebook(folder: Path, outputs: list[dict[str, Any]], sandboxed: bool = True) -> Path:
    """A notebook that shows ``outputs`` (data by MIME type), forty-five a cell: JupyterLab shows the first fifty."""
    (folder / "attacks.json").write_text(json.dumps(outputs))
    first = "%load_ext ipysandbox" if sandboxed else ""
    code = "%%sandbox\n" if sandboxed else ""
    code += "import json\nfrom IPython.display import display\n"
    code += "for data in json.load(open('attacks.json'))[{}:{}]:\n    display(data, raw=True)"
    book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    cells = [first, *(code.format(at, at + 45) for at in range(0, len(outputs), 45))]
    book.cells = [nbformat.v4.new_code_cell(text) for text in cells]
    path = folder / ("attacks.ipynb" if sandboxed else "plain.ipynb")
    nbformat.write(book, path)
    return path


def run_all(page: Any, address: str) -> None:
    """Open a notebook in JupyterLab or Notebook 7 and run it to its end."""
    page.goto(address)
    page.wait_for_function(
        """() => { const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
                   return kernel?.connectionStatus === "connected" && kernel?.status === "idle"; }""",
        timeout=60_000,
    )
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.content.widgets.every(
             (cell) => !cell.model.sharedModel.source || cell.model.executionCount)""",
        timeout=120_000,
    )


def converted(outputs: list[dict[str, Any]]) -> str:
    """A notebook of one cell with these outputs, as nbconvert writes it."""
    book = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("1", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("display_data", **output) for output in outputs]
    book.cells = [cell]
    return str(HTMLExporter().from_notebook_node(book)[0])


@contextlib.contextmanager
def jupyterlab(
    folder: Path,
    state: Path,
    output: str = 'html = "isolate"',
    *,
    port: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[str]:
    """The address of a JupyterLab, and Notebook 7 beside it, on ``folder`` whose user has asked for this [output]."""
    port = port or free_port()
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_STATE_HOME")
    names += ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    places = {name: str(state / name.lower()) for name in names}
    for place in places.values():
        Path(place).mkdir(parents=True, exist_ok=True)
    Path(places["JUPYTER_CONFIG_DIR"], "ipysandbox.toml").write_text(f"[output]\n{output}\n")
    news = Path(places["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab/apputils-extension/notification.jupyterlab-settings")
    news.parent.mkdir(parents=True, exist_ok=True)
    news.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    command += [f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"]
    command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
    with open(state / "log", "w") as log:
        process = subprocess.Popen(command, env={**environ, **places}, stdout=log, stderr=log, cwd=folder)
        try:
            _until_answered(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", process, state / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_answered(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)  # a server that listens yet has no other way to say so
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")
