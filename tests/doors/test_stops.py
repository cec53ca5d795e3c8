"""Programs that execute notebooks stop where a sandboxed cell failed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def _executed(folder: Path, *cells: str) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    try:
        client.execute()
    except CellExecutionError as exc:
        notebook.metadata["stopped"] = str(exc)
    return notebook


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%%sandbox\n{}['key']", "KeyError"),
        ("%%sandbox --timeout 1s\nwhile True: pass", "limit on time"),
        ("%%sandbox\nimport os; os.system('ls')", "refused"),
        ("%%sandbox --policy missing.toml\n1", "does not exist"),
    ],
    ids=["raised", "limit", "refused", "policy"],
)
def test_nbclient_stops_at_it(tmp_path: Path, cell: str, told: str) -> None:
    notebook = _executed(tmp_path, "%load_ext ipysandbox", cell, "print('went on')")
    assert told in notebook.metadata["stopped"]
    assert notebook.cells[2].outputs == []


def test_an_executed_notebook_is_valid_and_holds_the_outputs(tmp_path: Path) -> None:
    notebook = _executed(
        tmp_path, "%load_ext ipysandbox", "%%sandbox\nprint('x'); 1", "%%sandbox --allow-error\n1 / 0", "print('on')"
    )
    nbformat.validate(notebook)
    assert "stopped" not in notebook.metadata
    assert [output.output_type for output in notebook.cells[1].outputs] == ["stream", "display_data"]
    assert notebook.cells[3].outputs[0].text == "on\n"
