"""Network: closed, whatever the family, the spelling or the library; its own loopback works."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

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


def test_abstract_sockets_of_the_host_are_not_there(tell: Callable[[str], Any]) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0ipysandbox-test-service")
        server.listen(1)
        code = "import socket\nerrno_of(lambda: socket.socket(socket.AF_UNIX).connect('\\0ipysandbox-test-service'))"
        assert tell(TRY + code) in ("ECONNREFUSED", "EPERM")


def test_programs_inside_can_talk_to_each_other(tell: Callable[[str], Any]) -> None:
    told = tell("""
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"pong")).start()
socket.create_connection(server.getsockname(), 5).recv(4).decode()
""")
    assert told == "pong"
