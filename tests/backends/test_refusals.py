"""A machine or an environment that can't hold a sandbox: it is refused with the reason, and nothing runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .test_selftest import start_with

_RUN = [sys.executable, "-m", "ipysandbox", "run", "cell.py"]


def test_an_environment_without_ipykernel_is_named_with_the_command_that_mends_it(project: Path) -> None:
    answer = start_with("import sys; sys.modules['ipykernel'] = None", project)
    assert answer.startswith("REFUSED this Python can't run a kernel")
    assert "pip install ipykernel" in answer


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux's unshare, which CI installs")
def test_without_user_namespaces_what_requires_them_does_not_run_and_the_remedy_is_told(
    project: Path, short_folder: Path
) -> None:
    (project / "cell.py").write_text("open('results/ran', 'w')")
    (project / "ipysandbox.toml").write_text('require = ["files.read"]\n')
    # In a user namespace of its own, the limit on further ones is this test's to set.
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && cd "$0" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "sh", "-c", script, str(project)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(short_folder)}
    done = subprocess.run([*prefix, *_RUN], env=environ, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert "require: files.read" in done.stderr
    assert not (project / "results" / "ran").exists()
    doctor = [sys.executable, "-m", "ipysandbox", "doctor"]
    done = subprocess.run([*prefix, *doctor], env=environ, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "No sandbox can be started with this policy: require: files.read" in done.stdout
    assert "sudo sysctl -w user.max_user_namespaces=15000" in done.stdout
    # Where nothing is required in full, it runs without them.
    (project / "ipysandbox.toml").unlink()
    assert subprocess.run([*prefix, *_RUN], env=environ, capture_output=True).returncode == 0
    assert (project / "results" / "ran").exists()


def test_an_audit_trail_that_cannot_be_written_stops_the_start(project: Path, tmp_path: Path) -> None:
    (project / "cell.py").write_text("open('results/ran', 'w')")
    blocked = tmp_path / "state"
    blocked.write_text("a file where a folder should be")
    environment = {**os.environ, "XDG_STATE_HOME": str(blocked)}
    done = subprocess.run(_RUN, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 5, done.stderr
    assert str(blocked) in done.stderr
    assert not (project / "results" / "ran").exists()


def test_a_full_disk_is_an_error_with_its_reason_not_a_weaker_sandbox(project: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        prefix = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    else:
        prefix = ["unshare", "--mount"]
    (project / "cell.py").write_text("open('results/ran', 'w')")
    small = tmp_path / "small"
    small.mkdir()
    script = (
        'mount -t tmpfs -o size=64k tmpfs "$1" && head -c 65536 /dev/zero > "$1/full"; cd "$0" && shift && exec "$@"'
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(small)}
    command = [*prefix, "sh", "-c", script, str(project), str(small), *_RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert "space" in done.stderr
    assert not (project / "results" / "ran").exists()


_FILL = """
import os, sys
from ipysandbox import Sandbox
with Sandbox(project=sys.argv[1], validate=False) as box:
    print(box.run("1").status)
    state = os.environ["XDG_STATE_HOME"]
    try:
        with open(state + "/full", "wb", buffering=0) as full:
            while True: full.write(bytes(4096))
    except OSError: pass
    for _ in range(40):  # what is left in the last block of the trail may still take some
        result = box.run("open('results/ran', 'a').write('x')", timeout=20)
        if result.status != "ok": break
    print(result.status, result.error.ename if result.error else None)
    os.unlink(state + "/full")
    print(box.run("2").status)
"""


def test_a_disk_that_fills_meanwhile_refuses_the_next_cell_and_hangs_none(project: Path, tmp_path: Path) -> None:
    prefix = ["unshare", "--mount"]
    if os.geteuid() != 0:
        prefix = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    small = tmp_path / "small"
    small.mkdir()
    script = 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"'
    command = [*prefix, "sh", "-c", script, str(small), sys.executable, "-c", _FILL, str(project)]
    done = subprocess.run(command, env={**os.environ, "XDG_STATE_HOME": str(small)}, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines == ["ok", "died AuditError", "ok"], (done.stdout, done.stderr)


@pytest.mark.parametrize("inodes", [7, 9, 13, 18])
def test_a_full_runtime_folder_is_named_with_what_to_do(project: Path, tmp_path: Path, inodes: int) -> None:
    """Folders and sockets of the supervisor take inodes; they run out at its start, or at the sandbox's."""
    prefix = ["unshare", "--mount"]
    if os.geteuid() != 0:
        prefix = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    (project / "cell.py").write_text("open('results/ran', 'w')")
    small = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # pytest's own folders are too deep for a socket's path
    script = f'mount -t tmpfs -o nr_inodes={inodes},mode=700 tmpfs "$1" && cd "$0" && shift && exec "$@"'
    command = [*prefix, "sh", "-c", script, str(project), str(small), *_RUN]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(small)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    small.rmdir()
    if done.returncode == 0:
        assert inodes > 13
        return
    assert done.returncode == 5, (done.stdout, done.stderr)
    assert "No space left on device" in done.stderr
    assert "XDG_RUNTIME_DIR" in done.stderr
    assert not (project / "results" / "ran").exists()
