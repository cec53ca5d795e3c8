"""Turns a process forked from the zygote into a sandbox: monitor outside, init as pid 1, then the confined program.

    zygote ── fork ─→ monitor   unshares, maps the user, waits; stays in the host's pid namespace
                        └─ fork ─→ init      pid 1: builds the root, gives up every right, reaps
                                     └─ fork ─→ program   the kernel that runs the user's code

For a task the nursery is the monitor, and init is its child (``begin``): a process less to make and to end.

The order of the steps is the order in which the kernel allows them; each says why it stands where it does.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from . import clean, landlock, libc, rootfs, seccomp, selftest
from .folders import held_by
from .plan import Plan
from .watch import Handover, Watch

ALL_NAMESPACES = (
    libc.CLONE_NEWUSER
    | libc.CLONE_NEWNS
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWCGROUP
)

Program = Callable[[dict[str, Any], list[int]], NoReturn]
_ALIVE = b"!"


class Report:
    """Where a starting sandbox says how far it came: one line of JSON an event, to the supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, event: str, fds: Sequence[int] = (), **details: object) -> None:
        data = json.dumps({"event": event, **details}).encode() + b"\n"
        try:
            socket.send_fds(self._sock, [data], list(fds))
        except OSError as exc:
            # The supervisor is gone; so will this sandbox be, in a moment.
            if exc.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise

    def receive(self) -> bytes:
        return self._sock.recv(1 << 16)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


def monitor(request: dict[str, Any], report: Report, program_fds: list[int], log_fd: int, program: Program) -> int:
    """Body of the process that the zygote forked; returns the exit status to leave with."""
    plan = Plan.from_json(request["plan"])
    stage = "monitor"
    try:
        os.setsid()  # no controlling terminal, and no process group of the caller's
        stage = "session keyring"
        # Namespaces don't cover keyrings: leave the caller's behind.
        libc.new_session_keyring()
        # Refused calls are told by the host's process numbers, which only its own /proc knows; soon it is out of reach.
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        outside = selftest.Outside.seen(request["zygote"])
        stage = "user namespace"
        mapper = _Mapper(plan) if os.geteuid() == 0 else None
        trees: dict[str, int] | None = None
        if mapper is not None:
            stage = "files"
            # As the host's root, sources may lie where only root may look, and only root may map owners:
            # both end with the new user namespace.
            trees = rootfs.open_sources(plan, mapper.idmap_fd, held_by(request))
        stage = "user namespace"
        # /proc/self/uid_map belongs to root while the process is not dumpable.
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
        libc.unshare(ALL_NAMESPACES)
        if mapper is not None:
            mapper.map(os.getpid())
        _become_user(plan, mapped=mapper is not None)
        # The zygote ends, so does this, so does init.
        if os.getppid() != request["zygote"]:
            return 1
        stage = "process namespace"
        alive_r, alive_w = os.pipe()
        mine, inits = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        init_pid = libc.fork()  # the first child of a process that unshared pids is pid 1 of the new namespace
        if init_pid == 0:
            os.close(alive_w)
            os.close(proc)
            mine.close()
            # After the last change of user: changing credentials clears it.
            libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.read(alive_r, 1) != _ALIVE:  # the monitor died before that: its death sent no signal
                os._exit(1)
            os.close(alive_r)
            _init(plan, request, report, Handover(inits), outside, trees, program_fds, log_fd, program)
        os.close(alive_r)
        inits.close()
        outside.close()
        report.send("init", pid=init_pid, monitor=os.getpid())  # said before init may say that it is ready
        os.write(alive_w, _ALIVE)
    except OSError as exc:
        report.send("failed", stage=stage, errno=exc.errno, message=str(exc.strerror or exc))
        return 1
    # Its work is the sandbox's, and so is the time it takes.
    os.sched_setaffinity(0, plan.cpus)
    # What else it held open belongs to init.
    close_all_but(report.fileno(), mine.fileno(), proc)
    Watch(init_pid, report, mine, proc, shared=request["shared"]).run()
    _, status = os.waitpid(init_pid, 0)
    return 0 if os.WIFEXITED(status) else 1


@dataclass(frozen=True)
class Begun:
    """A sandbox whose init is this process's child. ``alive`` is to be open for as long as that is to live."""

    init: int
    handover: socket.socket
    alive: int


class Mapper(Protocol):
    """Where the host user is root: writes the maps of new user namespaces, and has one that tells mounts how owners are
    shown, the host's root as the sandbox's user."""

    idmap_fd: int

    def map(self, pid: int) -> None: ...


