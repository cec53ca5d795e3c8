"""What a sandbox is allowed: the policy's model, its files and profiles, and whom to believe.

Each name loads when it is first used: who only writes a size as text needs none of the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipysandbox.errors import PolicyError as PolicyError

if TYPE_CHECKING:
    from .discovery import find_project as find_project
    from .linting import cards as cards
    from .linting import doubts as doubts
    from .linting import lint as lint
    from .merge import NotGranted as NotGranted
    from .model import Effective as Effective
    from .model import Policy as Policy
    from .patterns import Matcher as Matcher
    from .patterns import compile_patterns as compile_patterns
    from .patterns import is_hidden as is_hidden
    from .profiles import PROFILES as PROFILES
    from .resolution import check_given as check_given
    from .resolution import loosens as loosens
    from .resolution import resolve as resolve
    from .schema import Problem as Problem
    from .schema import complete_policy as complete_policy
    from .schema import in_one_line as in_one_line
    from .trusting import check_approvable as check_approvable
    from .trusting import is_trusted as is_trusted
    from .trusting import not_counted as not_counted
    from .trusting import policies_in_force as policies_in_force
    from .trusting import project_policy as project_policy
    from .trusting import trust as trust
    from .trusting import untrust as untrust
    from .units import format_duration as format_duration
    from .units import format_size as format_size
    from .units import parse_duration as parse_duration
    from .units import parse_size as parse_size

_NAMES = {
    "discovery": "find_project",
    "linting": "cards doubts lint",
    "merge": "NotGranted",
    "model": "Effective Policy",
    "patterns": "Matcher compile_patterns is_hidden",
    "profiles": "PROFILES",
    "resolution": "check_given loosens resolve",
    "schema": "Problem complete_policy in_one_line",
    "trusting": "check_approvable is_trusted not_counted policies_in_force project_policy trust untrust",
    "units": "format_duration format_size parse_duration parse_size",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted((*_HOMES, "PolicyError"))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ipysandbox.policy' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ipysandbox.policy.{_HOMES[name]}"), name)
