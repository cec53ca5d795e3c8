"""Where the supervisor process begins: the zygote is started first, since both take their time to load."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
from typing import Any

from ipysandbox.backends.linux import clean, libc, zygote_handle
from ipysandbox.errors import SandboxError, StartError

from . import runtime


def main(host_pid: int, ready_fd: int, use: str) -> None:
    """Serve until the host process ends. Tells its folder, or its error, on ``ready_fd`` as JSON. ``use``: what it is
    wanted for first, and gets ready for."""
    clean.inheritance()
    libc.prctl(libc.PR_SET_DUMPABLE, 0)  # its memory holds keys: not for other processes of the user
    with os.fdopen(ready_fd, "w") as ready:

        def tell(message: dict[str, Any]) -> None:
            json.dump(message, ready)
            ready.close()

        folder = zygote = None
        try:
            host = os.pidfd_open(host_pid)
            # One descriptor per socket and sandbox: the soft default of 1024 is soon used up.
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            # The hard limit stays: a sandbox needs one above 0.
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            folder, _lock = runtime.create()
            zygote = zygote_handle.spawn(folder, host_pid, zygote_handle.preload_of(use), use)
            from .app import serve

            serve(folder, host_pid, host, zygote, tell)
        except (OSError, SandboxError) as exc:
            if ready.closed:
                raise
            error = exc if isinstance(exc, SandboxError) else _cannot_start(exc)
            tell({"error": error.to_json()})
        finally:
            if zygote is not None:
                with contextlib.suppress(OSError):  # closed by the backend where that came so far
                    zygote.control.close()
            if folder is not None:
                runtime.remove(folder)


def _cannot_start(exc: OSError) -> StartError:
    hint = "Free some space where its sockets are, or set XDG_RUNTIME_DIR to another folder of yours."
    full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
    return StartError(f"the supervisor can't start: {exc}", hint=hint if full else None)
