"""Runs the attacks in the environment that it is started in, and prints what was held as one line of JSON.

python tests/matrix/inside.py [--user NAME] [--probes FOLDER [--case NAME ...]] [--slow]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pwd
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, TypedDict

MARK = "MATRIX-RESULT "
_ROOT = Path(__file__).parents[2]
#: The project's own attacks by kind, for each tier. Those of the second start their sandboxes without namespaces.
_HOSTILE = {
    "namespaces": {
        "files": ["tests/escapes/test_files.py"],
        "network": ["tests/escapes/test_network.py"],
        "processes, kernel": ["tests/escapes/test_processes.py"],
        "credentials": ["tests/escapes/test_credentials.py"],
    },
    "confined": {
        "files, network, processes, kernel": ["tests/confined/test_hostile.py"],
        "signals": ["tests/confined/test_signals.py"],
    },
}
_HOSTILE_ANYWHERE = {
    "what is inherited": ["tests/escapes/test_hygiene.py"],
    "resources": ["tests/supervisor/test_limits.py", "tests/supervisor/test_limits_matrix.py"],
    "output": ["tests/output/test_hostile.py"],
    "values": ["tests/transfer/test_refused.py"],
}
_BENIGN = {
    "namespaces": ["tests/supervisor/test_cells.py", "tests/transfer/test_round_trip.py"],
    "confined": ["tests/confined/test_honest.py", "tests/transfer/test_round_trip.py"],
}
#: What an emulated machine needs of the deadlines that a case is given, in seconds.
SLOW_SECONDS = "600"


class Told(TypedDict):
    """What one environment gave."""

    #: When, as YYYY-MM-DD.
    day: str
    doctor: dict[str, Any]
    #: Digest of the package that was tested.
    sources: str
    #: What the cases are, for a reader of the table.
    cases: str
    #: By kind: how many were held, of how many that were run.
    hostile: dict[str, list[int]]
    benign: list[int]
    skipped: int
    #: What was not held or did not pass, with the reason.
    failed: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--user")
    parser.add_argument("--probes", type=lambda text: Path(text).resolve(strict=True))
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    doctor = _doctor(options.user)
    with tempfile.TemporaryDirectory(prefix="matrix-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        told = Told(day=date.today().isoformat(), doctor=doctor, sources=sources(), cases=cases(options.probes),
                    hostile={}, benign=[0, 0], skipped=0, failed=[])  # fmt: skip
        rows = _probes(options, Path(folder)) if options.probes else _tests(options, doctor["tier"], Path(folder))
        for hostile, family, name, trouble in rows:
            _count(told, hostile, family, name, trouble)
    print(MARK + json.dumps(told), flush=True)
    return 0


def _count(told: Told, hostile: bool, family: str, name: str, trouble: str | None) -> None:
    if trouble is None:
        told["skipped"] += 1
        return
    counted = told["hostile"].setdefault(family, [0, 0]) if hostile else told["benign"]
    counted[0] += not trouble
    counted[1] += 1
    if trouble:
        told["failed"].append(f"{name}: {trouble[:300]}")


# -- what is tested, and with what


def sources() -> str:
    """A digest of the package that is imported here."""
    import ipysandbox

    assert ipysandbox.__file__ is not None
    folder = Path(ipysandbox.__file__).parent
    return _digest(folder, [path for path in folder.rglob("*.py") if path.name != "_version.py"])


def cases(probes: Path | None) -> str:
    if probes is None:
        return "the project's own tests"
    # Without what runs them: a slow machine may need other deadlines.
    paths = [path for path in probes.rglob("*.py") if path.name != "run_probes.py" and "__pycache__" not in path.parts]
    return f"a collection that is no part of this project (sha256 of its cases: {_digest(probes, paths)})"


def _digest(folder: Path, paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


# -- as whom


def reaches(user: str) -> bool:
    """Whether this plain user can run this Python and the package."""
    command = _as(user, [sys.executable, "-c", "import ipysandbox"])
    return subprocess.run(command, capture_output=True).returncode == 0


def _as(user: str | None, command: list[str]) -> list[str]:
    if not user:
        return command
    home = pwd.getpwnam(user).pw_dir
    environment = [
        f"HOME={home}",
        f"USER={user}",
        f"LOGNAME={user}",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "LANG=C.UTF-8",
    ]
    ids = [f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all"]
    return ["setpriv", *ids, "env", "-i", *environment, *command]


def _doctor(user: str | None) -> dict[str, Any]:
    command = _as(user, [sys.executable, "-m", "ipysandbox", "doctor", "--json"])
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"doctor does not answer here:\n{done.stderr[-2000:]}")
    return report


# -- the cases: whether each is hostile, its family and name, and what was wrong: "" nothing, None not run


def _probes(options: argparse.Namespace, folder: Path) -> Iterator[tuple[bool, str, str, str | None]]:
    out = folder / "probes.json"
    command = [sys.executable, str(options.probes / "run_probes.py"), "--json", str(out), "--python", sys.executable]
    command += ["--cli", str(Path(sys.executable).with_name("ipysandbox"))]
    if options.user:
        command += ["--user", options.user]
    command += [word for case in options.case for word in ("--case", case)]
    if options.slow:
        command += ["--timeout", SLOW_SECONDS]
    # In a container root has no right to the namespaces that the harness would stay in.
    if os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        command += ["--no-isolate"]
    # Where nothing is that a project's own settings would change; a plain user's scratch folder lies in his home.
    subprocess.run(command, cwd=folder)
    for row in json.loads(out.read_text("utf-8")):
        trouble = "; ".join(row["reasons"]) or row["verdict"]
        trouble = {"held": "", "passed": "", "skipped": None}.get(row["verdict"], trouble)
        yield row["kind"] == "escape", row["family"], row["case"], trouble


def _tests(options: argparse.Namespace, tier: str, folder: Path) -> Iterator[tuple[bool, str, str, str | None]]:
    groups = [(True, family, paths) for family, paths in {**_HOSTILE[tier], **_HOSTILE_ANYWHERE}.items()]
    for hostile, family, paths in [*groups, (False, "", _BENIGN[tier])]:
        out = folder / f"{hostile}-{family.replace(' ', '-')}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={out}", *paths]
        command += [f"--timeout={SLOW_SECONDS}"] if options.slow else []
        subprocess.run(_as(options.user, command), cwd=_ROOT)
        for case in ElementTree.parse(out).iter("testcase"):
            yield hostile, family, f"{case.get('classname')}::{case.get('name')}", _trouble(case)


def _trouble(case: ElementTree.Element) -> str | None:
    if case.find("skipped") is not None:
        return None
    wrong = [part for part in case if part.tag in ("failure", "error")]
    return " ".join((part.get("message") or "it failed").splitlines()[0] for part in wrong)


if __name__ == "__main__":
    sys.exit(main())
