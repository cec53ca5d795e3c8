"""Runs attacks of every kind in every environment that can be had here, and prints whether each was held.

    python tests/matrix [--only ENVIRONMENT ...] [--user NAME] [--vm COMMAND] [--probes FOLDER]
                        [--results FOLDER] [--write FILE]

Environments: root, user, container, container-root, vm, vm-no-userns. One that can't be had is named with the reason.
As root, `--user` names the plain user; he has to be able to run this Python. `--vm` is a command that runs another in a
virtual machine as a plain user: `COMMAND [--no-userns] PROJECT -- ARGUMENT ...`, with the package installed there from
the folder PROJECT and first on PATH.

The attacks are the project's own tests. `--probes` takes others instead: a folder whose `run_probes.py --json FILE`
judges from outside and writes one row of kind, family, verdict and reasons for each case. `--write` replaces the table
between the two markers of FILE. `--results` keeps what each environment gave; what the same sources gave before is not
run again. The exit status is 0 only if everything was held that was run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import table
from inside import MARK, Told, cases, reaches, sources

_ROOT = Path(__file__).parents[2]
_INSIDE = "tests/matrix/inside.py"
#: What is no part of the project's sources; a virtual machine gets a copy without it.
_NOT_COPIED = (".git", ".venv", "node_modules", "dist", "demo", "__pycache__", "results")


class Impossible(Exception):
    """This environment can't be had here, and why."""


def main() -> int:
    options = _options()
    columns: dict[str, Told] = {}
    left_out: dict[str, str] = {}
    for name in options.only or ENVIRONMENTS:
        print(f"=== {name}", file=sys.stderr, flush=True)
        try:
            columns[name] = _kept(name, options) or _run(name, options)
        except Impossible as exc:
            left_out[name] = str(exc)
            print(f"left out: {exc}", file=sys.stderr)
    text = table.markdown(columns, left_out, command=_command())
    print(text, end="")
    if options.write:
        options.write.write_text(table.replaced(options.write.read_text("utf-8"), text), "utf-8")
    return 0 if columns and all(table.holds(told) for told in columns.values()) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=ENVIRONMENTS, metavar="ENVIRONMENT")
    parser.add_argument("--user", metavar="NAME")
    parser.add_argument("--vm", metavar="COMMAND", type=shlex.split)
    parser.add_argument("--probes", metavar="FOLDER", type=lambda text: Path(text).resolve(strict=True))
    parser.add_argument("--results", metavar="FOLDER", type=Path)
    parser.add_argument("--write", metavar="FILE", type=Path)
    return parser.parse_args()


def _command() -> str:
    """As it was typed, less the names of this machine."""
    hidden = {"--probes": "FOLDER", "--results": "FOLDER", "--vm": "COMMAND", "--user": "NAME", "--write": "FILE"}
    words = ["python", "tests/matrix"]
    for before, word in zip(["", *sys.argv[1:]], sys.argv[1:], strict=False):
        words.append(hidden.get(before, word))
    return " ".join(words)


# -- one environment


def _kept(name: str, options: argparse.Namespace) -> Told | None:
    path = options.results and options.results / f"{name}.json"
    if not path or not path.exists():
        return None
    told: Told = json.loads(path.read_text("utf-8"))
    same = told["sources"] == sources() and told["cases"] == cases(options.probes)
    return told if same else None


def _run(name: str, options: argparse.Namespace) -> Told:
    with ENVIRONMENTS[name](options) as command:
        told = _told(command)
    if told["sources"] != sources():
        raise Impossible("another copy of the package was tested there; install this one")
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return told


def _told(command: list[str]) -> Told:
    """What the command's last words say; its other lines are passed on as they come."""
    found: Told | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", cwd=_ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                found = json.loads(line[len(MARK) :])
            else:
                print(line, end="", file=sys.stderr, flush=True)
    if found is None:
        raise Impossible(f"it was tried, and ended with status {process.returncode} before the attacks had been run")
    return found


def _inside(options: argparse.Namespace, *more: str, python: str = sys.executable, probes: str = "") -> list[str]:
    place = probes or (str(options.probes) if options.probes else "")
    return [python, _INSIDE, *(["--probes", place] if place else []), *more]


@contextmanager
def _as_root(options: argparse.Namespace) -> Iterator[list[str]]:
    if os.geteuid() != 0:
        raise Impossible("needs root")
    yield _inside(options)


@contextmanager
def _as_user(options: argparse.Namespace) -> Iterator[list[str]]:
    if os.geteuid() != 0:
        yield _inside(options)
        return
    if not options.user:
        raise Impossible("started as root, without the name of a plain user (--user)")
    if not reaches(options.user):
        raise Impossible("the plain user can't run the Python of this environment; make it where others may read")
    yield _inside(options, "--user", options.user)


def _in_container(user: str) -> Callable[[argparse.Namespace], Iterator[list[str]]]:
    def command(options: argparse.Namespace) -> Iterator[list[str]]:
        if shutil.which("docker") is None:
            raise Impossible("Docker is not installed")
        running = subprocess.run(["docker", "version"], capture_output=True).returncode == 0
        if not running and (os.geteuid() != 0 or shutil.which("dockerd") is None):
            raise Impossible("no Docker engine answers, and only root can start one")
        show = ["--show", str(options.probes)] if options.probes else []
        yield [sys.executable, "tests/containers", "--user", user, *show, "--", *_inside(options)]

    return command


def _in_vm(*switches: str) -> Callable[[argparse.Namespace], Iterator[list[str]]]:
    def command(options: argparse.Namespace) -> Iterator[list[str]]:
        if not options.vm:
            raise Impossible("no command that runs a virtual machine was given (--vm)")
        with tempfile.TemporaryDirectory(prefix="ipysandbox-matrix-") as folder:
            project = Path(folder, "project")
            shutil.copytree(_ROOT, project, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
            if options.probes:
                shutil.copytree(options.probes, project / "probes-to-run")
            probes = "probes-to-run" if options.probes else ""
            yield [
                *options.vm,
                *switches,
                str(project),
                "--",
                *_inside(options, "--slow", python="python", probes=probes),
            ]

    return command


ENVIRONMENTS: dict[str, Callable[[argparse.Namespace], AbstractContextManager[list[str]]]] = {
    "root": _as_root,
    "user": _as_user,
    "container": contextmanager(_in_container("1000:1000")),
    "container-root": contextmanager(_in_container("0:0")),
    "vm": contextmanager(_in_vm()),
    "vm-no-userns": contextmanager(_in_vm("--no-userns")),
}

if __name__ == "__main__":
    sys.exit(main())
