"""The system-call filter: an allow-list by name, compiled to classic BPF for x86-64 and aarch64.

Three answers: *allowed*; *refused* with an error a program can handle (a name on ``decisions.REFUSED`` or
``REFUSED_QUIETLY``, or arguments that a rule forbids); *unknown*, answered with ENOSYS so that libraries fall back
as on an older kernel. A call made through another architecture's table (32-bit, x32) is refused as well, whatever its
number; where nobody would hear of it, it kills the process: no honest program of ours makes one.

Refused calls wait for an answer of the sandbox's monitor (user notification, see notify.py), so that the audit trail
can name them. The filter itself never lets one of them through: whatever becomes of the monitor, such a call waits, or
fails with ENOSYS. That holds only while nobody inside can be a monitor too: the latest listener's answer counts, and
could be "go on" (seccomp_unotify(2)), so a filter with a listener is refused in here.

What each call is answered stands in decisions.py; here are the rules about arguments, and the program.
Source for the program's layout: seccomp(2), Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import socket
import struct
from collections.abc import Iterable, Sequence

from . import decisions, libc, syscalls

# linux/audit.h: what seccomp_data.arch holds
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_RET_KILL_PROCESS = 0x80000000
_RET_ERRNO = 0x00050000
_RET_USER_NOTIF = 0x7FC00000
_RET_ALLOW = 0x7FFF0000

# linux/seccomp.h
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5

# linux/bpf_common.h
_LD_ABS, _JEQ, _JGE, _JSET, _RET, _AND, _JA = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54, 0x05
_NR_OFFSET, _ARCH_OFFSET = 0, 4

# Sockets: what an unprivileged program has from them.
_PAIRS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
_AF_NETLINK, _NETLINK_ROUTE = 16, 0  # getifaddrs(3)
#: Of IP: any other type or protocol is one more part of the kernel, which it loads when asked for. It refuses SOCK_RAW
#: by itself.
_TYPES = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)
_SOCK_TYPE_MASK = 0xF
_PROTOCOLS = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6)
#: Every CLONE_NEW* flag but CLONE_NEWTIME, whose bit clone (other than clone3) takes for part of a signal's number.
CLONE_NEW = 0x7E020000
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_UNSHARE = 2
_RENAME_WHITEOUT = 4
_MADV_MERGEABLE = 12
#: A clock of processor time is known by its number, which holds a process's in all but these bits (posix-timers.h).
_CLOCK_BITS, _CLOCK_OF_THREAD, _CLOCK_OF_SOME_PROCESS = 7, 4, 0x80000000
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_S_ISUID_S_ISGID = 0o6000
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_O_CREAT, _O_TMPFILE_BIT = 0o100, 0o20000000
_MAP_TYPE, _MAP_SHARED, _MAP_SHARED_VALIDATE = 0xF, 0x1, 0x3
_RLIMIT_CORE = 4
#: Leases make the host's own open() of a file in results/ wait; inode flags stay on it for ever.
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_FS_IOC_SETFLAGS = (0x40086602, 0x40046602, 0x401C5820)
#: ioctls by their second byte (Documentation/userspace-api/ioctl/ioctl-number.rst): those of terminals, pipes and
#: descriptors; and those of file systems, which need no more than a descriptor to read from: a file made immutable for
#: ever (fs-verity), a snapshot of a whole btrfs volume in a folder that may be written.
_IOC_KIND, _IOC_TERMINAL, _IOC_FILE_SYSTEMS = 0xFF00, 0x5400, (0x5800, 0x6600, 0x7600, 0x9400)
_O_ACCMODE, _O_TRUNC = 3, 0o1000
#: Those of sockets that ask about the machine, not the socket (linux/sockios.h): routes, network devices, bridges, and
#: what protocols and drivers add; those of wireless devices (linux/wireless.h) have a byte of their own.
_SIOC_DEVICES, _SIOC_END, _IOC_WIRELESS = 0x890B, 0x8A00, 0x8B00
_SO_ZEROCOPY = 60
#: How the guest opens a file in the /proc of a process of the sandbox's (guest/semaphores.py).
ASKING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
#: A signal of one's choice to a process of one's choice, sent by the kernel when a descriptor has news.
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_ADDR_NO_RANDOMIZE_ALLOWED = (0x0, 0xFFFFFFFF, 0x8)  # PER_LINUX, "tell me", PER_LINUX32's harmless twin

_Insn = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def _stmt(code: int, k: int) -> _Insn:
    return (code, 0, 0, k)


def _ret_errno(number: int) -> _Insn:
    return _stmt(_RET, _RET_ERRNO | number)


_ALLOW = _stmt(_RET, _RET_ALLOW)
_DENY = _ret_errno(errno.EPERM)
_NOTIFY = _stmt(_RET, _RET_USER_NOTIF)


def _low(arg: int) -> _Insn:
    """Load the low half of an argument (both architectures are little-endian).

    The kernel looks at no more of any argument that a rule here decides by: what stands above can hide nothing.
    """
    return _stmt(_LD_ABS, 16 + 8 * arg)


def _high(arg: int) -> _Insn:
    return _stmt(_LD_ABS, 16 + 8 * arg + 4)


def _deny_if_set(arg: int, bits: int, deny: _Insn) -> list[_Insn]:
    return [_low(arg), (_JSET, 0, 1, bits), deny, _ALLOW]


def _deny_values(arg: int, values: Iterable[int], deny: _Insn) -> list[_Insn]:
    block = [_low(arg)]
    for value in values:
        block += [(_JEQ, 0, 1, value), deny]
    return [*block, _ALLOW]


def _only_values(arg: int | None, values: Iterable[int], deny: _Insn) -> list[_Insn]:
    """``arg`` None: what was loaded before."""
    block = [_low(arg)] if arg is not None else []
    for value in values:
        block += [(_JEQ, 0, 1, value), _ALLOW]
    return [*block, deny]


def is_refused_clone(flags: int) -> bool:
    """What ``_clone_rule`` refuses, for the monitor."""
    return bool(flags & CLONE_NEW) or flags & (_CLONE_THREAD | _CLONE_FILES) == _CLONE_THREAD


def _clone_rule(deny: _Insn) -> list[_Insn]:
    """No namespace, and no thread with descriptors of its own: /proc/PID/fd shows those of the first alone."""
    return [
        _low(0),
        (_JSET, 0, 1, CLONE_NEW),
        deny,
        _stmt(_AND, _CLONE_THREAD | _CLONE_FILES),
        (_JEQ, 0, 1, _CLONE_THREAD),
        deny,
        _ALLOW,
    ]


def _own_clocks(clock: int) -> list[_Insn]:
    """No process's clock of processor time by its number, which could be anybody's: 0 is the caller. Threads' are told
    of the caller's own alone."""
    return [
        _low(clock),
        (_JSET, 1, 0, _CLOCK_OF_SOME_PROCESS),
        _ALLOW,
        (_JSET, 0, 1, _CLOCK_OF_THREAD),
        _ALLOW,
        (_JGE, 0, 1, 0xFFFFFFFF & ~_CLOCK_BITS),
        _ALLOW,
        _ret_errno(errno.EINVAL),
    ]


