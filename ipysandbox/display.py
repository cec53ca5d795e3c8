"""Words the outcome of a cell for people: the same sentences at the magic and at the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .errors import (
    CheckRefused,
    LimitExceeded,
    NotAvailable,
    PolicyError,
    SandboxDied,
    SandboxError,
    SandboxInterrupted,
    StartError,
)

if TYPE_CHECKING:
    from .backends.base import Change
    from .sandbox import RunResult

#: Names listed in a note before "and N more".
_LISTED = 5
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
#: What the supervisor can meet while it starts a sandbox again for a cell, by the name it sends.
_START_ERRORS: dict[str, type[SandboxError]] = {
    cls.__name__: cls for cls in (PolicyError, StartError, NotAvailable, SandboxDied)
}


def failure(result: RunResult, name: str) -> SandboxError | None:
    """The error that a cell's outcome is for its caller; None when it finished."""
    if result.status == "ok":
        return None
    kept = f"The sandbox '{name}' kept its variables." if result.state_kept else _lost(name)
    ename, evalue = (result.error.ename, result.error.evalue) if result.error else ("", "")
    if result.status == "error":
        return _raised(result, ename, evalue)
    if result.status == "refused":
        return CheckRefused(evalue)
    if result.status == "limit":
        text = result.limit.text if result.limit else evalue
        if result.state_kept and result.hint and result.limit is not None and result.limit.name == "memory":
            kept = f"{kept} {result.hint}"
        return _with_place(LimitExceeded(text, hint=kept), result)
    if result.status == "interrupted":
        how = "the cell was interrupted" + ("" if result.state_kept else ", went on all the same, and was ended")
        return _with_place(SandboxInterrupted(how, hint=kept), result)
    return _START_ERRORS.get(ename, SandboxDied)(evalue or "the sandbox ended by itself", hint=_lost(name))


def _raised(result: RunResult, ename: str, evalue: str) -> SandboxError:
    """What has to do with the sandbox stands below the traceback, which may be many screens long."""
    if ename == "SystemExit":
        status = "" if evalue in ("", "None") else f": {evalue}"
        hint = "The sandbox goes on, with its variables."
        return SandboxError(f"SystemExit{status} (the code called exit())", hint=hint)
    error = SandboxError(f"{ename}: {evalue}" if evalue else ename, hint=result.hint or None)
    trace = result.error.traceback if result.error else ()
    error.traceback = (*trace, f"ipysandbox: {result.hint}") if trace and result.hint else trace
    return error


def where(result: RunResult) -> tuple[str, ...]:
    """Where the code was when it was stopped, as for any interrupted cell; nothing when it had to be killed."""
    error = result.error
    if error is None or not result.state_kept or error.ename == "LimitExceeded":
        return ()
    return error.traceback


def _with_place(error: SandboxError, result: RunResult) -> SandboxError:
    place = where(result)
    error.traceback = (*place, *error._render_traceback_()) if place else ()
    return error


def _lost(name: str) -> str:
    return f"The next cell of '{name}' starts a new sandbox, without the variables of this one."


def changes_line(changes: Sequence[Change], total: int) -> str:
    """One line about files that differ; empty when none does. Names are the code's own choice, so they are escaped."""
    if not total:
        return ""
    folders = sum(change.path.endswith("/") for change in changes)
    if len(changes) < total:
        what, differ = f"{total} files and folders", "differ"
    else:
        parts = [_counted(total - folders, "file"), _counted(folders, "folder")]
        what, differ = " and ".join(part for part in parts if part), "differs" if total == 1 else "differ"
    listed = _some([change.path for change in changes], total)
    # The folder that is kept unless a policy says otherwise: whoever writes there counts on it.
    why = "; results/ is not in files.write" if any(change.path.startswith("results/") for change in changes) else ""
    return f"{what} of the project {differ} in the sandbox (dropped at its end): {listed}{why}"


def written_line(written: Sequence[str], total: int) -> str:
    """One line about what was written and stays; empty when nothing was."""
    return f"written: {_some(written, total)}" if total else ""


def _counted(count: int, what: str) -> str:
    return "" if not count else f"1 {what}" if count == 1 else f"{count} {what}s"


def _some(names: Sequence[str], total: int) -> str:
    listed = ", ".join(one_line(name, 80) for name in names[:_LISTED])
    return listed + (f" and {total - _LISTED} more" if total > _LISTED else "")


def one_line(text: str, most: int = 200) -> str:
    """Text from inside, safe on one line of a terminal or page: what is not printable is written as an escape."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def whole(text: str) -> str:
    """The same, however long: for what must not be cut, and whose length is bounded elsewhere."""
    return one_line(text, 12 * len(text))  # an escape has ten characters at most


def in_lines(text: str) -> str:
    """Words of ours, of more than one line, about what others have named: only the first is at a line's beginning."""
    return "\n  ".join(map(whole, text.split("\n")))


def without_colours(text: str) -> str:
    """Drop SGR sequences, for a file or pipe."""
    return _COLOURS.sub("", text)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows in columns, two blanks between."""
    cells = [[one_line(cell, 300) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]) - 1)] if cells else []
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in cells
    )
