"""Run as root of a virtual machine: a sample of the attacks as a plain user, with user namespaces and then without.

    python tests/matrix/vm.py --user NAME --probes FOLDER [--limits WORDS]

One start of the machine for both, since emulation makes that, and each case, slow: the first attack of each kind that
the kernel's version decides, and some ordinary code. `--limits` also runs the tests of limits that match, each time.
The exit status is 0 only if everything was held and worked.
"""

from __future__ import annotations

import argparse
import json
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import table
from inside import MARK

_ROOT = Path(__file__).parents[2]
#: What stands before a pass, and the kinds of attacks and of ordinary code in it, which are those that the kernel's
#: version decides; of outputs, values and questions the same code decides everywhere.
_PASSES = {
    "with user namespaces": ("", "fs-read links network kernel namespaces process resource", "files processes"),
    "without user namespaces": (
        "sysctl -qw kernel.unprivileged_userns_clone=0 user.max_user_namespaces=0",
        "fs-read fs-write network process unix resource",
        "files",
    ),
}
_LIMITS = "tests/supervisor/test_limits_matrix.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--user", required=True)
    parser.add_argument("--probes", required=True, type=Path)
    parser.add_argument("--limits", metavar="WORDS", help="also the tests of limits that pytest's -k chooses so")
    options = parser.parse_args()
    status = 0
    for name, (before, attacks, ordinary) in _PASSES.items():
        print(f"=== {name}", flush=True)
        if before:
            subprocess.run(shlex.split(before), check=True)
        wanted = [("escape", kind) for kind in attacks.split()] + [("benign", kind) for kind in ordinary.split()]
        status |= _sample(options.user, options.probes, wanted)
        if options.limits:
            status |= subprocess.run(_as(options.user, [*_PYTEST, _LIMITS, "-k", options.limits])).returncode
    return int(status != 0)


_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=600"]


def _sample(user: str, probes: Path, wanted: list[tuple[str, str]]) -> int:
    command = [sys.executable, str(Path(__file__).with_name("inside.py")), "--probes", str(probes), "--slow"]
    command += [word for case in _cases(probes, wanted) for word in ("--case", case)]
    done = subprocess.run(_as(user, command), stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            told = json.loads(line[len(MARK) :])
            print(table.markdown({"vm": told}, {}, command="python tests/matrix/vm.py"), flush=True)
            return 0 if table.holds(told) else 1
        print(line)
    print(f"ended with status {done.returncode} before the attacks had been run")
    return 1


def _cases(probes: Path, wanted: list[tuple[str, str]]) -> list[str]:
    """The first of each kind wanted, by the collection's own list: a line is kind, family, weight, name."""
    listed = subprocess.run([sys.executable, str(probes / "run_probes.py"), "--list"], capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    first: dict[tuple[str, str], str] = {}
    for row in rows:
        if len(row) == 4:
            first.setdefault((row[0], row[1]), row[3])
    return [first[key] for key in wanted if key in first]


def _as(user: str, command: list[str]) -> list[str]:
    """In the user's own session, whose manager gives him a control group."""
    number = pwd.getpwnam(user).pw_uid
    place = f"/run/user/{number}"
    words = ["env", f"XDG_RUNTIME_DIR={place}", f"DBUS_SESSION_BUS_ADDRESS=unix:path={place}/bus", *command]
    return ["su", user, "-c", f"cd {shlex.quote(str(_ROOT))} && exec {shlex.join(words)}"]


if __name__ == "__main__":
    sys.exit(main())
