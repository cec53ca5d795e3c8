"""The Python door: ``Sandbox`` runs code where it can't hurt, ``RunResult`` tells how it went."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import direct, hints
from .backends.base import Change
from .connection import Connection, OnInput, OnOutput
from .cwd import absolute
from .errors import NotAvailable, PolicyError, SandboxClosed, SandboxDied, SandboxError, ValueRefused
from .given import duration, settings
from .output import values as transfer
from .output.text import clean_text
from .outputs import OutputCollector
from .policy import Policy, check_given
from .supervisor.limits import LimitHit
from .supervisor.spawn import Supervisor
from .supervisor.wire import Message

if TYPE_CHECKING:
    from .check import Report
    from .widgets.bridge import Bridge

#: A value of this encoded size (bytes) is fetched along with the result; a larger one when ``value`` is first read.
_EAGER_VALUE = 1 << 20
#: Largest value that ``get`` fetches unless told otherwise, in bytes.
MOST_VALUE = 512 << 20
#: How long ``get``, ``put`` and the like wait for the sandbox, which may be made to never answer; seconds.
_VALUE_SECONDS = 60.0
#: The same for the value that is fetched along with a result.
_EAGER_SECONDS = 5.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Script:
    """What a cell that is a script is told about itself: text that the sandbox stores and never evaluates.

    ``name`` stands in tracebacks and in ``sys.argv[0]``; ``file``, where the sandbox has one, is ``__file__``.
    """

    name: str
    arguments: tuple[str, ...] = ()
    file: str | None = None


@dataclass(frozen=True)
class RunError:
    """An exception that the code raised: text only, the object stayed in the sandbox."""

    ename: str
    evalue: str
    traceback: tuple[str, ...]


@dataclass(frozen=True)
class FullOutput:
    """The file with what a cell printed, where that was much; ``whole``: all of it."""

    path: str
    whole: bool


@dataclass(frozen=True)
class RunResult:
    """How one cell went.

    ``status`` is ``ok``, ``error`` (the code raised), ``refused`` (by the check, nothing ran), ``limit``,
    ``interrupted`` or ``died``. ``outputs`` are nbformat output dicts. ``usage`` holds ``wall`` and ``cpu`` in seconds,
    ``memory_peak``, ``disk`` and ``output`` in bytes, ``processes_peak`` and ``files`` as counts. ``state_kept`` tells
    whether the sandbox's variables are still there. ``changes`` lists the project's files as they differ inside;
    ``written`` names files in ``files.write`` that were written, and that stay. Both tell how it is after this run, of
    all that was done since the sandbox's start, by earlier runs too. The first 200 are given, ``…_total`` counts all.
    ``full_output`` names the file with all that was printed, None where that was less than a notebook shows (1 MiB).
    ``hint``: what a failure has to do with the sandbox's walls, empty if nothing; it is the last of ``notices`` too.
    """

    status: str
    stdout: str
    stderr: str
    outputs: list[dict[str, Any]]
    error: RunError | None
    limit: LimitHit | None
    usage: Mapping[str, float]
    findings: tuple[Mapping[str, Any], ...]
    notices: tuple[str, ...]
    state_kept: bool
    execution_count: int | None
    changes: tuple[Change, ...]
    changes_total: int
    written: tuple[str, ...]
    written_total: int
    full_output: FullOutput | None
    hint: str
    _value: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The value of the cell's last expression, rebuilt here from plain data; None if there was none.

        Raises ValueRefused when it is of a type that can't cross.
        """
        return self._value()


