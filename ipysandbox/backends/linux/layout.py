"""Decides what of the host a sandbox sees: a policy and the interpreter's places in, a Plan's files out."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ipysandbox import reach
from ipysandbox.errors import StartError
from ipysandbox.policy import Effective, Matcher, compile_patterns
from ipysandbox.policy.names import REPOSITORY_OBEYED, in_repository
from ipysandbox.policy.paths import without_inner

from .plan import Bind, Overlay
from .walk import MOST_ENTRIES, too_many

HOME = "/home/sandbox"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: Of /etc only what libraries read to work; never the folder itself.
_ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
    "localtime",
    "timezone",
    "alternatives",
    "fonts",
    "mime.types",
    "protocols",
    "services",
    "matplotlibrc",
)
#: Processor topology, which numeric libraries read to choose their kernels.
_SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node")

#: How long, and how far, to look for names to hide before giving up (a project on a slow network file system).
_HIDE_SECONDS = 5.0
_HIDE_ENTRIES = 500_000


@dataclass(frozen=True)
class Spent:
    """What a look has taken where no sandbox writes (seconds): by the clock, and of the processor alone."""

    seconds: float
    computing: float


@dataclass(frozen=True)
class Layout:
    binds: tuple[Bind, ...]
    overlays: tuple[Overlay, ...]
    covered: tuple[str, ...]
    links: dict[str, str]
    texts: dict[str, str]


def layout(effective: Effective, *, inside_id: int, extra: tuple[Bind, ...] = ()) -> Layout:
    """Raises StartError when a path can't be shown as the policy asks."""
    binds, links = system_parts()
    places = interpreter_places()
    binds += [Bind(str(path)) for path in places]
    binds += extra
    overlays, covered = [], []
    project = effective.project
    seen_whole = project in effective.read
    writable = effective.policy.files.workspace == "overlay"
    hidden = compile_patterns(effective.hidden)
    protected = compile_patterns(effective.protected, copies=False)
    inner = [p for p in (*effective.read, *effective.write) if p != project and project in p.parents]
    folders: list[str] = []
    files: list[str] = []
    if not seen_whole:
        for path in inner:
            relative = str(path.relative_to(project))
            (files if path.is_file() else folders).append(relative)
    if project != project.parent:  # the root is made of the other parts, and of nothing else
        overlays.append(
            Overlay(
                target=str(project),
                source=str(project) if seen_whole else "",
                writable=writable,
                # Writable folders are mounted over it.
                hidden=tuple(find_hidden(project, hidden, mounts_shown=(), places=places, leave_out=effective.write))
                if seen_whole
                else (),
                folders=tuple(folders),
                files=tuple(files),
            )
        )
    for path in effective.read:
        if seen_whole and (path == project or project in path.parents):
            continue
        if path.is_dir():
            names = find_hidden(path, hidden, mounts_shown=(), places=places, leave_out=effective.write)
            overlays.append(Overlay(str(path), str(path), writable and project in path.parents, tuple(names)))
        else:
            binds.append(Bind(str(path), from_policy=True))
    for path in effective.write:
        binds.append(Bind(str(path), writable=True, from_policy=True))
        # A writable folder is shown itself, not through an overlay: cover what it holds of hidden or protected names.
        names = find_hidden(path, hidden, places=places, writable=True)
        names += find_protected(path, protected, places=places)
        found = (f"{path}/{name}" for name in names)
        # A link can't be covered, and need not be: what it points to is not there.
        covered += [name for name in found if not os.path.islink(name)]
    for overlay in overlays:
        _refuse_mounts_inside(overlay)
    return Layout(tuple(binds), tuple(overlays), tuple(dict.fromkeys(covered)), links, _texts(inside_id))


def _refuse_mounts_inside(overlay: Overlay) -> None:
    """An ordinary user may not take a mount off what lies below it (mount_namespaces(7)), so overlayfs refuses it."""
    mounts = sorted(reach.mounts_below(overlay.source)) if overlay.source and os.geteuid() else []
    if mounts:
        raise StartError(
            f"files.read: something is mounted inside {overlay.source}, at {mounts[0]}, and an ordinary user's sandbox "
            "can't show a folder around a mount",
            hint=f"List the folders that the code needs in files.read, {mounts[0]} itself as well if it needs that.",
        )


def hidden_paths(effective: Effective) -> tuple[list[str], Spent]:
    """Absolute paths of everything below the policy's paths that is to be hidden, as they are now, and what it took to
    look for them outside writable folders."""
    matcher = compile_patterns(effective.hidden)
    places = interpreter_places()
    write = effective.write
    found: list[str] = []
    began, computed = time.monotonic(), time.thread_time()
    for path in without_inner((*effective.read, *write)):
        if path.is_dir() and path not in write:
            names = find_hidden(path, matcher, mounts_shown=write, places=places, leave_out=write)
            found += (f"{path}/{name}" for name in names)
    spent = Spent(time.monotonic() - began, time.thread_time() - computed)
    for path in write:
        if path.is_dir():
            names = find_hidden(path, matcher, mounts_shown=write, places=places, writable=True)
            found += (f"{path}/{name}" for name in names)
    return found, spent


def interpreter_places() -> list[Path]:
    """Folders that this interpreter runs from: prefixes, site folders and its libraries; none inside another."""
    places = _named_by_the_interpreter(tuple(sys.path))
    # Both spellings where a prefix is reached through a link: programs use the one, the loader the other.
    return list(_outermost(frozenset(p for p in (*places, *map(os.path.realpath, places)) if os.path.isdir(p))))


