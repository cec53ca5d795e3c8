"""Several sandboxes write in one folder: none takes for the user's what another, still awake, has laid there."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipysandbox import Sandbox, SandboxExecutor, StartError
from ipysandbox.backends.linux import left_behind

MakeBox = Callable[..., Sandbox]
SECONDS = 60.0
LAY = """
import os
open("results/conftest.py", "w").write("evil")
os.makedirs("results/repo/.git")
os.symlink("/etc", "results/out")
open("results/laid", "w").close()
"""
AGAIN = """
import os
for was, name in (("conftest.py.untrusted", "conftest.py"), ("repo/git.untrusted", "repo/.git")):
    try: os.rename("results/" + was, "results/" + name)
    except OSError: pass
"""


def run(code: str) -> None:
    exec(code)


def lay_and_wait(code: str) -> None:
    import time
    from pathlib import Path

    exec(code)
    while not Path("results/go").exists():
        time.sleep(0.02)


@pytest.fixture
def make_pool(project: Path) -> Iterator[Callable[[], SandboxExecutor]]:
    pools: list[SandboxExecutor] = []

    def make() -> SandboxExecutor:
        pools.append(SandboxExecutor(1, project=project))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown(cancel_futures=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def at_rest(results: Path) -> bool:
    return not left_behind.others(results).awake


def armed(results: Path) -> set[str]:
    return {name for name in ("conftest.py", "repo/.git", "out") if os.path.lexists(results / name)}


@pytest.mark.parametrize("opened", ["before", "while they lie there"])
def test_an_executor_does_not_adopt_the_traps_of_another(
    project: Path, make_pool: Callable[[], SandboxExecutor], opened: str
) -> None:
    results = project / "results"
    one, other = make_pool(), make_pool()
    if opened == "before":
        one.submit(run, "1").result()
    laying = other.submit(lay_and_wait, LAY)
    until((results / "laid").exists)
    one.submit(run, "1").result()
    (results / "go").touch()
    laying.result()
    other.shutdown()
    one.submit(run, AGAIN).result()
    one.shutdown()
    assert armed(results) == set()


def test_nor_those_of_a_cell_that_runs(
    project: Path, make_box: MakeBox, make_pool: Callable[[], SandboxExecutor]
) -> None:
    results = project / "results"
    pool, box = make_pool(), make_box()
    pool.submit(run, "1").result()
    box.run("import threading, time\ndef later():\n    time.sleep(0.3)\n"
            + textwrap.indent(LAY, "    ") + "    while True: time.sleep(0.01)\n"
            "threading.Thread(target=later, daemon=True).start()")  # fmt: skip
    until((results / "laid").exists)
    pool.submit(run, "1").result()
    box.close()
    pool.submit(run, AGAIN).result()
    pool.shutdown()
    assert armed(results) == set()


def test_nor_those_of_another_notebook(project: Path, make_pool: Callable[[], SandboxExecutor]) -> None:
    """Another supervisor's, that is, which only its record speaks of."""
    results = project / "results"
    code = f"""
import sys
from ipysandbox import Sandbox
with Sandbox(project={str(project)!r}, validate=False) as box:
    box.run({LAY + "import time" + chr(10) + "while not os.path.exists('results/go'): time.sleep(0.02)"!r})
"""
    with subprocess.Popen([sys.executable, "-c", code]) as other:
        until((results / "laid").exists)
        pool = make_pool()
        pool.submit(run, "1").result()
        (results / "go").touch()
        assert other.wait(SECONDS) == 0
    pool.submit(run, AGAIN).result()
    pool.shutdown()
    assert armed(results) == set()


@pytest.mark.parametrize("ends", ["the sandbox that slept", "a new one", "an executor"])
def test_what_the_user_puts_there_while_all_sleep_is_his_whoever_ends(
    project: Path, make_box: MakeBox, make_pool: Callable[[], SandboxExecutor], ends: str
) -> None:
    results = project / "results"
    box, pool = make_box(), make_pool()
    box.run("1")
    pool.submit(run, "1").result()
    until(lambda: at_rest(results))
    (results / "report.ipynb").write_text("{}")
    (results / "data").symlink_to("/usr/share")
    if ends == "a new one":
        another = make_box()
        another.run("1")
        another.close()
    if ends == "an executor":
        pool.shutdown()
    box.close()
    pool.shutdown()
    assert {"report.ipynb", "data"} <= {path.name for path in results.iterdir()}


SWAP = """
import os, time
os.rename({name!r}, {name!r} + "_")
os.symlink({target!r}, {name!r})
while not os.path.exists("results/go"): time.sleep(0.02)
"""


@pytest.mark.parametrize("above", [False, True], ids=["the folder itself", "one above it"])
@pytest.mark.parametrize("by", ["a cell", "a task"])
def test_who_writes_around_a_writable_folder_has_nothing_else_taken_for_it(
    project: Path, tmp_path: Path, make_box: MakeBox, by: str, above: bool
) -> None:
    """What is done to a writable folder (modes, renaming, removing) is done to that one, not to what has its path."""
    private = tmp_path / "private"
    (private / "inner").mkdir(parents=True)
    (private / "inner/notes.ipynb").write_text("the user's")
    private.chmod(0o700)
    (private / "inner").chmod(0o700)
    (project / "results/run/inner").mkdir(parents=True)
    (project / "results/run/inner").chmod(0o777)
    around = make_box()
    around.start()
    inner = {"files.write": ["results/run/inner"]}
    name, target = ("results/run", private) if above else ("results/run/inner", private / "inner")
    code = SWAP.format(name=name, target=str(target))
    swapping = threading.Thread(target=around.run, args=(code,))
    if by == "a cell":
        box = make_box(overrides=inner)
        box.start()
        swapping.start()
        until(lambda: os.path.islink(project / name))
        assert box.run("open('results/run/inner/conftest.py', 'w').write('evil')").status == "ok"
        box.close()
    else:
        with SandboxExecutor(1, project=project, overrides=inner) as pool:
            assert pool.submit(len, [1]).result() == 1
            swapping.start()
            until(lambda: os.path.islink(project / name))
            with pytest.raises(StartError):
                pool.submit(len, [1]).result()
    assert (private.stat().st_mode & 0o777, (private / "inner").stat().st_mode & 0o777) == (0o700, 0o700)
    assert sorted(path.name for path in (private / "inner").iterdir()) == ["notes.ipynb"]
    (project / "results/go").touch()
    swapping.join()
    assert not [*project.rglob("conftest.py")]
