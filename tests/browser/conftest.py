"""A real browser, and a place on this machine where everything it sends is seen."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))

T = TypeVar("T")


class Sink:
    """Answers on TCP and UDP of one port, and keeps the first line of whatever comes."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("0.0.0.0", self.port))
        self.address = f"http://127.0.0.1:{self.port}/"
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._tcp.close()
        self._udp.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            try:
                data = connection.recv(65536)
                if data:
                    self.seen.append(data.split(b"\r\n")[0].decode("latin-1"))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            except OSError:
                return

    def _receive(self) -> None:
        while True:
            try:
                data = self._udp.recv(65536)
            except OSError:
                return
            self.seen.append(f"UDP {data[:20]!r}")


@pytest.fixture
def sink() -> Iterator[Sink]:
    place = Sink()
    yield place
    place.close()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the system's browser; Playwright's own is not downloaded."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        reason = "no Chromium here: `apt install chromium`"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found


@pytest.fixture
def in_browser(chromium: str) -> Callable[..., Any]:
    """Runs a function on a fresh page of a fresh browser.

    In a thread of its own: Playwright keeps an event loop running there, and other tests have theirs in this one.
    """

    def run(work: Callable[[Any], T], *arguments: str) -> T:
        from playwright.sync_api import sync_playwright

        def drive() -> T:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium,
                    args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", *arguments],
                )
                try:
                    return work(browser.new_page(viewport={"width": 1200, "height": 900}))
                finally:
                    browser.close()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(drive).result()

    return run
