"""Puts the layers of a policy together for one project, and finds out what they come to there."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ipysandbox import reach
from ipysandbox.errors import PolicyError

from .approvals import approved_hash, place, trust_file
from .credentials import HostVariables, sort_variables
from .discovery import (
    ADMIN_FILES,
    find_project,
    find_project_policy,
    home_folders,
    is_home_or_above,
    is_there,
    is_too_wide,
    user_file,
    user_places,
)
from .links import within
from .linting import path_problems
from .merge import Locate, NotGranted, anywhere, locator, meet, merge, show, too_much
from .model import Effective, Policy
from .names import PROTECTED
from .own import others_wrote, within_one
from .paths import Places, without_inner
from .patterns import Matcher, compile_patterns
from .profiles import PROFILES, STRICT, nearest, unknown
from .room import most_memory
from .schema import FIELDS, MORE, MORE_HIDDEN, Problem, Wishes, first_error, read_object, read_options, read_table
from .source import FILE_NAME, PYPROJECT, Document, read_required
from .units import BadValue, quoted

#: What single settings are called where they come from: those of a cell or command, and of a caller in Python.
CELL = "cell option"
SETTING = "argument"
ARGUMENT = "policy argument"
_PATH_KEYS = ("files.read", "files.write", "data.source_path")
_OF_ANOTHER = (
    "it is the policy of another project, and counts in full there only; to use it here, give a copy its own name"
)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's wishes. ``untrusted`` is empty, or says why only the tightening counts and what to do."""

    wishes: Wishes
    untrusted: str = ""
    approvable: bool = False


def resolve(
    policy: str | Path | Mapping[str, Any] | Policy | None = None,
    *,
    cwd: Path,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    home: Path | None = None,
    admin_files: Sequence[Path] = ADMIN_FILES,
    system: Path = Path("/"),
    given_as: str = CELL,
) -> Effective:
    """The policy that holds for code run in ``cwd``, or PolicyError: then nothing may run.

    From the bottom: the built-in profile, the user's file, the project's file (what it loosens only once approved),
    ``policy`` if it is a file or a mapping, ``overrides``; the administrator's files clamp the result. A file counts in
    full where the user's own policies lie, elsewhere as the project's does, whoever names it. A ``Policy`` object is
    complete and stands in for all files but the administrator's. The profile "strict" can be tightened by files, and
    loosened only by ``policy`` and ``overrides``. ``overrides`` are the options of a cell or command by dotted key, as
    in {"limits.wall": "30s"}, called ``given_as`` where they come from. No limit on memory is above three quarters of
    what there is, by the files of ``system``.
    """
    return _Resolution(cwd, environ, home, given_as=given_as).run(policy, overrides or {}, admin_files, system)


