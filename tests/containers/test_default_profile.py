"""Inside a real container of a real engine, under its default profile: what a pod or dev container is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="starting a container engine needs root"),
    pytest.mark.skipif(shutil.which("dockerd") is None, reason="docker.io is not installed"),
    pytest.mark.timeout(300),
]
_HERE = Path(__file__).parent
_PROBE = """
import json, os, sys
from pathlib import Path
from ipysandbox import Sandbox
home = Path.home()
(home / "key").write_text("secret of the user")
project = home / "study"
(project / "data").mkdir(parents=True)
(project / "data/x.csv").write_text("1")
with Sandbox(project=project, validate=False) as box:
    cells = {
        "honest": "open('results/y', 'w').write(open('data/x.csv').read()); import numpy; int(numpy.arange(4).sum())",
        "home": f"open({str(home / 'key')!r}).read()",
        "stat": f"__import__('os').stat({str(home / 'key')!r})",
        "others": "open('/proc/1/cmdline').read()",
        "socket": "__import__('socket').socket()",
        "write": "open('data/x.csv', 'w')",
        "mode": "__import__('os').chmod('data/x.csv', 0)",
    }
    seen = {name: box.run(code) for name, code in cells.items()}
    told = {name: [r.status, r.error.ename if r.error else r.value] for name, r in seen.items()}
print(json.dumps({"uid": os.getuid(), "told": told, "kept": (project / "results/y").read_text()}))
"""


def _inside(user: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(_HERE), "--user", user, "--", *command], capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize("user", ["1000:1000", "0:0"])
def test_a_sandbox_holds_without_any_right_of_the_container(user: str) -> None:
    done = _inside(user, sys.executable, "-c", _PROBE)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {
        "uid": int(user.split(":")[0]),
        "told": {
            "honest": ["ok", 6],
            "home": ["error", "PermissionError"],
            "stat": ["error", "FileNotFoundError"],
            "others": ["error", "PermissionError"],
            "socket": ["error", "OSError"],
            "write": ["error", "PermissionError"],
            "mode": ["error", "PermissionError"],
        },
        "kept": "1",
    }


def test_the_doctor_names_the_tier_and_what_is_weaker() -> None:
    done = _inside("1000:1000", sys.executable, "-m", "ipysandbox", "doctor", "--json")
    report = json.loads(done.stdout)
    assert report["tier"] == "confined"
    assert report["status"]["files.write"] == report["status"]["network"] == "weaker"
    assert "missing" not in report["status"].values()
    assert report["guarantees"]["network"]
