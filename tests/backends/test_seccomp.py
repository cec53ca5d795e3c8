"""The system-call filter, decided call by call and run by a small BPF interpreter as well as by the kernel."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from ipysandbox.backends.linux import libc, seccomp, syscalls

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, number: int, *args: int, arch: int | None = None) -> int:
    """Interpret the program as the kernel would, for one call."""
    values = [a & 0xFFFFFFFFFFFFFFFF for a in (*args, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("<iIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *values)
    program = seccomp.program(machine)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif code == 0x54:
            accumulator &= k
        elif code == 0x06:
            return k
        else:
            truth = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[code]
            at += if_true if truth else if_false


def call(machine: str, name: str, *args: int) -> int:
    return verdict(machine, syscalls.numbers(machine)[name], *args)


@pytest.mark.parametrize("machine", sorted(ARCH))
def test_every_call_of_the_table_was_decided_on_purpose(machine: str) -> None:
    decided = seccomp.ALLOWED | seccomp.REFUSED | seccomp.ENOSYS | seccomp.UNSUPPORTED | set(seccomp.rules())
    assert decided == set(syscalls.TABLE), decided ^ set(syscalls.TABLE)
    groups = [seccomp.ALLOWED, seccomp.REFUSED, seccomp.ENOSYS, seccomp.UNSUPPORTED, frozenset(seccomp.rules())]
    assert sum(map(len, groups)) == len(decided), "a call is on two lists"
    for name, number in syscalls.numbers(machine).items():
        answer = verdict(machine, number)
        if name in seccomp.ALLOWED:
            assert answer == ALLOW, name
        elif name in seccomp.REFUSED:
            assert answer == ERRNO | errno.EPERM, name
        elif name in seccomp.ENOSYS:
            assert answer == ERRNO | errno.ENOSYS, name
        elif name in seccomp.UNSUPPORTED:
            assert answer == ERRNO | errno.EOPNOTSUPP, name


@pytest.mark.parametrize("machine", sorted(ARCH))
def test_a_number_nobody_knows_gets_enosys_and_a_foreign_table_kills(machine: str) -> None:
    assert verdict(machine, 4000) == ERRNO | errno.ENOSYS
    assert verdict(machine, 0, arch=0x40000003) == KILL  # the 32-bit table
    if machine == "x86_64":
        assert verdict(machine, 0x40000000 | 272) == KILL  # x32


@pytest.mark.parametrize("machine", sorted(ARCH))
def test_arguments_decide_where_a_call_is_both_needed_and_dangerous(machine: str) -> None:
    refused = ERRNO | errno.EPERM
    assert call(machine, "clone", 0x11) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert call(machine, "clone", flag | 0x11) == refused
    for family in (1, 2, 10):
        assert call(machine, "socket", family, 1, 0) == ALLOW
    assert call(machine, "socket", 16, 3, 0) == ALLOW
    assert call(machine, "socket", 16, 3, 9) == ERRNO | errno.EAFNOSUPPORT
    for family in (0, 3, 9, 15, 17, 29, 31, 38, 40, 43, 44):
        assert call(machine, "socket", family, 1, 0) == ERRNO | errno.EAFNOSUPPORT
    for command in (0x5412, 0x541C, 0x5423):
        assert call(machine, "ioctl", 0, command) == refused
        # The kernel looks at 32 bits of the command: rubbish above them must not hide it.
        assert call(machine, "ioctl", 0, 0x1_0000_0000 | command) == refused
    assert call(machine, "ioctl", 0, 0x5401) == ALLOW
    assert call(machine, "openat", 0, 0, 0o102, 0o4755) == refused
    assert (
        call(machine, "openat", 0, 0, 0, 0o4755) == ALLOW
    )  # no file is made: the mode is whatever was in the register
    assert call(machine, "fchmodat", 0, 0, 0o2755) == refused
    assert call(machine, "fchmodat", 0, 0, 0o755) == ALLOW
    assert call(machine, "mknodat", 0, 0, 0o020000) == refused  # a 0/0 character device is an overlay's whiteout
    assert call(machine, "mknodat", 0, 0, 0o010644) == ALLOW
    for command in (1024, 1026):
        assert call(machine, "fcntl", 3, command) == refused
    assert call(machine, "fcntl", 3, 1030) == ALLOW
    assert call(machine, "prctl", 4, 0) == refused  # not dumpable: hidden from the meters
    assert call(machine, "prctl", 4, 1) == ALLOW
    assert call(machine, "prctl", 15, 0) == ALLOW
    assert call(machine, "prctl", 35, 0) == refused
    assert call(machine, "personality", 0xFFFFFFFF) == ALLOW
    assert call(machine, "personality", 0x0040000) == refused  # ADDR_NO_RANDOMIZE


def test_the_kernel_takes_the_program_and_acts_on_it() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
            seccomp.install(seccomp.program())
            try:
                libc.unshare(libc.CLONE_NEWUSER)
            except OSError as exc:
                os._exit(0 if exc.errno == errno.EPERM else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
