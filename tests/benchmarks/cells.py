"""Cells in kernels that are up already: the way there and back, values, and floods of output."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import numpy as np
from kernels import PLAIN, Client, Kept, kept, plain_kernel, relayed_kernel
from measure import CannotDo, Group, Sample
from peers import Peer

from ipysandbox import Sandbox
from ipysandbox.guest import values
from ipysandbox.policy.secret_values import secret_values
from ipysandbox.supervisor.spawn import Supervisor

#: Of eight bytes each: 100 MB.
_ITEMS = 12_500_000
_PRINTS = {
    "print-large": ("10 MB in one print", "print('x' * 10_000_000)", 10_000_001),
    "print-lines": ("100,000 lines, 10 MB", "for _ in range(100_000):\n    print('x' * 99)", 10_000_000),
}
#: 50 MB in writes of ten bytes, and a limit that lets them pass.
_FLOOD = "import os\nfor _ in range(5_000_000):\n    os.write(1, b'123456789\\n')"
_FLOOD_SIZE, _FLOOD_LIMIT = 50_000_000, "64MiB"
#: Each sample takes ten seconds.
_FLOOD_ROUNDS = 2
_NO_SECRETS = "no secrets known"
#: What a host's environment may hold: tokens, a cloud's pair of keys, an address with a password of 16.
_SECRETS = {
    "GITHUB_TOKEN": "ghp_" + secrets.token_hex(18),
    "HF_TOKEN": "hf_" + secrets.token_hex(17),
    "OPENAI_API_KEY": "sk-proj-" + secrets.token_urlsafe(90),
    "AWS_ACCESS_KEY_ID": "AKIA" + secrets.token_hex(8).upper(),
    "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30),
    "DATABASE_URL": f"postgres://me:{secrets.token_urlsafe(12)}@db.lab.internal/x",
}


def groups(
    project: Path,
    plain: Kept,
    relayed: Kept,
    environ: Mapping[str, str],
    peers: Sequence[Peer],
    rounds: int,
    trips: int,
    stack: ExitStack,
) -> Iterator[Group]:
    """``stack`` ends the kernels that the groups share."""

    @cache
    def notebook() -> Client:
        kernel = kept(plain_kernel(project, environ), stack)
        kernel.run("%load_ext ipysandbox")
        return kernel

    @cache
    def box() -> Sandbox:
        return stack.enter_context(Sandbox(project=project))

    @cache
    def box_with_array() -> Sandbox:
        box().run(f"import numpy as np\nlarge = np.ones({_ITEMS})")
        return box()

    yield Group(
        "trip",
        "Warm cell, there and back",
        PLAIN,
        {
            PLAIN: partial(_cell, lambda code: plain().run(code), "1 + 1", "2"),
            "sandbox, Jupyter protocol": partial(_cell, lambda code: relayed().run(code), "1 + 1", "2"),
            "Sandbox.run, value included": partial(_cell, lambda code: str(box().run(code).value), "1 + 1", "2"),
            "%%sandbox in a notebook": partial(_cell, lambda code: notebook().run(code), "%%sandbox\n1 + 1", "2"),
        },
        trips,
        quick=40,
    )
    yield Group(
        "value",
        "An array of 100 MB out of a sandbox",
        "numpy copy",
        {
            "numpy copy": _copy,
            "encode and decode": _transfer,
            "Sandbox.get": lambda: _get(box_with_array()),
        },
        rounds,
        quick=0,
    )
    for key, (title, code, size) in _PRINTS.items():
        cases = {
            PLAIN: partial(_print, lambda code: plain().run(code), code, size),
            "sandbox, Jupyter protocol": partial(_print, lambda code: relayed().run(code), code, size),
            "Sandbox.run": partial(_print, lambda code: box().run(code).stdout, code, size),
            "%%sandbox in a notebook, 1.1 MB of it shown": partial(
                _show, lambda code: notebook().run(code), "%%sandbox\n" + code
            ),
            **{peer.name: partial(_print_to_pipe, peer, project, code, size) for peer in peers},
        }
        yield Group(key, f"Print: {title}", PLAIN, cases, rounds, quick=2 if key == "print-lines" else 0)
    yield from _floods(project, plain, notebook, stack)
    bare = cache(lambda: kept(relayed_kernel(project, "benchmark", _supervisor({}, stack)), stack))
    knowing = cache(lambda: kept(relayed_kernel(project, "benchmark", _supervisor(_SECRETS, stack)), stack))
    for key, (title, code, size) in _PRINTS.items():
        known: dict[str, Sample] = {
            _NO_SECRETS: partial(_print, lambda code: bare().run(code), code, size),
            f"{len(_SECRETS)} secrets known": partial(_print, lambda code: knowing().run(code), code, size),
        }
        yield Group(f"{key}-redacted", f"Redaction: {title}, Jupyter protocol", _NO_SECRETS, known, rounds, quick=0)


def _floods(project: Path, plain: Kept, notebook: Kept, stack: ExitStack) -> Iterator[Group]:
    """How long a flood takes, and what it adds to the memory of each process outside the sandbox."""
    limit = {"limits.output": _FLOOD_LIMIT}
    relayed = cache(lambda: kept(relayed_kernel(project, "flood", overrides=limit), stack))
    box = cache(lambda: stack.enter_context(Sandbox(project=project, overrides=limit)))
    policy = Path(os.environ["JUPYTER_CONFIG_DIR"], "flood.toml")  # one from elsewhere could not raise it
    policy.parent.mkdir(exist_ok=True)
    policy.write_text(f'[limits]\noutput = "{_FLOOD_LIMIT}"\n')
    cell = f"%%sandbox flood --policy {policy}\n{_FLOOD}"
    flood = partial(_print, code=_FLOOD, size=_FLOOD_SIZE)
    ways: dict[str, Callable[[], float]] = {
        PLAIN: lambda: flood(lambda code: plain().run(code)),
        "sandbox, Jupyter protocol": lambda: flood(lambda code: relayed().run(code)),
        "Sandbox.run": lambda: flood(lambda code: box().run(code).stdout),
        "%%sandbox in a notebook, 1.1 MB of it shown": lambda: _show(lambda code: notebook().run(code), cell),
    }
    yield Group("flood", "Flood: 50 MB in writes of 10 bytes", PLAIN, ways, _FLOOD_ROUNDS, quick=0)
    pid = "import os\nos.getpid()"
    seen: dict[str, tuple[Callable[[], int], str]] = {
        "plain ipykernel itself": (lambda: int(plain().run(pid)), PLAIN),
        "the supervisor": (lambda: Supervisor.current().pid, "sandbox, Jupyter protocol"),
        "the process that calls Sandbox.run": (os.getpid, "Sandbox.run"),
        "the kernel of a notebook with %%sandbox": (
            lambda: int(notebook().run(pid)),
            "%%sandbox in a notebook, 1.1 MB of it shown",
        ),
    }
    yield Group(
        "flood-memory",
        "Flood: memory that it takes outside the sandbox, at most",
        "plain ipykernel itself",
        {name: partial(_growth, process, ways[way]) for name, (process, way) in seen.items()},
        _FLOOD_ROUNDS,
        quick=0,
        unit="B",
    )


def _growth(process: Callable[[], int], work: Sample) -> float:
    """Bytes by which a process is larger than before, at most, while something is done (proc_pid_status(5))."""
    pid = process()
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # forget the peak so far
    before = _kilobytes(pid, "VmRSS")
    work()
    return 1024.0 * max(0, _kilobytes(pid, "VmHWM") - before)


def _kilobytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def _show(run: Callable[[str], str], code: str) -> float:
    begin = time.perf_counter()
    text = run(code)
    seconds = time.perf_counter() - begin
    if "more is printed than is shown here" not in text:
        raise CannotDo(f"{len(text)} characters came, and no word of more")
    return seconds


def _supervisor(known: Mapping[str, str], stack: ExitStack) -> Supervisor:
    """One of its own, whose host's environment holds no secret but these."""
    before = dict(os.environ)
    for name in secret_values(before):
        del os.environ[name]
    os.environ.update(known)
    try:
        supervisor = Supervisor()
    finally:
        os.environ.clear()
        os.environ.update(before)
    stack.callback(supervisor.stop)
    return supervisor


