"""Thin typed wrappers over the system calls that Python's ``os`` lacks; each raises OSError with the call's name."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

from . import syscalls

_libc = ctypes.CDLL(None, use_errno=True)
_NR = syscalls.numbers()
#: Which of the two architectures this is, where their structures differ.
X86 = platform.machine() == "x86_64"

# linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
OPEN_TREE_CLONE = 1
AT_RECURSIVE = 0x8000
AT_EMPTY_PATH = 0x1000
AT_FDCWD = -100
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x04, 0x40
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MOUNT_ATTR_IDMAP = 0x00100000

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_TIMERSLACK = 29
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
#: SECBIT_NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and their locks (linux/securebits.h).
SECUREBITS = 0b11001111
PR_CAP_AMBIENT_CLEAR_ALL = 4

KEYCTL_JOIN_SESSION_KEYRING = 1


#: Calls by this one keep the interpreter's lock, which a child then has.
_locked_libc = ctypes.PyDLL(None, use_errno=True)
_SIGCHLD = 17


def fork(namespaces: int = 0) -> int:
    """``os.fork`` of a process with one thread, without the handlers that libraries have registered for it: for
    processes of ours that run no library, and from which ``os.fork`` makes the one that does. They cost as much again.

    :param namespaces: those that the child begins in (CLONE_NEW*); with CLONE_NEWPID it is pid 1.
    """
    flags = ctypes.c_long(_SIGCHLD | namespaces)
    pid = int(_locked_libc.syscall(ctypes.c_long(_NR["clone"]), flags, *[ctypes.c_long(0)] * 4))
    if pid < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"clone: {os.strerror(errno)}")
    return pid


def syscall(name: str, *args: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> int:
    """Make the call ``name``; integers are passed as C longs, bytes as C strings, structures by reference."""
    converted: list[object] = []
    for arg in args:
        if arg is None:
            converted.append(ctypes.c_void_p(None))
        elif isinstance(arg, int):
            converted.append(ctypes.c_long(arg))
        elif isinstance(arg, ctypes.Structure):
            converted.append(ctypes.byref(arg))
        else:
            converted.append(arg)
    number = _NR.get(name)
    if number is None:
        raise OSError(38, f"{name}: no such system call on this architecture")
    function = _libc.syscall
    function.restype = ctypes.c_long
    result = int(function(ctypes.c_long(number), *converted))
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{name}: {os.strerror(errno)}")
    return result


def prctl(option: int, arg2: int = 0, arg3: int = 0, arg4: int = 0, arg5: int = 0) -> int:
    return syscall("prctl", option, arg2, arg3, arg4, arg5)


def unshare(flags: int) -> None:
    syscall("unshare", flags)


def mount(source: str | None, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    try:
        syscall(
            "mount",
            os.fsencode(source) if source is not None else None,
            os.fsencode(target),
            kind.encode() if kind is not None else None,
            flags,
            os.fsencode(data) if data is not None else None,
        )
    except OSError as exc:
        raise OSError(exc.errno, f"mount {kind or 'bind'} on {target}: {os.strerror(exc.errno or 0)}") from None


def umount(target: str, flags: int = MNT_DETACH) -> None:
    syscall("umount2", os.fsencode(target), flags)


def pivot_root(new_root: str, put_old: str) -> None:
    syscall("pivot_root", os.fsencode(new_root), os.fsencode(put_old))


def open_tree(path: str) -> int:
    """A detached copy of the mounts at and below ``path`` (kernel 5.2); a descriptor."""
    try:
        return syscall("open_tree", AT_FDCWD, os.fsencode(path), OPEN_TREE_CLONE | AT_RECURSIVE | os.O_CLOEXEC)
    except OSError as exc:
        raise OSError(exc.errno, f"{path}: {os.strerror(exc.errno or 0)}") from None


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_path_strict(path: str) -> int:
    """An O_PATH descriptor of ``path``, refusing a symbolic link anywhere in it (ELOOP)."""
    return openat2(AT_FDCWD, os.fsencode(path), os.O_PATH | os.O_CLOEXEC, 4)  # RESOLVE_NO_SYMLINKS


#: number, folder, path, pointer, last argument: of calls made so often that ``syscall`` is too slow.
_path_call = ctypes.CFUNCTYPE(
    ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_long, use_errno=True
)(("syscall", _libc))
_OPENAT2, _FSTATAT = _NR.get("openat2", -1), _NR.get("newfstatat", -1)


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """open with rules for how the path is resolved (kernel 5.6)."""
    how = _OpenHow(flags, 0, resolve)
    fd: int = _path_call(_OPENAT2, folder, path, ctypes.addressof(how), ctypes.sizeof(how))
    if fd < 0:
        raise _error("openat2")
    return fd


def fstatat(folder: int, path: bytes, buffer: ctypes.Array[ctypes.c_char], flags: int) -> None:
    """The kernel's own struct stat."""
    if _path_call(_FSTATAT, folder, path, ctypes.addressof(buffer), flags) < 0:
        raise _error("newfstatat")


