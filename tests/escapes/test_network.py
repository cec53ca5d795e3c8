"""Network: closed, whatever the family, the spelling or the library; its own loopback works."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipysandbox import SandboxExecutor

from .conftest import TRY


def test_a_service_of_the_host_is_not_reached_by_any_name(
    listener: tuple[int, list[bytes]], tell: Callable[[str], Any]
) -> None:
    port, reached = listener
    told = tell(
        TRY
        + f"""
import socket
names = ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "2130706433", "::1"]
[errno_of(lambda: socket.create_connection((name, {port}), 3)) for name in names]
"""
    )
    assert "worked" not in told
    assert reached == []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"the listener works")


def test_there_is_no_way_out(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY
        + """
import socket
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
[errno_of(lambda: socket.create_connection(("192.0.2.1", 80), 3)), errno_of(udp)]
"""
    )
    assert told == ["ENETUNREACH", "ENETUNREACH"]


def test_odd_socket_families_and_raw_sockets_are_refused(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY
        + """
import socket
families = [(40, 1, 0), (38, 5, 0), (44, 3, 0), (29, 3, 1), (31, 5, 0), (30, 5, 0), (43, 1, 0), (15, 3, 2)]
families += [(17, 3, 768), (16, 3, 9)]
raw = [(2, 3, 1), (10, 3, 58)]
[[errno_of(lambda: socket.socket(*f)) for f in families], [errno_of(lambda: socket.socket(*f)) for f in raw]]
"""
    )
    assert set(told[0]) == {"EAFNOSUPPORT"}
    assert set(told[1]) <= {"EPERM", "EACCES"}


def test_odd_protocols_and_pairs_are_refused(tell: Callable[[str], Any]) -> None:
    """Multipath TCP, UDP-Lite, SCTP, DCCP: each a part of the kernel by itself. So is what else makes pairs."""
    told = tell(
        TRY
        + """
import socket
odd = [(2, 1, 262), (10, 1, 262), (2, 2, 136), (10, 2, 136), (2, 1, 132), (2, 5, 0), (2, 6, 0), (2, 6, 33)]
pairs = [(30, 5), (2, 1), (10, 2), (40, 1)]
[[errno_of(lambda: socket.socket(*f)) for f in odd], [errno_of(lambda: socket.socketpair(*f)) for f in pairs]]
"""
    )
    assert told == [["EPROTONOSUPPORT"] * 8, ["EAFNOSUPPORT"] * 4]


def test_abstract_sockets_of_the_host_are_not_there(tell: Callable[[str], Any]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0ipysandbox-test-service")
        server.listen(1)
        code = "import socket\nerrno_of(lambda: socket.socket(socket.AF_UNIX).connect('\\0ipysandbox-test-service'))"
        assert tell(TRY + code) in ("ECONNREFUSED", "EPERM")


#: Asks every socket that this process holds, and was not made here, for the host's devices: how each stands, and what
#: was answered (``told``: "listens" or "connected", the error's name or "worked").
ASK_INHERITED = """
import array, errno, fcntl, os, socket, stat, struct
told = []
def ask(fd, number, argument):
    try: fcntl.ioctl(fd, number, argument)
    except OSError as exc: return errno.errorcode[exc.errno]
    return "worked"
def inherited():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode): yield socket.socket(fileno=os.dup(fd))
        except OSError: pass
room = array.array("B", bytes(4096))
asked = {
    0x8912: struct.pack("iP", 4096, room.buffer_info()[0]),  # SIOCGIFCONF
    0x8910: struct.pack("16si20x", b"", 1),  # SIOCGIFNAME
    0x8927: struct.pack("40s", b"lo"),  # SIOCGIFHWADDR
    0x8946: struct.pack("16sP16x", b"lo", room.buffer_info()[0]),  # SIOCETHTOOL
    0x8B01: struct.pack("40s", b"lo"),  # SIOCGIWNAME
}
for sock in inherited():
    with sock:
        if sock.family == socket.AF_UNIX:
            kind = "listens" if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else "connected"
            told += [(kind, ask(sock, number, argument)) for number, argument in asked.items()]
told = sorted(set(told))
"""


def test_sockets_that_came_along_tell_nothing_of_the_hosts_devices(
    tell: Callable[[str], Any], with_namespaces: bool
) -> None:
    """They were made in its network namespace, and so was what a listener accepts."""
    refused = "EPERM" if with_namespaces else "ENOTTY"
    assert tell(ASK_INHERITED + "\ntold") == [["connected", refused], ["listens", refused]]


def ask_inherited(code: str) -> list[tuple[str, str]]:
    """In a task."""
    names: dict[str, Any] = {}
    exec(code, names)
    return list(names["told"])


def test_nor_does_a_tasks(project: Path, with_namespaces: bool) -> None:
    with SandboxExecutor(1, project=project) as pool:
        told = pool.submit(ask_inherited, ASK_INHERITED).result()
    assert told == [("connected", "EPERM" if with_namespaces else "ENOTTY")]


def test_the_sandboxs_own_devices_are_listed_and_its_sockets_tell_of_themselves(tell: Callable[[str], Any]) -> None:
    told = tell("""
import ctypes, fcntl, os, socket, struct
libc, first = ctypes.CDLL(None), ctypes.c_void_p()
found = libc.getifaddrs(ctypes.byref(first)), bool(first)
a, b = socket.socketpair()
b.sendall(b"abc")
fcntl.ioctl(a, 0x8901, struct.pack("i", os.getpid()))  # FIOSETOWN
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
def number_from(sock, ioctl): return struct.unpack("i", fcntl.ioctl(sock, ioctl, bytes(4)))[0]
[[name for _, name in socket.if_nameindex() if name == "lo"], found, number_from(a, 0x541B),  # FIONREAD
 fcntl.fcntl(a, fcntl.F_GETOWN) == os.getpid(), number_from(client, 0x8905)]  # SIOCATMARK
""")
    assert told == [["lo"], [0, True], 3, True, 0]


def test_buffers_of_sockets_are_as_large_as_they_are_counted(tell: Callable[[str], Any]) -> None:
    """Each could hold twice `net.core.wmem_max`, and no meter tells what is in one."""
    assert tell("""
import socket
pair = socket.socketpair()
def sizes(): return [pair[0].getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
before = sizes()
for option in (socket.SO_SNDBUF, socket.SO_RCVBUF): pair[0].setsockopt(socket.SOL_SOCKET, option, 4 << 20)
pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
[before == sizes(), pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED)]
""") == [True, 1]


def test_programs_inside_can_talk_to_each_other(tell: Callable[[str], Any]) -> None:
    told = tell("""
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"pong")).start()
socket.create_connection(server.getsockname(), 5).recv(4).decode()
""")
    assert told == "pong"