def _cell(run: Callable[[str], str], code: str, expected: str) -> float:
    begin = time.perf_counter()
    text = run(code)
    seconds = time.perf_counter() - begin
    if text != expected:
        raise RuntimeError(f"{code!r} gave {text!r}")
    return seconds


def _copy() -> float:
    array = np.ones(_ITEMS)
    begin = time.perf_counter()
    array.copy()
    return time.perf_counter() - begin


def _transfer() -> float:
    array = np.ones(_ITEMS)
    begin = time.perf_counter()
    tree, buffers = values.encode(array)
    values.decode(tree, buffers)
    return time.perf_counter() - begin


def _get(box: Sandbox) -> float:
    begin = time.perf_counter()
    array = box.get("large")
    seconds = time.perf_counter() - begin
    if array.shape != (_ITEMS,):
        raise RuntimeError(f"an array of the shape {array.shape} came")
    return seconds


def _print(run: Callable[[str], str], code: str, size: int) -> float:
    begin = time.perf_counter()
    text = run(code)
    seconds = time.perf_counter() - begin
    if len(text) != size:
        raise CannotDo(f"{len(text)} characters came of {size}")
    return seconds


def _print_to_pipe(peer: Peer, folder: Path, code: str, size: int) -> float:
    """Without the start of the peer: until the pipe that we read has taken all of it."""
    timed = f"import sys, time\nbegin = time.perf_counter()\n{code}\nsys.stdout.flush()\n"
    text, _, seconds = peer.run(timed + "print('\\0', time.perf_counter() - begin)", folder).rpartition("\0")
    if len(text) != size:
        raise CannotDo(f"{len(text)} characters came of {size}")
    return float(seconds)