def _deny_setid_create(flags: int, mode: int, deny: _Insn) -> list[_Insn]:
    """Mode bits count only when the flags create a file; otherwise the register holds anything."""
    return [
        _low(flags),
        (_JSET, 1, 0, _O_CREAT | _O_TMPFILE_BIT),
        _ALLOW,
        *_deny_if_set(mode, _S_ISUID_S_ISGID, deny),
    ]


def _deny_mknod(mode: int, deny: _Insn) -> list[_Insn]:
    """No device node (an overlay whiteout is one, and could un-hide a file) and no set-id file."""
    return [
        _low(mode),
        (_JSET, 0, 1, _S_ISUID_S_ISGID),
        deny,
        _stmt(_AND, _S_IFMT),
        (_JEQ, 1, 0, _S_IFCHR),
        (_JEQ, 0, 1, _S_IFBLK),
        deny,
        _ALLOW,
    ]


def _prctl_rule(deny: _Insn) -> list[_Insn]:
    """No hiding from the supervisor's meters by being not dumpable."""
    return [
        _low(0),
        (_JEQ, 0, 1, decisions.PR_SET_VMA),
        _ret_errno(errno.EINVAL),
        (_JEQ, 0, 4, libc.PR_SET_DUMPABLE),
        _low(1),
        (_JEQ, 0, 1, 0),
        deny,
        _ALLOW,
        *_only_values(None, sorted(decisions.PRCTL), deny),
    ]


