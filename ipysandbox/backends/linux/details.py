"""Says what a refused call was about, from the numbers among its arguments: a socket's family, the flags of a clone."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from . import seccomp

# linux/sched.h
_NAMESPACES = {
    0x00000080: "CLONE_NEWTIME",
    0x00020000: "CLONE_NEWNS",
    0x02000000: "CLONE_NEWCGROUP",
    0x04000000: "CLONE_NEWUTS",
    0x08000000: "CLONE_NEWIPC",
    0x10000000: "CLONE_NEWUSER",
    0x20000000: "CLONE_NEWPID",
    0x40000000: "CLONE_NEWNET",
}
_FAMILIES = {int(value): name for name, value in vars(socket).items() if name.startswith("AF_") and name != "AF_ROUTE"}
# linux/ptrace.h
_PTRACE = {
    0: "PTRACE_TRACEME",
    1: "PTRACE_PEEKTEXT",
    2: "PTRACE_PEEKDATA",
    4: "PTRACE_POKETEXT",
    5: "PTRACE_POKEDATA",
    16: "PTRACE_ATTACH",
    0x4206: "PTRACE_SEIZE",
}
# asm-generic/ioctls.h, linux/fs.h, linux/sockios.h
_IOCTL = {
    0x5412: "TIOCSTI",
    0x541C: "TIOCLINUX",
    0x5423: "TIOCSETD",
    0x40086602: "FS_IOC_SETFLAGS",
    0x40046602: "FS_IOC32_SETFLAGS",
    0x401C5820: "FS_IOC_FSSETXATTR",
    0x8910: "SIOCGIFNAME",
    0x8912: "SIOCGIFCONF",
    0x8913: "SIOCGIFFLAGS",
    0x8915: "SIOCGIFADDR",
    0x891B: "SIOCGIFNETMASK",
    0x8921: "SIOCGIFMTU",
    0x8927: "SIOCGIFHWADDR",
    0x8933: "SIOCGIFINDEX",
    0x8946: "SIOCETHTOOL",
}
_FCNTL = {8: "F_SETOWN", 10: "F_SETSIG", 15: "F_SETOWN_EX", 1024: "F_SETLEASE", 1026: "F_NOTIFY"}
_PRCTL = {
    4: "PR_SET_DUMPABLE",
    24: "PR_CAPBSET_DROP",
    26: "PR_SET_TSC",
    28: "PR_SET_SECUREBITS",
    33: "PR_MCE_KILL",
    35: "PR_SET_MM",
    59: "PR_SET_SYSCALL_USER_DISPATCH",
    62: "PR_SCHED_CORE",
    67: "PR_SET_MEMORY_MERGE",
    78: "PR_FUTEX_HASH",
}
# linux/bpf.h
_BPF = {0: "BPF_MAP_CREATE", 5: "BPF_PROG_LOAD", 18: "BPF_BTF_LOAD"}
_KIND_OF_FILE = {0o020000: "character device", 0o060000: "block device"}

#: name: (argument, names of its values). The kernel looks at 32 bits of each.
_VALUES: Mapping[str, tuple[int, Mapping[int, str]]] = {
    "socket": (0, _FAMILIES),
    "socketpair": (0, _FAMILIES),
    "ptrace": (0, _PTRACE),
    "ioctl": (1, _IOCTL),
    "fcntl": (1, _FCNTL),
    "prctl": (0, _PRCTL),
    "bpf": (0, _BPF),
    "keyctl": (0, {1: "KEYCTL_JOIN_SESSION_KEYRING", 8: "KEYCTL_LINK", 10: "KEYCTL_SEARCH", 11: "KEYCTL_READ"}),
    "personality": (0, {0x0040000: "ADDR_NO_RANDOMIZE"}),
    "setns": (1, _NAMESPACES),
}
#: name: argument with the mode.
_MODES = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "creat": 1,
    "mkdir": 1,
    "mkdirat": 2,
    "open": 2,
    "openat": 3,
    "mknod": 1,
    "mknodat": 2,
}


def of(name: str, args: Sequence[int]) -> str:
    """A few words of our own about one call; never text of the caller's."""
    if name in ("clone", "unshare"):
        found = [text for bit, text in _NAMESPACES.items() if args[0] & bit and (bit != 0x80 or name != "clone")]
        if not found and name == "clone":
            return "a thread with descriptors of its own"
        return "|".join(found)
    if name == "socket" and seccomp.is_odd_protocol(*args[:3]):
        family, kind, protocol = (arg & 0xFFFFFFFF for arg in args[:3])
        return f"{_FAMILIES[family]} type {kind & 0xF} protocol {protocol}"
    if name in _VALUES:
        at, names = _VALUES[name]
        value = args[at] & 0xFFFFFFFF
        return names.get(value, hex(value) if value > 99 else str(value))
    if name in _MODES:
        mode = args[_MODES[name]]
        bits = [text for bit, text in ((0o4000, "set-user-ID"), (0o2000, "set-group-ID")) if mode & bit]
        return " ".join(bits) or _KIND_OF_FILE.get(mode & 0o170000, "")
    return ""