class Sandbox:
    """A sandbox of its own for Python code; variables stay between runs until it is closed.

        with Sandbox() as box:
            r = box.run("x = 6 * 7; x")
            r.value

    ``policy``: a profile's name, a policy file's path, a mapping shaped like one, or a ``Policy``. ``name``: to share
    one sandbox between several objects of this process (the magic does); by default every object has its own.
    ``project``: the folder the code runs in (default: the current one). ``overrides``: single settings by dotted key,
    as ``{"limits.wall": "30s"}``. ``validate``: whether the check reads the code first.

    Raises PolicyError for what makes no sense in itself; ``start``, ``with`` and the first run raise PolicyError or
    StartError for what makes none here, and nothing was run. Once closed, all but ``start`` raises SandboxClosed.
    """

    #: Whether its user writes options of a cell or command: what is said names those, not arguments.
    _by_options = False

    def __init__(
        self,
        policy: str | Path | Mapping[str, Any] | Policy | None = None,
        *,
        name: str | None = None,
        validate: bool = True,
        project: str | Path | None = None,
        overrides: Mapping[str, object] | None = None,
        notebook: str | None = None,
        backend: str = "linux",
    ) -> None:
        wanted = settings("overrides", overrides)
        check_given(policy, wanted, {} if self._by_options else {key: f"overrides[{key!r}]" for key in wanted})
        self.name = name or f"box-{next(_numbers)}"
        self._request = {
            "name": self.name,
            "policy": as_json(policy),
            "cwd": str(absolute(project)),
            "overrides": wanted,
            "validate": validate,
            "notebook": notebook,
            "backend": backend,
            "by_options": self._by_options,
        }
        #: Sockets belong to one thread at a time; what goes over HTTP (interrupt, kill, restart, status) needs no turn.
        self._turn = threading.RLock()
        #: Whether large values can be read in the sandbox's memory, as long as nothing speaks against it.
        self._direct = True
        #: Set from the first start until close, also while what it names has died.
        self._supervisor: Supervisor | None = None
        self._connection: Connection | None = None
        self._closed = False
        #: One line each, from the policy: what was not granted, and how to grant it.
        self.notices: tuple[str, ...] = ()

    # -- life

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def start(self, *, fresh: bool = False) -> bool:
        """Start it, or join the running one of the same name and policy. True when it is a new one."""
        with self._turn:
            return self._start(fresh)

    def _start(self, fresh: bool) -> bool:
        supervisor = Supervisor.current()
        before = self._started if self._supervisor is supervisor else None
        request = {**self._request, "fresh": fresh, "page": _running_kernel() is not None}
        info = supervisor.request("POST", "/sandboxes", request)
        if self._connection is None or self._connection.key != info["key"].encode():
            if self._connection is not None:
                self._connection.close()
            self._connection = Connection(info["endpoints"], info["key"].encode(), supervisor)
        self._connection.widgets = self._widgets(info, supervisor)
        self._supervisor, self._started, self._closed = supervisor, info["started"], False
        self.notices = tuple(info["notices"])
        return bool(before != self._started)

    _started: float | None = None

    @property
    def supervisor_pid(self) -> int | None:
        """Of the process that owns the sandbox and writes its records; None before the start and once it is closed."""
        return None if self._supervisor is None else self._supervisor.pid

    def _widgets(self, info: Mapping[str, Any], supervisor: Supervisor) -> Bridge | None:
        """What brings its widgets to the notebook's page, where they may pass and there is one."""
        kernel = _running_kernel()
        if kernel is None or not info["widgets"]:
            self._without_widgets()
            return None
        from .widgets import bridge  # few sandboxes have any

        return bridge.connect(kernel, self.name, info["endpoints"], info["key"].encode(), supervisor.pid)

    def _without_widgets(self) -> None:
        bridges = sys.modules.get("ipysandbox.widgets.bridge")
        if bridges is not None:
            bridges.disconnect(self.name)

    def close(self) -> None:
        """End it and everything inside. Safe to call twice, and from another thread than a running cell's."""
        self._closed = True
        if self._supervisor is not None and self._supervisor.alive():
            with contextlib.suppress(SandboxError):  # it is gone already
                self._supervisor.request("DELETE", f"/sandboxes/{self.name}")
        self._without_widgets()
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._supervisor = None

    def restart(self) -> None:
        """A new sandbox under the same name and policy; variables are lost. PolicyError, and nothing is lost, where its
        policy can't be read any more."""
        self._require_open()
        if self._supervisor is None:
            self.start()
        else:
            self._started = self._control("POST", "/restart")["started"]

    def interrupt(self) -> None:
        """Ask the running cell to stop, as Ctrl-C would; it is ended after 5 s if it does not. From any thread."""
        self._control("POST", "/interrupt")

    def kill(self) -> None:
        """End every process of the sandbox now; the next run starts a new one."""
        self._control("POST", "/kill")

    def _require_open(self) -> None:
        if self._closed:
            raise SandboxClosed(f"the sandbox '{self.name}' is closed", hint="start() makes a new one.")

    # -- running

    def run(
        self,
        code: str,
        *,
        timeout: float | str | None = None,
        cpu: float | str | None = None,
        validate: bool = True,
        on_output: OnOutput | None = None,
        on_input: OnInput | None = None,
        want_value: bool = True,
        script: Script | None = None,
        patient: bool = False,
        number: int | None = None,
    ) -> RunResult:
        """Run ``code`` as a notebook cell (IPython syntax works) and wait for it.

        ``timeout`` and ``cpu`` bound this run, in seconds or as ``"30s"``; the policy's limits hold otherwise.
        ``on_output(type, content)`` is called for each output as it arrives; ``on_input(prompt, is_password)``
        answers ``input()``, which fails in the sandbox without it; for a password it is never asked, that is refused.
        ``script``: what the code is to know of itself. ``patient``: the time in which it waits for an answer does not
        count as its own. ``number``: what the cell is called in tracebacks, in the audit trail and in the panel, a
        notebook's own number for it (default: the next one of this sandbox).
        Does not raise for what the code does. Raises PolicyError for a ``timeout`` or ``cpu`` that is none or more than
        an administrator allows, and SandboxClosed after ``close``; then nothing was run.
        """
        if not isinstance(code, str):
            raise TypeError(f"code must be a string, not {type(code).__name__}")
        with self._turn:
            return self._run(code, timeout, cpu, validate, on_output, on_input, want_value, script, patient, number)

    def _run(
        self,
        code: str,
        timeout: float | str | None,
        cpu: float | str | None,
        validate: bool,
        on_output: OnOutput | None,
        on_input: OnInput | None,
        want_value: bool,
        script: Script | None,
        patient: bool,
        number: int | None,
    ) -> RunResult:
        overrides = {
            f"limits.{key}": duration(argument, value)
            for key, argument, value in (("wall", "timeout", timeout), ("cpu", "cpu", cpu))
            if value is not None
        }
        check_given(None, overrides, {"limits.wall": "timeout", "limits.cpu": "cpu"})
        self._require_open()
        if self._connection is None or self._supervisor is None or not self._supervisor.alive():
            lost = self._supervisor is not None
            self.start()
            if lost:
                self.notices += ("The sandbox supervisor had ended; a new sandbox was started, variables were lost.",)
        assert self._connection is not None
        assert self._supervisor is not None
        collector = OutputCollector()
        # Outputs that nobody looks at while they come need no pace.
        options = {"overrides": overrides, "validate": validate, "paced": on_output is not None, "patient": patient}
        words = "options" if self._by_options else "python"
        metadata: dict[str, Any] = {"ipysandbox": {**options, "words": words}}
        if number is not None:
            metadata["number"] = number
        if script is not None:
            metadata["script"] = {"name": script.name, "argv": [script.name, *script.arguments], "file": script.file}
        try:
            self._supervisor.tell_secrets()
            reply = self._connection.execute(code, metadata, collector, on_output, on_input, self)
        except SandboxDied as exc:
            self._connection.close()
            self._connection = None
            return _died(collector, str(exc))
        return self._result(reply, code, collector, want_value)

    def _result(self, reply: Message, code: str, collector: OutputCollector, want_value: bool) -> RunResult:
        outcome = reply.metadata.get("ipysandbox") or {}
        content = reply.content
        error = None
        if content.get("status") != "ok":
            lines = tuple(str(line) for line in content.get("traceback") or ())
            error = RunError(str(content.get("ename")), str(content.get("evalue")), lines)
        if outcome.get("status") == "refused" and error is not None and error.ename == PolicyError.__name__:
            self.notices += tuple(outcome.get("notices", ()))  # for the next run: of this one nothing ran
            raise PolicyError(error.evalue)
        limit = LimitHit(**outcome["limit"]) if outcome.get("limit") else None
        hint = outcome.get("hint") or self._hint(outcome.get("status"), error, code, collector)
        notices = (*self.notices, *outcome.get("notices", ()), *filter(None, [hint]))
        self.notices = ()
        count = collector.execution_count
        return RunResult(
            status=outcome.get("status", "died"),
            stdout=collector.text("stdout"),
            stderr=collector.text("stderr"),
            outputs=collector.finish(),
            error=error,
            limit=limit,
            usage=outcome.get("usage", {}),
            findings=tuple(outcome.get("findings", ())),
            notices=notices,
            state_kept=bool(outcome.get("state_kept")),
            execution_count=content.get("execution_count"),
            changes=tuple(Change(**row) for row in outcome.get("changes", ())),
            changes_total=int(outcome.get("changes_total", 0)),
            written=tuple(outcome.get("written", ())),
            written_total=int(outcome.get("written_total", 0)),
            full_output=FullOutput(**outcome["printed"]) if outcome.get("printed") else None,
            hint=hint,
            _value=self._value_later(count) if want_value and count is not None else _no_value,
        )

    def _hint(self, status: object, error: RunError | None, code: str, collector: OutputCollector) -> str:
        """What an error, or what programs printed, has to do with the sandbox, if anything: at most one line."""
        line = ""
        with contextlib.suppress(SandboxError):  # it is gone, and so is the question
            if status == "error" and error is not None and hints.may_apply(error.ename, error.evalue):
                namespaces = bool(self.status()["namespaces"])
                line = hints.hint(
                    error.ename, error.evalue, self.policy(), namespaces=namespaces, traceback=error.traceback
                )
            elif hints.may_run_programs(code):
                printed = collector.text("stdout") + collector.text("stderr")
                line = hints.output_hint(code, printed)
                if line and self.policy()["policy"]["network"]["allow"]:
                    line = ""
        return line

    def _value_later(self, count: int) -> Callable[[], Any]:
        """Fetch a small value now, since the sandbox may be closed when somebody asks; remember a refusal for then."""
        known: list[Any] = []
        refusal: list[SandboxError] = []
        try:
            known.append(self._get({"output": count}, _EAGER_VALUE, _EAGER_SECONDS))
        except NameError:
            known.append(None)  # the code forged a result, or took it out of IPython's cache
        except SandboxError as exc:
            refusal.append(exc)

        def value() -> Any:
            if not known:
                # Worth another try only if it was too large to come along.
                if self._connection is None or not isinstance(refusal[0], ValueRefused):
                    raise refusal[0]
                known.append(self._get({"output": count}, MOST_VALUE))
            return known[0]

        return value

    def completions(self, code: str, cursor: int, *, seconds: float = 1.0) -> tuple[int, list[tuple[str, str]]] | None:
        """What could stand at ``cursor`` (characters from the beginning of ``code``), by the variables in the sandbox.

        :returns: where in ``code`` that would begin, and (text, kind) of each: what the sandbox says, on one line each,
            and hostile all the same. None where it is not started, is busy, or does not answer within ``seconds``.
        """
        if self._connection is None or not self._turn.acquire(blocking=False):
            return None
        try:
            reply = self._ask("complete_request", {"code": code, "cursor_pos": cursor}, seconds=seconds).content
        except (SandboxError, NameError):
            return None
        finally:
            self._turn.release()
        start = reply.get("cursor_start")
        if not (isinstance(start, int) and 0 <= start <= cursor):
            return None
        rows = (reply.get("metadata") or {}).get("_jupyter_types_experimental") or []
        kinds = {row["text"]: row["type"] for row in rows}
        return start, [(text, kinds.get(text, "")) for text in reply.get("matches", ())]

    # -- values

    def get(self, name: str, *, limit: int = MOST_VALUE) -> Any:
        """The variable ``name`` of the sandbox, rebuilt from plain data: numbers, text, containers, numpy, pandas.

        Raises NameError if there is none, ValueRefused if its type can't cross or it is over ``limit`` bytes.
        """
        return self._get({"name": str(name)}, limit)

    def _get(self, what: dict[str, Any], limit: int, seconds: float = _VALUE_SECONDS) -> Any:
        request = {**what, "limit": limit}
        with self._turn:  # what is read in memory stays there until the next request
            reply = self._ask("ipysandbox_get_request", {**request, "direct": self._direct}, seconds=seconds)
            if self._direct and reply.content.get("at") is not None:
                try:
                    buffers = direct.read(reply.content.get("process"), reply.content["at"], limit)
                except direct.Unreadable:
                    self._direct = False
                    reply = self._ask("ipysandbox_get_request", request, seconds=seconds)
                else:
                    return transfer.receive(reply.content.get("tree"), buffers, limit=limit, own=True)
        return transfer.receive(reply.content.get("tree"), reply.buffers, limit=limit)

    def put(self, name: str, value: Any, *, allow_secrets: bool = False) -> None:
        """Set the variable ``name`` in the sandbox: the same types as ``get``, functions and classes (by cloudpickle).

        Raises ValueRefused if its type can't cross, and, unless ``allow_secrets``, if it holds a secret of this
        process's environment, in plain or in a usual encoding.
        """
        if not str(name).isidentifier():
            raise ValueError(f"{name!r} is no name for a variable")
        try:
            tree, buffers = transfer.send(value)
        except ValueRefused as exc:
            raise _refused(name, exc.message, inward=True) from None
        secret = None if allow_secrets else transfer.secret_in(tree, buffers, os.environ)
        if secret is not None:
            raise ValueRefused(
                f"{name}: the value holds the secret of the environment variable {secret}",
                hint=f"If the code is to have it: box.put({str(name)!r}, …, allow_secrets=True).",
            )
        self._ask("ipysandbox_put_request", {"name": name, "tree": tree}, buffers)

    def _ask(
        self, kind: str, content: dict[str, Any], buffers: list[Any] | None = None, seconds: float = _VALUE_SECONDS
    ) -> Message:
        with self._turn:
            self._require_open()
            if self._connection is None:
                self.start()
            assert self._connection is not None
            reply = self._connection.ask(kind, content, buffers or [], seconds)
        if reply.content.get("status") != "ok":
            # Written by code in the sandbox, and on its way into an exception's text.
            ename, evalue = (clean_text(str(reply.content.get(key))[:2000]) for key in ("ename", "evalue"))
            if ename == "NameError":
                raise NameError(f"{content.get('name')}: {evalue}")
            if ename == "SandboxDied":
                raise SandboxDied(evalue)
            raise _refused(content.get("name"), evalue, inward=kind == "ipysandbox_put_request")
        return reply

    # -- looking

    def diff(self) -> list[Change]:
        """The project's files as they differ inside (not those in ``files.write``, which are the host's own)."""
        return [Change(**row) for row in self._control("GET", "/diff")["changes"]]

    def commit(self, *_paths: str) -> None:
        raise NotAvailable(
            "commit is not available in this version: what the code wrote outside files.write is dropped"
        )

    def discard(self, *_paths: str) -> None:
        raise NotAvailable("discard is not available in this version; restart() drops every change")

    def status(self) -> dict[str, Any]:
        """State, running cell, usage, limits and guarantees, as the panel shows them."""
        return dict(self._control("GET", ""))

    def policy(self) -> dict[str, Any]:
        """The policy in force and where each setting comes from; no values of environment variables."""
        return dict(self._control("GET", "/policy"))

    def check(self, code: str) -> dict[str, Any]:
        """What the check says about ``code``; nothing is run."""
        return dict(self._control("POST", "/check", {"code": code}))

    def _control(self, method: str, path: str, body: Any = None) -> Any:
        self._require_open()
        if self._supervisor is None:
            self.start()
        assert self._supervisor is not None
        return self._supervisor.request(method, f"/sandboxes/{self.name}{path}", body)


