"""For each thing that a machine can lack, the cause is told apart and the remedy is one that a person can paste."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ipysandbox.backends.linux import remedies
from ipysandbox.backends.linux.cgroup import Facts
from ipysandbox.backends.linux.machine import Machine
from ipysandbox.backends.linux.remedies import Surroundings, causes, remedy

WHOLE = Machine(
    kernel=(6, 12),
    arch="x86_64",
    landlock_abi=6,
    namespaces_refused="",
    root=False,
    mapped_ids=((0, 4294967295),),
    apparmor_restricts=False,
    cgroup=Facts(version=2, how="systemd scope"),
)
NO_GROUPS = replace(WHOLE, cgroup=Facts(reason="none"))
REFUSED = replace(WHOLE, namespaces_refused="Operation not permitted")
PLAIN = Surroundings(max_user_namespaces="63000")

CASES = [
    ("a laptop", WHOLE, PLAIN, ()),
    ("no groups", NO_GROUPS, PLAIN, ("cgroup",)),
    ("no groups in a container", NO_GROUPS, Surroundings(container="docker"), ("cgroup-container",)),
    ("ubuntu", replace(REFUSED, apparmor_restricts=True), PLAIN, ("apparmor",)),
    ("rhel hardened", REFUSED, Surroundings(max_user_namespaces="0"), ("max-user-namespaces",)),
    ("debian hardened", REFUSED, Surroundings(userns_clone="0"), ("userns-clone",)),
    ("a service's own filter", REFUSED, PLAIN, ("userns",)),
    ("docker on ubuntu", replace(REFUSED, apparmor_restricts=True), Surroundings(container="docker"), ("container",)),
    ("a pod", REFUSED, Surroundings(container="kubernetes"), ("pod",)),
    (
        "a pod on 6.1",
        replace(REFUSED, landlock_abi=2),
        Surroundings(container="kubernetes"),
        ("pod", "landlock-signals"),
    ),
    ("landlock left out at boot", replace(WHOLE, landlock_abi=0), PLAIN, ("landlock",)),
    ("an old kernel", replace(WHOLE, kernel=(5, 10), landlock_abi=0), PLAIN, ("kernel",)),
    ("wsl 1", replace(REFUSED, kernel=(4, 4)), Surroundings(wsl=1), ("wsl1",)),
    ("wsl 2 with an old kernel", replace(WHOLE, kernel=(5, 10), landlock_abi=0), Surroundings(wsl=2), ("kernel",)),
    ("another processor", replace(WHOLE, arch="riscv64"), PLAIN, ("architecture",)),
]


@pytest.mark.parametrize(("machine", "around", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_each_cause_is_told_apart(machine: Machine, around: Surroundings, expected: tuple[str, ...]) -> None:
    assert causes(machine, around) == expected
    for cause in expected:
        found = remedy(cause, around)
        assert found.cause == cause
        assert found.why.endswith(".")
        assert found.steps


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("apparmor", "  userns,\n"),
        ("apparmor", "profile ipysandbox /opt/py/bin/python3.12 flags=(unconfined) {"),
        ("apparmor", "sudo apparmor_parser -r /etc/apparmor.d/ipysandbox"),
        ("apparmor", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("max-user-namespaces", "sudo sysctl -w user.max_user_namespaces=15000"),
        ("userns-clone", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("cgroup", "[Service]\nDelegate=cpu cpuset io memory pids\n"),
        ("cgroup", "/etc/systemd/system/user@.service.d/delegate.conf"),
        ("container", "--security-opt seccomp=unconfined"),
        ("pod", "hostUsers: false"),
        ("wsl1", "wsl --set-version"),
        ("landlock", "lsm=landlock"),
    ],
)
def test_the_remedy_is_the_text_to_paste(cause: str, text: str) -> None:
    assert text in "\n".join(remedy(cause, Surroundings(python="/opt/py/bin/python3.12")).steps)


def test_the_file_that_apparmor_judges_by_is_the_real_one_behind_a_virtual_environments_link() -> None:
    python = Path(remedies.surroundings({}).python)
    assert python.is_file()
    assert not python.is_symlink()


@pytest.mark.parametrize("release", ["4.4.0-19041-Microsoft", "5.15.167.4-microsoft-standard-WSL2", "6.1.0-18-amd64"])
def test_which_wsl_it_is_stands_in_the_kernels_name(release: str) -> None:
    assert remedies._wsl(release) == {"4": 1, "5": 2, "6": 0}[release[0]]


@pytest.mark.parametrize("path", ["/usr/bin/python3.12", "/home/me/a b/{x}*[1]/python", '/opt/"q"/python'])
def test_the_apparmor_profile_is_one_that_the_parser_takes(path: str, tmp_path: Path) -> None:
    parser = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")
    text = remedies.apparmor_profile(path)
    assert text.count("{") - text.count("\\{") == 1
    if parser is None:
        pytest.skip("apparmor_parser is not installed; the text's own form was checked")
    profile = tmp_path / "ipysandbox"
    # Without the abi and the includes, which are Ubuntu's files; a parser before Ubuntu 24.04's 4.0 lacks the rule too.
    version = subprocess.run([parser, "--version"], capture_output=True, text=True).stdout
    unknown = ["abi", "include", *(["userns"] if "version 4" not in version else [])]
    profile.write_text("\n".join(line for line in text.splitlines() if not any(word in line for word in unknown)))
    done = subprocess.run([parser, "--skip-kernel-load", "--skip-cache", profile], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
