"""Sandboxes that wait ready are nobody's, are as good as new ones when they are taken, and leave nothing behind."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox
from ipysandbox.audit import tail
from ipysandbox.backends.linux.processes import children, tree
from ipysandbox.display_tables import status_text
from ipysandbox.supervisor.spawn import Supervisor

MakeBox = Callable[..., Sandbox]
#: On a busy machine.
_SECONDS = 60.0


@pytest.fixture
def make_box(make_box: MakeBox) -> MakeBox:
    """With one that waits, which the other tests' settings turn off."""
    return lambda **options: make_box(**options | {"overrides": {"start.pool": 1, **options.get("overrides", {})}})


def _until(condition: Callable[[], Any]) -> Any:
    """select is the clock: what is waited for tells nobody."""
    latest = time.monotonic() + _SECONDS
    while not (found := condition()):
        assert time.monotonic() < latest, "nothing came"
        select.select([], [], [], 0.02)
    return found


def _one_waits(box: Sandbox) -> None:
    """For the next sandbox of the policy of ``box``."""
    assert _until(lambda: box.status()["start"]["pool"]["ready"]) == 1


def _was_taken(box: Sandbox) -> bool:
    """Whether its last start, by the audit trail, took one that waited."""
    starts = [record for record in tail(200, sandbox=box.name) if record["action"] == "sandbox.start"]
    newest = max(starts, key=lambda record: str(record["time"]))
    return bool(newest["details"]["pooled"])


def _inits() -> set[int]:
    """First processes of every sandbox of this process's supervisor, those that wait included."""
    zygotes = children(Supervisor.current().pid)
    return {init for zygote in zygotes for monitor in children(zygote) for init in children(monitor)}


def test_one_that_waits_is_nobodys_until_it_is_taken(make_box: MakeBox) -> None:
    box = make_box()
    box.run("mine = 1")
    assert not _was_taken(box)
    _one_waits(box)
    state = Supervisor.current().request("GET", "/state")
    assert 0 < state["pool"]["memory"] < 400 << 20
    assert re.search(r"next start +fork +1 ready, at most [\d.]+ MiB", status_text(box.status()))
    assert all(sandbox["name"] != "pool" for sandbox in state["sandboxes"])
    assert not [record for record in tail(200) if record["sandbox"] == "pool"]
    other = make_box()
    assert _was_taken(other)
    assert other.run("'mine' in globals()").value is False
    # What waits runs not at all, or one could not tell whether something has run in it.
    assert other.run("get_ipython().kernel.iopub_thread._event_pipe_gc_task.done()").value is True
    assert other.run("import sys; sys.path.index('') >= 0, open('data/x.csv').read(1)").value == (True, "a")
    _one_waits(box)
    box.restart()
    assert _was_taken(box)
    assert box.run("'mine' in globals()").value is False
    _one_waits(box)
    assert not _was_taken(make_box(overrides={"limits.memory": "1GiB"}))


def _new_secret(project: Path) -> None:
    (project / "late.pem").write_text("secret-of-the-project")


def _secret_in_results(project: Path) -> None:
    (project / "results/.env").write_text("TOKEN=secret-of-the-project")


def _notebook_in_results(project: Path) -> None:
    (project / "results/mine.ipynb").write_text("{}")


def _other_folder(project: Path) -> None:
    project.rename(project.with_name("old"))
    for name in ("data", "results", ".git"):
        (project / name).mkdir(parents=True)
    (project / "data/x.csv").write_text("another")


def _other_results(project: Path) -> None:
    (project / "results").rename(project / "kept")
    (project / "results").mkdir()


@pytest.mark.parametrize(
    "change", [_new_secret, _secret_in_results, _notebook_in_results, _other_folder, _other_results]
)
def test_what_changed_meanwhile_holds_as_in_one_that_starts_now(
    change: Callable[[Path], None], project: Path, make_box: MakeBox
) -> None:
    (project / "results").mkdir()
    box = make_box()
    _one_waits(box)
    change(project)
    other = make_box()
    assert not _was_taken(other)
    seen = other.run("""
import os
open('results/made', 'w').write('x')
secret = os.path.exists('results/.env') and open('results/.env').read()
[os.path.exists('late.pem'), bool(secret), open('data/x.csv').read(1)]
""")
    assert seen.status == "ok" or "PermissionError" in str(seen.error)
    if seen.status == "ok":
        assert seen.value == [False, False, "a"]
    assert (project / "results/made").exists()
    assert not seen.notices, "something of the user's was disarmed"
    mine = project / "results/mine.ipynb"
    assert mine.exists() == (change is _notebook_in_results)


def test_ordinary_files_may_change_and_are_seen_as_they_are(project: Path, make_box: MakeBox) -> None:
    box = make_box()
    _one_waits(box)
    (project / "data/x.csv").write_text("changed")
    (project / "results/seen.txt").write_text("x")
    other = make_box()
    assert _was_taken(other)
    result = other.run("open('results/mine.txt', 'w').write('x'); open('data/x.csv').read()")
    assert (result.value, result.written) == ("changed", ("results/mine.txt",))


def test_one_that_ends_by_itself_is_replaced_in_silence(make_box: MakeBox) -> None:
    box = make_box()
    _one_waits(box)
    waiting = _inits() - {sandbox["pid"] for sandbox in Supervisor.current().request("GET", "/state")["sandboxes"]}
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    _until(lambda: not waiting & _inits())
    _one_waits(box)
    result = box.run("1")
    assert (result.status, result.notices) == ("ok", ())


def test_none_waits_where_the_policy_says_so(make_box: MakeBox, project: Path) -> None:
    with_one = make_box()
    without = make_box(overrides={"start.pool": 0, "limits.memory": "1GiB"})
    _one_waits(with_one)  # whose turn came after the other's
    assert without.status()["start"]["pool"]["ready"] == 0
    code = "import sys; from ipysandbox.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "policy", "show"], cwd=project, capture_output=True, text=True)
    assert "start.pool" in done.stdout


_HOST = """
import sys
from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor
box = Sandbox(project=sys.argv[1], overrides={"start.pool": 1})
box.run("1")
print(Supervisor.current().pid, flush=True)
sys.stdin.read()
"""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("victim", ["supervisor", "nobody"])
def test_nothing_is_left_when_it_ends_while_one_is_made(project: Path, short_folder: Path, victim: str) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(project)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(short_folder)},
    )
    assert host.stdin is not None
    assert host.stdout is not None
    supervisor = int(host.stdout.readline())
    # Its folder is there, so it is being made.
    _until(lambda: [*short_folder.glob("ipysandbox/*/p*")])
    below = tree(host.pid)
    if victim == "nobody":
        host.stdin.close()
    else:
        os.kill(supervisor, signal.SIGKILL)
        host.stdin.close()
    host.wait()
    host.stdout.close()
    _until(lambda: not [pid for pid in below if _lives(pid)])
    _until(lambda: not os.listdir(short_folder))
