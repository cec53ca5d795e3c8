"""Where sandboxes are forked from: what siblings share and don't, which libraries are loaded before, and when anew."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox, bootstrap
from ipysandbox.backends.linux.processes import children, tree
from ipysandbox.supervisor.spawn import Supervisor

MakeBox = Callable[..., Sandbox]
#: A library is tried, and a zygote started, within this on a busy machine.
_SECONDS = 60.0
_UNIQUE = """
import multiprocessing, os, random, tempfile, uuid, numpy
(random.random(), float(numpy.random.rand()), float(numpy.random.default_rng().random()),
 str(uuid.uuid4()), str(uuid.uuid1()),
 multiprocessing.current_process().authkey.hex(), next(tempfile._get_candidate_names()))
"""
_SHARED = "import sys\n(hash('x'), [line.split('-')[0] for line in open('/proc/self/maps') if 'libc.so' in line][0])"
_SHELL = """
import builtins, inspect, os, sys
shell = get_ipython()
(os.getcwd(), [str(folder) for folder in _dh], shell.starting_dir, shell.home_dir == os.environ["HOME"],
 shell.profile_dir.location.startswith(shell.ipython_dir), shell.ipython_dir == os.environ["IPYTHONDIR"],
 shell.kernel.shell is shell, shell.parent is shell.kernel, shell.kernel.user_ns is shell.user_ns,
 sys.modules["__main__"].__dict__ is globals() and inspect.ismodule(sys.modules["__main__"]),
 type(shell).__name__, os.environ["TERM"], sys.ps1, builtins.__IPYTHON__)
"""
#: What a library could take for a notebook's, before and after the zygote has made a shell; then whether a kernel with
#: settings of its own, or with the zygote's, is given it.
_MADE_AHEAD = """
import builtins, json, os, sys, types
from IPython import get_ipython
from traitlets.config import Config
from ipysandbox.guest import shared_shell

def seen():
    return [get_ipython() is None, hasattr(sys, "ps1"), hasattr(builtins, "__IPYTHON__"), id(sys.modules["__main__"]),
            sorted(os.environ.items()), sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))]

