"""Starts a sandbox where no namespace can be had: in a container, or on a machine that forbids them.

    zygote ─ fork ─→ monitor    outside the sandbox; answers refused calls, ends everything
                      └─ fork ─→ program   gives up every right, tests that it has, becomes the kernel

There is no root of its own and no pid 1: Landlock decides what may be opened, seccomp what may be asked for at all, and
the monitor is the parent that orphans come to (PR_SET_CHILD_SUBREAPER), so that nothing outlives it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from . import (
    confined_selftest,
    details,
    emulate,
    emulate_signals,
    folders,
    landlock,
    libc,
    metadata,
    notify,
    processes,
    seccomp,
    tasks,
)
from .confined_plan import ConfinedPlan
from .launch import Program, Report, close_all_but, enter_program, set_last_limits, set_limits
from .watch import Handover, Watch

#: Processes that hold on to the kernel (a stalled disk) are told of, not waited for without end.
_END_SECONDS = 8.0
#: Collected before anything else is looked at again: more than one signal can stand for.
_ORPHANS_AT_A_TIME = 1000


def monitor(request: dict[str, Any], report: Report, program_fds: list[int], log_fd: int, program: Program) -> int:
    """Body of the process that the zygote forked; returns the exit status to leave with."""
    plan = ConfinedPlan.from_json(request["plan"])
    stage = "monitor"
    try:
        os.setsid()  # no controlling terminal, and no process group of the caller's
        with contextlib.suppress(PermissionError):  # container engines refuse keyctl to everybody inside, as we do
            libc.syscall("keyctl", libc.KEYCTL_JOIN_SESSION_KEYRING, None)
        libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
        # No PR_SET_PDEATHSIG here: who ends everything must not be ended first.
        zygote = os.pidfd_open(request["zygote"])
        if os.getppid() != request["zygote"]:
            return 1
        mine, programs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own_pid = os.getpid()
        # Before there is a program that may say that it is ready.
        report.send("init", pid=own_pid)
        child = os.fork()
        if child == 0:
            mine.close()
            _program(plan, request, report, Handover(programs), program_fds, log_fd, own_pid, program)
        programs.close()
    except OSError as exc:
        report.send("failed", stage=stage, errno=exc.errno, message=str(exc.strerror or exc))
        return 1
    # What else it held open belongs to the program.
    close_all_but(report.fileno(), mine.fileno(), zygote)
    try:
        _lower_own_rights(plan)
        _Watch(plan, report, mine, child, zygote, request["shared"]).run()
        status = _status(child)
    finally:
        # From here on nobody answers, so nobody inside makes another process.
        end_all()
    report.send("exit", status=status)
    return 0


def _lower_own_rights(plan: ConfinedPlan) -> None:
    """What it does for the program it does with the program's rights: no more of root's, and within its limits."""
    _give_up_rights()
    # Its work is the sandbox's, and so is the time it takes.
    os.sched_setaffinity(0, plan.cpus)
    for name in ("FSIZE", "CORE"):
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (plan.rlimits[name], plan.rlimits[name]))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _give_up_rights() -> None:
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    try:
        libc.drop_capabilities()
    except PermissionError:  # only root can empty the bounding set; with no_new_privs it means nothing
        libc.clear_capabilities()


class _Watch(Watch):
    """As with namespaces; besides, it does calls itself, collects orphans, and ends when the supervisor says so."""

    def __init__(
        self, plan: ConfinedPlan, report: Report, handover: socket.socket, child: int, zygote: int, shared: int
    ) -> None:
        calls = emulate.Files(plan.writable).calls()
        shown = [path for path, _ in plan.rules]
        told = metadata.Metadata(os.getpid(), shown, plan.writable, plan.hidden).calls()
        told |= tasks.Tasks(os.getpid(), plan.processes).calls()
        signals = emulate_signals.Signals(os.getpid())
        if plan.landlock_abi < landlock.SIGNALS_SINCE:
            calls |= signals.calls()
        else:
            told |= signals.seen()
        handlers = {name: _answered(_done(call)) for name, call in calls.items()}
        handlers |= {name: _answered(call) for name, call in told.items()}
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        super().__init__(child, report, handover, proc, handlers, shared=shared, root=os.getpid(), inside=False)
        self._on(zygote, self._end)
        self._child = child
        #: As long as these are open, the rules for the program's own files in /proc hold: they lie on these inodes.
        self._proc_of_child = [os.open(rule.path, os.O_PATH | os.O_CLOEXEC) for rule in _own_proc(child)]

    def run(self) -> None:
        signal.signal(signal.SIGUSR1, lambda _signum, _frame: self._interrupt())
        # Ended ones count as tasks until somebody collects them. In its turn: as many end as the code likes, and a
        # handler could be interrupted by the next.
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._on(read, lambda _event: self._collect(read))
        super().run()
        signal.set_wakeup_fd(-1)

    def _collect(self, wake: int) -> None:
        os.read(wake, 4096)
        _reap_orphans(self._child)

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGINT)

    def _left_alone(self) -> None:
        """By the end of its socket the supervisor says that this is to end."""
        self._end(0)


def _reap_orphans(child: int) -> None:
    """Collect those that came here from the program; itself is collected at the end."""
    with contextlib.suppress(ChildProcessError):
        for _ in range(_ORPHANS_AT_A_TIME):
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is None or info.si_pid == child:
                break
            os.waitpid(info.si_pid, os.WNOHANG)


def _own_proc(pid: int) -> list[landlock.Rule]:
    """What a process may read of its own in /proc by itself; threads and children that are made later ask the
    monitor."""
    rules = [landlock.Rule(f"/proc/{pid}", landlock.READ_DIR), landlock.Rule(f"/proc/{pid}/fdinfo", landlock.READ)]
    rules += [landlock.Rule(f"/proc/{pid}/{name}", landlock.READ_FILE) for name in sorted(metadata.OWN_FILES)]
    return [rule for rule in rules if os.path.exists(rule.path)]


def _done(call: Callable[[notify.Notification], None]) -> notify.Handler:
    """``call``, whose own refusals are told."""

    def handle(stopped: notify.Notification) -> notify.Answer:
        try:
            call(stopped)
        except OSError as exc:
            if exc.errno != errno.EPERM:
                raise
            told = details.of(stopped.name, stopped.args) or exc.strerror or ""
            return notify.Answer(errno=errno.EPERM, tell=told)
        return notify.Answer()

    return handle


def _answered(call: notify.Handler) -> notify.Handler:
    """``call``, but that it refuses what it can't do."""

    def handle(stopped: notify.Notification) -> notify.Answer:
        try:
            return call(stopped)
        except OSError as exc:
            return notify.Answer(errno=exc.errno or errno.EPERM)
        except Exception:  # noqa: BLE001 - code chooses every argument; one that was not thought of ends nothing
            return notify.Answer(errno=errno.EINVAL)

    return handle


