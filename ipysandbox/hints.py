"""One line for a cell that failed at the sandbox's own walls: a path it isn't shown, a network it doesn't have.

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
_NO_PATH = re.compile(r"\[Errno (?:2|13)\] [^:]{1,60}: b?(['\"])([^\\]{1,4096}?)\1(?: |$)")
_PATH_ERRORS = ("FileNotFoundError", "PermissionError")
#: The resolver's and the kernel's words, wherever a library wraps them.
_NO_NETWORK = re.compile(
    "Name or service not known|Temporary failure in name resolution|No address associated with hostname|"
    "NameResolutionError|Network is unreachable"
)
_MOST_TEXT = 8192
#: Shown by every sandbox, so that what is missing there is missing on the host.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev", "/sys")
#: Folders that a sandbox has of its own, where the host has one too.
_OWN = {"/tmp": "its /tmp is its own", "/var/tmp": "its /var/tmp is its own", "/home/sandbox": "its home is its own"}


def may_apply(ename: str, evalue: str) -> bool:
    """Is there anything to ask the policy about?"""
    return (ename in _PATH_ERRORS and _NO_PATH.match(evalue) is not None) or _is_network(evalue)


def hint(ename: str, evalue: str, policy: Mapping[str, Any]) -> str:
    """The line for an error, under a policy as ``Effective.to_json`` shows it; empty if there is nothing to say."""
    named = _NO_PATH.match(evalue) if ename in _PATH_ERRORS else None
    if named is not None:
        why = _why_unseen(named[2], policy)
        return f"The sandbox can't see {one_line(clean_text(named[2]))}: {why}." if why else ""
    if _is_network(evalue) and not policy["policy"]["network"]["allow"]:
        return "There is no network in the sandbox."
    return ""


def _is_network(evalue: str) -> bool:
    return _NO_NETWORK.search(evalue[:_MOST_TEXT]) is not None


def _why_unseen(written: str, policy: Mapping[str, Any]) -> str:
    project = str(policy["project"])
    # The code may have changed its folder since; most never do.
    place = "/" + os.path.normpath(os.path.join(project, written)).lstrip("/")
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
