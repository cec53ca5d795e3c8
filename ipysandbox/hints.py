"""One line for a cell that failed at the sandbox's own walls: a path it isn't shown or may not write, a network it
doesn't have.

What is looked at is the error's text, which the code chose, and the policy. Nothing is looked up on the host: whether
a path that the code named exists there is not for the code to learn, nor for its output to tell.
"""

from __future__ import annotations

import os.path
import re
import sys
from collections.abc import Mapping
from typing import Any

from .display import one_line
from .output.text import clean_text
from .policy import compile_patterns
from .policy.links import within

#: As Python words the errors of open(2) and its like: the number, the reason, the repr of the path.
_PATH = re.compile(r"\[Errno (\d{1,2})\] [^:]{1,60}: b?(['\"])([^\\]{1,4096}?)\2(?: |$)")
#: The numbers that may be the sandbox's doing: ENOENT, EPERM and EACCES, EROFS.
_PATH_ERRORS = {"FileNotFoundError": ("2",), "PermissionError": ("1", "13"), "OSError": ("30",)}
_NO_MODULE = re.compile(r"No module named '([A-Za-z_]\w{0,100})")
#: The resolver's and the kernel's words, wherever a library wraps them.
_NO_NETWORK = re.compile(
    "Name or service not known|Temporary failure in name resolution|No address associated with hostname|"
    "NameResolutionError|Network is unreachable|Address family not supported by protocol"
)
#: The same as programs print them, which end without an error of Python's.
_NO_NETWORK_PRINTED = re.compile(f"{_NO_NETWORK.pattern}|[Cc]ould not resolve host|unable to resolve host")
#: A line that runs a program, or the magic that does.
_PROGRAM = re.compile(r"^[^#'\"\n]*[!%](?!=)", re.MULTILINE)
_INSTALLERS = {"pip", "conda", "mamba", "uv"}
#: What IPython inside says of our own line.
_OUR_LINE = re.compile(r"(?:Cell|Line) magic (?:function )?`%{1,3}sandbox` not found")
_NOT_INSTALLED = re.compile("No matching distribution found|Could not install packages due to an OSError")
_MOST_TEXT = 8192
#: Folders that are named in a line.
_LISTED = 3
#: The end of what was printed that is looked at.
_MOST_PRINTED = 64 << 10
#: Shown by every sandbox, so that what is missing there is missing on the host.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev", "/sys")
#: Folders that a sandbox has of its own, where the host has one too.
_OWN = {"/tmp": "its /tmp is its own", "/var/tmp": "its /var/tmp is its own", "/home/sandbox": "its home is its own"}


def may_apply(ename: str, evalue: str) -> bool:
    """Is there anything to say, or to ask the policy about?"""
    return (
        _is_our_line(ename, evalue)
        or _path(ename, evalue) is not None
        or _module(ename, evalue) is not None
        or _is_network(evalue)
    )


def hint(ename: str, evalue: str, policy: Mapping[str, Any], *, namespaces: bool = True) -> str:
    """The line for an error, under a policy as ``Effective.to_json`` shows it; empty if there is nothing to say.

    ``namespaces``: whether the sandbox has them, without which the project is read-only and there is no loopback.
    """
    if _is_our_line(ename, evalue):
        return "The code runs in a sandbox already, which does not know %sandbox and %%sandbox: leave that line out."
    named = _path(ename, evalue)
    if named is not None:
        why = _why_unseen(named[3], policy) if named[1] != "30" else ""
        if why:
            return f"The sandbox can't see {one_line(clean_text(named[3]))}: {why}."
        if named[1] == "2":
            return ""
        return _read_only(named[3], policy, namespaces) or (
            _unwritable(named[3], policy, namespaces) if named[1] == "30" else ""
        )
    module = _module(ename, evalue)
    if module is not None:
        # Either would do, so that neither may be in sight.
        unseen = [_why_unseen(name, policy) for name in (f"{module[1]}.py", module[1])]
        text = f"If {module[1]} is a module of the project, the sandbox can't see it: {unseen[0]}."
        return text if all(unseen) else ""
    if _is_network(evalue) and not policy["policy"]["network"]["allow"]:
        loopback = "" if namespaces else "; without namespaces, no loopback either"
        return f"There is no network in the sandbox{loopback}."
    return ""


