"""``python -m ipysandbox.demo NOTEBOOK``: runs a notebook cell by cell, tells how each went, writes a page of it."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter

from .display import one_line, without_colours

#: No cell of a demonstration takes this long; seconds.
_CELL_SECONDS = 120
#: The last line of a failure that `--allow-error` shows begins so, and the word for it.
_OUTCOMES = {
    "LimitExceeded": "limit",
    "CheckRefused": "refused",
    "SandboxDied": "died",
    "SandboxInterrupted": "interrupted",
}
_RAISED = re.compile(r"^(\w+(?:Error|Exception|Interrupt|Exit)): ", re.MULTILINE)
_WIDTH = 60


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 1 when a cell failed that should not."""
    parser = argparse.ArgumentParser("python -m ipysandbox.demo", description="Execute a notebook in real sandboxes.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--html", type=Path, help="the page to write (demo/NAME.html)")
    args = parser.parse_args(argv)
    try:
        notebook = nbformat.read(args.notebook, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as exc:
        print(f"{args.notebook} can't be read: {exc}", file=sys.stderr)
        return 2
    page = args.html or Path("demo", re.sub(r"^\d+-", "", args.notebook.stem) + ".html")
    began = time.monotonic()
    print(f"{args.notebook}: starting a Jupyter kernel", flush=True)
    good = _execute(notebook, args.notebook.parent)
    page.parent.mkdir(parents=True, exist_ok=True)
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]
    page.write_text(exporter.from_notebook_node(notebook)[0], encoding="utf-8")
    print(f"{'Done' if good else 'Failed'} in {time.monotonic() - began:.1f} s. The executed notebook: {page}")
    return 0 if good else 1


def _execute(notebook: Any, folder: Path) -> bool:
    """Run all cells, printing as they go; False at the first that failed and should not."""
    cells = [(index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    client = NotebookClient(notebook, timeout=_CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():
        for number, (index, cell) in enumerate(cells, start=1):
            label = f"[{number:2}/{len(cells)}] {_title(cell.source):{_WIDTH}}"
            print(label, end=" ", flush=True)
            began = time.monotonic()
            try:
                client.execute_cell(cell, index)
            except (CellExecutionError, DeadKernelError) as exc:
                print("✗ failed", flush=True)
                print(without_colours(str(exc)), file=sys.stderr)
                return False
            print(f"{_outcome(cell):28} {time.monotonic() - began:5.1f} s", flush=True)
    return True


def _title(source: str) -> str:
    """The first line that tells what a cell is about: its comment, else its first line of code."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    magic = lines[0].split(" -")[0] if lines and lines[0].startswith("%%") else ""
    code = lines[1:] if magic and len(lines) > 1 else lines
    return one_line(f"{magic} {code[0].lstrip('# ') if code else ''}".strip(), _WIDTH)


def _outcome(cell: Any) -> str:
    for output in cell.outputs:
        if output.output_type == "error":
            return f"✓ {_OUTCOMES.get(output.ename, 'raised ' + one_line(output.evalue.split(':')[0], 30))}"
        if output.output_type != "stream" or output.name != "stderr":
            continue
        text = without_colours(output.text)
        for name, word in _OUTCOMES.items():
            if re.search(f"^{name}: ", text, re.MULTILINE):
                return f"✓ {word}"
        raised = _RAISED.findall(text)
        if raised:
            return f"✓ raised {raised[-1]}"
    return "✓"


if __name__ == "__main__":
    sys.exit(main())
