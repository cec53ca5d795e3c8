"""What programs write to the kernel's own descriptors 1 and 2, whole, before their cell is told to be done.

ipykernel reads it in a thread that nobody waits for: the last of it came after the cell, and a letter of several bytes
could be cut where one read ended.
"""

from __future__ import annotations

import array
import codecs
import fcntl
import os
import select
import sys
import termios
import threading
import time
from typing import Any

from ipykernel.iostream import OutStream

#: How long the end of a cell waits for it. Programs that go on writing come after the cell, as they always did.
_MOST_SECONDS = 1.0
_EACH_SECONDS = 0.0005
#: What a pipe holds (bytes); ipykernel takes 1000 at a time.
_PIPE = 1 << 16

#: Characters that may wait to be sent. The thread that sends may be late, and one message of it all too large to read.
_MOST_HELD = 1 << 20
#: Characters of one piece of what is longer: six bytes each at most, and the supervisor reads 32 MiB.
_PIECE = 4 << 20
#: Characters that are sent although somebody has interrupted; a file keeps no more.
_MOST_KEPT = 256 << 20

_streams: list[PipedOutStream] = []


class PipedOutStream(OutStream):
    """As its base, but it can be waited for, and waits itself until what was printed is sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        #: Held from a read to when what was read is in the stream.
        self._taking = threading.Lock()
        self._since_sent = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        _streams.append(self)

    def write(self, string: str) -> int:
        if isinstance(string, str) and len(string) > _PIECE:
            return self._write_long(string)
        written = super().write(string)
        self._since_sent += len(string)
        if self._since_sent > _MOST_HELD:
            self._since_sent = 0
            self.flush()
        return written or 0

    def _write_long(self, string: str) -> int:
        """In pieces. The limit on output interrupts at one of them; the file with all of it is to have the rest."""
        interrupt: KeyboardInterrupt | None = None
        for begin in range(0, len(string), _PIECE):
            if interrupt is not None and begin >= _MOST_KEPT:
                break
            try:
                self.write(string[begin : begin + _PIECE])
            except KeyboardInterrupt as exc:
                interrupt = exc
        if interrupt is not None:
            raise interrupt
        return len(string)

    def flush(self) -> None:
        # Each cell's end flushes four times. The base waits for its thread each time, which takes half a millisecond,
        # also where nothing waits to be sent. What that thread is sending just now comes before what is handed to it
        # from here on, as all outputs are.
        if self.echo is not None or getattr(self, "_buffers", True):
            super().flush()  # type: ignore[no-untyped-call]

    def _watch_pipe_fd(self) -> None:
        if self._fid is None:
            return
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        try:
            while self._should_watch:
                poll.poll()
                with self._taking:
                    data = os.read(self._fid, _PIPE)
                    if not data:
                        return
                    self.write(self._decoder.decode(data))
                os.write(self._original_stdstream_copy, data)
        except Exception:  # noqa: BLE001 - as in the base, which raises it where the stream is closed
            self._exc = sys.exc_info()

    def taken(self) -> bool:
        """Whether all that was written to the descriptor so far is in the stream."""
        if self._fid is None:
            return True
        waiting = array.array("i", [0])
        with self._taking:
            fcntl.ioctl(self._fid, termios.FIONREAD, waiting)
        return not waiting[0]


def wait_for_programs() -> None:
    """Returns when what programs have written so far is in the streams, or goes on coming."""
    until = time.monotonic() + _MOST_SECONDS
    while not all(stream.taken() for stream in _streams) and time.monotonic() < until:
        time.sleep(_EACH_SECONDS)