def _socket_rule(no_family: _Insn, no_protocol: _Insn) -> list[_Insn]:
    netlink = [(_JEQ, 1, 0, _AF_NETLINK), no_family, _low(2), (_JEQ, 0, 1, _NETLINK_ROUTE), _ALLOW, no_family]
    return [
        _low(0),
        (_JEQ, 0, 1, socket.AF_UNIX),
        _ALLOW,
        (_JEQ, len(netlink) + 1, 0, socket.AF_INET),
        (_JEQ, len(netlink), 0, socket.AF_INET6),
        *netlink,
        _low(1),
        _stmt(_AND, _SOCK_TYPE_MASK),
        (_JGE, 0, 2, min(_TYPES)),
        (_JGE, 1, 0, max(_TYPES) + 1),
        _stmt(_JA, 1),
        no_protocol,
        *_only_values(2, _PROTOCOLS, no_protocol),
    ]


def is_odd_protocol(family: int, kind: int, protocol: int) -> bool:
    """Whether a socket's arguments ask for something of IP that no socket in here has."""
    known = kind & _SOCK_TYPE_MASK in _TYPES and protocol & 0xFFFFFFFF in _PROTOCOLS
    return family & 0xFFFFFFFF in (socket.AF_INET, socket.AF_INET6) and not known


def _core_limit_rule(resource: int, new: int | None = None) -> list[_Insn]:
    """Setting RLIMIT_CORE is accepted and has no effect: its value is what keeps dumps from the host's handler.

    ``new``: argument that points to the value, where the call also only asks.
    """
    pretend = _ret_errno(0)
    block = [_low(resource), (_JEQ, 1, 0, _RLIMIT_CORE), _ALLOW]
    if new is None:
        return [*block, pretend]
    return [*block, _low(new), (_JEQ, 0, 3, 0), _high(new), (_JEQ, 0, 1, 0), _ALLOW, pretend]


def _buffer_rule() -> list[_Insn]:
    """Setting the size of a socket's buffers is accepted and has no effect, as far as net.core.wmem_max: that may be
    4 MiB (Linux 6.17), of which the kernel allows twice as much for each, and no meter tells what is in them.

    Nor does one hold the sender's own pages (MSG_ZEROCOPY), of which it counts the bytes alone (see decisions.EINVAL).
    """
    block = [_low(1), (_JEQ, 1, 0, socket.SOL_SOCKET), _ALLOW, _low(2)]
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        block += [(_JEQ, 0, 1, option), _ret_errno(0)]
    return [*block, (_JEQ, 0, 1, _SO_ZEROCOPY), _ret_errno(errno.ENOPROTOOPT), _ALLOW]


def other_table(arch: int, number: int) -> str | None:
    """What to call a call through another table than this machine's own; None for one through that."""
    if arch != _AUDIT_ARCH[platform.machine()]:
        return "a 32-bit call"
    if platform.machine() == "x86_64" and number >= _X32_BIT:
        return "an x32 call"
    return None


def refusal(name: str, args: Sequence[int]) -> int:
    """The errno with which a refused call fails."""
    if name == "prctl":
        return errno.EINVAL
    if name == "socket":
        return errno.EPROTONOSUPPORT if is_odd_protocol(*args[:3]) else errno.EAFNOSUPPORT
    if name == "socketpair" and args[0] & 0xFFFFFFFF != socket.AF_UNIX:
        return errno.EAFNOSUPPORT
    return errno.EPERM


