"""Exit statuses; the first six are stable names for scripts."""

from __future__ import annotations

OK = 0
#: The code raised; for doctor: a guarantee can't be held.
FAILED = 1
#: The command line or the policy is wrong; nothing was run.
USAGE = 2
#: Refused by the check; nothing was run.
REFUSED = 3
#: Ended by a limit.
LIMIT = 4
#: The sandbox could not be started, or died.
NOT_STARTED = 5
#: The output could not be written, as Python says it.
UNWRITTEN = 120
#: What a shell reports for SIGINT and SIGPIPE.
INTERRUPTED = 130
BROKEN_PIPE = 141
