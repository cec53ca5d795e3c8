"""The example notebooks, and the demo that runs them; what their cells show is compared by nbval."""

from __future__ import annotations

import getpass
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

_NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
_MACHINE = re.compile(r"/(home|root|tmp|work|Users|usr|opt)/|\b[0-9a-f]{12}\b")


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.name)
def test_a_saved_notebook_tells_nothing_about_the_machine_it_ran_on(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        texts = [
            str(output.get("text") or output.get("data", {}).get("text/plain")) for output in cell.get("outputs", ())
        ]
        for text in texts:
            assert not _MACHINE.search(text), text
            assert getpass.getuser() not in text.split(), text
        assert set(cell.metadata) <= {"tags"}


def _demo(folder: Path, *cells: str) -> subprocess.CompletedProcess[str]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, folder / "01-small.ipynb")
    command = [sys.executable, "-m", "ipysandbox.demo", "01-small.ipynb"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def test_the_demo_says_how_each_cell_went_and_writes_a_page(tmp_path: Path) -> None:
    done = _demo(
        tmp_path,
        "%load_ext ipysandbox",
        "%%sandbox\n# Add up\nprint(6 * 7)",
        "%%sandbox --allow-error\n# Ask a shell\nimport os; os.system('ls')",
        "%%sandbox --allow-error --timeout 1s\n# Go on forever\nwhile True: pass",
        "%%sandbox --allow-error\n# Fail\n{}['key']",
    )
    assert done.returncode == 0, done.stderr
    lines = [re.sub(r" {2,}", "  ", line) for line in done.stdout.splitlines()]
    assert lines[2].startswith("[ 2/5] %%sandbox Add up  ✓")
    assert "Ask a shell  ✓ refused" in lines[3]
    assert "Go on forever  ✓ limit" in lines[4]
    assert "Fail  ✓ raised KeyError" in lines[5]
    assert "42" in (tmp_path / "demo" / "small.html").read_text()


def test_the_demo_fails_at_a_cell_that_should_not(tmp_path: Path) -> None:
    done = _demo(tmp_path, "%load_ext ipysandbox", "%%sandbox\n1 / 0", "print('never')")
    assert done.returncode == 1
    assert "✗ failed" in done.stdout
    assert "ZeroDivisionError" in done.stderr
    assert "[ 3/3]" not in done.stdout
