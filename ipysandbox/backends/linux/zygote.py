"""The zygote: a clean, single-threaded Python that has loaded what kernels or tasks need, and forks one process each.

It is started with an empty environment, knows no secret and never runs code of a project. Its only input is the control
socket that it inherits from the supervisor; when that closes, it ends every sandbox and removes what the supervisor
can no longer remove itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from . import confined, groups, launch, libc, preload, scratch, seccomp
from .uses import KERNELS, TASKS

_MODULES = {KERNELS: "ipysandbox.guest.kernel", TASKS: "ipysandbox.backends.linux.nursery"}
#: What a kernel would load at its start, in every child; a Python that lacks one does without, as everywhere.
_MORE_MODULES = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "IPython.utils.wildcard", "tornado.platform.asyncio"),
    *("code", "faulthandler", "pdb", "sqlite3"),
)
_HEADER = struct.Struct("!I")
_MAX_REQUEST = 64 << 20
#: From the host's end to the supervisor's, which sweeps what may be large; ordinarily it takes a moment.
_GRACE_SECONDS = 15.0


def main(control_fd: int, host: int, runtime_dir: str, use: str, known: str, tried: str) -> None:
    """``host``: a pidfd of the process whose end is the end of everything, though the supervisor should not notice.
    ``use``: ``KERNELS`` or ``TASKS``. ``known``: libraries to load, with commas between; ``tried``: those that are
    tried in a process of their own first.
    """
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the host kernel's to handle
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)
    try:
        importlib.import_module(_MODULES[use]).prepare()
    except ImportError as exc:
        _send(control, {"event": "failed", "message": f"{exc} (looked in {sys.prefix})"})
        return
    for name in _MORE_MODULES if use == KERNELS else ():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for shared in (False, True):
        seccomp.program(shared=shared)  # compiled once, for all children
    preload.settle()
    _send(control, {"event": "ready", "pid": os.getpid()})
    loads = _Loads(control, known.split(","), tried.split(","), (control_fd, host, wake_r, wake_w))
    children: dict[int, str] = {}
    made: dict[int, list[str]] = {}
    ended = _Ended(host)
    while not ended.too_long():
        # Load what is left only while nobody waits for a sandbox.
        sources: list[Any] = [control, wake_r, *ended.sources(), *loads.sources()]
        readable, _, _ = select.select(sources, [], [], 0 if loads.pending else ended.wait())
        if wake_r in readable:
            _drain(wake_r)
            for pid, name, status in _reap(children, loads.pids()):
                _send(control, {"event": "gone", "pid": pid, "id": name, "status": status})
        if control in readable:
            received = _receive(control)
            if received is None:
                break
            message, fds = received
            if message.get("leave"):  # its supervisor goes on: what is not this process's own stays
                runtime_dir = ""
                continue
            unfit = preload.why_unfit()
            if unfit:
                for fd in fds:
                    os.close(fd)
                _send(control, {"event": "refused", "id": message["id"], "message": unfit})
                continue
            if message["owners"]:
                launch.prepare_owner_map(*message["owners"])
            pid = _spawn(message, fds, control, (wake_r, wake_w, ended.fd))
            children[pid] = message["id"]
            made = {
                old: folders for old, folders in made.items() if old in children or any(map(os.path.exists, folders))
            }
            made[pid] = message["groups"]
            for fd in fds:
                os.close(fd)
            _send(control, {"event": "forked", "pid": pid, "id": message["id"]})
        elif loads.pending and not readable:
            loads.next()
        for trial in loads.trials(readable):
            loads.tried(trial)
    _end(children, [folder for folders in made.values() for folder in folders], runtime_dir)


class _Ended:
    """The host process: once it has ended, the supervisor has ``_GRACE_SECONDS`` to end too, and is killed then."""

    def __init__(self, host: int) -> None:
        self.fd, self._supervisor = host, os.getppid()
        self._since: float | None = None

    def sources(self) -> list[int]:
        return [self.fd] if self._since is None else []

    def wait(self) -> float | None:
        return None if self._since is None else max(0.0, self._since + _GRACE_SECONDS - time.monotonic())

    def too_long(self) -> bool:
        if self._since is None:
            if select.select([self.fd], [], [], 0)[0]:
                self._since = time.monotonic()
            return False
        if time.monotonic() < self._since + _GRACE_SECONDS:
            return False
        if os.getppid() == self._supervisor:  # it hangs: nothing else of it is left to end in order
            os.kill(self._supervisor, signal.SIGKILL)
        return True


class _Loads:
    """What is to be loaded yet. Of each library the supervisor hears what became of it, and when that was all."""

    def __init__(self, control: socket.socket, known: list[str], tried: list[str], own: tuple[int, ...]) -> None:
        self._control, self._own = control, own
        self._untried = [name for name in tried if name]
        self.pending = [name for name in known if name]
        self._trial: preload.Trial | None = None
        self._go_on()

    def next(self) -> None:
        """Load one."""
        name = self.pending.pop(0)
        problem, spoiled = preload.load(name)
        preload.settle()
        _send(self._control, {"event": "loaded", "name": name, "message": problem, "spoiled": spoiled})
        self._go_on()

    def _go_on(self) -> None:
        if self.pending or self._trial is not None:
            return
        if self._untried:
            self._trial = preload.Trial(self._untried.pop(0), self._own)
        else:
            _send(self._control, {"event": "settled"})

    def sources(self) -> list[int]:
        return [self._trial.fd] if self._trial is not None else []

    def pids(self) -> set[int]:
        return {self._trial.pid} if self._trial is not None else set()

    def trials(self, readable: list[Any]) -> list[preload.Trial]:
        return [self._trial] if self._trial is not None and self._trial.fd in readable else []

    def tried(self, trial: preload.Trial) -> None:
        """Load it here as well, if that did no harm there."""
        self._trial = None
        problem = trial.verdict()
        if problem:
            _send(self._control, {"event": "loaded", "name": trial.name, "message": problem, "spoiled": False})
            self._go_on()
        else:
            self.pending.append(trial.name)


def _spawn(message: dict[str, Any], fds: list[int], control: socket.socket, own: tuple[int, ...]) -> int:
    """Fork the monitor of a new sandbox. ``fds``: report socket, log pipe, then the program's own."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        for fd in own:
            os.close(fd)
        report_sock = socket.socket(fileno=fds[0])
        # The plan comes over the sandbox's own socket: what it holds never enters the zygote's memory.
        request = json.loads(_read_exactly(report_sock, _HEADER.unpack(_read_exactly(report_sock, 4))[0]))
        request["zygote"] = message["zygote"]
        if request["tier"] == "nursery":
            from . import nursery

            os._exit(nursery.serve(request, report_sock))
        from ipysandbox.guest import kernel

        monitor = confined.monitor if request["tier"] == "confined" else launch.monitor
        status = monitor(request, launch.Report(report_sock), fds[2:], fds[1], kernel.run)
    except BaseException as exc:  # noqa: BLE001 - a forked copy of the zygote must end here
        print(f"monitor: {type(exc).__name__}: {exc}", file=sys.stderr)
    finally:
        os._exit(status)


