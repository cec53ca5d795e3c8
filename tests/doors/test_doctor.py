"""`ipysandbox doctor` tells the truth about this machine and about others, in words and as data, and by its status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipysandbox import doctor
from ipysandbox.backends.linux.choice import GUARANTEES

Cli = Callable[..., subprocess.CompletedProcess[str]]
#: The shape that programs may build on.
_KEYS = {
    "version", "ok", "backend", "tier", "machine", "guarantees", "status", "gaps", "notes", "advice", "stalled",
    "policy", "trial",
}  # fmt: skip


def test_every_guarantee_has_a_row_with_its_layers_and_status(cli: Cli) -> None:
    report = json.loads(cli("doctor", "--json").stdout)
    assert set(report) == _KEYS
    assert report["ok"]
    assert set(report["status"]) == set(report["guarantees"]) == set(GUARANTEES)
    lines = {line.split()[1]: line for line in cli("doctor").stdout.splitlines() if line.startswith(("yes", "weaker"))}
    for name, layers in report["guarantees"].items():
        assert " + ".join(layers) in lines[name]


def test_without_namespaces_the_weaker_points_and_the_remedy_are_named(study: Path) -> None:
    pod = Path(__file__).parents[1] / "pod.py"
    environ = {**os.environ, "PYTHONPATH": str(Path(doctor.__file__).parents[1])}
    command = [sys.executable, str(pod), sys.executable, "-m", "ipysandbox", "doctor"]
    done = subprocess.run(command, cwd=study, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "weaker  files.read" in done.stdout
    assert "Weaker: files.read: " in done.stdout
    assert "To hold more (" in done.stdout
    report = json.loads(subprocess.run([*command, "--json"], cwd=study, env=environ, capture_output=True).stdout)
    assert report["tier"] == "confined"
    assert report["advice"][0]["cause"] in ("container", "pod", "userns", "apparmor")
    assert {note["guarantee"] for note in report["notes"]} == {n for n, s in report["status"].items() if s == "weaker"}


def test_a_policy_that_can_not_be_held_ends_with_1_and_its_reason(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text('[limits]\nwall = "4 potatoes"\n')
    done = cli("doctor", cwd=tmp_path)
    assert done.returncode == 1
    assert "No sandbox can be started with this policy" in done.stdout
    assert "potatoes" in done.stdout
    report = json.loads(cli("doctor", "--json", cwd=tmp_path).stdout)
    assert not report["ok"]
    assert "ipysandbox.toml:2" in report["policy"]["problem"]


def test_the_trial_is_of_the_folders_own_policy(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ipysandbox.toml").write_text('[limits.gpu]\ndevices = ["99"]\n')  # no machine has so many
    assert cli("policy", "trust", stdin="y\n", cwd=tmp_path).returncode == 0
    done = cli("doctor", cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "could not be started" in done.stdout
    assert "limits.gpu.devices" in done.stdout


def test_a_machine_that_lacks_a_layer_is_told_with_what_to_do() -> None:
    report = doctor._report(
        gaps=[{"guarantee": "files.write", "reason": "Landlock is not enabled", "remedy": "boot with lsm=landlock"}],
        advice=[
            {"cause": "landlock", "why": "It is off.", "steps": ["Write this:\nline one\nline two\n", "Then that."]}
        ],
    )
    assert not report["ok"]
    assert report["status"] == {"files.write": "missing"}
    assert doctor.text(report).splitlines() == [
        "HELD  GUARANTEE    BY",
        "NO    files.write  Landlock is not enabled",
        "",
        "What to do (landlock): It is off.",
        "  - Write this:",
        "      line one",
        "      line two",
        "  - Then that.",
        "",
        "No sandbox can be started here: nothing runs with a guarantee missing.",
    ]


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/user"), reason="this kernel has no user namespaces")
def test_the_magics_doctor_says_the_same(cli: Cli, study: Path) -> None:
    code = (
        "from IPython.testing.globalipapp import start_ipython\nip = start_ipython()\n"
        "ip.run_line_magic('load_ext', 'ipysandbox')\nip.run_line_magic('sandbox', 'doctor')"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(doctor.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], cwd=study, env=environ, capture_output=True, text=True)
    assert cli("doctor").stdout.strip() in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("confined", [False, True], ids=["namespaces", "confined"])
def test_a_notebook_in_the_home_itself_gets_a_sandbox_that_reads_nothing_of_it(study: Path, confined: bool) -> None:
    """As in a pod, whose server starts in the home: too wide for a project, so nothing of it is shown."""
    pod = [sys.executable, str(Path(__file__).parents[1] / "pod.py")] if confined else []
    command = [*pod, sys.executable, "-m", "ipysandbox", "run", "-"]
    environ = {**os.environ, "PYTHONPATH": str(Path(doctor.__file__).parents[1]), "HOME": str(study)}
    code = "import os\ntry: print(open('data/x.csv').read())\nexcept OSError as exc: print(type(exc).__name__)"
    done = subprocess.run(command, cwd=study, env=environ, input=code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("FileNotFoundError", "PermissionError")
    assert "too wide for a project" in done.stderr
