"""Without namespaces too the self-test notices a missing layer: each is taken away in turn, and nothing may start."""

from __future__ import annotations

import os

import pytest

from ..sabotage import answers_to, check

_MODULES = "confined, decisions, emulate, landlock, libc, metadata, seccomp"


def _without(*names: str) -> str:
    """The filter without what it has for ``names`` in this tier."""
    return (
        "rules = seccomp._confined_rules; "
        f"seccomp._confined_rules = lambda *a: {{k: v for k, v in rules(*a).items() if k not in {names!r}}}"
    )


#: Statements run in the zygote before it forks, and what the refusal must speak of.
BROKEN = {
    "seccomp": ("seccomp.install = lambda program, listener=False: None", ""),
    "user notification": ("seccomp.program = functools.partial(seccomp.program, notify=False)", ""),
    "Landlock": ("landlock.restrict = lambda rules, level, held=None: None", "opening"),
    "Landlock's rules for files": (
        "restrict = landlock.restrict; landlock.restrict = lambda rules, level, held=None: "
        "restrict([*rules, landlock.Rule('/', landlock.READ)], level)",
        "opening",
    ),
    "Landlock's rules for writing": (
        "restrict = landlock.restrict; landlock.restrict = lambda rules, level, held=None: "
        "restrict([landlock.Rule(r.path, r.rights | landlock.WRITE) for r in rules], level)",
        "writing to the project",
    ),
    "access mode 3": ("seccomp._confined_open = lambda flags, otherwise, deny: otherwise", "a handle on"),
    "asking about files": ("decisions.CONFINED_TOLD = frozenset()", "asking about"),
    "asking about files, the monitor tells all": (
        "metadata.Metadata._shows = lambda self, place: True",
        "asking about",
    ),
    "modes and times": ("decisions.CONFINED_EMULATED = frozenset()", "changing the project's mode was not refused"),
    "modes and times, the monitor changes all": (
        "emulate.Files.__init__ = lambda self, tops: setattr(self, '_tops', ('',))",
        "changing the project's mode was not refused",
    ),
    "counting tasks": ("decisions.CONFINED_COUNTED = frozenset()", "that the monitor did not count"),
    "no sockets": (_without("socket"), "a socket of AF_INET was not refused"),
    "no pairs that send elsewhere": (_without("socketpair"), "a pair of datagrams"),
    "commands of sockets": (_without("ioctl"), "asking a socket for devices"),
    "signals by descriptors": (_without("fcntl"), "signals sent by descriptors"),
    "limits of others": (_without("prlimit64"), "limits of another process"),
    "rlimits": ("confined.resource.setrlimit = lambda kind, values: None", "the limit DATA is not set"),
    "affinity": ("os.sched_setaffinity = lambda pid, cpus: None", "more processors"),
}
if os.geteuid() == 0:
    BROKEN["capabilities"] = ("libc.drop_capabilities = libc.clear_capabilities = lambda: None", "CapEff is")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    project = tmp_path_factory.mktemp("p")
    return answers_to(BROKEN, project, modules=_MODULES, confined=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", sorted(BROKEN))
def test_without_one_layer_nothing_starts(answers: dict[str, str], layer: str) -> None:
    check(answers[layer], BROKEN[layer][1])


@pytest.mark.timeout(600)
def test_with_all_layers_it_starts(answers: dict[str, str]) -> None:
    assert answers["nothing"] == "STARTED"
