"""Credentials: nothing of what the caller knows or holds open comes along."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import PolicyError, Sandbox

#: Starts a sandbox from a process that has a secret in every place it could leak from; prints what the cell prints.
_HOLDER = """
import os, sys
from ipysandbox import Sandbox
token = os.environ["UNLIKELY_NAME"]
kept_open = [os.open(sys.argv[2], os.O_RDWR) for _ in range(5)]
for fd in kept_open: os.set_inheritable(fd, True)
high = os.dup2(kept_open[0], 1500, inheritable=True)
with Sandbox(project=sys.argv[1], validate=False) as box:
    result = box.run(sys.stdin.read())
    print(result.stdout, result.stderr, result.error)
"""


def told_by_a_holder_of_secrets(project: Path, tmp_path: Path, code: str) -> tuple[str, str]:
    token = "tok" + secrets.token_hex(12)
    secret = tmp_path / "open-file"
    secret.write_text(token)
    environment = {**os.environ, "UNLIKELY_NAME": token, "OPENAI_API_KEY": token}
    done = subprocess.run(
        [sys.executable, "-c", _HOLDER, str(project), str(secret)],
        input=code,
        capture_output=True,
        text=True,
        env=environment,
        # RLIMIT_NOFILE's soft default is 1024; the descriptor above it must be closed as well.
        preexec_fn=_many_files,
        close_fds=True,
    )
    assert "TOLD" in done.stdout, (done.stdout, done.stderr)
    return token, done.stdout


def _many_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_the_environment_is_made_for_the_sandbox(project: Path, tmp_path: Path) -> None:
    code = """
import os, glob
print("TOLD", dict(os.environ))
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try: print(path, open(path, "rb").read())
    except OSError: pass
"""
    token, told = told_by_a_holder_of_secrets(project, tmp_path, code)
    assert token not in told
    for name in ("UNLIKELY_NAME", "OPENAI_API_KEY", "JUPYTER", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"):
        assert name not in told


def test_no_descriptor_of_the_caller_is_open_inside(project: Path, tmp_path: Path) -> None:
    code = """
import os
found = []
for fd in range(0, 3000):
    try:
        link = os.readlink(f"/proc/self/fd/{fd}")
        found.append((fd, link))
        print(os.pread(fd, 4096, 0))
    except OSError: pass
print("TOLD", found)
"""
    token, told = told_by_a_holder_of_secrets(project, tmp_path, code)
    assert token not in told
    assert "open-file" not in told


def test_the_callers_memory_did_not_come_along(project: Path, tmp_path: Path) -> None:
    code = """
import os, re
found = set()
fd = os.open("/proc/self/mem", os.O_RDONLY)
for line in open("/proc/self/maps"):
    span, mode = line.split()[:2]
    start, end = (int(part, 16) for part in span.split("-"))
    if mode.startswith("r") and "[v" not in line and end - start < 1 << 28:
        try: found |= set(re.findall(b"tok[0-9a-f]{24}", os.pread(fd, end - start, start)))
        except (OSError, OverflowError): pass
print("TOLD", sorted(found))
"""
    token, told = told_by_a_holder_of_secrets(project, tmp_path, code)
    assert token not in told


def test_the_callers_keyring_is_left_behind(box: Sandbox, tell: Callable[[str], Any]) -> None:
    told = tell("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
[libc.syscall(250, 0, -3, 0, 0, 0), ctypes.get_errno()]
""")
    assert told == [-1, 1]


def test_variables_pass_by_name_and_credentials_do_not_even_then(project: Path) -> None:
    from ipysandbox.policy import resolve

    environ = {"MY_SETTING": "42", "GITHUB_TOKEN": "x", "HOME": str(Path.home())}
    effective = resolve({"environment": {"allow": ["MY_SETTING"]}}, cwd=project, environ=environ)
    assert dict(effective.environment) == {"MY_SETTING": "42"}
    assert "GITHUB_TOKEN" in effective.withheld
    with pytest.raises(PolicyError, match="GITHUB_TOKEN"):
        resolve({"environment": {"allow": ["GITHUB_TOKEN"]}}, cwd=project, environ=environ)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every process, whatever it is")
def test_the_trusted_processes_cannot_be_read_by_others_of_the_same_user(box: Sandbox) -> None:
    from ipysandbox.supervisor.spawn import Supervisor

    with pytest.raises(PermissionError):
        Path(f"/proc/{Supervisor.current().pid}/environ").read_bytes()


def test_no_core_file_can_hold_what_a_kernel_knew(project: Path, box: Sandbox) -> None:
    box.run("from resource import *\nsetrlimit(RLIMIT_CORE, getrlimit(RLIMIT_CORE)[1:] * 2)")
    assert box.run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)").status == "died"
    assert not list(project.rglob("core*"))
