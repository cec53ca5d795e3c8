"""The names of everything that is recorded, and the fields that the ``details`` of each have.

Details never hold code, values, output or secrets: lengths, hashes, names and numbers. Fields that are unknown are left
out. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

SANDBOX_START = "sandbox.start"
"""A sandbox runs and has passed its self-test. backend, pid, policy_digest, profile, guarantees {name: [layers]},
limits {name: value}, seconds (from request to ready)."""

SANDBOX_STOP = "sandbox.stop"
"""A sandbox has ended and nothing of it is left. reason (closed, restarted, limit, killed, died, host-gone), by
(who killed it), status (exit status or signal of its first process), usage {cpu, wall, memory_peak, processes_peak,
disk, output}."""

SANDBOX_REFUSED = "sandbox.refused"
"""A sandbox was not started. kind (a SandboxError.kind), guarantee (what could not be held), message."""

SANDBOX_INTERRUPT = "sandbox.interrupt"
"""Somebody interrupted a cell. by (notebook, api, control), signal, state_kept."""

CELL_SUBMITTED = "cell.submitted"
"""A cell was handed in. number, sha256 (of the code as UTF-8), characters, validate."""

CHECK_VERDICT = "check.verdict"
"""The check has read a cell. number, verdict (ok, refused, off), rules [rule ids found], seconds."""

CELL_RESULT = "cell.result"
"""A cell has ended. number, status (ok, error, refused, limit, interrupted, died), error (the exception's class name),
usage {cpu, wall, memory_peak, processes_peak, disk, output}, changes (number of changed files), state_kept."""

TASK_STARTED = "task.started"
"""A task of an executor begins, in a sandbox of its own. number, sha256 (of the pickled call), size."""

TASK_RESULT = "task.result"
"""A task has ended, and its sandbox with it. number, status (ok, error, limit, refused, died, cancelled), error (the
exception's class name), limit, usage {wall, cpu, memory_peak}."""

LIMIT_HIT = "limit.hit"
"""A limit ended something. limit, value, observed, number (of the cell), state_kept."""

SYSCALL_REFUSED = "syscall.refused"
"""Code in a sandbox made system calls that it may not make. name, detail (a socket's family, flags, …), pid (the
host's number of the process that made the first), comm (the name it gave itself), count (within about a second)."""

NETWORK_REFUSED = "network.refused"
"""Code in a sandbox tried to connect to an address that is not there for it. address, pid, comm, count."""

OUTPUT_DROPPED = "output.dropped"
"""Something that came out was not let through. msg_type, reason, size."""

POLICY_NOTICE = "policy.notice"
"""A policy layer asked for more than it was granted. source, key, text."""

POLICY_TRUSTED = "policy.trusted"
"""The user approved the policy file of a project, or took that back. path, sha256, trusted."""

FILES_SWEPT = "files.swept"
"""What was left in a writable folder and is acted on by programs there was disarmed. removed [phrases], missed
[of folders that hold more than could be looked at]."""

SUPERVISOR_FAILED = "supervisor.failed"
"""Something of ours broke, and the sandbox was ended for it. error (the exception's class name), text."""

ACTIONS = frozenset(
    {
        SANDBOX_START,
        SANDBOX_STOP,
        SANDBOX_REFUSED,
        SANDBOX_INTERRUPT,
        CELL_SUBMITTED,
        CHECK_VERDICT,
        CELL_RESULT,
        TASK_STARTED,
        TASK_RESULT,
        LIMIT_HIT,
        NETWORK_REFUSED,
        SYSCALL_REFUSED,
        OUTPUT_DROPPED,
        POLICY_NOTICE,
        POLICY_TRUSTED,
        FILES_SWEPT,
        SUPERVISOR_FAILED,
    }
)
"""The actions above. A part may record others, spelled the same way: lower-case words joined by dots and hyphens."""