def begin(
    plan: Plan,
    request: dict[str, Any],
    report: Report,
    program_fds: list[int],
    log_fd: int,
    program: Program,
    mapper: Mapper | None,
) -> Begun | None:
    """The same with this process as the monitor, which stays as it is: init is made in all of its namespaces at once.
    None: it could not be, which ``report`` has been told."""
    stage = "user namespace"
    with contextlib.ExitStack() as inits, contextlib.ExitStack() as ours:
        try:
            outside = selftest.Outside.seen(os.getpid())
            inits.callback(outside.close)
            trees: dict[str, int] | None = None
            if mapper is not None:
                stage = "files"
                trees = rootfs.open_sources(plan, mapper.idmap_fd, held_by(request))  # as above
                for tree in trees.values():
                    inits.callback(os.close, tree)
            stage = "user namespace"
            alive_r, alive_w = os.pipe()
            inits.callback(os.close, alive_r)
            ours.callback(os.close, alive_w)
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            inits.callback(theirs.close)
            ours.callback(mine.close)
            pid = libc.fork(ALL_NAMESPACES)
            if pid == 0:
                try:
                    kept = [report.fileno(), theirs.fileno(), outside.listener.fileno(), alive_r, log_fd, *program_fds]
                    close_all_but(*kept, *(trees or {}).values())
                    _enter(plan, report, alive_r, mapped=mapper is not None)
                    _init(plan, request, report, Handover(theirs), outside, trees, program_fds, log_fd, program)
                finally:  # whatever happens: a copy of this process may not go on as if it were this one
                    os._exit(1)
        except OSError as exc:
            report.send("failed", stage=stage, errno=exc.errno, message=str(exc.strerror or exc))
            return None
        ours.pop_all()
    begun = Begun(pid, mine, alive_w)
    try:
        if mapper is not None:
            mapper.map(pid)
        # Said before init may say that it is ready.
        report.send("init", pid=pid, monitor=os.getpid(), spent=time.process_time())
        os.write(alive_w, _ALIVE)
    except OSError as exc:
        report.send("failed", stage=stage, errno=exc.errno, message=str(exc.strerror or exc))
        os.kill(pid, signal.SIGKILL)
    return begun


def _enter(plan: Plan, report: Report, alive: int, *, mapped: bool) -> None:
    """What the monitor has done before it makes init, where init is made without one. ``alive``: see ``Begun``."""
    stage = "monitor"
    try:
        os.setsid()
        stage = "session keyring"
        libc.new_session_keyring()
        stage = "user namespace"
        if os.read(alive, 1) != _ALIVE:
            os._exit(1)
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
        _become_user(plan, mapped=mapped)
    except OSError as exc:
        report.send("failed", stage=stage, errno=exc.errno, message=str(exc.strerror or exc))
        os._exit(1)
    # It died before its death would have sent a signal.
    poller = select.poll()
    poller.register(alive, select.POLLIN)
    if poller.poll(0):
        os._exit(1)
    os.close(alive)


def _become_user(plan: Plan, *, mapped: bool) -> None:
    """In a new user namespace: be the sandbox's user, and end with the parent."""
    if mapped:
        os.setgroups([])
    else:
        _write_own_maps(plan)
    os.setresgid(plan.inside_id, plan.inside_id, plan.inside_id)
    os.setresuid(plan.inside_id, plan.inside_id, plan.inside_id)
    # Only now: changing credentials clears it.
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)


def close_all_but(*kept: int) -> None:
    """Close every descriptor above the standard streams, however many there are."""
    first = 3
    for fd in sorted(kept):
        libc.close_range(first, fd - 1)
        first = fd + 1
    libc.close_range(first)


def _write_own_maps(plan: Plan) -> None:
    """An ordinary user may map just itself, and must give up setgroups first (user_namespaces(7))."""
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{plan.inside_id} {plan.outside_uid} 1")
    write("/proc/self/gid_map", f"{plan.inside_id} {plan.outside_gid} 1")


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    except OSError as exc:
        raise OSError(exc.errno, f"{path}: {os.strerror(exc.errno or 0)}") from None
    finally:
        os.close(fd)


class _Mapper:
    """A child that stays in the host's user namespace as root, to write the maps that only root may write.

    It also makes the namespace that tells mounts how owners are shown: the host's root as the sandbox's user.
    """

    def __init__(self, plan: Plan) -> None:
        self._ask_r, self._ask_w = os.pipe()
        self._done_r, self._done_w = os.pipe()
        self._maps = (
            f"{plan.inside_id} {plan.outside_uid} 1",
            f"{plan.inside_id} {plan.outside_gid} 1",
        )
        owners = plan.outside_uid, plan.outside_gid
        self.idmap_fd = _owner_maps[owners] if owners in _owner_maps else owner_map(*owners)
        self._pid = os.fork()
        if self._pid == 0:
            self._serve()

    def _serve(self) -> NoReturn:
        os.close(self._ask_w)
        os.close(self._done_r)
        pid = int(os.read(self._ask_r, 32) or b"0")
        answer = b"ok"
        if pid:
            try:
                write(f"/proc/{pid}/uid_map", self._maps[0])
                write(f"/proc/{pid}/gid_map", self._maps[1])
            except OSError as exc:
                answer = str(exc.errno).encode()
        os.write(self._done_w, answer)
        os._exit(0)

    def map(self, pid: int) -> None:
        os.write(self._ask_w, str(pid).encode())
        answer = os.read(self._done_r, 32)
        os.waitpid(self._pid, 0)
        for fd in (self._ask_r, self._ask_w, self._done_r, self._done_w):
            os.close(fd)
        if answer != b"ok":
            number = int(answer or b"5")
            raise OSError(number, f"map the sandbox's user: {os.strerror(number)}")


