"""Answers the system calls that the filter leaves to the monitor, and keeps count of what was tried.

The kernel holds the caller until an answer comes (seccomp_unotify(2)). Everything read here is the kernel's own, but
for what a call's pointers lead to: that is the caller's memory, and changes at its will. No answer may depend on it for
safety.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import ipaddress
import os
import select
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ipysandbox.backends.attempt import Attempt

from . import details, libc, seccomp, syscalls

# linux/seccomp.h; the numbers hold the size of the structures that this was written for.
_RECV, _SEND, _ID_VALID, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_GET_NOTIF_SIZES = 3
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_ADD_FD, _ADDFD_SEND = 0x40182103, 2
#: struct seccomp_notif_addfd: id, flags, source, target, its flags.
_ADDFD = struct.Struct("=QIIII")
#: struct seccomp_notif: id, pid, flags; number, architecture, instruction pointer, six arguments.
_NOTIF = struct.Struct("=QII iIQ6Q")
#: struct seccomp_notif_resp: id, value, error, flags.
_RESP = struct.Struct("=QqiI")
#: Longer than any sockaddr of IP.
_ADDRESS_BYTES = 28

#: Kinds of attempts told apart at one time; more are counted by the call's name alone.
_MOST_KINDS = 64
#: Rows of one line to the supervisor: far below what a socket takes in one piece.
MOST_ROWS = 32
#: One attempt of a kind is told at once, those that follow are counted for so long.
_EVERY_SECONDS = 1.0


@dataclass(frozen=True)
class Notification:
    """One call that waits: ``pid`` as this process sees it (a thread's id, in fact), arguments as unsigned numbers.

    ``waits()`` tells whether the caller still does: only then is what was read under its pid before its own.
    """

    pid: int
    name: str
    args: tuple[int, ...]
    waits: Callable[[], bool]


@dataclass(frozen=True)
class Answer:
    """``errno`` if not 0, else ``value``; ``proceed`` has the kernel carry the call out, whatever its memory says by
    then; ``descriptor`` of this process becomes one of the caller's, is what the call returns, and is closed here. With
    ``tell``, the attempt is counted, and this is its detail."""

    errno: int = 0
    value: int = 0
    proceed: bool = False
    descriptor: int = -1
    tell: str | None = None


Handler = Callable[[Notification], Answer]


def refuse(note: Notification) -> Answer:
    """The answer that the filter would have given by itself."""
    return Answer(errno=seccomp.refusal(note.name, note.args), tell=details.of(note.name, note.args))


def see_connect(note: Notification) -> Answer:
    """Let it through, and note an address that is not the sandbox's own: no network behind it is reached either way."""
    size = min(note.args[2] & 0xFFFFFFFF, _ADDRESS_BYTES)
    address = _ip_address(libc.read_memory(note.pid, note.args[1], size))
    return Answer(proceed=True, tell=address if address and note.waits() else None)


def _ip_address(raw: bytes) -> str | None:
    """``address:port`` of a sockaddr outside loopback; None for any other."""
    family = int.from_bytes(raw[:2], "little")
    if family == 2 and len(raw) >= 8:  # AF_INET
        address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.IPv4Address(raw[4:8])
    elif family == 10 and len(raw) >= 24:  # AF_INET6
        long = ipaddress.IPv6Address(raw[8:24])
        address = long.ipv4_mapped or long
    else:
        return None
    if address.is_loopback or address.is_unspecified:
        return None
    port = int.from_bytes(raw[2:4], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


class Listener:
    """One filter's waiting calls. ``handlers`` answer by name; what has none is refused.

    :param proc: a descriptor of the /proc in which this process itself appears, for the callers' names; default: that
        at /proc, which is not it after a change of root.
    """

    def __init__(self, fd: int, handlers: Mapping[str, Handler], *, proc: int | None = None) -> None:
        self._fd, self._handlers = fd, handlers
        self._proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC) if proc is None else proc
        self._names = syscalls.names()
        sizes = ctypes.create_string_buffer(6)
        libc.syscall("seccomp", _GET_NOTIF_SIZES, 0, sizes)
        notification, response, _ = struct.unpack("=HHH", sizes.raw)
        # A newer kernel's structures may be longer; both start as these do, and the rest is to be zero.
        self._empty = bytes(max(notification, _NOTIF.size))
        self._answer = bytearray(max(response, _RESP.size))
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.trail = Trail()
        #: Calls answered so far, whatever the answer.
        self.answered = 0
        try:
            # The two take turns on one processor, as they do anyway (kernel 6.6).
            fcntl.ioctl(fd, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError as exc:
            if exc.errno not in (errno.EINVAL, errno.ENOTTY):
                raise

    def fileno(self) -> int:
        return self._fd

    def step(self) -> bool:
        """Receive one call and answer it; False when none waits (any more)."""
        # Asking for a call that is gone would wait for the next.
        if not any(event & select.POLLIN for _, event in self._poll.poll(0)):
            return False
        buffer = bytearray(self._empty)
        try:
            fcntl.ioctl(self._fd, _RECV, buffer)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.EINTR):  # its caller was killed, or took a signal first
                return False
            raise
        identifier, pid, _, number, arch, _, *args = _NOTIF.unpack_from(buffer)
        waits = functools.partial(self._waits, identifier)
        other = seccomp.other_table(arch, number)
        # By such a table, the number is another call's.
        note = Notification(pid, other or self._names.get(number, str(number)), tuple(args), waits)
        answer = refuse(note) if other else self._handlers.get(note.name, refuse)(note)
        if answer.tell is not None:
            # While it waits, the number of the caller can't be another's.
            self.trail.add(note.name, answer.tell, pid, self._comm)
        self._send(identifier, answer)
        self.answered += 1
        return True

    def _waits(self, identifier: int) -> bool:
        try:
            fcntl.ioctl(self._fd, _ID_VALID, struct.pack("=Q", identifier))
        except OSError:
            return False
        return True

    def _send(self, identifier: int, answer: Answer) -> None:
        if answer.descriptor >= 0:
            self._send_descriptor(identifier, answer.descriptor)
            return
        flags = _CONTINUE if answer.proceed else 0
        _RESP.pack_into(self._answer, 0, identifier, answer.value, -answer.errno, flags)
        try:
            fcntl.ioctl(self._fd, _SEND, self._answer)
        except OSError as exc:
            if exc.errno != errno.ENOENT:  # the caller is gone: nothing to answer
                raise

    def _send_descriptor(self, identifier: int, descriptor: int) -> None:
        """Install it and answer in one step (kernel 5.14)."""
        try:
            fcntl.ioctl(self._fd, _ADD_FD, _ADDFD.pack(identifier, _ADDFD_SEND, descriptor, 0, os.O_CLOEXEC))
        except OSError as exc:
            if exc.errno == errno.ENOENT:
                return
            self._send(identifier, Answer(errno=exc.errno or errno.EMFILE))
        finally:
            os.close(descriptor)

    def _comm(self, pid: int) -> str:
        try:
            fd = os.open(f"{pid}/comm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return ""
        try:
            return os.read(fd, 64).rstrip(b"\n").decode("utf-8", "replace")
        except OSError:
            return ""
        finally:
            os.close(fd)


@dataclass
class _Kind:
    attempt: Attempt
    told: float


class Trail:
    """Attempts by kind: the first is told at once, those of the next second as one number. Bounded, whatever comes."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def add(self, name: str, detail: str, pid: int, comm: Callable[[int], str]) -> None:
        kind = self._kinds.get((name, detail))
        if kind is None and len(self._kinds) >= _MOST_KINDS:
            detail = "…"
            kind = self._kinds.get((name, detail))
        if kind is None:
            kind = self._kinds[name, detail] = _Kind(Attempt(name, detail, 0, "", 0), float("-inf"))
        if not kind.attempt.count:
            kind.attempt = Attempt(name, detail, pid, comm(pid), 1)
        else:
            kind.attempt = replace(kind.attempt, count=kind.attempt.count + 1)

    def take(self, now: float) -> list[Attempt]:
        """Kinds with something to tell that were not told within the last second; at most ``MOST_ROWS``."""
        due: list[Attempt] = []
        for key, kind in list(self._kinds.items()):
            if now - kind.told < _EVERY_SECONDS:
                continue
            if len(due) >= MOST_ROWS:
                break
            if kind.attempt.count:
                due.append(kind.attempt)
                kind.attempt, kind.told = replace(kind.attempt, count=0), now
            else:
                del self._kinds[key]
        return due

    def wait(self, now: float) -> float | None:
        """Seconds until something will be due; None while there is nothing to tell."""
        left = [kind.told + _EVERY_SECONDS - now for kind in self._kinds.values() if kind.attempt.count]
        return max(0.0, min(left)) if left else None

    def clear(self) -> None:
        self._kinds.clear()