def _only_self(*arguments: int, deny: _Insn) -> list[_Insn]:
    """The calls that act on another process by its number: 0 is the caller."""
    block: list[_Insn] = []
    for argument in arguments:
        block += [_low(argument), (_JEQ, 1, 0, 0), deny]
    return [*block, _ALLOW]


def _confined_open(flags: int, otherwise: list[_Insn], deny: _Insn) -> list[_Insn]:
    """To the monitor: no flags at all, as C programs read /proc/self, or the guest's; folders; and what Landlock has no
    rule for.

    The last is O_PATH; access mode 3, which is neither reading nor writing to it; and truncating what is opened for
    reading, before its ABI 3.
    """
    return [
        _low(flags),
        (_JEQ, 4, 0, 0),
        (_JEQ, 3, 0, ASKING),
        (_JSET, 2, 0, os.O_PATH),
        (_JSET, 2, 0, _O_TMPFILE_BIT),  # has the bit of O_DIRECTORY too
        (_JSET, 0, 1, os.O_DIRECTORY),
        deny,
        _stmt(_AND, _O_ACCMODE | _O_TRUNC),
        (_JEQ, 2, 0, _O_ACCMODE),
        (_JEQ, 1, 0, _O_ACCMODE | _O_TRUNC),
        (_JEQ, 0, 1, _O_TRUNC),
        deny,
        *otherwise,
    ]


def _ioctl_rule(deny: _Insn, *, only_terminals: bool) -> list[_Insn]:
    """TIOCSTI, TIOCLINUX: keystrokes pushed into a terminal. Those of file systems are "not of this file's kind"."""
    block = [_low(1)]
    for value in (_TIOCSTI, _TIOCLINUX, _TIOCSETD, *_FS_IOC_SETFLAGS):
        block += [(_JEQ, 0, 1, value), deny]
    unknown = _ret_errno(errno.ENOTTY)
    if only_terminals:
        return [*block, _stmt(_AND, _IOC_KIND), (_JEQ, 0, 1, _IOC_TERMINAL), _ALLOW, unknown]
    # A socket answers for the network namespace that it was made in, and those that come along were made in the host's.
    # By kind and number: what else such a number holds, the length of what is passed, changes nothing.
    block += [_stmt(_AND, 0xFFFF), (_JGE, 0, 2, _SIOC_DEVICES), (_JGE, 1, 0, _SIOC_END), deny]
    block += [_stmt(_AND, _IOC_KIND), (_JEQ, 0, 1, _IOC_WIRELESS), deny]
    for kind in _IOC_FILE_SYSTEMS:
        block += [(_JEQ, 0, 1, kind), unknown]
    return [*block, _ALLOW]


def _confined_rules(deny: _Insn, no_family: _Insn) -> dict[str, list[_Insn]]:
    return {
        # Only pairs that stay pairs: a datagram socket could still send to any address by sendmsg.
        "socketpair": [
            _low(0),
            (_JEQ, 1, 0, socket.AF_UNIX),
            no_family,
            _low(1),
            _stmt(_AND, _SOCK_TYPE_MASK),
            *_only_values(None, _PAIRS, deny),
        ],
        # Sockets of any family tell of the machine's network devices, descriptors of processes about those.
        "ioctl": _ioctl_rule(deny, only_terminals=True),
        "fcntl": _deny_values(1, (_F_SETLEASE, _F_NOTIFY, _F_SETOWN, _F_SETSIG, _F_SETOWN_EX), deny),
        "socket": [no_family],
        "open": _confined_open(1, _deny_setid_create(1, 2, deny), deny),
        "openat": _confined_open(2, _deny_setid_create(2, 3, deny), deny),
        "prlimit64": [*_only_self(0, deny=deny)[:-1], *_core_limit_rule(1, 2)],
        # Thread libraries name threads by number, and abort if they may not; nothing real-time is allowed anyway.
        "sched_setparam": _only_self(0, deny=_ret_errno(0)),
        "sched_setscheduler": _only_self(0, deny=_ret_errno(0)),
        "setpriority": _only_self(0, 1, deny=deny),  # PRIO_PROCESS is 0
        **{name: _own_clocks(0) for name in ("clock_getres", "clock_gettime", "clock_nanosleep", "timer_create")},
    }


