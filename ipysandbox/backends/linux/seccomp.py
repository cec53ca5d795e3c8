"""The system-call filter: an allow-list by name, compiled to classic BPF for x86-64 and aarch64.

Three answers: *allowed*; *refused* with an error a program can handle (a name on ``REFUSED``, or arguments that a rule
forbids); *unknown*, answered with ENOSYS so that libraries fall back as on an older kernel. A call made through another
architecture's table (32-bit, x32) kills the process: no honest program of ours makes one.

The list was written from the x86-64 and generic tables with the question "what does research code need?", and compared
with the default profiles of container engines; what those allow and this refuses is commented.
Source for the program's layout: seccomp(2), Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Iterable

from . import libc, syscalls

# linux/audit.h: what seccomp_data.arch holds
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_RET_KILL_PROCESS = 0x80000000
_RET_ERRNO = 0x00050000
_RET_ALLOW = 0x7FFF0000

# linux/bpf_common.h
_LD_ABS, _JEQ, _JGE, _JSET, _RET, _AND, _JA = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54, 0x05
_NR_OFFSET, _ARCH_OFFSET = 0, 4

ALLOWED = frozenset(
    """
    accept accept4 access alarm arch_prctl bind brk cachestat capget chdir chown clock_getres clock_gettime
    clock_nanosleep close close_range connect copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fchdir fchown fchownat  fdatasync fgetxattr flistxattr
    flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_wait futex_waitv futex_wake
    futex_requeue futimesat get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
    getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
    getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch
    inotify_init inotify_init1 inotify_rm_watch ioprio_get kill landlock_add_rule landlock_create_ruleset
    landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr lseek
    lsetxattr lstat madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mmap mprotect mremap mseal
    msync munlock munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
    pkey_free pkey_mprotect poll ppoll pread64 preadv preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr removexattrat rename
    renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setparam
    sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto
    set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
    setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shutdown sigaltstack
    signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
    vmsplice wait4 waitid write writev
    """.split()
)
# chmod, chown, utime and xattr calls are open because the mounts decide what they can reach; without mounts they are
# not.

#: Refused with EPERM: known, and deliberately not for code in a sandbox.
REFUSED = frozenset(
    """
    acct add_key adjtimex bpf capset chroot clock_adjtime clock_settime delete_module fanotify_init fanotify_mark
    file_getattr file_setattr finit_module fsconfig fsmount fsopen fspick get_mempolicy init_module ioperm iopl
    ioprio_set io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit io_uring_enter io_uring_register
    io_uring_setup kcmp kexec_file_load kexec_load keyctl listmount lookup_dcookie lsm_get_self_attr lsm_list_modules
    lsm_set_self_attr mbind migrate_pages modify_ldt mount mount_setattr move_mount move_pages mq_getsetattr mq_notify
    mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd name_to_handle_at nfsservctl
    open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot remap_file_pages request_key sched_setaffinity sched_setattr
    set_mempolicy set_mempolicy_home_node setdomainname sethostname setns settimeofday shmat shmctl shmdt shmget
    statmount swapoff swapon sysfs syslog umount2 unshare userfaultfd ustat vhangup
    """.split()
)
# shm*, msg* and mq_*: memory that no mount bounds and no process owns; POSIX shared memory lives on the sized /dev/shm.
# sched_setaffinity: affinity is how `cpus` is held where no control group can.

#: Answered as if the kernel were older; a program then takes its other way.
#: clone3 and openat2 keep flags in memory, where a filter can't look; memfd pages belong to no mount and no process.
#: The rest never had, or no longer has, an implementation.
ENOSYS = frozenset(
    """
    clone3 openat2 memfd_create memfd_secret
    _sysctl afs_syscall create_module get_kernel_syms get_thread_area getpmsg putpmsg query_module security
    set_thread_area tuxcall uselib vserver
    """.split()
)

#: Answered as by a file system that lacks it: a gigabyte is reserved in microseconds, faster than any watch over a
#: plain folder can see. posix_fallocate(3) then writes instead.
UNSUPPORTED = frozenset(("fallocate",))

# Linux 6.x: socket families and what an unprivileged program has from them.
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_AF_NETLINK, _NETLINK_ROUTE = 16, 0  # getifaddrs(3)
_CLONE_NEW = 0x7E020080  # every CLONE_NEW* flag, CLONE_NEWTIME included
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_S_ISUID_S_ISGID = 0o6000
_S_IFMT, _S_IFCHR, _S_IFBLK = 0o170000, 0o020000, 0o060000
_O_CREAT, _O_TMPFILE_BIT = 0o100, 0o20000000
_PR_SET_MM = 35
#: Leases make the host's own open() of a file in results/ wait; inode flags stay on it for ever.
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_FS_IOC_SETFLAGS = (0x40086602, 0x40046602, 0x401C5820)
_ADDR_NO_RANDOMIZE_ALLOWED = (0x0, 0xFFFFFFFF, 0x8)  # PER_LINUX, "tell me", PER_LINUX32's harmless twin

_Insn = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def _stmt(code: int, k: int) -> _Insn:
    return (code, 0, 0, k)


def _ret_errno(number: int) -> _Insn:
    return _stmt(_RET, _RET_ERRNO | number)


_ALLOW = _stmt(_RET, _RET_ALLOW)
_DENY = _ret_errno(errno.EPERM)


def _low(arg: int) -> _Insn:
    """Load the low half of an argument (both architectures are little-endian)."""
    return _stmt(_LD_ABS, 16 + 8 * arg)


def _deny_if_set(arg: int, bits: int) -> list[_Insn]:
    return [_low(arg), (_JSET, 0, 1, bits), _DENY, _ALLOW]


def _deny_values(arg: int, values: Iterable[int], answer: _Insn = _DENY) -> list[_Insn]:
    block = [_low(arg)]
    for value in values:
        block += [(_JEQ, 0, 1, value), answer]
    return [*block, _ALLOW]


def _only_values(arg: int, values: Iterable[int], answer: _Insn = _DENY) -> list[_Insn]:
    block = [_low(arg)]
    for value in values:
        block += [(_JEQ, 0, 1, value), _ALLOW]
    return [*block, answer]


def _deny_setid_create(flags: int, mode: int) -> list[_Insn]:
    """Mode bits count only when the flags create a file; otherwise the register holds anything."""
    return [
        _low(flags),
        (_JSET, 1, 0, _O_CREAT | _O_TMPFILE_BIT),
        _ALLOW,
        *_deny_if_set(mode, _S_ISUID_S_ISGID),
    ]


def _deny_mknod(mode: int) -> list[_Insn]:
    """No device node (an overlay whiteout is one, and could un-hide a file) and no set-id file."""
    return [
        _low(mode),
        (_JSET, 0, 1, _S_ISUID_S_ISGID),
        _DENY,
        _stmt(_AND, _S_IFMT),
        (_JEQ, 1, 0, _S_IFCHR),
        (_JEQ, 0, 1, _S_IFBLK),
        _DENY,
        _ALLOW,
    ]


def _prctl_rule() -> list[_Insn]:
    """No PR_SET_MM, and no hiding from the supervisor's meters by being not dumpable."""
    return [
        _low(0),
        (_JEQ, 0, 1, _PR_SET_MM),
        _DENY,
        (_JEQ, 1, 0, libc.PR_SET_DUMPABLE),
        _ALLOW,
        _low(1),
        (_JEQ, 0, 1, 0),
        _DENY,
        _ALLOW,
    ]


