"""The IPython door: ``%%sandbox`` runs a cell in a sandbox, ``%sandbox`` looks after the sandboxes."""

from __future__ import annotations

import argparse
import builtins
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from . import magics_complete, magics_first, magics_line
from .cwd import current_folder
from .display import changes_line, failure, without_colours
from .errors import CheckRefused, SandboxError
from .magics_options import cell_parser, helped, line_parser, parse
from .questions import worded
from .shown import Shown, publish_note

if TYPE_CHECKING:
    from .sandbox import RunResult, Sandbox

#: What a name's first cell gets where it says nothing.
_FIRST = {"policy": "default", "memory": None, "backend": "linux"}
_CELL = cell_parser()
_LINE = line_parser(magics_line.ACTIONS, magics_line.MISSING)


@dataclass
class Held:
    """One named sandbox of this kernel, and what the next cell needs to know about it."""

    box: Sandbox
    options: Mapping[str, Any]
    folder: str
    #: As its records name it, None where there is none.
    notebook: str | None = None
    changes: str = ""
    last_code: str = ""
    #: What its policy had to say, once shown: not again under every cell.
    told: frozenset[str] = frozenset()


@magics_class
class SandboxMagics(Magics):
    """Registered by ``%load_ext ipysandbox``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._ip = shell
        self.held: dict[str, Held] = {}
        self._loaded_in = str(current_folder())
        self._vscode: str | None = None
        #: Whether a cell has begun to run in a sandbox.
        self._ran = False
        #: Whether long cells get a line with what they use: from the first ``%sandbox dashboard`` on.
        self.follows = False

    # The line is taken as it is written: expanding {…} would run code of the notebook's own kernel, and whoever wrote
    # the cell may have written its first line too. Both magics show the help of both, because Shift-Tab asks for the
    # line magic even on %%sandbox.
    @no_var_expand
    @cell_magic("sandbox")  # type: ignore[arg-type]
    @helped(_CELL, _LINE)
    def run_cell(self, line: str, cell: str) -> None:
        args = parse(_CELL, line)
        if not cell.strip():
            raise UsageError(
                "%%sandbox: the cell is empty, so nothing was run. Write code below the first line, "
                "or see the sandboxes with %sandbox status."
            )
        twice = magics_first.again(cell)
        if twice is not None:
            raise UsageError(
                f"%%sandbox stands once more on line {twice} of this cell, so nothing was run. "
                "Keep one of the two lines, the one with the options that you want; or split the cell there."
            )
        try:
            self._run(args, cell)
        except SandboxError as exc:
            if str(self._ip.colors).lower() == "nocolor":  # the sandbox's own shell has colours for every front end
                exc.traceback = tuple(map(without_colours, exc.traceback))
            if not args.allow_error:
                raise
            print("\n".join(exc._render_traceback_()), file=sys.stderr, flush=True)

    @no_var_expand
    @line_magic("sandbox")  # type: ignore[arg-type]
    @helped(_CELL, _LINE)
    def look_after(self, line: str) -> None:
        args = parse(_LINE, line)
        magics_line.run(self, args.action, args.name)

    # -- a cell

    def _run(self, args: argparse.Namespace, code: str) -> None:
        values = {}
        for name in args.input:
            if name not in self._ip.user_ns:
                raise UsageError(f"%%sandbox -i {name}: the notebook has no variable of that name; nothing was run.")
            values[name] = self._ip.user_ns[name]
        for name in args.output:
            if self._is_code(name):
                raise UsageError(
                    f"%%sandbox -o {name}: in the notebook {name} is a module, function or class, which a value would "
                    "replace, so nothing was run. Give the variable another name, "
                    f"or run `del {name}` in a cell before."
                )
        before = self.held.get(args.name)
        held = self._held(args)
        self._ran = True
        if self._start(held, fresh=args.fresh) and not args.fresh:
            why = _what_changed(before, held)
            self.note(f"A new sandbox '{args.name}' was started{why}; variables of the earlier one are gone.")
        elif before is None and args.name in self._ip.user_ns:
            self.note(
                f"This is a new sandbox named '{args.name}'; to give the code the notebook's variable of that name: "
                f"-i {','.join([*args.input, args.name])}"
            )
        held.last_code = code
        standing = frozenset(held.box.notices)
        if args.check_only:
            self._check_only(held.box.check(code))
            return
        for name, value in values.items():
            held.box.put(name, value)
        shown = Shown(self._ip)
        with self._followed(held.box):
            result = held.box.run(
                code,
                timeout=args.timeout,
                cpu=args.cpu,
                on_output=shown,
                on_input=self._on_input(args.name, shown),
                want_value=False,
                patient=True,
                number=self.number(),
            )
        shown.finish(result.full_output)
        error = failure(result, args.name)
        self._afterwards(held, result, standing, error)
        if error is not None:
            raise error
        if args.output:
            self._ip.user_ns.update(self._fetch(held.box, args.output))

    def _is_code(self, name: str) -> bool:
        """Whether the notebook's own code calls what has this name or looks into it. No value of a sandbox's does."""
        return isinstance(self._ip.user_ns.get(name), ModuleType) or callable(self._ip.user_ns.get(name))

    def _followed(self, box: Sandbox) -> contextlib.AbstractContextManager[None]:
        if not self.follows:
            return contextlib.nullcontext()
        from .widgets.line import Line

        return Line(box)

    def _held(self, args: argparse.Namespace) -> Held:
        """The sandbox of that name as this cell wants it: what it doesn't say stays as an earlier cell said."""
        held = self.held.get(args.name)
        options: dict[str, Any] = (
            dict(held.options) if held else {"policy": "default", "memory": None, "backend": "linux"}
        )
        options |= {key: getattr(args, key) for key in options if getattr(args, key) is not None}
        folder = self.folder()
        if held is not None and held.options == options and (held.folder == folder or _stays(held, folder, args)):
            return held
        from .sandbox import SandboxByOptions  # with the first cell: loading the rest takes as long as all of this

        notebook = self.notebook()
        box = SandboxByOptions(
            options["policy"],
            name=args.name,
            project=folder,
            overrides={"limits.memory": options["memory"]} if options["memory"] else None,
            notebook=notebook,
            backend=options["backend"],
        )
        return Held(box, options, folder, notebook)

    def _start(self, held: Held, *, fresh: bool) -> bool:
        """Start or join it; True when variables of an earlier sandbox of that name went with it."""
        known = self.held.get(held.box.name)
        if known is held:
            return held.box.start(fresh=fresh)
        before = _started(known.box) if known is not None else None
        held.box.start(fresh=fresh)  # raises for a policy that can't be: then the earlier sandbox stays as it is
        self.held[held.box.name] = held
        return known is not None and before != _started(held.box)

    def _check_only(self, report: Mapping[str, Any]) -> None:
        if report["verdict"] != "ok":
            raise CheckRefused(str(report["text"]))
        print(report["text"])

    def _fetch(self, box: Sandbox, wanted: list[str]) -> dict[str, Any]:
        found = {}
        for name in wanted:
            try:
                found[name] = box.get(name)
            except NameError:
                raise SandboxError(
                    f"-o {name}: the cell ran, but the sandbox '{box.name}' has no variable of that name"
                ) from None
        return found

    # -- what comes out

    def note(self, text: str, *, cut: bool = True) -> None:
        """One line of ours, told apart from what the code printed. ``cut``: where it is long."""
        publish_note(self._ip, text, cut=cut)

    def _afterwards(self, held: Held, result: RunResult, standing: frozenset[str], error: SandboxError | None) -> None:
        in_error = result.hint if result.hint in str(error) else ""
        for notice in result.notices:
            if notice not in held.told and notice != in_error:
                # What the policy says is what a person may approve: none of it is left out.
                self.note(notice, cut=notice not in standing)
        held.told = standing
        line = changes_line(result.changes, result.changes_total)
        if line and line != held.changes:
            self.note(line)
        held.changes = line

    def _on_input(self, name: str, shown: Shown) -> Any:
        """What answers ``input()`` inside, where the front end can ask."""

        def answer(prompt: str, _is_password: bool) -> str:
            question = worded(prompt, f"sandbox {name}", shown.printed)
            shown.clear_way()
            try:
                typed = builtins.input(question)
            except EOFError:
                raise KeyboardInterrupt from None  # Sandbox.run interrupts the cell: it gets no answer at all
            shown.printed.begin()
            return typed

        kernel = getattr(self._ip, "kernel", None)
        can_ask = kernel is None or bool(getattr(kernel, "_allow_stdin", False))
        return answer if can_ask else None

    # -- where we are

    def number(self) -> int:
        """Of the cell that runs. Some versions of IPython count on when a cell ends, later ones when it begins; all
        have kept its source by now, as ``_i`` and its number."""
        count = int(self._ip.execution_count)
        return count if f"_i{count}" in self._ip.user_ns else max(1, count - 1)

    def variables(self) -> list[str]:
        """Names in the notebook that ``-i`` could copy."""
        return [name for name in self._ip.user_ns if not name.startswith("_")]

    def notebook(self) -> str | None:
        """The notebook's path, where the front end tells it: VS Code in a variable, Jupyter in the environment."""
        return self._in_vscode() or os.environ.get("JPY_SESSION_NAME")

    def _in_vscode(self) -> str | None:
        """What VS Code said before anything ran in a sandbox: it decides on the folder that sandboxes see, so what the
        variable becomes after that counts no more."""
        if not self._ran:
            path = self._ip.user_ns.get("__vsc_ipynb_file__")
            self._vscode = path if isinstance(path, str) else None
        return self._vscode

    def folder(self) -> str:
        """The folder whose project the sandbox gets: the notebook's, else the current one."""
        path = self.notebook()
        folder = os.path.dirname(path) if path else ""
        # A kernel started from another notebook inherits that one's JPY_SESSION_NAME: believe it if we began there.
        ours = self._in_vscode() is not None or folder == self._loaded_in
        return folder if ours and Path(folder).is_dir() else str(current_folder())