def _shared_mapping() -> list[_Insn]:
    """To the monitor, which counts what can be no file (see shared_memory.py): a number alone doesn't tell of which."""
    return [
        _low(3),
        _stmt(_AND, _MAP_TYPE),
        (_JEQ, 1, 0, _MAP_SHARED),
        (_JEQ, 0, 1, _MAP_SHARED_VALIDATE),
        _NOTIFY,
        _ALLOW,
    ]


def rules(*, confined: bool = False, notify: bool = True, shared: bool = False) -> dict[str, list[_Insn]]:
    """Calls whose arguments decide; each block ends in an answer on every way through it."""
    deny = _NOTIFY if notify else _DENY
    no_family = _NOTIFY if notify else _ret_errno(errno.EAFNOSUPPORT)
    no_protocol = _NOTIFY if notify else _ret_errno(errno.EPROTONOSUPPORT)
    no_option = _NOTIFY if notify else _ret_errno(errno.EINVAL)
    unknown = _ret_errno(errno.EINVAL)  # as by an older kernel, or a file system that has none
    ids = _S_ISUID_S_ISGID
    common = {
        "clone": _clone_rule(deny),
        # As with clone: descriptors of a thread's own.
        "close_range": _deny_if_set(2, _CLOSE_RANGE_UNSHARE, unknown),
        "renameat2": _deny_if_set(4, _RENAME_WHITEOUT, unknown),  # leaves a device, which mknod may not
        "socket": _socket_rule(no_family, no_protocol),
        "socketpair": _only_values(0, (socket.AF_UNIX,), no_family),
        "ioctl": _ioctl_rule(deny, only_terminals=False),
        "fcntl": _deny_values(1, (_F_SETLEASE, _F_NOTIFY), deny),
        "prctl": _prctl_rule(no_option),
        "madvise": _deny_values(2, (_MADV_MERGEABLE,), unknown),  # as PR_SET_MEMORY_MERGE, and by a kernel without it
        "prlimit64": _core_limit_rule(1, 2),
        "setrlimit": _core_limit_rule(0),
        "setsockopt": _buffer_rule(),
        "seccomp": _deny_if_set(1, _NEW_LISTENER, deny),
        "personality": _only_values(0, _ADDR_NO_RANDOMIZE_ALLOWED, deny),
        "chmod": _deny_if_set(1, ids, deny),
        "fchmod": _deny_if_set(1, ids, deny),
        "fchmodat": _deny_if_set(2, ids, deny),
        "fchmodat2": _deny_if_set(2, ids, deny),
        "creat": _deny_if_set(1, ids, deny),
        "mkdir": _deny_if_set(1, ids, deny),
        "mkdirat": _deny_if_set(2, ids, deny),
        "open": _deny_setid_create(1, 2, deny),
        "openat": _deny_setid_create(2, 3, deny),
        "mknod": _deny_mknod(1, deny),
        "mknodat": _deny_mknod(2, deny),
    }
    counted = {"mmap": _shared_mapping()} if shared and notify else {}
    return common | counted | (_confined_rules(deny, no_family) if confined else {})