class SandboxByOptions(Sandbox):
    """The same for a user of the magic or the command."""

    _by_options = True


def _running_kernel() -> Any:
    """The ipykernel that this process is, if it is one: then what is shown goes to a page."""
    kernelbase = sys.modules.get("ipykernel.kernelbase")
    return kernelbase.Kernel.instance() if kernelbase is not None and kernelbase.Kernel.initialized() else None


def _refused(name: object, why: str, *, inward: bool = False) -> ValueRefused:
    """Which variable and why on the first line; what to do and the long list of what can cross on the next ones."""
    reason, _, works = why.partition(" What can: ")
    if not works:
        return ValueRefused(f"{name}: {reason}" if name else reason)
    if inward:
        works = f"{works.rstrip('.')}, functions and classes (with cloudpickle)."
        way = "Make it in the sandbox instead, or fit it there, from data that can cross."
    else:
        way = (
            f"{name} is still there in the sandbox. Take its arrays and numbers out, each as a variable of its own "
            f'(coef = {name}.coef_), or keep it in a file: joblib.dump({name}, "results/{name}.joblib"). '
            "Loading that file outside runs whatever the sandbox's code put into it: use it in the sandbox."
        )
    hint = f"{way}\nWhat can: {works}" if name else f"What can: {works}"
    return ValueRefused(f"{name}: {reason}" if name else reason, hint=hint)