def may_run_programs(code: str) -> bool:
    """Does the code run other programs by IPython's syntax? What they lack, only their output tells."""
    return _PROGRAM.search(code) is not None


def output_hint(code: str, printed: str) -> str:
    """The line for what a program printed where no host is allowed; empty if there is nothing to say."""
    offline = _NO_NETWORK_PRINTED.search(printed[-_MOST_PRINTED:]) is not None
    if (offline or _NOT_INSTALLED.search(printed[-_MOST_PRINTED:])) and _installs(code):
        return (
            "There is no network in the sandbox, and its environment is read-only: install packages with "
            "`%pip install …` in a cell without `%%sandbox`; they are there in the sandbox too."
        )
    return "There is no network in the sandbox." if offline else ""


def _installs(code: str) -> bool:
    lines = (set(re.findall(r"[!%]|\w+", line)) for line in code.splitlines())
    return any(words & {"!", "%"} and words & _INSTALLERS and words & {"install", "add"} for words in lines)


def _path(ename: str, evalue: str) -> re.Match[str] | None:
    found = _PATH.match(evalue) if ename in _PATH_ERRORS else None
    return found if found is not None and found[1] in _PATH_ERRORS[ename] else None


def _module(ename: str, evalue: str) -> re.Match[str] | None:
    return _NO_MODULE.match(evalue) if ename == "ModuleNotFoundError" else None


def _is_our_line(ename: str, evalue: str) -> bool:
    return ename == "UsageError" and _OUR_LINE.match(evalue) is not None


def _is_network(evalue: str) -> bool:
    return _NO_NETWORK.search(evalue[:_MOST_TEXT]) is not None


def _place(written: str, policy: Mapping[str, Any]) -> str:
    # The code may have changed its folder since; most never do.
    return "/" + os.path.normpath(os.path.join(str(policy["folder"]), written)).lstrip("/")


def _read_only(written: str, policy: Mapping[str, Any], namespaces: bool) -> str:
    """What holds a write in the project back, if anything of ours does."""
    project, place = str(policy["project"]), _place(written, policy)
    if not within(place, project) or any(within(place, top) for top in policy["write"]):
        return ""
    if policy["policy"]["files"]["workspace"] == "readonly":
        why = "its policy says so (files.workspace)"
    elif not namespaces:
        why = "this machine gives it no namespaces (`ipysandbox doctor` says more)"
    else:
        return ""
    kept = [os.path.relpath(top, project) for top in policy["write"] if within(top, project)]
    but = f" but for {one_line(clean_text(', '.join(kept)))}" if kept else ""
    return f"The project is read-only in this sandbox{but}: {why}."


def _unwritable(written: str, policy: Mapping[str, Any], namespaces: bool) -> str:
    """What may be written, for a path that the policy puts outside of it."""
    project, place = str(policy["project"]), _place(written, policy)
    own = [top for top in (*_OWN, "/dev/shm", *policy["write"], project) if within(place, top)]
    if own:
        return ""
    kept = [os.path.relpath(top, project) if within(top, project) else top for top in policy["write"]]
    listed = [f"{top.rstrip('/')}/" for top in kept[:_LISTED]]
    listed += [f"{len(kept) - _LISTED} more folders"] if len(kept) > _LISTED else []
    home = "its own ~ (/home/sandbox) and /tmp" if namespaces else "its own ~ and $TMPDIR"
    may = one_line(clean_text(", ".join([*listed, home])), 400)
    return f"The sandbox can't write {one_line(clean_text(written))}: it writes {may}; more with files.write."


def _why_unseen(written: str, policy: Mapping[str, Any]) -> str:
    project, place = str(policy["project"]), _place(written, policy)
    tops = [top for top in (*policy["read"], *policy["write"]) if within(place, top)]
    if tops:
        matcher = compile_patterns(policy["hidden"])
        hidden = any(matcher.covers(os.path.relpath(place, top)) for top in tops)
        return "its name is hidden by files.hide" if hidden else ""
    if within(place, project):
        return "it is not in files.read"
    for folder, why in _OWN.items():
        if within(place, folder):
            return why
    return "" if any(within(place, folder) for folder in _shown()) else "it is not in files.read"


def _shown() -> tuple[str, ...]:
    prefixes = (sys.prefix, sys.base_prefix)
    return (*_SYSTEM, *prefixes, *map(os.path.realpath, prefixes))
