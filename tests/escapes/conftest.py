"""Hostile code by kind, each run with the check off; what it reached is judged from outside the sandbox."""

from __future__ import annotations

import ast
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the project with a file that nobody may reach."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("secret-of-the-host\n")
    return folder


@pytest.fixture
def with_namespaces(box: Sandbox) -> bool:
    """Whether this machine gives namespaces: without them, what is not there to see is there and out of reach."""
    return "mount namespace" in box.status()["guarantees"]["files.read"]


@pytest.fixture
def tell(box: Sandbox) -> Callable[[str], Any]:
    """Run code in the sandbox that ends in a JSON-able expression; its value."""

    def run(code: str) -> Any:
        tree = ast.parse(code)
        last = tree.body[-1]
        assert isinstance(last, ast.Expr)
        tree.body[-1] = ast.parse("import json as _json").body[0]
        tree.body += ast.parse(f"print('TOLD', _json.dumps({ast.unparse(last)}))").body
        result = box.run(ast.unparse(tree))
        assert result.status == "ok", (result.error, result.stderr)
        lines = [line for line in result.stdout.splitlines() if line.startswith("TOLD ")]
        return json.loads(lines[-1][5:])

    return run


#: Defines ``errno_of(function)``: the name of the error it raises, or "worked".
TRY = """
import errno, os
def errno_of(action):
    try:
        action()
    except OSError as exc:
        return errno.errorcode.get(exc.errno, str(exc.errno))
    return "worked"
import ctypes
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return "worked" if result != -1 else errno.errorcode.get(ctypes.get_errno(), "?")
"""


#: Defines ``call_32(number)`` and ``call_x32(number)``: calls through x86-64's other tables; what the kernel answers.
OTHER_TABLES = """
import ctypes, mmap, os
def _called(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
# mov eax, number; int 0x80 or syscall; ret
def call_32(number): return _called(b"\\xb8" + number.to_bytes(4, "little") + b"\\xcd\\x80\\xc3")
def call_x32(number): return _called(b"\\xb8" + (number | 1 << 30).to_bytes(4, "little") + b"\\x0f\\x05\\xc3")
"""


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A TCP service of the host on 127.0.0.1: its port, and what reached it."""
    reached: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                reached.append(client.recv(100))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1], reached
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
