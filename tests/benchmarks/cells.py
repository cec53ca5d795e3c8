"""Cells in kernels that are up already: the way there and back, floods of output, and work that meets the layers."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from kernels import Client, plain_kernel, relayed_kernel
from measure import CannotDo, Group, Sample
from peers import Peer

from ipysandbox import Sandbox
from ipysandbox.guest import values
from ipysandbox.policy.secret_values import secret_values
from ipysandbox.supervisor.spawn import Supervisor

_PLAIN = "plain ipykernel"
#: Of eight bytes each: 100 MB.
_ITEMS = 12_500_000
_PRINTS = {
    "print-large": ("10 MB in one print", "print('x' * 10_000_000)", 10_000_001),
    "print-lines": ("100,000 lines, 10 MB", "for _ in range(100_000):\n    print('x' * 99)", 10_000_000),
}
#: 50 MB in writes of ten bytes, and a limit that lets them pass.
_FLOOD = "import os\nfor _ in range(5_000_000):\n    os.write(1, b'123456789\\n')"
_FLOOD_SIZE, _FLOOD_LIMIT = 50_000_000, "64MiB"
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


@dataclass(frozen=True)
class Work:
    """Code whose time is taken where it runs, so that a program's start and a cell's way there don't count."""

    key: str
    title: str
    setup: str
    body: str
    after: str = ""

    @property
    def code(self) -> str:
        return (
            f"import os, subprocess, time\n{self.setup}\n"
            f"begin = time.perf_counter()\n{self.body}\nprint(time.perf_counter() - begin)\n{self.after}"
        )


_OPENS = "for _ in range(20_000):\n    with open({path}, 'rb') as file:\n        file.read()"
_WRITE = (
    "import tempfile\nkept = tempfile.NamedTemporaryFile(dir={folder!r})\nkept.write(b'a,b\\n1,2\\n')\nkept.flush()"
)
_MATRIX = "import numpy as np\nmatrix = np.random.default_rng(1).random((1000, 1000))\nmatrix @ matrix"
_SERVER = "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nwhere = server.getsockname()"
_CONNECTS = "for _ in range(1_000):\n    with socket.create_connection(where):\n        server.accept()[0].close()"
_WORK = (
    Work("loop", "CPU: 3 million steps of a Python loop", "", "sum(i * i for i in range(3_000_000))"),
    Work("matmul", "CPU: numpy, 10 products of 1000 × 1000", _MATRIX, "for _ in range(10):\n    matrix @ matrix"),
    Work("open", "20,000 × open and read a file of the project", "", _OPENS.format(path="'data/x.csv'")),
    Work(
        "open-results", "20,000 × open and read a file in results/",
        _WRITE.format(folder="results"), _OPENS.format(path="kept.name"), "kept.close()",
    ),
    Work(
        "open-tmp", "20,000 × open and read a file in /tmp",
        _WRITE.format(folder="/tmp"), _OPENS.format(path="kept.name"), "kept.close()",
    ),
    Work("stat", "50,000 × os.stat of a file of the project", "", "for _ in range(50_000):\n    os.stat('data/x.csv')"),
    Work(
        "calls", "1,000,000 × getppid, a call that every filter looks at and lets through",
        "", "for _ in range(1_000_000):\n    os.getppid()",
    ),
    Work("connect", "1,000 × connect to itself over TCP", _SERVER, _CONNECTS, "server.close()"),
    Work("spawn", "100 × run /bin/true", "", "for _ in range(100):\n    subprocess.run(['/bin/true'])"),
)  # fmt: skip


