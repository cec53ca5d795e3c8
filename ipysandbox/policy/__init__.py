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
    from .schema import in_one_line as in_one_line
    from .trusting import check_approvable as check_approvable
    from .trusting import is_trusted as is_trusted
    from .trusting import not_counted as not_counted
    from .trusting import project_policy as project_policy
    from .trusting import trust as trust
    from .trusting import untrust as untrust
    from .units import format_duration as format_duration
    from .units import format_size as format_size
    from .units import parse_duration as parse_duration
    from .units import parse_size as parse_size

_HOMES = {
    **dict.fromkeys(("find_project",), "discovery"),
    **dict.fromkeys(
        (
            "cards",
            "doubts",
            "lint",
        ),
        "linting",
    ),
    **dict.fromkeys(("NotGranted",), "merge"),
    **dict.fromkeys(
        (
            "Effective",
            "Policy",
        ),
        "model",
    ),
    **dict.fromkeys(
        (
            "Matcher",
            "compile_patterns",
            "is_hidden",
        ),
        "patterns",
    ),
    **dict.fromkeys(("PROFILES",), "profiles"),
    **dict.fromkeys(
        (
            "check_given",
            "loosens",
            "resolve",
        ),
        "resolution",
    ),
    **dict.fromkeys(
        (
            "Problem",
            "in_one_line",
        ),
        "schema",
    ),
    **dict.fromkeys(
        (
            "check_approvable",
            "is_trusted",
            "not_counted",
            "project_policy",
            "trust",
            "untrust",
        ),
        "trusting",
    ),
    **dict.fromkeys(
        (
            "format_duration",
            "format_size",
            "parse_duration",
            "parse_size",
        ),
        "units",
    ),
}
__all__ = sorted((*_HOMES, "PolicyError"))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ipysandbox.policy' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ipysandbox.policy.{_HOMES[name]}"), name)
