"""What code in a sandbox tried and was refused: the row that travels from the monitor to the audit trail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """``count`` calls of one kind within about a second; ``pid`` (as the host numbers it) made the first of them.

    ``name`` is the system call's, ``detail`` a few words about its arguments or the address of a connect. ``comm`` is
    the name that the process gave itself.
    """

    name: str
    detail: str
    pid: int
    comm: str
    count: int
