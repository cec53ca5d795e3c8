"""From the paths of a policy to real ones: free of links, inside the project, sensible to hand to a sandbox."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ipysandbox import reach

from .links import follow, within
from .merge import Locate, locator
from .patterns import Matcher
from .units import BadValue, quoted

# The kernel's own views and the sockets of services: binding one undoes the namespaces.
_NEVER = ("/proc", "/sys", "/dev", "/run", "/var/run")
# Nothing that a sandbox writes belongs where the system's programs and settings are.
_NEVER_WRITTEN = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/sbin", "/usr")


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that matter: the project, the user's homes (by $HOME and by the password database)."""

    project: str
    homes: tuple[str, ...]
    # Files and folders that decide about trust; a write path must not hold them.
    ours: tuple[str, ...] = ()

    @property
    def locate(self) -> Locate:
        return locator(self.project, self.homes[0])

    def real(self, written: str) -> str:
        """The path without links; inside the project it need not exist. BadValue if it leaves the project by a link."""
        place = self.locate(written)
        reach.require([place])
        if not within(place, self.project):
            return os.path.realpath(place)
        return follow(place, self.project, written)

    def readable(self, written: str, hidden: Matcher) -> Path:
        """The real path for ``files.read`` or ``data.source_path``; BadValue if it can't be read from a sandbox."""
        real = self.real(written)
        self._possible(real, written)
        try:
            mode = os.stat(real).st_mode
        except FileNotFoundError:
            raise BadValue(f"{quoted(written)} does not exist", self._look_alike(real, written)) from None
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise BadValue(f"{quoted(written)} can't be looked at: {why}", "check the folder's rights") from None
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise BadValue(f"{quoted(written)} is neither a file nor a folder", "name the folder that holds the data")
        if hidden.covers(self._relative(real)):
            raise BadValue(
                f"{quoted(written)} is hidden by files.hide",
                f"in your own policy file, take it out with hide = [{quoted('!' + os.path.basename(real))}]",
            )
        return Path(real)

    def writable(self, written: str, hidden: Matcher, protected: Matcher) -> Path:
        """The real path for ``files.write``, which is a folder or may become one; BadValue if it can't be."""
        place = self.locate(written)
        reach.require([place])
        inside = within(place, self.project)
        real = follow(place, self.project, written, links_ok=False) if inside else os.path.realpath(place)
        self._possible(real, written)
        if within(self.project, real) and real != self.project:
            raise BadValue(f"{quoted(written)} holds the whole project", "name folders inside the project")
        if not inside and any(within(real, folder) for folder in _NEVER_WRITTEN):
            raise BadValue(f"{quoted(written)} belongs to the system", "write below the project")
        if any(within(own, real) for own in self.ours):
            raise BadValue(f"{quoted(written)} holds your own policy or its approvals", "name a folder inside it")
        relative = self._relative(real)
        if hidden.covers(relative) or protected.covers(relative):
            raise BadValue(f"{quoted(written)} is a hidden or protected name", "write to a folder such as results")
        if os.path.lexists(real) and not os.path.isdir(real):
            raise BadValue(f"{quoted(written)} is not a folder", "write paths are folders; rename the file")
        if not inside and not os.path.isdir(real):
            raise BadValue(f"{quoted(written)} does not exist", "outside the project, make the folder first")
        return Path(real)

    def _possible(self, real: str, written: str) -> None:
        if any(within(home, real) for home in self.homes) and real != self.project:
            raise BadValue(f"{quoted(written)} holds your whole home folder", "name the folders inside it")
        if not within(real, self.project) and any(within(real, folder) for folder in _NEVER):
            raise BadValue(f"{quoted(written)} belongs to the kernel or to services", "copy what is needed")

    def _relative(self, real: str) -> str:
        top = self.project if within(real, self.project) else next((h for h in self.homes if within(real, h)), "/")
        return os.path.relpath(real, top)

    def to_be_made(self, written: str) -> BadValue | None:
        """What to say of a folder for ``files.write`` that is not there yet: it may be meant, or a slip of the pen."""
        place = self.locate(written)
        if os.path.lexists(place):
            return None
        return BadValue(f"{quoted(written)} does not exist yet and will be made", self._near(place, written, "results"))

    def _look_alike(self, real: str, written: str) -> str:
        if any(c in written for c in "*?["):
            return "patterns mean nothing here: name files or folders"
        return self._near(real, written) or f"paths are relative to the project, {self.project}"

    def _near(self, real: str, written: str, *usual: str) -> str | None:
        """A name beside this one, or a usual one, that was probably meant."""
        folder, name = os.path.split(real)
        try:
            names = os.listdir(folder) if within(folder, self.project) else []
        except OSError:
            names = []
        close = difflib.get_close_matches(name, [*usual, *names], n=1)
        if not close or close[0] == name:
            return None
        return f"did you mean {quoted(os.path.join(os.path.dirname(written), close[0]))}?"


def without_inner(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths in their order, less those that lie below another."""
    unique = list(dict.fromkeys(paths))
    outer: set[Path] = set()
    last: Path | None = None
    # By their parts, what lies below a path comes right behind it; as text, "/a-b" stands between "/a" and "/a/b".
    for path in sorted(unique, key=lambda path: path.parts):
        if last is None or path.parts[: len(last.parts)] != last.parts:
            outer.add(path)
            last = path
    return tuple(path for path in unique if path in outer)
