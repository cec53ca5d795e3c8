"""Which files and folders lie at paths now: whether another one has been put there since."""

from __future__ import annotations

import os

from .confined_plan import ConfinedPlan
from .plan import Plan

#: (device, inode); None where nothing lies.
Identity = tuple[int, int] | None


def of_plan(plan: Plan | ConfinedPlan) -> tuple[Identity, ...]:
    """Of all that a plan shows, where links lead. What the kernel makes up has no number that stays."""
    if isinstance(plan, ConfinedPlan):
        named = [path for path, _ in plan.rules]
    else:
        named = [bind.source for bind in plan.binds] + [row.source for row in plan.overlays if row.source]
    return tuple(_identity(path, follow=True) for path in named if not path.startswith(("/proc/", "/sys/")))


def of_name(path: str) -> Identity:
    """Of what bears the name itself, a link too."""
    return _identity(path, follow=False)


def _identity(path: str, *, follow: bool) -> Identity:
    try:
        info = os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
    return info.st_dev, info.st_ino
