"""Where on the Jupyter server's own file list a path stands, so that a click in the panel can open it."""

from __future__ import annotations

import os
from pathlib import Path

from ipysandbox.server import bounded


class Places:
    """Paths below the server's root folder, by name alone: nothing on the disk is looked up."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root)) if root else ""

    def opens(self, path: str) -> str | None:
        """The path as the page's file browser knows it; None for one that it can't open."""
        if not self.root or not os.path.isabs(path):
            return None
        inside = os.path.relpath(os.path.normpath(path), self.root)
        parts = inside.split(os.sep)
        # Hidden files are not served unless that is switched on.
        if os.pardir in parts or any(part.startswith(".") for part in parts) or bounded.text(inside, 1000) != inside:
            return None
        return "/".join(parts)

    def folder(self, path: str) -> Path | None:
        """The folder of a notebook that the page names; None for a name that leads out of the root."""
        inside = os.path.normpath(os.path.join(self.root, path.lstrip("/")))
        if not self.root or "\0" in path or not (inside + os.sep).startswith(self.root.rstrip(os.sep) + os.sep):
            return None
        return Path(inside if not path or path.endswith("/") else os.path.dirname(inside) or "/")