def _stays(held: Held, folder: str, args: argparse.Namespace) -> bool:
    """The notebook has gone to another folder of the same project: a sandbox that runs is not left for that."""
    from .policy import find_project

    return not args.fresh and find_project(Path(held.folder)) == find_project(Path(folder))


def _what_changed(before: Held | None, held: Held) -> str:
    """Which options stay from this cell on and asked for another sandbox; empty when it wasn't they."""
    old = before.options if before is not None else held.options
    kept = [f"--{key} {value}" for key, value in held.options.items() if old[key] != value]
    return f" ({', '.join(kept)}, for later cells too)" if kept else ""


def _started(box: Sandbox) -> float | None:
    """When the sandbox of that name began; None if it is gone."""
    try:
        return float(box.status()["started"])
    except SandboxError:
        return None


def load(ipython: Any) -> None:
    """Register the magics and their completion; loading twice changes nothing."""
    if current(ipython) is None:
        magics = SandboxMagics(ipython)
        ipython.register_magics(magics)
        magics_complete.register(ipython, magics)
        magics_first.register(ipython)


def unload(ipython: Any) -> None:
    """End this kernel's sandboxes and take the magics away."""
    magics = current(ipython)
    if magics is None:
        return
    for held in magics.held.values():
        held.box.close()
    magics.held.clear()
    for kind in ("line", "cell"):
        ipython.magics_manager.magics[kind].pop("sandbox", None)
    magics_complete.unregister(ipython)
    magics_first.unregister(ipython)
    ipython.magics_manager.registry.pop(SandboxMagics.__name__, None)


def current(ipython: Any) -> SandboxMagics | None:
    magics = ipython.magics_manager.registry.get(SandboxMagics.__name__)
    return magics if isinstance(magics, SandboxMagics) else None
