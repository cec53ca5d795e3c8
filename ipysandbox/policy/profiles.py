"""The built-in profiles, by name."""

from __future__ import annotations

import difflib
from types import MappingProxyType

from .model import Code, Files, Limits, Output, Policy
from .units import quoted

DEFAULT = Policy()

# For code one doesn't trust at all: reads the project, leaves nothing but text and images. Half of everything, an
# eighth of the disk; files of the user or the project can tighten it further but not loosen it (see resolve).
STRICT = Policy(
    limits=Limits(
        cpu=60.0,
        wall=120.0,
        memory=2 * 2**30,
        disk=128 * 2**20,
        processes=128,
        cpus=1.0,
        output=8 * 2**20,
        open_files=512,
    ),
    files=Files(write=(), workspace="readonly"),
    code=Code(),
    output=Output(html="text"),
)

# "network" is "default" for people who then name hosts in network.allow; it opens nothing by itself.
PROFILES = MappingProxyType({"strict": STRICT, "default": DEFAULT, "network": DEFAULT})


def nearest(word: str, known: list[str], cutoff: float = 0.6) -> str | None:
    """The known word that was probably meant."""
    by_letters = {k.lower().replace("-", "_"): k for k in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(by_letters), n=1, cutoff=cutoff)
    return by_letters[close[0]] if close else None


def unknown(what: str, word: str, known: list[str]) -> tuple[str, str]:
    """Message and hint for a word that is none of the known ones."""
    meant = nearest(word, known)
    hint = f"did you mean {quoted(meant)}?" if meant else f"known: {', '.join(known)}"
    return f"unknown {what} {quoted(word)}", hint
