"""What a person can do about what this machine lacks: one remedy a cause, with the text of the file to write.

``causes``, a pure function over what was probed, finds out which causes there are.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .machine import Machine


@dataclass(frozen=True)
class Surroundings:
    """What tells causes apart, besides what the kernel offers; empty where there is no such setting."""

    #: "docker", "podman", "kubernetes", "container" (some other), or "".
    container: str = ""
    #: 1 or 2 inside the Windows Subsystem for Linux, else 0.
    wsl: int = 0
    max_user_namespaces: str = ""
    userns_clone: str = ""
    #: The file that the kernel executes for this interpreter: AppArmor attaches profiles to it.
    python: str = "/usr/bin/python3"


@dataclass(frozen=True)
class Remedy:
    """``why`` is one sentence; each step is one thing to do, some with the text of a file in lines of its own."""

    cause: str
    why: str
    steps: tuple[str, ...]


_USERNS = "With user namespaces each sandbox gets a file tree, processes and a network of its own."
APPARMOR_FILE = "/etc/apparmor.d/ipysandbox"
_DELEGATE_FILE = "/etc/systemd/system/user@.service.d/delegate.conf"


def surroundings(environ: Mapping[str, str] = os.environ) -> Surroundings:
    """Look around: files of /proc, /run and /sys only, none of which can hang."""
    return Surroundings(
        container=_container(environ),
        wsl=_wsl(platform.release()),
        max_user_namespaces=_read("/proc/sys/user/max_user_namespaces"),
        userns_clone=_read("/proc/sys/kernel/unprivileged_userns_clone"),
        python=os.path.realpath(sys.executable),
    )


def _container(environ: Mapping[str, str]) -> str:
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    return "container" if _read("/run/systemd/container") else ""


def _wsl(release: str) -> int:
    """WSL 2's kernels are named …-microsoft-standard-WSL2; version 1 translates calls and says …-Microsoft."""
    if "microsoft" not in release.lower():
        return 0
    return 2 if "WSL2" in release or "microsoft-standard" in release else 1


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def causes(machine: Machine, around: Surroundings) -> tuple[str, ...]:
    """What stands in the way of the strongest sandbox here, the most serious first; names for ``remedy``."""
    found = []
    if around.wsl == 1:
        return ("wsl1",)
    if machine.arch not in ("x86_64", "aarch64"):
        return ("architecture",)
    if machine.kernel < (5, 14):
        found.append("kernel")
    elif machine.landlock_abi < 1:
        found.append("landlock")
    if machine.namespaces_refused:
        found.append(_namespace_cause(machine, around))
    if not machine.cgroup.version:
        found.append("cgroup-container" if around.container else "cgroup")
    if 0 < machine.landlock_abi < 6 and machine.namespaces_refused:
        found.append("landlock-signals")
    return tuple(found)


def _namespace_cause(machine: Machine, around: Surroundings) -> str:
    if around.max_user_namespaces == "0":
        return "max-user-namespaces"
    if around.userns_clone == "0" and not machine.root:
        return "userns-clone"
    if around.container:
        return "pod" if around.container == "kubernetes" else "container"
    return "apparmor" if machine.apparmor_restricts else "userns"


def remedy(cause: str, around: Surroundings) -> Remedy:
    """Raises KeyError for a cause that ``causes`` does not name."""
    why, *steps = _texts(around)[cause]
    return Remedy(cause, why, tuple(steps))


def apparmor_profile(python: str) -> str:
    """Text of a profile that leaves this interpreter unconfined, as without one, and lets it make user namespaces."""
    return (
        "abi <abi/4.0>,\n"
        "include <tunables/global>\n"
        f"profile ipysandbox {_attachment(python)} flags=(unconfined) {{\n"
        "  userns,\n"
        "  include if exists <local/ipysandbox>\n"
        "}\n"
    )


def _attachment(path: str) -> str:
    """A path as AppArmor's parser takes it literally: apparmor.d(5), globbing."""
    escaped = re.sub(r'([\\*?\[\]{}^"])', r"\\\1", path)
    return escaped if re.fullmatch(r"[\w/.+@-]+", escaped) else f'"{escaped}"'


