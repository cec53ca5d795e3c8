"""Checks one policy file on its own, and finds everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ipysandbox.errors import PolicyError

from .credentials import why_refused
from .discovery import home_folders
from .names import PROTECTED
from .paths import Places
from .patterns import compile_patterns
from .profiles import DEFAULT
from .schema import Problem, Wishes, read_table
from .source import read_document, read_required
from .units import BadValue


def lint(path: Path | str, *, project: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """All problems of a policy file; its paths are looked up from ``project``, by default the file's own folder.

    ``environ`` (by default this process's) tells the home folder, and the values of variables that the file wants to
    pass: one that holds a credential is refused whatever its name. An empty list says that ``resolve`` accepts the
    file in full, as far as it depends on the file alone.
    """
    path = Path(path)
    environ = os.environ if environ is None else environ
    try:
        document = read_document(path)
    except PolicyError as error:
        message = error.message.partition(": ")[2] if error.file else error.message
        return [Problem("", message, error.hint, error.file, error.line)]
    if document is None:
        return [Problem("", "no [tool.ipysandbox] table", None, str(path))]
    wishes, problems = read_table(document.table, str(path), document)
    problems += path_problems(wishes, _places(path, project, environ))
    for name in wishes.values.get("environment.allow", ()):
        why = why_refused(name, environ.get(name, ""))
        if why is not None:
            problems.append(
                wishes.problem("environment.allow", f"{name} is never passed to a sandbox: {why}", None, name)
            )
    return sorted(problems, key=lambda problem: problem.line or 0)


def doubts(path: Path | str, *, project: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """What a policy without problems may not have meant: folders to write to that are not there yet."""
    path = Path(path)
    document = read_required(path)
    wishes, _ = read_table(document.table, str(path), document)
    places = _places(path, project, os.environ if environ is None else environ)
    entries = wishes.values.get("files.write", ())
    found = [(entry, doubt) for entry in entries if (doubt := places.to_be_made(entry)) is not None]
    return [wishes.problem("files.write", doubt.message, doubt.hint, entry) for entry, doubt in found]


def cards(path: Path | str) -> tuple[str, ...]:
    """The graphics cards that a policy without problems asks for, as it names them."""
    document = read_required(Path(path))
    wishes, _ = read_table(document.table, str(path), document)
    return tuple(wishes.values.get("limits.gpu.devices", ()))


def _places(path: Path, project: Path | None, environ: Mapping[str, str]) -> Places:
    return Places(os.path.realpath(project or path.parent), home_folders(environ))


def path_problems(wishes: Wishes, places: Places) -> list[Problem]:
    """Paths of one layer that can't be read or written, as far as that layer alone decides."""
    hidden = compile_patterns((*DEFAULT.files.hide, *wishes.values.get("files.hide", ())))
    protected = compile_patterns(PROTECTED)
    problems = []
    for key in ("files.read", "files.write", "data.source_path"):
        value = wishes.values.get(key, ())
        for entry in value if isinstance(value, tuple) else (value,):
            try:
                if key == "files.write":
                    places.writable(entry, hidden, protected)
                else:
                    places.readable(entry, hidden)
            except BadValue as error:
                problems.append(wishes.problem(key, error.message, error.hint, entry))
    return problems
