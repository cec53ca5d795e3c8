"""Work that meets the layers: what the processor, files, sockets and programs cost inside, wherever the code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernels import PLAIN, Kept
from measure import Group, Sample
from peers import Peer


@dataclass(frozen=True)
class Work:
    """Code whose time is taken where it runs, so that a program's start and a cell's way there don't count."""

    key: str
    title: str
    setup: str
    body: str
    after: str = ""
    #: Rounds with ``--quick``.
    quick: int = 0

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
    Work("loop", "CPU: 3 million steps of a Python loop", "", "sum(i * i for i in range(3_000_000))", quick=2),
    Work("matmul", "CPU: numpy, 10 products of 1000 × 1000", _MATRIX, "for _ in range(10):\n    matrix @ matrix"),
    Work("open", "20,000 × open and read a file of the project", "", _OPENS.format(path="'data/x.csv'"), quick=2),
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


def groups(plain: Kept, sandbox: Kept, peers: Sequence[Peer], project: Path, rounds: int) -> Iterator[Group]:
    for work in _WORK:
        cases: dict[str, Sample] = {
            PLAIN: partial(_inside, lambda code: plain().run(code), work.code),
            "sandbox": partial(_inside, lambda code: sandbox().run(code), work.code),
            **{peer.name: partial(_inside, partial(peer.run, folder=project), work.code) for peer in peers},
        }
        yield Group(work.key, work.title, PLAIN, cases, rounds, quick=work.quick)


def _inside(run: Callable[[str], str], code: str) -> float:
    return float(run(code))
