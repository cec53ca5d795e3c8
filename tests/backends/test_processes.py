"""What /proc says of processes, at odd moments of their life."""

from __future__ import annotations

import os
import subprocess
import sys

from ipysandbox.backends.linux import processes

#: Its first thread ends by itself (exit(2), not exit_group(2)), another lives on and holds the descriptors.
_HEADLESS = """
import ctypes, os, sys, threading
def live_on():
    with open(f"/proc/{os.getpid()}/stat") as stat:
        while ") Z " not in os.pread(stat.fileno(), 200, 0).decode(): pass
    print("headless", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=live_on).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


def test_only_a_process_whose_threads_have_all_ended_is_past_its_end() -> None:
    assert not processes._ends(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert processes._ends(ended.pid)  # a zombie
    assert processes._ends(ended.pid)  # gone
    with subprocess.Popen([sys.executable, "-c", _HEADLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as headless:
        assert headless.stdout is not None
        assert headless.stdout.readline() == b"headless\n"
        assert not processes._ends(headless.pid)
        headless.communicate()
