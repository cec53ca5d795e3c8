"""Landlock: the second, independent layer under files, signals and abstract sockets.

Each ABI level adds rights; what this kernel does not know is left out of the ruleset, and ``supported`` tells the
caller what that costs. Source: landlock(7), Documentation/userspace-api/landlock.rst.

    ABI 1 (5.13)  reading, writing, making and removing files
    ABI 2 (5.19)  rename and link across folders (refused altogether before)
    ABI 3 (6.2)   truncate
    ABI 4 (6.7)   TCP bind and connect
    ABI 5 (6.10)  ioctl on devices
    ABI 6 (6.12)  signals and abstract unix sockets stay inside
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from . import folders, libc

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << n for n in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_SCOPE_ABSTRACT, _SCOPE_SIGNAL = 1, 2
#: The ABI that keeps signals inside.
SIGNALS_SINCE = 6

_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}

READ = EXECUTE | READ_FILE | READ_DIR
_CHANGE = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
WRITE = READ | _CHANGE
#: Pipes and sockets too: only where nobody outside looks for files.
PRIVATE = WRITE | MAKE_SOCK | MAKE_FIFO
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
#: The rights that mean anything for a file that is not a directory; the kernel refuses a rule with others.
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV


class _Ruleset(ctypes.Structure):
    _fields_ = [
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


@dataclass(frozen=True)
class Rule:
    """What may be done at and below ``path``."""

    path: str
    rights: int


def abi() -> int:
    """The highest ABI of this kernel; 0 where Landlock is not built in or was not enabled at boot."""
    try:
        return libc.syscall("landlock_create_ruleset", None, 0, 1)  # LANDLOCK_CREATE_RULESET_VERSION
    except OSError:
        return 0


def restrict(rules: Iterable[Rule], level: int, *, held: folders.Identities | None = None) -> None:
    """Allow this process and its descendants only what ``rules`` say, with the rights of ABI ``level``.

    :param held: paths hold no links, and these mean the folders that they did: what was swapped since is an error.

    Raises OSError when a path can't be opened or the kernel refuses a rule: nothing is skipped in silence.
    """
    handled = _RIGHTS_BY_ABI[min(level, max(_RIGHTS_BY_ABI))]
    scoped = _SCOPE_ABSTRACT | _SCOPE_SIGNAL if level >= SIGNALS_SINCE else 0
    attr = _Ruleset(handled, 0, scoped)
    # An older kernel accepts a longer structure only if what it does not know is zero, as it is here.
    ruleset = libc.syscall("landlock_create_ruleset", attr, ctypes.sizeof(attr), 0)
    try:
        for rule in rules:
            strict = held is not None
            fd = libc.open_path_strict(rule.path) if strict else os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
            try:
                folders.require(fd, rule.path, held or {})
                rights = rule.rights & handled
                if not stat.S_ISDIR(os.fstat(fd).st_mode):
                    rights &= _FILE_RIGHTS
                libc.syscall("landlock_add_rule", ruleset, 1, _PathBeneath(rights, fd), 0)
            finally:
                os.close(fd)
        libc.syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