def groups(
    project: Path,
    environ: Mapping[str, str],
    peers: Sequence[Peer],
    rounds: int,
    trips: int,
    stack: ExitStack,
) -> Iterator[Group]:
    """``stack`` ends the kernels that the groups share."""
    plain = _kept(plain_kernel(project, environ), stack)
    notebook = _kept(plain_kernel(project, environ), stack)
    notebook.run("%load_ext ipysandbox")
    relayed = _kept(relayed_kernel(project, "benchmark"), stack)
    box = stack.enter_context(Sandbox(project=project))

    yield Group(
        "trip",
        "Warm cell, there and back",
        _PLAIN,
        {
            _PLAIN: partial(_cell, plain.run, "1 + 1", "2"),
            "sandbox, Jupyter protocol": partial(_cell, relayed.run, "1 + 1", "2"),
            "Sandbox.run, value included": partial(_cell, lambda code: str(box.run(code).value), "1 + 1", "2"),
            "%%sandbox in a notebook": partial(_cell, notebook.run, "%%sandbox\n1 + 1", "2"),
        },
        trips,
    )
    box.run(f"import numpy as np\nlarge = np.ones({_ITEMS})")
    yield Group(
        "value",
        "An array of 100 MB out of a sandbox",
        "numpy copy",
        {"numpy copy": _copy, "encode and decode": _transfer, "Sandbox.get": partial(_get, box)},
        rounds,
    )
    for key, (title, code, size) in _PRINTS.items():
        cases = {
            _PLAIN: partial(_print, plain.run, code, size),
            "sandbox, Jupyter protocol": partial(_print, relayed.run, code, size),
            "Sandbox.run": partial(_print, lambda code: box.run(code).stdout, code, size),
            "%%sandbox in a notebook, 1.1 MB of it shown": partial(_show, notebook.run, "%%sandbox\n" + code),
        }
        yield Group(key, f"Print: {title}", _PLAIN, cases, rounds)
    yield from _floods(project, plain, notebook, rounds, stack)
    bare, knowing = (
        _kept(relayed_kernel(project, "benchmark", _supervisor(known, stack)), stack) for known in ({}, _SECRETS)
    )
    for key, (title, code, size) in _PRINTS.items():
        known = {
            _NO_SECRETS: partial(_print, bare.run, code, size),
            f"{len(_SECRETS)} secrets known": partial(_print, knowing.run, code, size),
        }
        yield Group(f"{key}-redacted", f"Redaction: {title}, Jupyter protocol", _NO_SECRETS, known, rounds)
    for work in _WORK:
        inside: dict[str, Sample] = {
            _PLAIN: partial(_inside, plain.run, work.code),
            "sandbox": partial(_inside, relayed.run, work.code),
            **{peer.name: partial(_inside, partial(peer.run, folder=project), work.code) for peer in peers},
        }
        yield Group(work.key, work.title, _PLAIN, inside, rounds)


def _floods(project: Path, plain: Client, notebook: Client, rounds: int, stack: ExitStack) -> Iterator[Group]:
    """How long a flood takes, and what it adds to the memory of each process outside the sandbox."""
    limit = {"limits.output": _FLOOD_LIMIT}
    supervisor = Supervisor.current()
    relayed = _kept(relayed_kernel(project, "flood", overrides=limit), stack)
    box = stack.enter_context(Sandbox(project=project, overrides=limit))
    policy = project.parent / "flood.toml"  # a project's own could not raise it
    policy.write_text(f'[limits]\noutput = "{_FLOOD_LIMIT}"\n')
    cell = f"%%sandbox flood --policy {policy}\n{_FLOOD}"
    flood = partial(_print, code=_FLOOD, size=_FLOOD_SIZE)
    yield Group(
        "flood",
        "Flood: 50 MB in writes of 10 bytes",
        _PLAIN,
        {
            _PLAIN: partial(flood, plain.run),
            "sandbox, Jupyter protocol": partial(flood, relayed.run),
            "Sandbox.run": partial(flood, lambda code: box.run(code).stdout),
            "%%sandbox in a notebook, 1.1 MB of it shown": partial(_show, notebook.run, cell),
        },
        rounds,
    )
    plain_pid, notebook_pid = (int(kernel.run("import os\nos.getpid()")) for kernel in (plain, notebook))
    yield Group(
        "flood-memory",
        "Flood: memory that it takes outside the sandbox, at most",
        "plain ipykernel itself",
        {
            "plain ipykernel itself": partial(_growth, plain_pid, partial(flood, plain.run)),
            "the supervisor": partial(_growth, supervisor.pid, partial(flood, relayed.run)),
            "the process that calls Sandbox.run": partial(
                _growth, os.getpid(), partial(flood, lambda code: box.run(code).stdout)
            ),
            "the kernel of a notebook with %%sandbox": partial(
                _growth, notebook_pid, partial(_show, notebook.run, cell)
            ),
        },
        rounds,
        unit="B",
    )


def _growth(pid: int, work: Sample) -> float:
    """Bytes by which a process is larger than before, at most, while something is done (proc_pid_status(5))."""
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


def _kept(kernel: Client, stack: ExitStack) -> Client:
    stack.callback(kernel.close)
    kernel.until_subscribed()
    return kernel


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


def _inside(run: Callable[[str], str], code: str) -> float:
    return float(run(code))