#: Made before the fork, and the same for all sandboxes: a table holds no right.
_owner_maps: dict[tuple[int, int], int] = {}


def prepare_owner_map(uid: int, gid: int) -> None:
    """In the zygote, once; where it can't be made, each sandbox tries and tells."""
    if os.geteuid() == 0 and (uid, gid) not in _owner_maps:
        with contextlib.suppress(OSError):
            _owner_maps[uid, gid] = owner_map(uid, gid)


def owner_map(uid: int, gid: int) -> int:
    """A user namespace that only serves as a table "0 on disk is ``uid``" for ID-mapped mounts (kernel 5.12)."""
    ready_r, ready_w = os.pipe()
    hold_r, hold_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            libc.unshare(libc.CLONE_NEWUSER)
            os.write(ready_w, b"!")
        finally:
            os.close(ready_w)
            os.close(hold_w)
            os.read(hold_r, 1)
            os._exit(0)
    os.close(ready_w)
    os.close(hold_r)
    try:
        if not os.read(ready_r, 1):
            raise OSError(errno.EPERM, "user namespace: refused to root")
        write(f"/proc/{pid}/uid_map", f"0 {uid} 1")
        write(f"/proc/{pid}/gid_map", f"0 {gid} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_r)
        os.close(hold_w)
        os.waitpid(pid, 0)


def _init(
    plan: Plan,
    request: dict[str, Any],
    report: Report,
    handover: Handover,
    outside: selftest.Outside,
    trees: dict[str, int] | None,
    program_fds: list[int],
    log_fd: int,
    program: Program,
) -> NoReturn:
    """Pid 1 of the sandbox. Whatever happens here ends the whole namespace, which is what a failure must do."""
    stage = "network"
    try:
        # Before the root is changed: the /proc inside gives nothing to write.
        _loopback_up()
        stage = "files"
        if trees is None:
            trees = rootfs.open_sources(plan, None, held_by(request))
        scratch = rootfs.build(plan, trees)
        report.send("scratch", [scratch])
        os.close(scratch)
        stage = "host name"
        libc.sethostname("sandbox")
        os.umask(0o022)
        stage = "privileges"
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        libc.drop_capabilities()
        stage = "cpus"
        os.sched_setaffinity(0, plan.cpus)
        stage = "file rules"
        # After the mounts: a Landlock domain may not mount. Before seccomp: opening the paths is ordinary work.
        landlock.restrict(_rules(plan), plan.landlock_abi)
        stage = "system calls"
        set_limits(plan.rlimits)
        # Its memory is not the program's to read, though the user is the same. The filter refuses this call.
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        # The filter refuses to tell.
        devices = selftest.devices_that_are_up()
        watched = _filter_calls(handover, shared=bool(request["shared"]))
        set_last_limits(plan.rlimits)
        stage = "self-test"
        test = selftest.again if request.get("proven") else selftest.run
        failures = test(plan, outside, devices, program_fds)
        outside.close()
        if watched and not handover.answered():
            failures.append("refused system calls do not reach the audit trail")
        if failures:
            report.send("failed", stage=stage, errno=None, message="; ".join(failures))
            os._exit(1)
        handover.close()
        stage = "program"
        visible_r, visible_w = os.pipe()
        child = os.fork()
        if child == 0:
            report.close()
            # Init is not dumpable; the program is, so that it can read its own /proc and the meters can read it.
            libc.prctl(libc.PR_SET_DUMPABLE, 1)
            os.write(visible_w, b"!")
            enter_program(plan.environment, plan.cwd, request, program_fds, log_fd, program)
        os.read(visible_r, 1)
    except (OSError, ValueError) as exc:
        report.send("failed", stage=stage, errno=getattr(exc, "errno", None), message=str(exc))
        os._exit(1)
    report.send("ready", watched=watched)
    for fd in (*program_fds, log_fd, visible_r, visible_w, 0, 1, 2):
        os.close(fd)
    _reap(child, report)


#: Set when no more descriptors have to be passed: against it the kernel holds all that the user has in flight, those of
#: another sandbox as well (unix(7), ETOOMANYREFS), so that one could keep the next from starting.
_LAST = ("NOFILE",)


def set_limits(rlimits: Mapping[str, int]) -> None:
    """All but the last ones, before the filter, which leaves some of them as they are for good."""
    _set_limits({name: value for name, value in rlimits.items() if name not in _LAST})


def set_last_limits(rlimits: Mapping[str, int]) -> None:
    _set_limits({name: value for name, value in rlimits.items() if name in _LAST})


def _set_limits(rlimits: Mapping[str, int]) -> None:
    for name, value in rlimits.items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))


