"""A file system that stalls holds up nobody: it is named, or left out where it is not needed. The mounts are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ipysandbox import reach

_STALLED = Path(__file__).parents[1] / "stalled.py"
#: What a first cell, or doctor, may take longer than the same without a stalled file system; seconds.
_MOST_LATER = 3.0
_CELL = "print('ran')"
#: autofs can be mounted by the host's root only; FUSE by everybody, in a user namespace of their own.
# Everybody may use the device where udev has set it up; on a machine without udev it may be root's alone.
KINDS = [*(["fuse"] if os.access("/dev/fuse", os.R_OK | os.W_OK) else []), *(["autofs"] if os.geteuid() == 0 else [])]


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str
    seconds: float


class Place(NamedTuple):
    """A home with a project in it, and a folder beside them where something stalls."""

    home: Path
    project: Path
    stalled: Path
    kind: str

    def run(self, *command: str, at: Path | None = None, **environ: str) -> Ran:
        """Run ``command`` in the project, with ``at`` (else ``stalled``) stalled."""
        where = at or self.stalled
        inside = [sys.executable, str(_STALLED), f"{self.kind}:{where}", "--"]
        return _timed([*inside, *command], self.project, self.environ(**environ))

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "JUPYTER_"))}
        return {**kept, "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home), **more}


def _timed(command: list[str], cwd: Path, environ: dict[str, str]) -> Ran:
    began = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=100)
    return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, short_folder: Path) -> Place:
    home, project, stalled = short_folder / "home", short_folder / "home" / "study", short_folder / "remote"
    for folder in (project, stalled):
        folder.mkdir(parents=True)
    short_folder.chmod(0o755)
    home.chmod(0o700)
    (project / "cell.py").write_text(_CELL)
    (project / "pyproject.toml").write_text("[project]\nname = 'study'\n")
    return Place(home, project, stalled, request.param)


@pytest.fixture
def in_time(place: Place) -> Callable[[Ran], None]:
    """Asserts that a run took no longer than the same without a stalled file system (twice that: other tests run
    meanwhile), and what is allowed on top."""
    plain = _timed([sys.executable, str(_STALLED), "--", *_run()], place.project, place.environ())
    assert plain.code == 0, plain

    def check(ran: Ran) -> None:
        assert ran.seconds < 2 * plain.seconds + _MOST_LATER, (ran, plain)

    return check


def _run(*options: str) -> list[str]:
    return [sys.executable, "-m", "ipysandbox", "run", *options, "cell.py"]


InTime = Callable[[Ran], None]


def test_a_stalled_folder_below_the_home_is_of_no_concern(place: Place, in_time: InTime) -> None:
    (place.home / "mnt").mkdir()
    ran = place.run(*_run(), at=place.home / "mnt", PATH=f"{place.home}/mnt/bin:{os.environ['PATH']}")
    in_time(ran)
    assert (ran.code, ran.stdout) == (0, "ran\n"), ran


def test_nothing_walks_a_home_or_the_root(place: Place, in_time: InTime) -> None:
    (place.home / "mnt").mkdir()
    code = (
        "import os, sys\nfrom ipysandbox import Sandbox\nos.chdir(sys.argv[1])\n"
        "with Sandbox() as box: print(box.run('6 * 7').value)"
    )
    for folder in (str(place.home), "/"):
        ran = place.run(sys.executable, "-c", code, folder, at=place.home / "mnt")
        in_time(ran)
        assert (ran.code, ran.stdout) == (0, "42\n"), ran


def test_a_stalled_mount_inside_the_project_is_not_waited_for(place: Place, in_time: InTime) -> None:
    (place.project / "data").mkdir()
    (place.project / "cell.py").write_text("import os; print(os.listdir('data'))")
    ran = place.run(*_run(), at=place.project / "data")
    in_time(ran)
    if os.geteuid() == 0:
        assert (ran.code, ran.stdout) == (0, "[]\n"), ran
    else:
        assert ran.code == 5, ran
        assert f"at {place.project}/data" in ran.stderr


def test_a_folder_around_a_mount_is_shown_without_it_or_refused_by_name(place: Place) -> None:
    for name in ("data", "src"):
        (place.project / name).mkdir()
    (place.project / "data" / "a.csv").write_text("a\n")
    (place.project / "cell.py").write_text("import os; print(os.path.exists('data/a.csv'), os.listdir('src'))")
    (place.project / "ipysandbox.toml").write_text('[files]\nread = ["data"]\n')
    ran = place.run(*_run(), at=place.project / "src")
    assert (ran.code, ran.stdout) == (1, ""), ran  # src isn't there
    assert "FileNotFoundError" in ran.stderr


def test_a_stalled_entry_of_sys_path_is_left_out(place: Place, in_time: InTime) -> None:
    code = (
        "import sys; from ipysandbox import Sandbox; sys.path.append(sys.argv[1])\n"
        "with Sandbox() as box: print(box.run('6 * 7').value)"
    )
    ran = place.run(sys.executable, "-c", code, f"{place.stalled}/lib/python3/site-packages")
    in_time(ran)
    assert (ran.code, ran.stdout) == (0, "42\n"), ran


def test_a_stalled_runtime_folder_is_not_used(place: Place, in_time: InTime) -> None:
    ran = place.run(*_run(), XDG_RUNTIME_DIR=str(place.stalled))
    in_time(ran)
    assert (ran.code, ran.stdout) == (0, "ran\n"), ran


@pytest.mark.parametrize(
    "variable", ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "JUPYTER_CONFIG_DIR"], ids=lambda name: name.lower()
)
def test_a_stalled_home_is_named_and_nothing_runs(place: Place, in_time: InTime, variable: str) -> None:
    ran = place.run(*_run(), **{variable: f"{place.stalled}/me"})
    in_time(ran)
    assert ran.code == 5, ran
    assert f"{place.stalled}/me" in ran.stderr
    assert "does not answer" in ran.stderr
    assert "ran" not in ran.stdout


@pytest.mark.parametrize("files", ['read = ["{0}/in"]', 'write = ["{0}/out"]'])
def test_a_stalled_folder_that_the_policy_names_is_named(place: Place, in_time: InTime, files: str) -> None:
    policy = place.home / ".jupyter/mine.toml"
    policy.parent.mkdir()
    policy.write_text("[files]\n" + files.format(place.stalled))
    ran = place.run(*_run("--policy", str(policy)))
    in_time(ran)
    assert ran.code == 5, ran
    assert f"{place.stalled}" in ran.stderr
    assert "does not answer" in ran.stderr


def test_a_stalled_project_is_named(place: Place, in_time: InTime) -> None:
    code = (
        "import sys; from ipysandbox import Sandbox, StartError\n"
        "try: Sandbox(project=sys.argv[1]).start()\nexcept StartError as exc: print(exc)"
    )
    (place.home / "link").symlink_to(place.stalled / "study")
    ran = place.run(sys.executable, "-c", code, f"{place.home}/link")
    in_time(ran)
    assert ran.code == 0, ran
    assert f"{place.home}/link does not answer" in ran.stdout


def test_doctor_answers_and_names_what_stalls(place: Place) -> None:
    doctor = [sys.executable, "-m", "ipysandbox", "doctor", "--json"]
    plain = _timed([sys.executable, str(_STALLED), "--", *doctor], place.project, place.environ())
    assert plain.code == 0, plain
    entry = f"{place.stalled}/bin"
    ran = place.run(*doctor, PATH=f"{entry}:{os.environ['PATH']}")
    assert ran.seconds < 2 * plain.seconds + _MOST_LATER, (ran, plain)
    report = json.loads(ran.stdout)
    assert (ran.code, report["stalled"]) == (0, [entry]), ran
    ran = place.run(*doctor, HOME=f"{place.stalled}/me")
    assert ran.seconds < 2 * plain.seconds + _MOST_LATER, (ran, plain)
    report = json.loads(ran.stdout)
    assert (ran.code, report["stalled"]) == (1, [f"{place.stalled}/me"]), ran
    assert f"{place.stalled}/me does not answer" in report["policy"]["problem"]


def test_who_asks_is_gone_afterwards(place: Place) -> None:
    code = (
        "import subprocess, sys; from ipysandbox import reach\n"
        "assert reach.stalled([sys.argv[1], '/etc/passwd', '/no/such']) == [sys.argv[1]]\n"
        "children = open('/proc/thread-self/children').read().split()\n"
        "assert children == [], children\nassert reach._abandoned == []\nprint('none')"
    )
    ran = place.run(sys.executable, "-c", code, f"{place.stalled}/x")
    assert ran.stdout == "none\n", ran


def test_paths_on_local_disks_are_not_asked(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    paths = [tmp_path / "nothing", "/etc/passwd", "/root/x", loop, tmp_path / ".." / "x", "/proc/self/fd/0"]
    mounts = reach._mounts()
    assert not [path for path in paths if reach._is_remote(str(path), mounts)]
    assert reach.stalled(paths) == []


def test_who_closes_descriptors_that_are_not_theirs_is_told_the_mounts_all_the_same() -> None:
    before = dict(reach._mounts())
    os.close(reach._table._fd)
    assert dict(reach._mounts()) == before


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/net/x/y", True),
        ("/nets", False),
        ("/net/local/y", True),  # the way leads over /net first
        ("/home/me/far/deep", True),
        ("/usr/../net", True),
        ("/home/me/./near", False),
    ],
)
def test_which_paths_are_asked_is_told_by_the_table_of_mounts_alone(path: str, remote: bool) -> None:
    mounts = {"/net": "autofs", "/net/local": "ext4", "/home/me/far": "fuse.sshfs", "/home": "xfs"}
    assert reach._is_remote(path, mounts) is remote