def _socket_rule() -> list[_Insn]:
    no_family = _ret_errno(errno.EAFNOSUPPORT)
    block: list[_Insn] = [_low(0)]
    for family in _FAMILIES:
        block += [(_JEQ, 0, 1, family), _ALLOW]
    block += [(_JEQ, 1, 0, _AF_NETLINK), no_family, _low(2), (_JEQ, 0, 1, _NETLINK_ROUTE), _ALLOW, no_family]
    return block


def rules() -> dict[str, list[_Insn]]:
    """Calls whose arguments decide; each block ends in an answer on every way through it."""
    return {
        "clone": _deny_if_set(0, _CLONE_NEW & ~0x80),  # 0x80 is CLONE_NEWTIME only in clone3, a signal bit here
        "socket": _socket_rule(),
        # Keystrokes pushed into a terminal; the kernel looks at 32 bits of the command, so does this.
        "ioctl": _deny_values(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD, *_FS_IOC_SETFLAGS)),
        "fcntl": _deny_values(1, (_F_SETLEASE, _F_NOTIFY)),
        "prctl": _prctl_rule(),
        "personality": _only_values(0, _ADDR_NO_RANDOMIZE_ALLOWED),
        "chmod": _deny_if_set(1, _S_ISUID_S_ISGID),
        "fchmod": _deny_if_set(1, _S_ISUID_S_ISGID),
        "fchmodat": _deny_if_set(2, _S_ISUID_S_ISGID),
        "fchmodat2": _deny_if_set(2, _S_ISUID_S_ISGID),
        "creat": _deny_if_set(1, _S_ISUID_S_ISGID),
        "mkdir": _deny_if_set(1, _S_ISUID_S_ISGID),
        "mkdirat": _deny_if_set(2, _S_ISUID_S_ISGID),
        "open": _deny_setid_create(1, 2),
        "openat": _deny_setid_create(2, 3),
        "mknod": _deny_mknod(1),
        "mknodat": _deny_mknod(2),
    }


def program(machine: str | None = None) -> bytes:
    """The filter for ``machine`` as an array of ``struct sock_filter``."""
    machine = machine or platform.machine()
    numbers = syscalls.numbers(machine)
    if not numbers:
        raise OSError(errno.ENOSYS, f"no system-call table for {machine}; x86_64 and aarch64 are supported")
    out: list[_Insn] = [
        _stmt(_LD_ABS, _ARCH_OFFSET),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        _stmt(_RET, _RET_KILL_PROCESS),
        _stmt(_LD_ABS, _NR_OFFSET),
    ]
    if machine == "x86_64":
        out += [(_JGE, 0, 1, _X32_BIT), _stmt(_RET, _RET_KILL_PROCESS)]
    for name, block in sorted(rules().items()):
        if name in numbers:
            # A conditional jump reaches 255 instructions; blocks are far shorter.
            out += [(_JEQ, 0, len(block), numbers[name]), *block]
    by_answer = (
        (ALLOWED, _ALLOW),
        (REFUSED, _DENY),
        (ENOSYS, _ret_errno(errno.ENOSYS)),
        (UNSUPPORTED, _ret_errno(errno.EOPNOTSUPP)),
    )
    for names, answer in by_answer:
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


def install(filter_program: bytes) -> None:
    """Put the filter on this thread for good; children inherit it. Needs no_new_privs."""
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    fprog = _SockFprog(len(filter_program) // 8, ctypes.addressof(buffer))
    libc.syscall("seccomp", 1, 0, fprog)  # SECCOMP_SET_MODE_FILTER