def _status(pid: int) -> int | None:
    """The program's exit status once it has ended."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None


def end_all(keep: Collection[int] = ()) -> None:
    """End every descendant of this process, however fast they multiply, but for the children ``keep`` and theirs."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        children = [pid for pid in processes.children(os.getpid()) if pid not in keep]
        pids = [pid for child in children for pid in processes.tree(child)]
        if not pids:
            return
        for pid in pids:
            # No more children, then no more anything. The limit is inherited: who is missed now is found next time.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


# -- inside


def _program(
    plan: ConfinedPlan,
    request: dict[str, Any],
    report: Report,
    handover: Handover,
    program_fds: list[int],
    log_fd: int,
    monitor_pid: int,
    program: Program,
) -> NoReturn:
    """Give up every right, prove it, become the kernel."""
    stage = "privileges"
    try:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != monitor_pid:
            os._exit(1)
        os.umask(0o022)
        _give_up_rights()
        stage = "cpus"
        os.sched_setaffinity(0, plan.cpus)
        stage = "file rules"
        rules = [landlock.Rule(path, rights) for path, rights in plan.rules if rights]
        # Its own entry in /proc, and nobody else's. Held open until the monitor does so.
        own = _own_proc(os.getpid())
        held = [os.open(rule.path, os.O_PATH | os.O_CLOEXEC) for rule in own]
        landlock.restrict([*rules, *own], plan.landlock_abi, held=folders.held_by(request))
        stage = "limits"
        set_limits(plan.rlimits)
        stage = "system calls"
        # So that it can read its own /proc, and the monitor its arguments.
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
        signals = plan.landlock_abi < landlock.SIGNALS_SINCE
        listener = seccomp.install(
            seccomp.program(confined=True, signals=signals, shared=bool(request["shared"])), listener=True
        )
        assert listener is not None
        handover.give(listener)
        set_last_limits(plan.rlimits)
        stage = "self-test"
        if request.get("proven"):
            failures = confined_selftest.again(plan, monitor_pid)
        else:
            failures = confined_selftest.run(plan, monitor_pid, handover.answered)
        if failures:
            report.send("failed", stage=stage, errno=None, message="; ".join(failures))
            os._exit(1)
        report.send("ready", watched=True)
        handover.close()
        for fd in held:
            os.close(fd)
    except (OSError, ValueError) as exc:
        report.send("failed", stage=stage, errno=getattr(exc, "errno", None), message=str(exc))
        os._exit(1)
    enter_program(plan.environment, plan.cwd, request, program_fds, log_fd, program)