def _no_value() -> None:
    return None


def as_json(policy: str | Path | Mapping[str, Any] | Policy | None) -> Any:
    if isinstance(policy, Path):
        return str(policy.absolute())
    if isinstance(policy, Policy):
        return policy.to_mapping()
    return dict(policy) if isinstance(policy, Mapping) else policy


def refused(report: Report, notices: tuple[str, ...]) -> RunResult:
    """How ``run`` ends for code that the check refuses, before there is a sandbox. ``notices``: the policy's."""
    error = RunError("CheckRefused", str(report), (f"CheckRefused: {report}",))
    collector = OutputCollector()
    collector.add("error", {"ename": error.ename, "evalue": error.evalue, "traceback": [*error.traceback]})
    return _not_run("refused", error, collector, notices, tuple(report.to_json()["findings"]))


def _died(collector: OutputCollector, text: str) -> RunResult:
    return _not_run("died", RunError("SandboxDied", text, (text,)), collector)


def _not_run(
    status: str,
    error: RunError,
    collector: OutputCollector,
    notices: tuple[str, ...] = (),
    findings: tuple[Mapping[str, Any], ...] = (),
) -> RunResult:
    """The result where no sandbox is there to tell more."""
    return RunResult(
        status=status,
        stdout=collector.text("stdout"),
        stderr=collector.text("stderr"),
        outputs=collector.finish(),
        error=error,
        limit=None,
        usage={},
        findings=findings,
        notices=notices,
        state_kept=False,
        execution_count=None,
        changes=(),
        changes_total=0,
        written=(),
        written_total=0,
        full_output=None,
        hint="",
        _value=_no_value,
    )
