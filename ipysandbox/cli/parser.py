"""The commands and their options; what a command does is imported only when it is run."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from ipysandbox.arguments import Suggesting

_MISSING = "not available in this version"
_PROJECTS = "a policy file; by default the one that speaks about this folder"


def build() -> Suggesting:
    # Jupyter runs `jupyter-sandbox` for `jupyter sandbox`.
    prog = "jupyter sandbox" if os.path.basename(sys.argv[0]).startswith("jupyter") else "ipysandbox"
    parser = Suggesting(
        prog, description="Runs Python code where it can't hurt.", allow_abbrev=False, formatter_class=_Help
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    parser.set_defaults(do=_later("missing", "command"))
    _run(commands)
    _check(commands)
    _look(commands)
    _audit(commands)
    _policy(commands)
    parser.unavailable = frozenset({"kernelspec"})
    kernelspec = commands.add_parser("kernelspec", help=_MISSING, allow_abbrev=False)
    kernelspec.add_argument("action", nargs="?", help=argparse.SUPPRESS)
    kernelspec.set_defaults(do=_later("missing", "kernelspec"))
    return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    pass


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"ipysandbox {version('ipysandbox')}")
        except PackageNotFoundError:
            print("ipysandbox (not installed: run from its source)")
        parser.exit()


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    def do(args: argparse.Namespace) -> int:
        return int(getattr(importlib.import_module(f"ipysandbox.cli.{module}"), function)(args))

    return do


def _run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a Python file in a fresh sandbox",
        formatter_class=_Help,
        allow_abbrev=False,
        usage="%(prog)s [options] FILE [ARGS ...]",
        description="Run FILE as one cell of a fresh sandbox whose project is the current folder's.\n"
        "Options come before FILE: what follows it is the script's own, as with python.\n"
        "input() is answered from standard input, unless that is /dev/null or holds the code.",
        epilog="exit status: 0 finished; 1 the code raised; 2 usage or policy error; 3 refused by the check;\n"
        "4 ended by a limit (the last line on stderr names it); 5 the sandbox could not be started or died;\n"
        "130 interrupted",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="Python or IPython code; - for standard input")
    arguments = add("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="sys.argv[1:] of the script")
    arguments.required = False  # argparse of Python before 3.13 would ask for it where FILE is missing
    parser.of_unknown = " (options of the script come after FILE)"
    add("--policy", metavar="P", help="default, strict, network, or a policy file")
    add("--timeout", metavar="S", help="most time: seconds, or such as 5min")
    add("--cpu", metavar="S", help="most processor time, all processes summed")
    add("--memory", metavar="M", help="most memory, such as 2GiB")
    add("--backend", choices=["linux"], default="linux", help="how to isolate")
    add("--no-validate", action="store_true", help="don't read the code first; the sandbox holds all the same")
    add("--json", action="store_true", help="print the result as one JSON object, at the end")
    add("-q", "--quiet", action="store_true", help="no notes about the policy and about changed files")
    parser.set_defaults(do=_later("run", "run"))


def _check(commands: Any) -> None:
    parser = commands.add_parser("check", help="say what the check finds in files; runs nothing", allow_abbrev=False)
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--policy", metavar="P", help="whose [code] rules count")
    _json(parser)
    parser.set_defaults(do=_later("check", "check_files"))


def _look(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="which guarantees this machine can hold", allow_abbrev=False)
    _json(doctor)
    doctor.set_defaults(do=_later("look", "doctor"))
    ps = commands.add_parser("ps", help="list your running sandboxes", allow_abbrev=False)
    _json(ps)
    ps.set_defaults(do=_later("look", "ps"))
    kill = commands.add_parser("kill", help="end a sandbox and everything inside", allow_abbrev=False)
    kill.add_argument("name", metavar="NAME", help="as `ps` lists it: NAME, or SUPERVISOR/NAME where two have it")
    kill.set_defaults(do=_later("look", "kill"))


def _audit(commands: Any) -> None:
    parser = commands.add_parser("audit", help="read the audit trail", allow_abbrev=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    tail = actions.add_parser("tail", help="the newest records", allow_abbrev=False)
    tail.add_argument("-n", type=int, default=20, metavar="N", help="how many (20)")
    query = actions.add_parser("query", help="all records that fit", allow_abbrev=False)
    export = actions.add_parser("export", help="all records that fit, for other programs", allow_abbrev=False)
    export.add_argument("--format", choices=["jsonl", "csv"], default="jsonl", help="JSON lines, or a table (jsonl)")
    for one, name in ((tail, "tail"), (query, "query"), (export, "export")):
        one.add_argument("--action", metavar="A", help="such as limit.hit, or sandbox.*")
        one.add_argument("--sandbox", metavar="NAME")
        one.add_argument("--notebook", metavar="PATH")
        one.add_argument("--severity", choices=["info", "warning", "alert"], default="info", help="at least this")
        one.add_argument("--since", metavar="T", help="ISO date or time, or an age such as 2h")
        if one is not export:
            one.add_argument("--json", action="store_true", help="one JSON object a line")
        one.set_defaults(do=_later("audit", name))
    verify = actions.add_parser("verify", help="whether the log is complete; ends with 1 if not", allow_abbrev=False)
    verify.set_defaults(do=_later("audit", "verify"))


def _policy(commands: Any) -> None:
    parser = commands.add_parser("policy", help="show, check or approve policies", allow_abbrev=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="what holds in this folder, and where it comes from", allow_abbrev=False)
    show.add_argument("--policy", metavar="P", help="default, strict, network, or a policy file")
    _json(show)
    show.set_defaults(do=_later("policy", "show"))
    lint = actions.add_parser("lint", help="find everything that is wrong with a policy file", allow_abbrev=False)
    lint.add_argument(
        "files", metavar="FILE", nargs="*", help="a policy file; by default those in force in this folder, your own too"
    )
    lint.set_defaults(do=_later("policy", "lint_files"))
    trust = actions.add_parser("trust", help="approve a policy file as it is now", allow_abbrev=False)
    trust.add_argument("file", metavar="FILE", nargs="?", help=_PROJECTS)
    trust.add_argument("--yes", action="store_true", help="don't ask")
    trust.set_defaults(do=_later("policy", "approve"))
    untrust = actions.add_parser("untrust", help="withdraw an approval", allow_abbrev=False)
    untrust.add_argument("file", metavar="FILE", nargs="?", help=_PROJECTS)
    untrust.set_defaults(do=_later("policy", "withdraw"))


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