before = seen()
config = Config()
config.HistoryManager.hist_file = ":memory:"
shared_shell.make(config)
after = seen()
app = types.SimpleNamespace(profile_dir=None, ipython_dir="/", config=Config(config))
app.config.InteractiveShell.ast_node_interactivity = "all"
other = shared_shell.adopt(app)
app.config = Config(config)
app.config.Session.key = b"x"
print(json.dumps([before, after, other, shared_shell.adopt(app) is get_ipython().user_ns]))
"""
_OWN = "import logging, sys, tempfile\n(sys.argv, os.getcwd(), tempfile.gettempdir(), logging.getLogger().level)"


def _until(condition: Callable[[], Any]) -> Any:
    latest = time.monotonic() + _SECONDS
    while not (found := condition()):
        assert time.monotonic() < latest, "nothing came"
        time.sleep(0.02)
    return found


def _zygotes() -> dict[int, str]:
    """Those of this process's supervisor, and the libraries of each."""
    found = {}
    for pid in children(Supervisor.current().pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if any("zygote import main" in word for word in words):
            found[pid] = ",".join(filter(None, words[-3:-1]))
    return found


def test_siblings_differ_in_what_is_drawn_and_share_what_is_documented(make_box: MakeBox, project: Path) -> None:
    forked = [make_box() for _ in range(2)]
    own = make_box(overrides={"start.mode": "exec"})
    drawn = [box.run(_UNIQUE).value for box in (*forked, own)]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == len(values), values
    (seed, layout), sibling, alone = [box.run(_SHARED).value for box in (*forked, own)]
    assert (seed, layout) == tuple(sibling)
    assert seed != alone[0]
    assert layout != alone[1]
    for box in (*forked, own):
        argv, folder, temporary, level = box.run("import os\n" + _OWN).value
        assert (len(argv), folder, level) == (1, str(project), 30)
        assert temporary == box.run("os.environ['TMPDIR']").value


def test_the_shell_that_all_begin_with_is_each_ones_own(make_box: MakeBox, project: Path) -> None:
    boxes = [make_box(), make_box(overrides={"start.mode": "exec"})]
    facts = [box.run(_SHELL).value for box in boxes]
    folder, rest = str(project), (True, True, True, True, True, True, True, "ZMQInteractiveShell", "xterm-color")
    for seen in facts:
        assert seen == (folder, [folder], folder, *rest, "In : ", True)
    for box in boxes:
        assert box.run("a = 1\n%history").stdout == f"\n{_SHELL.strip()}\na = 1\n%history\n"
    assert boxes[0].run("%cd -q ~\n%pwd").value == boxes[0].run("import os; os.environ['HOME']").value


def test_a_shell_made_ahead_is_seen_by_nobody_and_taken_only_under_its_own_settings() -> None:
    done = subprocess.run([sys.executable, "-c", _MADE_AHEAD], stdout=subprocess.PIPE, text=True, check=True)
    before, after, other, taken = json.loads(done.stdout)
    assert after == before
    assert before[:3] == [True, False, False]
    assert (other, taken) == (None, True)


def test_a_sandbox_with_a_process_of_its_own_to_be_forked_from_holds_the_same(make_box: MakeBox) -> None:
    forked, before = make_box(), _zygotes()
    own = make_box(overrides={"start.mode": "exec", "start.pool": 0})
    assert own.status()["guarantees"] == forked.status()["guarantees"]
    assert own.run("import os\nos.path.exists('.env') or os.path.exists('/etc/shadow')").value is False
    assert len(_zygotes()) == len(before) + 1
    own.close()
    _until(lambda: _zygotes().keys() == before.keys())
    assert forked.run("1").status == "ok"


def test_what_can_not_be_preloaded_is_told_and_costs_nothing_else(make_box: MakeBox, project: Path) -> None:
    pytest.importorskip("polars", reason="polars, which starts threads when it is imported, is not installed")
    trap = "import os\nopen(os.environ.get('TMPDIR', '/tmp') + '/ran-in-the-zygote', 'w')\n"
    (project / "ours.py").write_text(trap)
    # ours: the project's own. polars: threads. colorsys stands for what is loaded well.
    box = make_box(overrides={"start.preload": ["ours", "polars", "colorsys"], "start.pool": 0})
    start = _until(lambda: (found := box.status()["start"])["not_loaded"].keys() == {"ours", "polars"} and found)
    assert start["not_loaded"]["ours"] == "it is not installed"
    assert "thread" in start["not_loaded"]["polars"] or "fork" in start["not_loaded"]["polars"]
    probe = "import sys\n[name for name in ('ours', 'polars', 'colorsys', 'pandas') if name in sys.modules]"

    def loaded() -> bool:
        with Sandbox(project=project, overrides={"start.preload": ["ours", "polars", "colorsys"]}) as next_one:
            return bool(next_one.run(probe).value == ["colorsys"])

    _until(loaded)
    assert not Path("/tmp/ran-in-the-zygote").exists()
    assert box.run("import ours").status == "ok"


_LOAD = """
import importlib.util, json, sys
from ipysandbox.backends.linux import preload
class Finder:  # as a development install puts one there, which leads to a project
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, argv[0] + "/evil.py") if name == "evil" else None
sys.meta_path.insert(0, Finder())
sys.path.append(argv[1])
tried = preload.Trial("starts_threads", ())
verdicts = [preload.load("evil").problem, preload.load("asks_for_evil").problem, tried.verdict(), preload.threads()]
verdicts += preload.load("starts_threads")
import evil  # the children have all of it again
print(json.dumps([*verdicts, preload.why_unfit(), evil.__file__]))
"""


def test_no_code_of_a_project_is_preloaded_and_no_thread_is_forked_over(tmp_path: Path) -> None:
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    (tmp_path / "evil.py").write_text("")
    (libraries / "asks_for_evil.py").write_text("import evil\n")
    (libraries / "starts_threads.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    command = bootstrap.command(_LOAD, [str(tmp_path), str(libraries)])
    evil, asks, tried, threads, problem, spoiled, unfit, file = json.loads(subprocess.check_output(command))
    assert evil == "it is not installed"
    assert "evil" in asks
    assert tried == problem == unfit
    assert "starts threads" in problem
    assert (threads, spoiled, file) == (1, True, str(tmp_path / "evil.py"))


def test_packages_that_change_on_disk_are_met_by_the_next_sandbox(make_box: MakeBox) -> None:
    folder = Path(next(path for path in sys.path if path.endswith("site-packages") and path in site.getsitepackages()))
    if not os.access(folder, os.W_OK):
        pytest.skip(f"{folder} can't be written to, so no package can be installed")
    old = make_box(overrides={"start.pool": 0})
    before = _zygotes()
    [own] = [zygote for zygote in before if old.status()["pid"] in tree(zygote)]
    package = folder / "zz_ipysandbox_test.pth"
    try:
        package.write_text("\n")
        new = make_box(overrides={"start.pool": 0})
        assert _zygotes().keys() - before.keys()
        assert [box.run("1").status for box in (old, new)] == ["ok", "ok"]
        old.close()
        _until(lambda: own not in _zygotes())  # an old one ends with its last sandbox
    finally:
        package.unlink()


def test_a_preloaded_library_has_the_projects_settings_and_its_own_places(make_box: MakeBox, project: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (project / "matplotlibrc").write_text("lines.linewidth: 7\n")
    box = make_box(overrides={"start.pool": 0})
    code = "import matplotlib, matplotlib.pyplot as plt\n(plt.rcParams['lines.linewidth'], matplotlib.get_configdir())"
    width, place = box.run(code).value
    assert (width, place) == (7.0, box.run("import os\nos.environ['MPLCONFIGDIR']").value)
    assert "image/png" in box.run("plt.plot([1, 2])").outputs[-1]["data"]