def _reap(children: dict[int, str], others: set[int]) -> list[tuple[int, str, int]]:
    gone = []
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            gone.append((pid, children.pop(pid), status))
    # Where a monitor was killed, what it held in comes here.
    confined.end_all(keep={*children, *others})
    return gone


def _end(children: dict[int, str], made: list[str], runtime_dir: str) -> None:
    """The supervisor is gone: so are its sandboxes, their control groups (``made``), and its folder of sockets, with
    the one above if it was the last there. Without ``runtime_dir``, the supervisor goes on without this process."""
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    confined.end_all()
    if runtime_dir:
        _remove_folders(runtime_dir)
    groups.remove_all(made)


def _remove_folders(runtime_dir: str) -> None:
    scratch.remove(Path(runtime_dir))
    shutil.rmtree(runtime_dir, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(runtime_dir))


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass


def _send(sock: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    # When the supervisor is gone, the next read finds the end of the stream and ends this process in order.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(_HEADER.pack(len(data)) + data)


def _read_exactly(sock: socket.socket, count: int) -> bytes:
    if count > _MAX_REQUEST:
        raise ValueError(f"a request of {count} bytes")
    data = bytearray()
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise EOFError("the supervisor closed the socket")
        data += chunk
    return bytes(data)


def _receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request and its descriptors; None when the supervisor is gone."""
    try:
        header, fds, _, _ = socket.recv_fds(sock, _HEADER.size, 16)
        if not header:
            return None
        header += _read_exactly(sock, _HEADER.size - len(header))
        return json.loads(_read_exactly(sock, _HEADER.unpack(header)[0])), fds
    except (EOFError, ConnectionResetError):
        return None
