"""The self-test notices a missing layer: each is taken away in turn, in a real zygote, and nothing may start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import Sandbox
from ipysandbox.audit import iter_records

from ..sabotage import answers_to, check, start_with_each

_MODULES = "decisions, landlock, launch, libc, rootfs, seccomp"

#: Statements run in the zygote before it forks, and what the refusal must speak of. There is no other way to turn a
#: layer off: production code reads no variable and no policy for it.
BROKEN = {
    "seccomp": ("seccomp.install = lambda program, listener=False: None", "no system-call filter is active"),
    "seccomp lets a call through": (
        "decisions.REFUSED -= {'io_uring_setup'}; decisions.ALLOWED |= {'io_uring_setup'}",
        "calls through a ring",
    ),
    "seccomp lets listeners be": (
        "rules = seccomp.rules; seccomp.rules = lambda **o: {k: v for k, v in rules(**o).items() if k != 'seccomp'}; "
        "decisions.ALLOWED |= {'seccomp'}",
        "a filter with a listener",
    ),
    "seccomp lets sockets tell of the host": (
        "seccomp._ioctl_rule = lambda deny, **_: [seccomp._ALLOW]",
        "asking a socket for the host's devices was not refused",
    ),
    "user notification": (
        "seccomp.program = functools.partial(seccomp.program, notify=False)",
        "do not reach the audit trail",
    ),
    "capabilities": ("libc.drop_capabilities = lambda: None", "CapEff is"),
    "locks of user 0": (
        "prctl = libc.prctl; libc.prctl = lambda option, *rest: 0 if option == 28 else prctl(option, *rest)",
        "user 0",
    ),
    "no_new_privs": (
        "prctl = libc.prctl; libc.prctl = lambda option, *rest: 0 if option == 38 else prctl(option, *rest)",
        "file rules",  # the kernel takes no Landlock domain then, nor a filter
    ),
    "not dumpable": (
        "prctl = libc.prctl; libc.prctl = lambda *a: prctl(4, 1) if a == (4, 0) else prctl(*a)",
        "memory of the first process",
    ),
    "session keyring": (
        "syscall = libc.syscall; libc.syscall = lambda name, *rest: "
        "7 if (name, *rest[:1]) == ('keyctl', 1) else syscall(name, *rest)",
        "session keyring",
    ),
    "network namespace": ("launch.ALL_NAMESPACES &= ~libc.CLONE_NEWNET", "network"),
    "network namespace, loopback given up": (
        "launch.ALL_NAMESPACES &= ~libc.CLONE_NEWNET; launch._loopback_up = lambda: None",
        "a connection to the host was not refused",
    ),
    "network namespace, left to others": (
        "launch.ALL_NAMESPACES &= ~libc.CLONE_NEWNET; launch._loopback_up = lambda: None; "
        "launch.selftest._refusals = lambda *a: None",
        "the net namespace is the host's",
    ),
    "process namespace": ("launch.ALL_NAMESPACES &= ~libc.CLONE_NEWPID", "proc"),
    "ipc namespace": ("launch.ALL_NAMESPACES &= ~libc.CLONE_NEWIPC", "the ipc namespace is the host's"),
    "uts namespace": (
        "launch.ALL_NAMESPACES &= ~libc.CLONE_NEWUTS; libc.sethostname = lambda name: None",
        "the uts namespace is the host's",
    ),
    "cgroup namespace": ("launch.ALL_NAMESPACES &= ~libc.CLONE_NEWCGROUP", "the cgroup namespace is the host's"),
    "own root": ("rootfs._enter = lambda: None", ""),
    "read-only sources": ("libc.mount_setattr = lambda *a, **k: 0", ""),
    "read-only root and /proc": (
        "mount = libc.mount; libc.mount = lambda s, t, k, flags=0, data=None: "
        "None if flags & libc.MS_REMOUNT else mount(s, t, k, flags, data)",
        "/ can be written",
    ),
    "masks over /proc": (
        "where = '/tmp/proc'; "
        "rootfs._proc = lambda **_: (os.makedirs(where, exist_ok=True), libc.mount('proc', where, 'proc', 14))",
        "/proc/sys can be written",
    ),
    "overlay": (
        "rootfs._overlay = lambda item, trees, n: rootfs._attach(trees[item.where], '/tmp' + item.where)",
        "is not of its own (overlay)",
    ),
    "hidden names": (
        "overlay = rootfs._overlay; "
        "rootfs._overlay = lambda item, *rest: overlay(dataclasses.replace(item, hidden=()), *rest)",
        ".env is not hidden",
    ),
    "covers": ("rootfs._cover = lambda paths: None", "results/.env is not covered"),
    "sized scratch space": (
        "build = rootfs.build; rootfs.build = lambda plan, trees: "
        "build(dataclasses.replace(plan, scratch_bytes=plan.scratch_bytes * 2), trees)",
        "/tmp has more space than the policy allows",
    ),
    "Landlock": ("landlock.restrict = lambda rules, level: None", "a file that no rule opens"),
    "Landlock refuses": ("landlock.restrict = lambda rules, level: libc.unshare(-1)", "file rules"),
    "rlimits": ("launch.resource.setrlimit = lambda kind, values: None", "the limit DATA is not set"),
    "affinity": ("os.sched_setaffinity = lambda pid, cpus: None", "more processors"),
    "loopback": ("launch._loopback_up = lambda: None", "connecting to itself"),
}
if os.geteuid() == 0:
    BROKEN["user of nobody's"] = ("os.setresuid = os.setresgid = lambda *ids: None", "")
else:
    # As root the mounts would be the machine's.
    BROKEN["mount namespace"] = ("launch.ALL_NAMESPACES &= ~libc.CLONE_NEWNS", "")


def start_with(sabotage: str, project: Path) -> str:
    """What became of a start in whose zygote ``sabotage`` was run first."""
    return start_with_each([sabotage], project, modules=_MODULES)[0]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    project = tmp_path_factory.mktemp("broken") / "study"
    for name in (".env", "results/.env", "pyproject.toml"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret = 1\n")
    return answers_to(BROKEN, project, modules=_MODULES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", sorted(BROKEN))
def test_without_one_layer_nothing_starts(answers: dict[str, str], layer: str) -> None:
    check(answers[layer], BROKEN[layer][1])


def test_with_all_layers_it_starts(answers: dict[str, str]) -> None:
    assert answers["nothing"] == "STARTED"


#: Has the supervisor break what its zygote holds by, as no policy and no variable can.
_RECORDED = """
import sys
from ipysandbox import Sandbox, SandboxError, bootstrap
command = bootstrap.command
broken = "from ipysandbox.backends.linux import landlock; landlock.restrict = lambda rules, level: None; "
inner = "from ipysandbox import bootstrap; c = bootstrap.command; "
inner += f"bootstrap.command = lambda code, a: c({broken!r} + code, a); "
bootstrap.command = lambda code, arguments: command(inner + code, arguments)
try:
    Sandbox(name=sys.argv[2], project=sys.argv[1]).start()
except SandboxError as exc:
    print(exc.message)
"""


def test_a_self_test_that_fails_is_in_the_audit_trail(project: Path) -> None:
    name = f"broken-{os.getpid()}"
    done = subprocess.run([sys.executable, "-c", _RECORDED, str(project), name], capture_output=True, text=True)
    assert "a file that no rule opens (Landlock) was not refused" in done.stdout, done.stderr
    [record] = [row for row in iter_records(sandbox=name) if row["action"] == "sandbox.refused"]
    assert "Landlock" in record["details"]["reason"]


def test_a_folder_that_lies_right_at_a_private_one_is_no_failure(make_box: Callable[..., Sandbox]) -> None:
    box = make_box(policy={"files": {"read": [".", "/var/tmp"]}})
    assert box.run("print('runs')").stdout == "runs\n"