@functools.lru_cache(maxsize=1)
def _named_by_the_interpreter(search: tuple[str, ...]) -> frozenset[str]:
    """``search``: where this process imports from."""
    paths = sysconfig.get_paths()
    places = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, paths["purelib"], paths["platlib"]}
    places |= {*site.getsitepackages(), site.getusersitepackages()} & set(search)
    places.add(os.path.dirname(os.path.realpath(sys.executable)))
    return frozenset(places)


@functools.lru_cache(maxsize=1)
def _outermost(folders: frozenset[str]) -> tuple[Path, ...]:
    found: list[Path] = []
    for path in sorted(map(Path, folders), key=lambda p: (len(p.parts), p)):
        covered = any(path == other or other in path.parents for other in found)
        if not covered and str(path) not in _SYSTEM and not str(path).startswith(("/usr/", "/bin/", "/lib/")):
            found.append(path)
    return tuple(found)


def system_parts() -> tuple[list[Bind], dict[str, str]]:
    """The system's own folders and files that programs need, and the links among them."""
    binds, links = [], {}
    for name in _SYSTEM:
        if os.path.islink(name):
            links[name] = os.readlink(name)
        elif os.path.isdir(name):
            binds.append(Bind(name))
    for name in _ETC:
        path = f"/etc/{name}"
        real = os.path.realpath(path)
        if os.path.exists(real):
            # The content at the usual name, wherever a link leads on this system.
            binds.append(Bind(real, target=path, optional=True))
    binds += [Bind(path, optional=True) for path in _SYS if os.path.isdir(path)]
    return binds, links


def _texts(inside_id: int) -> dict[str, str]:
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    return {
        "/etc/passwd": f"sandbox:x:{inside_id}:{inside_id}:sandbox:{HOME}:{shell}\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"sandbox:x:{inside_id}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "/etc/resolv.conf": "",
        "/etc/hostname": "sandbox\n",
    }


def find_protected(top: Path, patterns: Matcher, *, places: Sequence[Path] | None = None) -> list[str]:
    """As ``find_hidden`` in a writable folder, what git obeys in folders that are repositories by themselves, and the
    sockets, pipes and devices, by which a program outside would answer."""
    return find_hidden(top, patterns, obeyed=True, places=places, writable=True)


def find_hidden(
    top: Path,
    patterns: Matcher,
    *,
    mounts_shown: Sequence[Path] | None = None,
    obeyed: bool = False,
    places: Sequence[Path] | None = None,
    leave_out: Sequence[Path] = (),
    writable: bool = False,
) -> list[str]:
    """Relative paths below ``top`` that the patterns match, outermost only. In a folder that git takes for a
    repository what they say of .git is meant as well; ``obeyed``: instead, all that git obeys there, and what is
    neither a file nor a folder nor a link.

    ``mounts_shown``: below which folders what is mounted inside ``top`` is shown too (None: everywhere). An overlay
    doesn't show it, so that need not answer. ``places``: the interpreter's, looked up unless given. ``leave_out``:
    folders that are searched by themselves. ``writable``: no more may lie here than can be watched. Raises StartError
    when the folder can't be searched to its end: an unseen name would not be hidden.
    """
    found: list[str] = []
    deadline = time.monotonic() + _HIDE_SECONDS
    skip = {str(p) for p in (interpreter_places() if places is None else places)}
    mounts = reach.mounts_below(top)
    shown = [m for m in mounts if mounts_shown is None or any(Path(m).is_relative_to(path) for path in mounts_shown)]
    reach.require([top, *shown])
    skip |= mounts.difference(shown)
    skip.update(map(str, leave_out))
    stack, entries = [""], 0
    while stack:
        prefix = stack.pop()
        try:
            with os.scandir(top / prefix) as rows:
                listing = list(rows)
        except PermissionError:
            continue  # what this user may not list, the sandbox may not either
        except FileNotFoundError:
            continue
        repository = in_repository({row.name for row in listing}.__contains__)
        own = REPOSITORY_OBEYED if repository and obeyed else frozenset[str]()
        for row in listing:
            entries += 1
            relative = prefix + row.name
            matches = patterns.match(row.name, relative, in_repository=repository and not obeyed)
            if row.name in own or matches or (obeyed and _answers(row)):
                found.append(relative)
            elif row.is_dir(follow_symlinks=False) and not _skips(relative, skip, top):
                stack.append(relative + "/")
        if writable and entries > MOST_ENTRIES:
            raise too_many(top)
        if entries > _HIDE_ENTRIES or time.monotonic() > deadline:
            raise StartError(
                f"files.hide: {top} is too large, or too slow, to search for names to hide "
                f"({entries} entries in {_HIDE_SECONDS:.0f} s)",
                hint='List the folders that the code needs in the policy, for example files.read = ["data", "src"].',
            )
    return found


def _answers(row: os.DirEntry[str]) -> bool:
    return not (row.is_symlink() or row.is_dir(follow_symlinks=False) or row.is_file(follow_symlinks=False))


def _skips(relative: str, places: set[str], top: Path) -> bool:
    """Folders that need no search: the running environment (shown read-only as it is), what isn't shown at all, and
    git's object store."""
    return os.path.join(top, relative) in places or f"/{relative}".endswith("/.git/objects")