def _error(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")


def open_tree_strict(path: str, *, alone: bool = False) -> int:
    """As ``open_tree``, through no symbolic link: the path was resolved before, so one in it means that somebody
    swapped a folder since. ``alone``: without the mounts below, which a user namespace's own root may not take off."""
    try:
        fd = open_path_strict(path)
        try:
            flags = OPEN_TREE_CLONE | (0 if alone else AT_RECURSIVE) | AT_EMPTY_PATH | os.O_CLOEXEC
            return syscall("open_tree", fd, b"", flags)
        finally:
            os.close(fd)
    except OSError as exc:
        raise OSError(exc.errno, f"{path}: {os.strerror(exc.errno or 0)}") from None


def move_mount(tree: int, target: str) -> None:
    """Attach a detached mount at ``target`` (kernel 5.2)."""
    try:
        syscall("move_mount", tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
    except OSError as exc:
        raise OSError(exc.errno, f"attach a mount at {target}: {os.strerror(exc.errno or 0)}") from None


def move_mount_onto(tree: int, target: int) -> None:
    """Attach a detached mount at what the descriptor ``target`` stands for."""
    syscall("move_mount", tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)


def empty_mount() -> int:
    """A detached, empty, read-only folder (kernel 5.2)."""
    context = syscall("fsopen", b"tmpfs", 1)  # FSOPEN_CLOEXEC
    try:
        syscall("fsconfig", context, 6, None, None, 0)  # FSCONFIG_CMD_CREATE
        attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC
        return syscall("fsmount", context, 1, attributes)  # FSMOUNT_CLOEXEC
    finally:
        os.close(context)


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def mount_setattr(fd: int, path: str, attributes: int, *, userns: int = 0, recursive: bool = True) -> None:
    """Add mount attributes to a whole tree at once (kernel 5.12): no submount is left with the old ones."""
    attr = _MountAttr(attributes, 0, 0, userns)
    flags = (AT_RECURSIVE if recursive else 0) | (AT_EMPTY_PATH if not path else 0)
    syscall("mount_setattr", fd, os.fsencode(path), flags, attr, ctypes.sizeof(attr))


def close_range(first: int, last: int = 0x7FFFFFFF) -> None:
    """Close every descriptor from ``first`` to ``last``, however many there are (kernel 5.9)."""
    if first <= last:
        syscall("close_range", first, last, 0)


def sethostname(name: str) -> None:
    raw = name.encode()
    syscall("sethostname", raw, len(raw))


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


_libc.process_vm_readv.restype = ctypes.c_ssize_t


def read_memory(pid: int, address: int, count: int) -> bytes:
    """Up to ``count`` bytes of another process; empty if they can't be read."""
    buffer = ctypes.create_string_buffer(count)
    here, there = _Iovec(ctypes.addressof(buffer), count), _Iovec(address, count)
    done = _libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if done >= 0:
        return buffer.raw[:done]
    # Older container engines refuse that call to everybody inside, and not this way, which asks for the same right.
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, count, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [(f"{kind}{half}", ctypes.c_uint32) for half in (0, 1) for kind in ("eff", "prm", "inh")]


def drop_capabilities() -> None:
    """Leave no capability in any set, and none that an exec could give back. Needs CAP_SETPCAP."""
    # The bounding set first: dropping from it needs that one, which the last step takes away.
    for cap in range(64):
        try:
            prctl(PR_CAPBSET_DROP, cap)
        except OSError as exc:
            if exc.errno == 22:  # EINVAL: past the last capability this kernel knows
                break
            raise
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    # Uid 0 means nothing from here on.
    prctl(PR_SET_SECUREBITS, SECUREBITS)
    clear_capabilities()


def clear_capabilities() -> None:
    """Leave this process no capability. With no_new_privs an exec gives none back either, whatever is in its bounding
    set, which an ordinary user can't empty."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = _CapHeader(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    syscall("capset", header, _CapData())


def new_session_keyring() -> None:
    """Leave the session keyring that was inherited for a new, empty one. OSError if it is still the same after."""
    try:
        before = _session_keyring()
    except OSError as exc:
        if exc.errno == errno.ENOSYS:  # no keyrings in this kernel, or none for anybody in this container
            return
        raise
    syscall("keyctl", KEYCTL_JOIN_SESSION_KEYRING, None)
    if _session_keyring() == before:
        raise OSError(errno.EPERM, "the session keyring of the host is still there")


def _session_keyring() -> int:
    try:
        return syscall("keyctl", 0, -3, 0)  # KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING; none is made
    except OSError as exc:
        if exc.errno == errno.ENOKEY:
            return 0
        raise