def _answers(replaced: frozenset[str], notify: bool) -> list[tuple[frozenset[str], _Insn]]:
    """One answer each for the calls whose name alone decides; ``replaced`` are decided elsewhere."""
    refused, seen = (_NOTIFY, _NOTIFY) if notify else (_DENY, _ALLOW)
    tables = [
        (decisions.ALLOWED, _ALLOW),
        (decisions.SEEN, seen),
        (decisions.REFUSED, refused),
        (decisions.REFUSED_QUIETLY, _DENY),
        (decisions.ENOSYS, _ret_errno(errno.ENOSYS)),
        (decisions.UNSUPPORTED, _ret_errno(errno.EOPNOTSUPP)),
        (decisions.EINVAL, _ret_errno(errno.EINVAL)),
    ]
    return [(names - replaced, answer) for names, answer in tables]


@functools.cache
def program(
    machine: str | None = None,
    *,
    confined: bool = False,
    signals: bool = False,
    notify: bool = True,
    shared: bool = False,
) -> bytes:
    """The filter for ``machine`` as an array of ``struct sock_filter``.

    :param confined: for a sandbox without namespaces, where the filter has more to refuse.
    :param signals: for one of those whose signals Landlock doesn't keep inside.
    :param notify: refused calls wait for a listener; without, they fail at once and nobody hears of them.
    :param shared: so do calls that map something shared, where the listener counts such memory.
    """
    to_monitor: frozenset[str] = frozenset()
    if confined:
        to_monitor = decisions.CONFINED_REFUSED | decisions.CONFINED_EMULATED | decisions.CONFINED_TOLD
        to_monitor |= decisions.CONFINED_COUNTED
        to_monitor |= decisions.SIGNALS if signals else decisions.CONFINED_SEEN
    replaced = to_monitor | decisions.CONFINED_UNSUPPORTED if confined else to_monitor
    machine = machine or platform.machine()
    numbers = syscalls.numbers(machine)
    if not numbers:
        raise OSError(errno.ENOSYS, f"no system-call table for {machine}; x86_64 and aarch64 are supported")
    # The monitor tells these calls by what ``other_table`` looks at, and never by their number alone.
    through_another = _NOTIFY if notify else _stmt(_RET, _RET_KILL_PROCESS)
    out: list[_Insn] = [
        _stmt(_LD_ABS, _ARCH_OFFSET),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        through_another,
        _stmt(_LD_ABS, _NR_OFFSET),
    ]
    if machine == "x86_64":
        out += [(_JGE, 0, 1, _X32_BIT), through_another]
    for name, block in sorted(rules(confined=confined, notify=notify, shared=shared).items()):
        if name in numbers and name not in replaced:
            # A conditional jump reaches 255 instructions; blocks are far shorter.
            out += [(_JEQ, 0, len(block), numbers[name]), *block]
    answers = _answers(replaced, notify)
    if confined:
        answers += [
            (to_monitor, _NOTIFY if notify else _DENY),
            (decisions.CONFINED_UNSUPPORTED, _ret_errno(errno.EOPNOTSUPP)),
        ]
    for names, answer in answers:
        for start, end in _ranges(numbers[n] for n in names if n in numbers):
            if start == end:
                out += [(_JEQ, 0, 1, start), answer]
            else:
                # At least the first, and not past the last.
                out += [(_JGE, 0, 2, start), (_JGE, 1, 0, end + 1), answer]
    out.append(_ret_errno(errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *insn) for insn in out)


def _ranges(values: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers, so that the program stays short."""
    runs: list[tuple[int, int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install(filter_program: bytes, *, listener: bool = False) -> int | None:
    """Put the filter on this thread for good; children inherit it. Needs no_new_privs.

    :returns: with ``listener``, the descriptor at which calls wait for an answer (close-on-exec).
    :raises OSError: EBUSY where a filter with a listener holds this process already (some container engines).
    """
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    fprog = _SockFprog(len(filter_program) // 8, ctypes.addressof(buffer))
    if not listener:
        libc.syscall("seccomp", _SET_MODE_FILTER, 0, fprog)
        return None
    try:
        # Once the monitor has a call in hand, no signal but a deadly one takes it back (kernel 5.19).
        return libc.syscall("seccomp", _SET_MODE_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, fprog)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return libc.syscall("seccomp", _SET_MODE_FILTER, _NEW_LISTENER, fprog)
