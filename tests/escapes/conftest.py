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


#: Defines ``holding()``: what each way to put a page itself into a pipe or a socket is answered. The memory is unmapped
#: and the file cut afterwards; arguments are as they have to be for it to work.
HELD_PAGES = """
import ctypes, errno, mmap, os, socket, tempfile
_pages = ctypes.CDLL(None, use_errno=True)
def _answer(result):
    return "worked" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
class _Piece(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]
def holding():
    found, (source, into), (other, to), ends = {}, os.pipe(), os.pipe(), socket.socketpair()
    for end in ends: end.setblocking(False)
    os.write(into, b"x" * 8)
    with mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        page[0] = 1
        first = ctypes.c_char.from_buffer(page)
        piece = _Piece(ctypes.addressof(first), 1)
        found["vmsplice"] = _answer(_pages.vmsplice(into, ctypes.byref(piece), ctypes.c_size_t(1), 0))
        del first
    found["tee"] = _answer(_pages.tee(source, to, ctypes.c_size_t(1), 0))
    found["splice"] = _answer(_pages.splice(source, None, ends[0].fileno(), None, ctypes.c_size_t(1), 0))
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096)); file.flush()
        for kind, fd in {"a socket": ends[0].fileno(), "a pipe": into}.items():
            start = ctypes.c_long(0)
            sent = _pages.sendfile(fd, file.fileno(), ctypes.byref(start), ctypes.c_size_t(1))
            found[f"sendfile to {kind}"] = _answer(sent)
        file.truncate(0)
    yes = ctypes.c_int(1)
    found["SO_ZEROCOPY"] = _answer(_pages.setsockopt(ends[0].fileno(), socket.SOL_SOCKET, 60, ctypes.byref(yes), 4))
    try: found["received"] = len(ends[1].recv(100))
    except BlockingIOError: found["received"] = 0
    for fd in (source, into, other, to): os.close(fd)
    for end in ends: end.close()
    return found
"""
#: What it is answered.
NO_PAGE_IS_HELD = {
    **dict.fromkeys(("vmsplice", "tee", "splice", "sendfile to a socket", "sendfile to a pipe"), "EINVAL"),
    "SO_ZEROCOPY": "ENOPROTOOPT",
    "received": 0,
}
