"""Runs a command as a container engine would: under a filter that refuses what their default profiles do.

    python tests/pod.py COMMAND [ARGUMENT ...]

No namespaces, mounts, tracing, keyrings or stolen descriptors; clone3 answers that it does not exist. The real engine
is tested too; this needs none, and runs wherever the tests run.
Source: Docker's documentation, "Seccomp security profiles for Docker", table of significant blocked calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from ipysandbox.backends.linux import libc, seccomp, syscalls

REFUSED = """
    acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick
    get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp
    kexec_file_load kexec_load keyctl lookup_dcookie mbind mount mount_setattr move_mount move_pages nfsservctl
    open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_vm_readv process_vm_writev
    ptrace query_module quotactl reboot request_key set_mempolicy setdomainname sethostname setns settimeofday stime
    swapoff swapon sysfs syslog umount umount2 unshare uselib userfaultfd ustat vm86 vm86old vhangup
""".split()
_LOAD, _EQUAL, _ANY_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NEW_NAMESPACES = 0x7E020000


def profile() -> bytes:
    """The filter, for this machine's own table of calls."""
    numbers = syscalls.numbers(platform.machine())
    rows = [(_LOAD, 0, 0, 0)]
    rows += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    allow = (_RETURN, 0, 0, _ALLOW)
    rows += [(_EQUAL, 0, 4, numbers["clone"]), (_LOAD, 0, 0, 16), (_ANY_SET, 0, 1, _NEW_NAMESPACES), refuse, allow]
    for name in REFUSED:
        if name in numbers:
            rows += [(_EQUAL, 0, 1, numbers[name]), refuse]
    rows.append(allow)
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def enter() -> None:
    """Put the filter on this process for good."""
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    program = profile()
    buffer = ctypes.create_string_buffer(program, len(program))
    libc.syscall("seccomp", 1, 0, seccomp._SockFprog(len(program) // 8, ctypes.addressof(buffer)))


if __name__ == "__main__":
    enter()
    os.execvp(sys.argv[1], sys.argv[1:])
