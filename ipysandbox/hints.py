"""One line for a cell that failed at the sandbox's own walls: a path it isn't shown or may not write, a network it
doesn't have.

What is looked at is the error's text, which the code chose, and the policy. Nothing is looked up on the host: whether
a path that the code named exists there is not for the code to learn, nor for its output to tell.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .display import one_line
from .output.text import clean_text
from .policy import compile_patterns
from .policy.discovery import user_places
from .policy.links import within
from .policy.names import OWN_FILE

#: As Python words the errors of open(2) and its like: the number, the reason, the repr of the path.
_PATH = re.compile(r"\[Errno (\d{1,2})\] [^:]{1,60}: b?(['\"])([^\\]{1,4096}?)\2(?: |$)")
#: The numbers that may be the sandbox's doing: ENOENT, EPERM and EACCES, EROFS.
_PATH_ERRORS = {"FileNotFoundError": ("2",), "PermissionError": ("1", "13"), "OSError": ("30",)}
#: As pandas words it for a file that it is to write.
_NO_FOLDER = re.compile(r"Cannot save file into a non-existent directory: (['\"])([^\\]{1,4096}?)\1$")
_NO_MODULE = re.compile(r"No module named '([A-Za-z_]\w{0,100})")
#: The resolver's and the kernel's words, wherever a library wraps them.
_NO_NETWORK = re.compile(
    "Name or service not known|Temporary failure in name resolution|No address associated with hostname|"
    "NameResolutionError|Network is unreachable|Address family not supported by protocol"
)
#: The same as programs print them, which end without an error of Python's.
_NO_NETWORK_PRINTED = re.compile(f"{_NO_NETWORK.pattern}|[Cc]ould not resolve host|unable to resolve host")
#: A line of code that writes a file: a mode of open(), or what libraries call their functions for it.
_WRITES = re.compile(
    r"""(['"])(?:[wax]b?t?\+?|[wax]\+[bt])\1|\.to_(?!numpy|list|dict|frame|datetime)\w{1,40}\(|write_\w{1,40}\(|savefig\(|"""
    r"""\bsavez?(?:txt|_compressed)?\(|\bdump\(|\bmk(?:dir|dirs)\(|\bmakedirs\(|\btouch\("""
)
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
#: A line that runs a program, or the magic that does.
_PROGRAM = re.compile(r"^[^#'\"\n]*[!%](?!=)", re.MULTILINE)
_INSTALLERS = {"pip", "conda", "mamba", "uv"}
#: What IPython inside says of our own line.
_OUR_LINE = re.compile(r"(?:Cell|Line) magic (?:function )?`%{1,3}sandbox` not found")
_NOT_INSTALLED = re.compile("No matching distribution found|Could not install packages due to an OSError")
_NOT_READ = "it is not in files.read"
_MOST_TEXT = 8192
#: Folders that are named in a line.
_LISTED = 3
#: Characters of a list of paths that is shown with one more in it.
_MOST_LIST = 200
#: The end of what was printed that is looked at.
_MOST_PRINTED = 64 << 10
#: Shown by every sandbox, so that what is missing there is missing on the host.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev", "/sys")
#: What no policy may add: the sockets of services, and to write, what is the system's.
_NEVER = ("/run", "/var/run")
_NEVER_WRITTEN = ("/boot", "/etc", *_SYSTEM)
#: Folders that a sandbox has of its own, where the host has one too.
_OWN = {"/tmp": "its /tmp is its own", "/var/tmp": "its /var/tmp is its own", "/home/sandbox": "its home is its own"}


def may_apply(ename: str, evalue: str) -> bool:
    """Is there anything to say, or to ask the policy about?"""
    return (
        _is_our_line(ename, evalue)
        or _path(ename, evalue) is not None
        or _unwritten_folder(ename, evalue) is not None
        or _module(ename, evalue) is not None
        or _is_network(evalue)
    )


def hint(
    ename: str, evalue: str, policy: Mapping[str, Any], *, namespaces: bool = True, traceback: str | Sequence[str] = ""
) -> str:
    """The line for an error, under a policy as ``Effective.to_json`` shows it; empty if there is nothing to say.

    ``namespaces``: whether the sandbox has them, without which the project is read-only and there is no loopback.
    ``traceback``: its text or lines, which tell whether the path was to be written.
    """
    if _is_our_line(ename, evalue):
        return "The code runs in a sandbox already, which does not know %sandbox and %%sandbox: leave that line out."
    named = _path(ename, evalue)
    if named is not None:
        return _path_hint(
            named[1], named[3], policy, namespaces, "\n".join([traceback] if isinstance(traceback, str) else traceback)
        )
    folder = _unwritten_folder(ename, evalue)
    if folder is not None:
        return _unwritable(folder[2], folder[2], policy, namespaces) if _why_unseen(folder[2], policy) else ""
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


def _unwritten_folder(ename: str, evalue: str) -> re.Match[str] | None:
    return _NO_FOLDER.match(evalue) if ename == "OSError" else None


def _module(ename: str, evalue: str) -> re.Match[str] | None:
    return _NO_MODULE.match(evalue) if ename == "ModuleNotFoundError" else None


def _is_our_line(ename: str, evalue: str) -> bool:
    return ename == "UsageError" and _OUR_LINE.match(evalue) is not None


def _is_network(evalue: str) -> bool:
    return _NO_NETWORK.search(evalue[:_MOST_TEXT]) is not None


def _place(written: str, policy: Mapping[str, Any]) -> str:
    # The code may have changed its folder since; most never do.
    return "/" + os.path.normpath(os.path.join(str(policy["folder"]), written)).lstrip("/")


def _path_hint(number: str, written: str, policy: Mapping[str, Any], namespaces: bool, traceback: str) -> str:
    if number == "2" and (written == "~" or written.startswith("~/")):
        return (
            "Python does not expand ~ in a path, and ~ in the sandbox is a home of its own: "
            "copy the file into the project and name it from there."
        )
    why = _why_unseen(written, policy) if number != "30" else ""
    if why == _NOT_READ and number == "2" and _is_outside(written, policy) and _writes(traceback):
        # The folder is not there inside, so that Python says of a file to be written what it says of one to be read.
        return _unwritable(written, os.path.dirname(written), policy, namespaces)
    if why:
        return f"The sandbox can't see {one_line(clean_text(written))}: {why}.{_to_read(written, why, policy)}"
    if number == "2":
        return ""
    return _read_only(written, policy, namespaces) or (
        _unwritable(written, os.path.dirname(written), policy, namespaces) if number == "30" else ""
    )


def _writes(traceback: str) -> bool:
    """Do the lines that were being run write files? IPython marks them; Python's own traceback has no others."""
    lines = _COLOURS.sub("", traceback[-_MOST_PRINTED:]).splitlines()
    marked = [line for line in lines if re.match(r"-+> ?\d", line)]
    return any(_WRITES.search(line[:_MOST_TEXT]) for line in marked or lines)


def _is_outside(written: str, policy: Mapping[str, Any]) -> bool:
    return not within(_place(written, policy), str(policy["project"]))


def _to_read(written: str, why: str, policy: Mapping[str, Any]) -> str:
    """What to do about a file that is out of sight."""
    place = _place(written, policy)
    if why != _NOT_READ:
        return " Copy it into the project." if _is_outside(written, policy) and why in _OWN.values() else ""
    if _is_never(place, policy):
        return ""
    more = _more("read", place, policy)
    if _is_outside(written, policy):
        return f" Copy it into the project{more and f', or {more}'}."
    return f" {more[0].upper()}{more[1:]}." if more else ""


def _is_never(place: str, policy: Mapping[str, Any]) -> bool:
    """What a policy would be refused for, or a name that is hidden for what is usually in it: not to be suggested."""
    home = os.path.expanduser("~")
    project = str(policy["project"])
    top = project if within(place, project) else home if within(place, home) else "/"
    if within(home, place) or any(within(place, folder) for folder in _NEVER):
        return True
    return compile_patterns(policy["hidden"]).covers(os.path.relpath(place, top))


def _more(key: str, place: str, policy: Mapping[str, Any]) -> str:
    """What to write, and where, so that ``place`` is in files.read or files.write too. A list in a file takes the place
    of the one below it, so all of it is shown."""
    source = str(policy.get("sources", {}).get(f"files.{key}", "built-in"))
    if source == "built-in strict":
        return ""  # no file adds to that
    project = str(policy["project"])
    entry = os.path.relpath(place, project) if within(place, project) else place
    again = "; it counts from the next sandbox, which a notebook's next cell starts"
    if source.startswith("project file "):
        file = one_line(clean_text(source.removeprefix("project file ")))
        return f"add it to files.{key} in {file} and approve that (ipysandbox policy trust){again}"
    if not source.startswith(("built-in", "user file ", "policy file ")):
        return f"add it to files.{key} of the {one_line(source)}"
    file = _own_file() if source.startswith("built-in") else one_line(clean_text(source.partition(" file ")[2]))
    if not file:
        return ""
    listed = json.dumps([*policy["policy"]["files"][key], entry], ensure_ascii=False)
    if len(listed) > _MOST_LIST or not listed.isprintable():
        return f"add it to files.{key} in {file}{again}"
    return f"write in {file}: [files] {key} = {listed}{again}"


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


def _own_file() -> str:
    """Where the user's own policy is or would be, as a sentence names it; empty where Jupyter is told to read none."""
    home = os.path.expanduser("~")
    places = [str(place) for place in user_places(os.environ, home)]
    usual = OWN_FILE.replace("~", home, 1)
    return "".join(OWN_FILE if place == usual else one_line(clean_text(place)) for place in places)


def _unwritable(written: str, folder: str, policy: Mapping[str, Any], namespaces: bool) -> str:
    """What may be written, for a path that the policy puts outside of it. ``folder``: the one to be added."""
    project, place = str(policy["project"]), _place(written, policy)
    own = [top for top in (*_OWN, "/dev/shm", *policy["write"], project) if within(place, top)]
    if own:
        return ""
    kept = [os.path.relpath(top, project) if within(top, project) else top for top in policy["write"]]
    listed = [f"{top.rstrip('/')}/" for top in kept[:_LISTED]]
    listed += [f"{len(kept) - _LISTED} more folders"] if len(kept) > _LISTED else []
    home = "its own ~ (/home/sandbox) and /tmp" if namespaces else "its own ~ and $TMPDIR"
    may = one_line(clean_text(", ".join([*listed, home])), 400)
    top = _place(folder, policy)
    never = _is_never(top, policy) or any(within(top, name) for name in _NEVER_WRITTEN)
    more = "" if never else _more("write", top, policy)
    more = f". For more, {more}" if more else "; more with files.write"
    return f"The sandbox can't write {one_line(clean_text(written))}: it writes {may}{more}."


def _why_unseen(written: str, policy: Mapping[str, Any]) -> str:
    project, place = str(policy["project"]), _place(written, policy)
    tops = [top for top in (*policy["read"], *policy["write"]) if within(place, top)]
    if tops:
        matcher = compile_patterns(policy["hidden"])
        hidden = any(matcher.covers(os.path.relpath(place, top)) for top in tops)
        return "its name is hidden by files.hide" if hidden else ""
    if within(place, project):
        return _NOT_READ
    for folder, why in _OWN.items():
        if within(place, folder):
            return why
    return "" if any(within(place, folder) for folder in _shown()) else _NOT_READ


def _shown() -> tuple[str, ...]:
    prefixes = (sys.prefix, sys.base_prefix)
    return (*_SYSTEM, *prefixes, *map(os.path.realpath, prefixes))
