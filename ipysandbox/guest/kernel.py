"""The kernel inside a sandbox: ipykernel on sockets that were opened for it outside, plus value transfer.

Nothing here enforces anything; by the time it runs, code of the sandbox may change all of it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import warnings
from typing import Any, ClassVar, NoReturn

import zmq
from ipykernel import ipkernel, kernelapp
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.error import StdinNotImplementedError
from traitlets.config import Config

from . import (
    CHANNELS,
    confined,
    figures,
    first_use,
    fresh,
    gpu,
    progress,
    script,
    shared_shell,
    streams,
    threads,
    values,
)
from .forks import ForkAwareIOPubThread

#: Outputs that may wait to be read. ZeroMQ's own 1000 are soon reached by a loop that prints and flushes.
_WAITING = 100_000
_NOBODY_ANSWERS = (
    "the code asks for input, and nobody can answer here; give it what it needs in a variable, an argument or a file"
)
#: Bytes of a value that are worth reading in memory.
_DIRECT_FROM = 1 << 20
_QUESTIONS_ARE_OFF = (
    'the code asks for input, and the policy refuses every question (stdin = "off" under [output]); give it what it '
    "needs in a variable, an argument or a file"
)
_NO_PASSWORDS = (
    "the code asked for a password (getpass): none is passed to a sandbox, since what is typed would be the code's; "
    "what it may know, give it in a variable (%%sandbox -i NAME, or box.put)"
)


def _load_without_debugger() -> None:
    """Have ipykernel find no debugpy: the relay passes no debugger's messages, and loading it takes longer than the
    rest.

    Code in the sandbox can still import it.
    """
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("ipykernel.debugger")
    finally:
        del sys.modules["debugpy"]


_load_without_debugger()


def _listen(socket: zmq.Socket[bytes], fd: int) -> None:
    """Serve on a socket that is listening already; the address is only a label (ZMQ_USE_FD)."""
    socket.setsockopt(zmq.USE_FD, fd)
    socket.bind("ipc:///ipysandbox")


class _WithoutAddress:
    """A socket that does not say where it can be connected to."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def getsockopt(self, option: int) -> bytes | int:
        return b"" if option == zmq.LAST_ENDPOINT else self._socket.getsockopt(option)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class SandboxKernelApp(IPKernelApp):
    """ipykernel without a connection file: the sockets are inherited descriptors."""

    name = "ipysandbox-kernel"
    fds: ClassVar[dict[int, int]] = {}

    def _try_bind_socket(self, s: zmq.Socket[bytes], port: int) -> int:
        if s.type in (zmq.PUB, zmq.XPUB):
            s.sndhwm = _WAITING  # what is printed faster than it is read waits here; beyond, zmq drops it
        _listen(s, self.fds[port])
        return port

    def init_iopub(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        # The base names the class of its thread itself; this process starts one kernel, so it may stay replaced.
        vars(kernelapp)["IOPubThread"] = ForkAwareIOPubThread
        super().init_iopub(context)  # type: ignore[no-untyped-call]

    def init_control(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        # The debugger's own connection to the shell goes by the address, which does not exist in here. Once begun, it
        # would be tried ten times a second for ever, disconnected or not. Up to 7.3 ipykernel's thread for subshells
        # keeps what it finds here, and sends on it.
        shell, self.shell_socket = self.shell_socket, _WithoutAddress(self.shell_socket)
        try:
            super().init_control(context)  # type: ignore[no-untyped-call]
        finally:
            self.shell_socket = shell

    def init_heartbeat(self) -> None:
        pass  # the relay answers it: three threads, with sockets and memory of their own, for nobody

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        pass  # there is none, and building traitlets' parser for it takes a third of the start

    def init_connection_file(self) -> None:
        pass

    def write_connection_file(self, **kwargs: Any) -> None:
        pass

    def log_connection_info(self) -> None:
        pass


class _NoModules:
    """``sys`` for who would go through all that is loaded."""

    modules: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


class SandboxKernel(IPythonKernel):
    """IPython with two more requests: hand a value out, take a value in; and with cells that are scripts."""

    msg_types = [*IPythonKernel.msg_types, "ipysandbox_get_request", "ipysandbox_put_request"]  # noqa: RUF012 - as ipykernel declares it

    #: Buffers of the value that was asked for last, for whoever reads them in this process's memory.
    _held: list[Any] = []  # noqa: RUF012 - replaced, never changed

    def __init__(self, **kwargs: Any) -> None:
        # The base notes the file of each module that is loaded, for the debugger. To look at a module is to write to
        # its page (a count of references), which is shared until then: six megabytes and as many milliseconds.
        vars(ipkernel)["sys"] = _NoModules()
        adopted = shared_shell.adopt(kwargs["parent"])
        try:
            super().__init__(**(kwargs if adopted is None else kwargs | {"user_ns": adopted}))  # type: ignore[no-untyped-call]
        finally:
            vars(ipkernel)["sys"] = sys
        if adopted is not None:
            assert self.shell is not None
            self.shell.parent = self.shell.kernel = self  # what it would have been made with

    def should_handle(self, stream: Any, msg: dict[str, Any], idents: Any) -> Any:
        """Asked before each request."""
        if msg["header"]["msg_type"] != "kernel_info_request":
            _meet_the_project()
        return super().should_handle(stream, msg, idents)  # type: ignore[no-untyped-call]

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """As always; "number" and "script" in the metadata, where there are any, are this cell's alone."""
        self._held = []
        number = parent["metadata"].get("number")
        if number and not parent["content"].get("silent"):
            _call_it(self.shell, int(number))
        described = parent["metadata"].get("script")
        if described is not None:
            script.prepare(self.shell, parent["content"]["code"], described)
        try:
            await super().execute_request(stream, ident, parent)  # type: ignore[no-untyped-call]
        except KeyboardInterrupt:  # before the code began, or just after it: ipykernel would send no reply
            _ignore_interrupts()
            reply: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
            reply |= {"execution_count": self.execution_count, "payload": [], "user_expressions": {}}
            self._answer(stream, "execute_reply", reply, parent, ident, [])

    async def do_execute(self, *arguments: Any, **options: Any) -> Any:
        kernel, status = os.getpid(), "error"
        try:
            reply = await super().do_execute(*arguments, **options)  # type: ignore[no-untyped-call]
            status = reply["status"]
            return reply
        finally:
            if os.getpid() != kernel:
                _end_of_a_fork(status)
            streams.wait_for_programs()
            thread: Any = self.iopub_thread
            if isinstance(thread, ForkAwareIOPubThread):
                thread.forget_ended_threads()
            _ignore_interrupts()  # what is left is to send the reply, whole

    def raw_input(self, prompt: Any = "") -> Any:
        """``input()``."""
        _refuse_questions_that_are_off()
        if not self._allow_stdin:
            raise StdinNotImplementedError(_NOBODY_ANSWERS)
        self._after_what_was_printed()
        try:
            return super().raw_input(prompt)  # type: ignore[no-untyped-call]
        except EOFError:
            raise EOFError("EOF when reading a line") from None

    def line_of_input(self) -> str:
        """A line of a script's ``sys.stdin``; where there is nothing to read, as in /dev/null, it has ended."""
        _refuse_questions_that_are_off()
        if not self._allow_stdin:
            raise EOFError
        return str(self.raw_input())

    def getpass(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """``getpass.getpass()``."""
        _refuse_questions_that_are_off()
        raise StdinNotImplementedError(_NO_PASSWORDS)

    def _after_what_was_printed(self) -> None:
        """The question goes by another socket than the outputs: among those, this marks where it belongs."""
        sys.stderr.flush()
        sys.stdout.flush()
        assert self.session is not None
        self.session.send(self.iopub_socket, "ipysandbox_question", {}, parent=self.get_parent("shell"))  # type: ignore[no-untyped-call]

    async def ipysandbox_get_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """content: {"name": NAME} or {"output": EXECUTION COUNT}, "limit" in bytes, and "direct": whether the caller
        reads large buffers where they are; they stay there until the next request."""
        content = parent["content"]
        buffers: list[Any] = []
        self._held = buffers
        namespace: dict[Any, Any] = self._namespace
        key = content.get("name")
        if "output" in content:
            namespace, key = namespace["_oh"], content["output"]
        if key not in namespace:
            reply: dict[str, Any] = {
                "status": "error",
                "ename": "NameError",
                "evalue": "no such variable in the sandbox",
            }
        else:
            try:
                tree, buffers = values.encode(namespace[key], limit=int(content["limit"]))
                reply = {"status": "ok", "tree": tree}
                if content.get("direct") and sum(map(len, buffers)) >= _DIRECT_FROM:
                    reply["at"] = values.places(buffers)
                    self._held, buffers = buffers, []
            except Exception as exc:  # noqa: BLE001 - whatever the value's own methods raise
                reply = {"status": "error", "ename": type(exc).__name__, "evalue": str(exc)}
        self._answer(stream, "ipysandbox_get_reply", reply, parent, ident, buffers)

    async def ipysandbox_put_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """content: {"name": NAME, "tree": …}; the buffers follow the message."""
        content = parent["content"]
        self._held = []
        try:
            self._namespace[content["name"]] = values.decode(content["tree"], parent["buffers"], inward=True)
            reply: dict[str, Any] = {"status": "ok"}
        except Exception as exc:  # noqa: BLE001 - told to the caller, who sent the value
            reply = {"status": "error", "ename": type(exc).__name__, "evalue": str(exc)}
        self._answer(stream, "ipysandbox_put_reply", reply, parent, ident, [])

    @property
    def _namespace(self) -> dict[str, Any]:
        assert self.shell is not None
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    def _answer(
        self, stream: Any, kind: str, content: dict[str, Any], parent: dict[str, Any], ident: Any, buffers: list[Any]
    ) -> None:
        assert self.session is not None
        self.session.send(stream, kind, content, parent, ident=ident, buffers=buffers)


def _call_it(shell: Any, number: int) -> None:
    """Give the next cell the notebook's number for it: in its traceback, and in ``In`` and ``Out``."""
    shell.execution_count = number
    for inputs in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
        inputs.extend([""] * (number - len(inputs)))


def _refuse_questions_that_are_off() -> None:
    if os.environ.get("IPYSANDBOX_STDIN") == "off":
        raise StdinNotImplementedError(_QUESTIONS_ARE_OFF)


_QUESTIONS = (SandboxKernel.raw_input.__code__, SandboxKernel.getpass.__code__)


class _Leave:
    """``exit`` and ``quit``: end the cell as they end a script. IPython's own stops the kernel some cells later."""

    def __call__(self, status: object = None, *_: object) -> NoReturn:
        raise SystemExit(status)


def _end_of_a_fork(status: str) -> NoReturn:
    """A child that the cell's code forked has come to the end of the code, as at the end of a script. It may not become
    a second kernel: that would wait, at full speed, on sockets that are its parent's."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0 if status == "ok" else 1)


def _ignore_interrupts() -> None:
    """Until this request is handled: then ipykernel's ``post_handler_hook`` restores what it has between requests.

    They are caught, to no effect: who ignores them is ended at once at a limit, without a word to its variables.
    """
    with contextlib.suppress(ValueError):  # another thread's: interrupts are the main one's
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


def _end_at_the_question(trace: Any) -> None:
    """Where code was interrupted in ``input()``, or met the end of input, its own line is the last to show."""
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code in _QUESTIONS:
            trace.tb_next = None
        trace = trace.tb_next


def _show_some_errors_shortly(shell: Any) -> None:
    """SystemExit ends a cell without IPython's advice on how to leave a terminal; a question that nobody can answer is
    told in its one sentence, not by the way to it."""
    shell.user_ns["exit"] = shell.user_ns["quit"] = _Leave()
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    show = shell.showtraceback

    def showtraceback(exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
        kind, value, trace = exc_tuple or sys.exc_info()
        if kind is not None and issubclass(kind, SystemExit):
            shell._last_traceback = []
        elif kind is StdinNotImplementedError:
            shell._showtraceback(kind, value, [f"{kind.__name__}: {value}"])
        else:
            _end_at_the_question(trace)
            show(exc_tuple, *arguments, **options)

    shell.showtraceback = showtraceback


_has_met_the_project = False


def _meet_the_project() -> None:
    """Not before somebody asks for something: a kernel that waits ready has read and run nothing of the project."""
    global _has_met_the_project
    if not _has_met_the_project:
        _has_met_the_project = True
        fresh.read_settings()
        _import_from_the_project()


def _import_from_the_project() -> None:
    """Put the current folder on the path where an ordinary kernel has it: after the standard library. IPython itself is
    told not to (see ``prepare``)."""
    places = [at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))]
    sys.path.insert(places[0] if places else 0, "")


def prepare() -> SandboxKernelApp:
    """The application as it is in each sandbox, made once: by the zygote, so that its children share what it takes. It
    has looked at nothing yet that is a sandbox's own."""
    if not SandboxKernelApp.initialized():
        config = Config()
        config.HistoryManager.hist_file = ":memory:"  # `%history` works; nothing is written
        # Not yet: see _meet_the_project. From 9.7 on IPython leaves it out of an isolated interpreter by itself.
        config.InteractiveShellApp.ignore_cwd = True
        config.Kernel._execute_sleep = 0.0  # for outputs to come before the reply: the relay sees to that
        config.IPKernelApp.log_level = 40
        config.IPKernelApp.outstream_class = "ipysandbox.guest.streams.PipedOutStream"
        SandboxKernelApp.instance(config=config, kernel_class=SandboxKernel)
        shared_shell.make(config)
    return SandboxKernelApp.instance()


def run(program: dict[str, Any], fds: list[int]) -> NoReturn:
    """Serve one sandbox for the rest of this process's life.

    ``program``: {"key": the session's HMAC key, "threads": how many each numeric library may use, "confined": its own
    folder where the sandbox has no file systems of its own, or None, "gpu": its share of graphics cards, or None,
    "widgets": whether they are seen, "waits": whether nobody has asked for it yet}.
    """
    fresh.after_fork()
    if program["confined"]:
        confined.prepare(program["confined"])
    if program["gpu"]:
        gpu.prepare(program["gpu"]["fraction"], program["gpu"]["bytes"])
    threads.set_numeric_threads(int(program["threads"]))
    if os.environ.get("IPYSANDBOX_HTML") == "isolate":
        figures.prepare()
    progress.prepare(widgets=bool(program["widgets"]))
    sys.dont_write_bytecode = True  # the environment says so to children; this interpreter read it before
    app = prepare()
    app.config.Session.key = program["key"].encode()
    app.transport, app.ip = "ipc", "ipysandbox"
    SandboxKernelApp.fds.update(enumerate(fds, start=1))
    for port, channel in enumerate(CHANNELS, start=1):
        setattr(app, f"{channel}_port", port)
    app.initialize([])  # type: ignore[no-untyped-call]
    if program["confined"]:
        confined.use_pipes(app.kernel.shell)
    _show_some_errors_shortly(app.kernel.shell)
    shared_shell.use(app.kernel.shell)
    if program["waits"]:
        first_use.of_all()
    app.start()  # type: ignore[no-untyped-call]
    raise SystemExit(0)