def check_given(
    policy: str | Path | Mapping[str, Any] | Policy | None,
    overrides: Mapping[str, object],
    names: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """PolicyError for what ``resolve`` would refuse in these arguments themselves, whatever files there are. ``names``:
    what the caller calls some of the overrides."""
    problems = [
        dataclasses.replace(problem, key=names[problem.key], file=None) if problem.key in names else problem
        for problem in read_options(overrides, CELL)[1]
    ]
    if isinstance(policy, Policy):
        problems = read_object(policy, ARGUMENT)[1] + problems
    elif isinstance(policy, Mapping):
        problems = read_table(policy, ARGUMENT)[1] + problems
    elif isinstance(policy, str):
        _require_profile_or_path(policy)
    first_error(problems)


def _require_profile_or_path(given: str) -> None:
    if given not in PROFILES and "/" not in given and not given.endswith(".toml"):
        message, hint = unknown("policy", given, list(PROFILES))
        raise PolicyError(message, hint=f"{hint} (a file is named by its path, as in ./mine.toml)")


def loosens(path: Path, *, environ: Mapping[str, str], home: Path | None = None) -> tuple[str, tuple[NotGranted, ...]]:
    """The hash of a policy file, and each thing in it that would loosen what the user allows: a project's policy in its
    project, one of another name in any.

    This is the difference to show before ``trust(path, expect=hash)``.
    """
    document = read_required(path)
    resolution = _Resolution(path.parent, environ, home)
    resolution.anywhere = not resolution.of_a_project(path)
    layer = resolution.project_layer(document, f"project file {path}", "not approved")
    for lower in resolution.layers(None, skip=path):
        resolution.apply(lower)
    resolution.refused.clear()
    resolution.apply(layer)
    return document.sha256, tuple(resolution.refused)


def require_usable(
    document: Document,
    *,
    environ: Mapping[str, str],
    home: Path | None = None,
    admin_files: Sequence[Path] = ADMIN_FILES,
    cwd: Path | None = None,
) -> None:
    """PolicyError with everything that each run would stumble over if this policy were approved: a project's in its
    project, one of another name in ``cwd`` (by default wherever it is used)."""
    resolution = _Resolution(document.path.parent, environ, home, approved=document)
    if not resolution.of_a_project(document.path):
        if cwd is None:
            resolution.anywhere = True
        else:
            resolution = _Resolution(cwd, environ, home, approved=document)
    resolution.run(document.path, {}, admin_files)


def counts_in_full(path: Path, *, environ: Mapping[str, str], home: Path | None = None) -> bool:
    """Is the file the user's own or the administrator's, so that nothing in it waits for an approval?"""
    homes = home_folders(environ, home)
    if os.path.realpath(path) in map(os.path.realpath, ADMIN_FILES):
        return True
    own = user_file(environ, homes[0])
    # The home is never the project that its files come with.
    resolution = _Resolution(Path(homes[0]), environ, home)
    resolution.admin_files = ADMIN_FILES
    if (own is None or place(own) != place(path)) and not resolution.lies_among_own(path):
        return False
    return not others_wrote(read_required(path))


class _Resolution:
    def __init__(
        self,
        cwd: Path,
        environ: Mapping[str, str],
        home: Path | None,
        *,
        approved: Document | None = None,
        given_as: str = CELL,
    ) -> None:
        self.given_as = given_as
        self.cwd, self.environ, self.home = cwd, environ, home
        #: Taken as approved, to find out what that would come to.
        self.approved = approved
        #: A policy is looked at that may be used in any project, not in this one.
        self.anywhere = False
        self.admin_files: Sequence[Path] = ()
        self.homes = home_folders(environ, home)
        self.project = find_project(cwd, home=home, environ=environ)
        self.store = trust_file(environ, self.homes[0])
        reach.require([self.store, *user_places(environ, self.homes[0])])
        self.user_file = user_file(environ, self.homes[0])
        self.places = self._places()
        self.policy = PROFILES["default"]
        self.sources: dict[str, str] = {}
        self.asked_by: dict[tuple[str, str], Wishes] = {}
        self.notices: list[str] = []
        self.refused: list[NotGranted] = []

    def run(
        self,
        given: str | Path | Mapping[str, Any] | Policy | None,
        overrides: Mapping[str, object],
        admin_files: Sequence[Path],
        system: Path = Path("/"),
    ) -> Effective:
        self.admin_files = admin_files
        for layer in self.layers(given):
            self.apply(layer)
        wishes, problems = read_options(overrides, self.given_as)
        first_error(problems)
        self.apply(_Layer(wishes))
        for path in admin_files:
            if is_there(path):
                self._clamp(path)
        self._fit_machine(most_memory(system))
        return self._effective()

    def _places(self) -> Places:
        own = [self.store, *user_places(self.environ, self.homes[0])]
        own += [path.parent for path in own[1:]]  # of the user's other policies
        return Places(str(self.project), self.homes, tuple(os.path.realpath(path) for path in own))

    # The layers, from the bottom up

    def layers(
        self, given: str | Path | Mapping[str, Any] | Policy | None, *, skip: Path | None = None
    ) -> list[_Layer]:
        if isinstance(given, Policy):
            base, problems = read_object(given, ARGUMENT)
            first_error(problems)
            self._start(base, ARGUMENT)
            return []
        name, file = self._name_or_file(given)
        base = PROFILES[name]
        self._start(base, f"built-in {name}")
        why = 'the profile "strict" is only tightened by files' if base is STRICT else ""
        layers = []
        if self.user_file is not None and (skip is None or place(skip) != place(self.user_file)):
            layers.append(self._user_layer(self.user_file, why))
        document = None if self.anywhere else find_project_policy(self.cwd, self.homes)
        skipped = {os.path.realpath(path) for path in (file, skip) if path is not None}
        if document is not None and os.path.realpath(document.path) not in skipped:
            layers.append(self.project_layer(document, f"project file {document.path}", why))
        if isinstance(given, Mapping):
            wishes, problems = read_table(given, ARGUMENT)
            first_error(problems)
            layers.append(_Layer(wishes))
        elif file is not None:
            layers.append(self._named_layer(file))
        return layers

    def _user_layer(self, file: Path, untrusted: str) -> _Layer:
        document = read_required(file)
        if not untrusted and (why := others_wrote(document)):
            layer = self._file_layer(document, f"user file {file}", self._not_approved(document, why))
            return dataclasses.replace(layer, approvable=True)
        return self._file_layer(document, f"user file {file}", untrusted)

    def _named_layer(self, file: Path) -> _Layer:
        """A file that somebody named, who need not be the user: the first line of a stranger's cell may."""
        label, own = f"policy file {file}", self.lies_among_own(file)
        # By its real path: no link on the way can lead elsewhere once that was looked at.
        document = read_required(Path(os.path.realpath(file)) if own else file)
        why = others_wrote(document) if own else ""
        if own and not why:
            return self._file_layer(document, label, "")
        if self.of_a_project(file) and not self._speaks_here(file):
            return self._file_layer(document, label, _OF_ANOTHER, credentials_ok=False)
        return self.project_layer(document, label, "", why)

    def lies_among_own(self, file: Path) -> bool:
        """Is the file where the user's or the administrator's policies lie, and that no part of the project?"""
        files = (*user_places(self.environ, self.homes[0]), *self.admin_files)
        if not within_one(file, {os.path.realpath(path.parent) for path in files}):
            return False
        return is_home_or_above(self.project, self.homes) or not self._in_project(file)

    def _in_project(self, file: Path) -> bool:
        return any(within(path, str(self.project)) for path in (os.path.realpath(file), os.path.abspath(file)))

    def of_a_project(self, file: Path) -> bool:
        """Is it a project's policy by its name, which speaks of its own folder? Others speak of any project."""
        if self.user_file is not None and place(file) == place(self.user_file):
            return False
        return file.name in (FILE_NAME, PYPROJECT)

    def _speaks_here(self, file: Path) -> bool:
        """Is a project's policy one of a folder in this project, or of one that holds the code's folder?"""
        folder = Path(os.path.realpath(file.parent))
        if is_too_wide(folder, self.homes):
            return False
        if within(os.path.realpath(self.cwd), str(folder)):
            return True
        return within(str(folder), str(self.project)) and not is_too_wide(self.project, self.homes)

    def _start(self, base: Policy, label: str) -> None:
        self.policy = base
        self.sources = dict.fromkeys((*FIELDS, "credentials"), label)

    def _name_or_file(self, given: str | Path | Mapping[str, Any] | None) -> tuple[str, Path | None]:
        if given is None or isinstance(given, Mapping):
            return "default", None
        if isinstance(given, str) and given in PROFILES:
            return given, None
        if isinstance(given, str):
            _require_profile_or_path(given)
        path = Path(locator(os.path.abspath(self.cwd), self.homes[0])(str(given)))
        reach.require([path])
        if not is_there(path):
            raise PolicyError("the policy file does not exist", file=str(path), hint="check the path")
        return "default", path

    def _file_layer(
        self, document: Document, label: str, untrusted: str, *, credentials_ok: bool = True, folder: Path | None = None
    ) -> _Layer:
        """``folder``: of which its paths speak (default: the project)."""
        wishes, problems = read_table(document.table, label, document, credentials_ok=credentials_ok)
        if problems:  # all that is wrong with the file is told at once, as `policy lint` does
            problems += path_problems(wishes, dataclasses.replace(self.places, project=str(folder or self.project)))
            first_error(sorted(problems, key=lambda problem: problem.line or 0))
        return _Layer(wishes, untrusted)

    def project_layer(self, document: Document, label: str, untrusted: str, because: str = "") -> _Layer:
        """``because``: why the file isn't taken for the user's own, if it lies where those do."""
        folder = document.path.parent if self.of_a_project(document.path) else self.project
        why = untrusted or self._not_approved(document, because)
        layer = self._file_layer(document, label, why, credentials_ok=False, folder=folder)
        layer = dataclasses.replace(layer, approvable=not untrusted)
        if self.anywhere and self.approved is not None:
            return _of_whole_paths(layer)
        if folder == self.project:
            return layer
        # A policy above the project speaks of its own folder.
        values = dict(layer.wishes.values)
        for key in _PATH_KEYS:
            if isinstance(values.get(key), tuple):
                values[key] = tuple(_from(folder, entry) for entry in values[key])
            elif values.get(key) is not None:
                values[key] = _from(folder, values[key])
        return dataclasses.replace(layer, wishes=dataclasses.replace(layer.wishes, values=values))

    def _not_approved(self, document: Document, because: str = "") -> str:
        """Empty if the user approved this content; else what to do about it."""
        if self.approved is not None:
            # What else is not approved stays so; nobody reads its notice.
            return "" if document.sha256 == self.approved.sha256 else "not approved"
        known = approved_hash(document, self.store)
        if known == document.sha256:
            return ""
        what = "approve it" if known is None else "it changed since you approved it; see what it asks for now"
        advice = f"{what}: ipysandbox policy trust {shown(shlex.quote(str(document.path)))}"
        if because:
            return f"{because}; {advice}"
        own = user_places(self.environ, self.homes[0])
        if own and not self.of_a_project(document.path) and not self._in_project(document.path):
            return f"{advice}; or, if you wrote it, move it to {shown(str(own[0].parent))}"
        return advice

    # Applying them

    def apply(self, layer: _Layer) -> None:
        wishes, base = layer.wishes, self.policy
        trusted = not layer.untrusted
        self.policy, decided, refused = merge(base, wishes.values, trusted=trusted, locate=self._locate)
        self.sources.update(dict.fromkeys(decided, wishes.label))
        for key, value in wishes.values.items():
            for entry in value if isinstance(value, tuple) else (value,):
                self.asked_by[key, str(entry)] = wishes
        if trusted:
            first_error(_unknown_exceptions(base, wishes))
        elif not self.anywhere:
            self._require_inside(base, wishes)
        if refused:
            self.refused += refused
            self.notices.append(_refusal(wishes, refused, self._advice(layer, refused)))

    @property
    def _locate(self) -> Locate:
        return anywhere(self.homes[0]) if self.anywhere else self.places.locate

    def _advice(self, layer: _Layer, refused: Sequence[NotGranted]) -> str:
        """What to do about wishes that weren't granted: not to approve what would then stop every run, nor what nobody
        could read."""
        document = layer.wishes.document
        if layer.approvable and document is not None and self.approved is None:
            if why := too_much(refused):
                return f"it can't be approved as it is: {why}"
            try:
                require_usable(
                    document, environ=self.environ, home=self.home, admin_files=self.admin_files, cwd=self.cwd
                )
            except PolicyError as error:
                return f"it can't be approved as it is: {shown(error.message)}"
        return layer.untrusted

    def _clamp(self, path: Path) -> None:
        document = read_required(path)
        wishes, problems = read_table(document.table, "administrator", document)
        problems += [
            wishes.problem("files.hide", f"a ceiling can't show {quoted(entry[1:])} again", "remove the entry", entry)
            for entry in wishes.values.get("files.hide", ())
            if entry.startswith("!")
        ]
        first_error(problems)
        base = self.policy
        self.policy, decided, _ = merge(base, wishes.values, trusted=False, locate=self.places.locate)
        ceiling = {**wishes.values}
        source, readable = self.policy.data.source_path, ceiling.get("files.read")
        if source is not None and readable is not None and "data.source_path" not in ceiling:
            # A data set is read too.
            if not meet("files.read", (source,), readable, self.places.locate):
                self.policy, decided = self.policy.with_value("data.source_path", None), (*decided, "data.source_path")
            ceiling["data.source_path"] = readable
        self._require_inside(base, wishes, ceiling)
        for key in decided:
            self._tell_clamped(key, base, path)

    def _tell_clamped(self, key: str, base: Policy, path: Path) -> None:
        source = self.sources[key]
        self.sources[key] = "administrator"
        if FIELDS[key].tighter in (MORE, MORE_HIDDEN) or source.startswith("built-in"):
            return
        had, now = show(key, base.get(key)), show(key, self.policy.get(key))
        if source == self.given_as:
            raise PolicyError(
                f"{source}: {key}: {had} is more than the administrator allows ({shown(str(path))})",
                hint=f"write {now}, or leave it out",
            )
        self.notices.append(f"{key}: {had} ({shown(source)}) is more than the administrator allows; {now} is used")

    def _fit_machine(self, most: int | None) -> None:
        """A limit that the machine reaches first would never be met."""
        key = "limits.memory"
        had, source = self.policy.get(key), self.sources[key]
        if most is None or had <= most:
            return
        self.policy = self.policy.with_value(key, most)
        self.sources[key] = f"three quarters of this machine's memory (asked for: {show(key, had)}, {shown(source)})"
        if not source.startswith("built-in"):
            self.notices.append(
                f"{key}: {show(key, had)} ({shown(source)}) is more than three quarters of the memory here; "
                f"{show(key, most)} is used"
            )

    def _require_inside(self, base: Policy, wishes: Wishes, ceiling: Mapping[str, Any] | None = None) -> None:
        """Paths that a layer narrowed must be inside on the disk too, not only by their spelling.

        An untrusted layer's paths must be inside those of the base; all paths inside those of a ceiling.
        """
        problems = []
        for key in _PATH_KEYS:
            before, after = _entries(base.get(key)), _entries(self.policy.get(key))
            tops = [(before, [entry for entry in after if entry not in before])]
            if ceiling is not None and key in ceiling:
                tops.append((_entries(ceiling[key]), list(after)))
            try:
                for allowed, entries in tops:
                    self._require_real(entries, allowed)
            except BadValue as error:
                problems.append(wishes.problem(key, error.message, error.hint))
        first_error(problems)

    def _require_real(self, entries: Sequence[str], allowed: Sequence[str]) -> None:
        if entries:
            tops = [self.places.real(entry) for entry in allowed]
            for entry in entries:
                if not any(within(self.places.real(entry), top) for top in tops):
                    raise BadValue(f"{quoted(entry)} leaves by a link what it may name", "name the target itself")

    # What it comes to

    def _effective(self) -> Effective:
        hidden, protected = compile_patterns(self.policy.files.hide), compile_patterns(PROTECTED)
        too_wide = is_too_wide(self.project, self.homes)
        problems: list[Problem] = []

        def each(key: str, real: Any) -> list[Path]:
            found = []
            for entry in _entries(self.policy.get(key)):
                if too_wide and self.places.locate(entry) == str(self.project):
                    what = "written" if key == "files.write" else "read"
                    self.notices.append(
                        f"{shown(str(self.project))} is too wide for a project: nothing of it is {what}; "
                        "run in a folder inside it, or name folders in files.read of your own policy"
                    )
                    continue
                try:
                    found.append(real(entry))
                except BadValue as error:
                    problems.append(self._problem(key, entry, error))
            return found

        read = each("files.read", lambda entry: self.places.readable(entry, hidden))
        source = each("data.source_path", lambda entry: self.places.readable(entry, hidden))
        folder = self._folder(hidden, (*read, *source))
        # Where nobody said which, results/ is the one beside the notebook, as in a normal cell.
        inside = os.path.relpath(folder, self.project)
        own = inside != "." and self.sources["files.write"].startswith("built-in") and not protected.covers(inside)

        def writable(entry: str) -> Path:
            return self.places.writable(os.path.join(inside, entry) if own else entry, hidden, protected)

        write = each("files.write", writable)
        variables = sort_variables(self.environ, self.policy.environment.allow)
        problems += [self._refused_variable(name, why) for name, why in variables.refused.items()]
        first_error(problems)
        return Effective(
            policy=self.policy,
            project=self.project,
            folder=folder,
            project_is_home=too_wide,
            read=without_inner([*read, *source]),
            write=without_inner(write),
            hidden=self.policy.files.hide,
            protected=PROTECTED,
            environment=_environment(variables, source),
            withheld=variables.withheld,
            dropped=variables.dropped,
            unset=variables.unset,
            sources=self.sources,
            notices=tuple(self.notices),
        )

    def _folder(self, hidden: Matcher, shown: Sequence[Path]) -> Path:
        """Where the code begins: the folder that it is run for if the sandbox shows that, else the project."""
        folder = Path(os.path.realpath(self.cwd))
        if self.project not in folder.parents or hidden.covers(str(folder.relative_to(self.project))):
            return self.project
        return folder if any(within(str(folder), str(top)) for top in shown) else self.project

    def _problem(self, key: str, entry: str, error: BadValue) -> Problem:
        wishes = self.asked_by.get((key, entry))
        if wishes is None:
            return Problem(key, error.message, error.hint, file=self.sources[key])
        return wishes.problem(key, error.message, error.hint, entry)

    def _refused_variable(self, name: str, why: str) -> Problem:
        hint = "put what the code needs into a file it may read, or into the cell"
        return self._problem("environment.allow", name, BadValue(f"{name} is never passed to a sandbox: {why}", hint))


def shown(text: str) -> str:
    """Text from a file name, safe on one line of a terminal or notebook."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _environment(variables: HostVariables, source: list[Path]) -> dict[str, str]:
    return {**variables.passed, **({"DATA_SOURCE_PATH": str(source[0])} if source else {})}


def _entries(value: Any) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _from(folder: Path, entry: str) -> str:
    return entry if entry.startswith(("/", "~")) else os.path.normpath(folder / entry)


def _of_whole_paths(layer: _Layer) -> _Layer:
    """The layer without paths that mean something else in each project."""
    values = dict(layer.wishes.values)
    for key in _PATH_KEYS:
        kept = tuple(entry for entry in _entries(values.get(key)) if entry.startswith(("/", "~")))
        if isinstance(values.get(key), tuple):
            values[key] = kept
        elif not kept:
            values.pop(key, None)
    return dataclasses.replace(layer, wishes=dataclasses.replace(layer.wishes, values=values))


def _unknown_exceptions(base: Policy, wishes: Wishes) -> list[Problem]:
    """A "!name" in files.hide that none of the patterns before it could hide is a slip of the pen."""
    problems = []
    earlier = list(base.files.hide)
    for entry in wishes.values.get("files.hide", ()):
        name = entry.removeprefix("!")
        example = name.strip("/").replace("*", "x").replace("?", "x")
        if entry != name and name not in earlier and not compile_patterns(earlier).covers(example):
            meant = nearest(name, [pattern for pattern in earlier if not pattern.startswith("!")])
            hint = f"did you mean {quoted('!' + meant)}?" if meant else "see the list with `ipysandbox policy show`"
            problems.append(wishes.problem("files.hide", f"nothing hides {quoted(name)}", hint, entry))
        earlier.append(entry)
    return problems


def _refusal(wishes: Wishes, refused: Sequence[NotGranted], why: str) -> str:
    listed = "; ".join(wish.summary() if too_much(refused) else str(wish) for wish in refused)
    return f"{shown(wishes.label)}: not granted: {listed} ({why})"
