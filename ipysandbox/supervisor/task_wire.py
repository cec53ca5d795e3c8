"""Frames between an executor and its supervisor: one stream for all of its tasks, instead of one request for each.

Both ends are trusted; a task's value passes as it is, in chunks, and is looked at by nobody on the way.
"""

from __future__ import annotations

import struct

#: Kind, number of the task, bytes that follow.
HEADER = struct.Struct("!BIQ")

#: To the supervisor: what to open (JSON, once, first); a task's call; a task to end.
OPEN, TASK, CANCEL = 1, 2, 3
#: From it: opened (JSON), or why not; a piece of a task's value; how the task ended (JSON), after all its pieces.
OPENED, FAILED, PIECE, DONE = 11, 12, 13, 14
#: That a task has begun; what concerns none (JSON: {"notice"}).
STARTED, NOTICE = 15, 16
#: What has been recorded in the audit trail since (a JSON list), before the outcome that it is about; if asked for.
RECORDS = 17

#: Before a call: bytes of the JSON with its own limits, which follows: "wall", "cpu"; "value", bytes of its result.
OPTIONS = struct.Struct("!I")
#: A supervisor's socket for executors, in its folder.
SOCKET = "tasks.sock"
MOST_JSON = 16 << 20
#: Bytes of one call, function and arguments; and of one value.
MOST_CALL = MOST_VALUE = 512 << 20


def frame(kind: int, number: int, data: bytes = b"") -> bytes:
    return HEADER.pack(kind, number, len(data)) + data