def _sysctl(name: str, value: str, why: str) -> tuple[str, ...]:
    return (
        f"{why} {_USERNS}",
        f"As the administrator: sudo sysctl -w {name}={value}",
        f"To keep it: echo '{name} = {value}' | sudo tee /etc/sysctl.d/90-ipysandbox.conf",
    )


def _texts(around: Surroundings) -> dict[str, tuple[str, ...]]:
    """The reason, then the steps, by cause."""
    python = around.python
    return {
        "apparmor": (
            "AppArmor takes the rights away inside new user namespaces (Ubuntu 23.10 and later: "
            f"kernel.apparmor_restrict_unprivileged_userns = 1). {_USERNS}",
            f"Ask the administrator to write {APPARMOR_FILE} for this Python (it then holds for every program that "
            f"{python} runs; `python -m venv --copies` gives a project a Python of its own):\n"
            + apparmor_profile(python),
            f"and to load it: sudo apparmor_parser -r {APPARMOR_FILE}",
            "Or, for every program of the machine: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        "max-user-namespaces": _sysctl(
            "user.max_user_namespaces", "15000", "User namespaces are switched off (user.max_user_namespaces = 0)."
        ),
        "userns-clone": _sysctl(
            "kernel.unprivileged_userns_clone",
            "1",
            "User namespaces are kept for root (kernel.unprivileged_userns_clone = 0).",
        ),
        "userns": (
            f"The kernel refuses user namespaces to this user. {_USERNS}",
            "Ask the administrator whether a security module or a service's RestrictNamespaces= forbids them.",
        ),
        "container": (
            f"The container's engine refuses unshare and mount. {_USERNS}",
            "Start the container with: docker run --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
            "The container is then held by its namespaces and capabilities alone. Narrower is a seccomp profile that "
            "adds to the default: unshare, mount, umount2, pivot_root, move_mount, open_tree, mount_setattr, setns and "
            "keyctl.",
        ),
        "pod": (
            f"The pod's seccomp profile refuses unshare and mount. {_USERNS}",
            "In the pod's specification: hostUsers: false; and for the container, in securityContext: "
            "seccompProfile: {type: Localhost, localhostProfile: PROFILE.json}, procMount: Unmasked, "
            "appArmorProfile: {type: Unconfined}",
        ),
        "landlock": (
            "Landlock, the layer under files, is not enabled.",
            "In %USERPROFILE%\\.wslconfig, below [wsl2]: kernelCommandLine = lsm=landlock,yama,bpf; then, in "
            "PowerShell: wsl --update; wsl --shutdown"
            if around.wsl
            else "Add landlock to the kernel's command line, before what `cat /sys/kernel/security/lsm` shows now: "
            "lsm=landlock,…; the kernel needs CONFIG_SECURITY_LANDLOCK=y",
        ),
        "landlock-signals": (
            "Before Landlock ABI 6 (Linux 6.12) signals are held back by a monitor, not by the kernel's own scope.",
            "Use Linux 6.12 or newer, or allow user namespaces.",
        ),
        "kernel": (
            "This kernel lacks what the file layers need.",
            "In PowerShell: wsl --update" if around.wsl else "Use Linux 5.14 or newer.",
        ),
        "wsl1": (
            "WSL 1 translates system calls and has none of the layers.",
            "In PowerShell: wsl --set-version DISTRIBUTION 2; wsl --list --verbose shows the names.",
        ),
        "architecture": (
            "The system-call filter knows x86-64 and aarch64 only.",
            "Use a machine of one of these.",
        ),
        "cgroup": (
            "No control group can be made for a sandbox: memory and cpu are watched 20 times a second, not held by the "
            "kernel.",
            f"Ask the administrator to write {_DELEGATE_FILE}:\n[Service]\nDelegate=cpu cpuset io memory pids\n",
            "then: sudo systemctl daemon-reload; and log in again. A batch system can start the job with: "
            "systemd-run --user --scope -p Delegate=yes …",
        ),
        "cgroup-container": (
            "The container's control groups are not writable: memory and cpu are watched 20 times a second, not held "
            "by the kernel.",
            "Start the container with a writable tree of its own: docker run --cgroupns=private "
            "--security-opt writable-cgroups=true … (Docker 28 and later, control groups version 2)",
        ),
    }