def _filter_calls(handover: Handover, *, shared: bool) -> bool:
    """Put the filter on; whether refused calls reach the monitor. Without that they fail all the same."""
    try:
        listener = seccomp.install(seccomp.program(shared=shared), listener=True)
    except OSError as exc:
        if exc.errno != errno.EBUSY:  # the container around this one watches its calls already: only one can
            raise
        listener = seccomp.install(seccomp.program(notify=False))
    if listener is None:
        return False
    # Nothing that is refused may be tried before this: it would wait for ever.
    handover.give(listener)
    return True


def _rules(plan: Plan) -> list[landlock.Rule]:
    # CUDA gives its threads names by /proc/self/task/*/comm, and fails where it can't (error 304). Init's files stay
    # root's, who is not in here, and what acts on the machine is mounted read-only.
    proc = landlock.READ | (landlock.WRITE_FILE | landlock.TRUNCATE if plan.devices else 0)
    rules = [landlock.Rule("/", landlock.READ_DIR), landlock.Rule("/proc", proc)]
    rules += [landlock.Rule(path, landlock.DEVICE) for path in plan.devices]
    for path in plan.private:
        # Rights reach down through mounts: a folder that holds one of the host's gives no right to leave traps there.
        holds = any(bind.writable and bind.where.startswith(path + "/") for bind in plan.binds)
        rules.append(landlock.Rule(path, landlock.WRITE if holds else landlock.PRIVATE))
    rules += [landlock.Rule(f"/dev/{name}", landlock.DEVICE) for name in ("null", "zero", "full", "random", "urandom")]
    rules.append(landlock.Rule("/dev/pts", landlock.DEVICE | landlock.READ_DIR))
    rules += [landlock.Rule(path, landlock.READ) for path in plan.texts]
    for overlay in plan.overlays:
        rules.append(landlock.Rule(overlay.target, landlock.WRITE if overlay.writable else landlock.READ))
    for bind in plan.binds:
        if not bind.optional or os.path.exists(bind.where):
            rules.append(landlock.Rule(bind.where, landlock.WRITE if bind.writable else landlock.READ))
    return rules


#: net.core.wmem_default: what a socket of another kind holds.
_TCP_BUFFER = 212992


def _loopback_up() -> None:
    """The new network namespace's own 127.0.0.1: programs talk to themselves over it. netdevice(7).

    There a connection holds no more than other sockets do: no figure tells how much those of one namespace hold, and
    each may grow to 36 MB. tcp(7); each network namespace has its own bounds, which who owns it may lower.
    """
    import fcntl
    import struct

    write("/proc/sys/net/ipv4/tcp_rmem", f"4096 131072 {_TCP_BUFFER}")
    write("/proc/sys/net/ipv4/tcp_wmem", f"4096 16384 {_TCP_BUFFER}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING


def enter_program(
    environment: Mapping[str, str],
    cwd: str,
    request: dict[str, Any],
    program_fds: list[int],
    log_fd: int,
    program: Program,
) -> NoReturn:
    """Give the program its own standard streams, descriptors, environment and folder; then hand over."""
    status = 70
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        kept = list(range(3, 3 + len(program_fds)))
        # Move them out of the way first: a target number may still be somebody's source.
        for fd, number in zip([_dup_above(fd, 64) for fd in program_fds], kept, strict=True):
            os.dup2(fd, number, inheritable=False)
        libc.close_range(3 + len(program_fds))
        clean.signals()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        sys.argv = ["ipysandbox-kernel"]
        program(request["program"], kept)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 0
    except BaseException:  # noqa: BLE001 - written down, then this process ends
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    os._exit(status)


def _dup_above(fd: int, lowest: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD, lowest)


def _reap(child: int, report: Report) -> NoReturn:
    """Init's whole life: pass an interrupt on, reap orphans, end everything when the program ends."""

    def interrupt(_signum: int, _frame: object) -> None:
        try:
            os.killpg(child, signal.SIGINT)
        except ProcessLookupError:
            os.kill(child, signal.SIGINT)

    signal.signal(signal.SIGUSR1, interrupt)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == child:
            report.send("exit", status=os.waitstatus_to_exitcode(status))
            os._exit(0)
