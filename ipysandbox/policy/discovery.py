"""Finds the notebook's project and the policy files that speak about it."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ipysandbox import reach
from ipysandbox.errors import PolicyError

from .source import FILE_NAME, PYPROJECT, Document, read_document

MARKERS = (FILE_NAME, PYPROJECT, ".git")
# Jupyter's system configuration (jupyter_core.paths.SYSTEM_CONFIG_PATH). Not the environment's own etc/jupyter:
# whoever installs packages there could lift the ceiling.
ADMIN_FILES = (Path("/etc/jupyter") / FILE_NAME, Path("/usr/local/etc/jupyter") / FILE_NAME)


def home_folders(environ: Mapping[str, str], home: Path | None = None) -> tuple[str, ...]:
    """The user's homes, links resolved: the given one or $HOME first, then the one of the password database.

    Both count, so that a stray HOME doesn't turn the real home into an ordinary project. StartError if the first, which
    may hold the user's policy, does not answer; of the other only the name matters.
    """
    found = [str(home)] if home is not None else [environ["HOME"]] if environ.get("HOME") else []
    if sys.platform != "win32":
        import pwd

        # Many containers run under a user id without an entry.
        with contextlib.suppress(KeyError):
            found.append(pwd.getpwuid(os.getuid()).pw_dir)
    found = [os.path.abspath(path) for path in found or [os.path.expanduser("~")]]
    silent = reach.stalled(found)
    if found[0] in silent:
        raise reach.no_answer(found[0])
    return tuple(dict.fromkeys(path if path in silent else os.path.realpath(path) for path in found))


def find_project(cwd: Path, *, home: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """The nearest folder from ``cwd`` upward with a policy file, pyproject.toml or .git; else ``cwd``. A real path.

    A home folder, anything above it, and folders that everybody may write to are never taken for their markers.
    StartError if one of the folders does not answer: what it holds may be a policy.
    """
    reach.require([cwd])
    real = Path(os.path.realpath(cwd))
    homes = home_folders(os.environ if environ is None else environ, home)
    reach.require(folder / FILE_NAME for folder in (real, *real.parents) if not is_home_or_above(folder, homes))
    for folder in _upward(real, homes):
        if any(os.path.lexists(folder / marker) for marker in MARKERS):
            return folder
    return real


def is_too_wide(project: Path, homes: tuple[str, ...]) -> bool:
    """Is the folder a home, above one, the root, or one that everybody writes to, such as /tmp?"""
    return is_home_or_above(project, homes) or _is_shared(project)


def find_project_policy(cwd: Path, homes: tuple[str, ...]) -> Document | None:
    """The nearest policy from ``cwd`` upward. A folder with two is refused: nobody could say which one counts."""
    for folder in _upward(Path(os.path.realpath(cwd)), homes):
        own, pyproject = folder / FILE_NAME, folder / PYPROJECT
        table = read_document(pyproject, inside=folder) if os.path.lexists(pyproject) else None
        if os.path.lexists(own):
            document = read_document(own, inside=folder)
            if document is not None and table is not None:
                raise _two_policies(table, own)
            return document
        if table is not None:
            return table
    return None


def user_file(environ: Mapping[str, str], home: str) -> Path | None:
    """The user's own policy in Jupyter's configuration folder, if there is one."""
    return next((path for path in user_places(environ, home) if is_there(path)), None)


def user_places(environ: Mapping[str, str], home: str) -> list[Path]:
    """Where the user's own policy would be; the rules are jupyter_core's."""
    if environ.get("JUPYTER_NO_CONFIG"):
        return []
    if environ.get("JUPYTER_CONFIG_DIR"):
        folder = Path(environ["JUPYTER_CONFIG_DIR"])
    elif environ.get("JUPYTER_PLATFORM_DIRS", "").lower() not in ("", "0", "no", "n", "false"):
        if sys.platform == "darwin":
            folder = Path(home, "Library/Application Support/jupyter")
        else:
            folder = Path(environ.get("XDG_CONFIG_HOME") or Path(home, ".config"), "jupyter")
    else:
        folder = Path(home, ".jupyter")
    return [folder / FILE_NAME]


def is_there(path: Path) -> bool:
    """Is there a policy file? PolicyError if that can't be found out: a ceiling one can't see still holds."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise PolicyError(f"the policy can't be looked for: {why}", file=str(path), hint="check its folder") from None
    return True


def _upward(start: Path, homes: tuple[str, ...]) -> Iterator[Path]:
    for folder in (start, *start.parents):
        if not is_home_or_above(folder, homes) and not _is_shared(folder):
            yield folder


def is_home_or_above(folder: Path, homes: tuple[str, ...]) -> bool:
    """Is the folder a home, above one, or the root?"""
    return folder == folder.parent or any(folder == Path(home) or folder in Path(home).parents for home in homes)


def _is_shared(folder: Path) -> bool:
    # In a sticky folder that all may write to, a marker can be anybody's: compare CVE-2022-24765 of git.
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def _two_policies(table: Document, own: Path) -> PolicyError:
    return PolicyError(
        f"two policies in one folder: [tool.ipysandbox] here and {own.name} beside it",
        file=str(table.path),
        line=table.line(()),
        hint="keep one of them",
    )
