"""Processes: nothing outside can be seen, signalled, traced or outlived, and no right can be regained."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox

from .conftest import HELD_PAGES, NO_PAGE_IS_HELD, OTHER_TABLES, TRY


def test_only_its_own_processes_exist(tell: Callable[[str], Any]) -> None:
    told = tell(f"""
import os
pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
[len(pids) < 6, os.path.exists("/proc/{os.getpid()}/status") and {os.getpid()} > 100, os.getppid()]
""")
    assert told == [True, False, 1]


def test_the_kernel_tells_that_no_right_is_left(tell: Callable[[str], Any]) -> None:
    status = tell("""
dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
""")
    assert {
        name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")
    } == dict.fromkeys(("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"), 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_init_is_not_the_codes_to_read_or_end(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY
        + """
import signal
os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGTERM)
[errno_of(lambda: open(f"/proc/1/{name}", "rb").read(1)) for name in ("environ", "mem", "maps")]
"""
    )
    assert set(told) <= {"EACCES", "EPERM"}


def test_a_bystander_gets_no_signal(tmp_path: Path, tell: Callable[[str], Any]) -> None:
    watcher = (
        "import signal, sys\n"
        "for s in (10, 12, 15, 28): signal.signal(s, lambda n, f: (print('signal', n, flush=True), sys.exit()))\n"
        "print('ready', flush=True); signal.pause()"
    )
    bystander = subprocess.Popen([sys.executable, "-c", watcher], stdout=subprocess.PIPE, text=True)
    assert bystander.stdout is not None
    assert bystander.stdout.readline() == "ready\n"
    tell(TRY + f"[errno_of(lambda: os.kill({bystander.pid}, 10)), call(434, {bystander.pid}, 0)]")
    assert bystander.poll() is None
    bystander.send_signal(signal.SIGUSR2)
    assert bystander.stdout.read() == "signal 12\n"
    bystander.wait()
    bystander.stdout.close()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in this test are those of x86-64")
def test_calls_that_reach_the_kernels_inside_are_refused(tell: Callable[[str], Any]) -> None:
    calls = {
        "unshare": (272, 0x10000000), "setns": (308, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0),
        "pivot_root": (155, 0, 0), "chroot": (161, 0), "ptrace": (101, 0, 0, 0, 0),
        "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "keyctl": (250, 0, 0, 0, 0, 0),
        "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0), "bpf": (321, 0, 0, 0),
        "perf_event_open": (298, 0, 0, 0, 0, 0), "io_uring_setup": (425, 1, 0), "userfaultfd": (323, 1),
        "open_tree": (428, 0, 0, 0), "fsopen": (430, 0, 0), "pidfd_getfd": (438, 0, 0, 0),
        "name_to_handle_at": (303, 0, 0, 0, 0, 0), "kcmp": (312, 1, 1, 0, 0, 0), "modify_ldt": (154, 0, 0, 0),
        "syslog": (103, 3, 0, 0), "reboot": (169, 0, 0, 0, 0), "swapon": (167, 0, 0), "acct": (163, 0),
        "init_module": (175, 0, 0, 0), "settimeofday": (164, 0, 0), "sethostname": (170, 0, 0),
        "shmget": (29, 1, 4096, 0o1600), "msgget": (68, 1, 0o1600), "quotactl": (179, 0, 0, 0, 0),
        "semget": (64, 0, 1, 0o1600), "fanotify_init": (300, 0, 0), "iopl": (172, 3),
    }  # fmt: skip
    told = tell(TRY + f"{{name: call(*args) for name, args in {calls!r}.items()}}")
    assert told == dict.fromkeys(calls, "EPERM")
    hidden = {"clone3": (435, 0, 0), "memfd_create": (319, 0, 0), "openat2": (437, 0, 0, 0, 0)}
    hidden |= {"landlock_create_ruleset": (444, 0, 0, 1), "landlock_add_rule": (445, 0, 1, 0, 0)}
    hidden |= {"landlock_restrict_self": (446, 0, 0)}
    assert set(tell(TRY + f"[call(*args) for args in {list(hidden.values())!r}]")) == {"ENOSYS"}


def test_no_pipe_and_no_socket_holds_a_page_that_nobody_counts(tell: Callable[[str], Any]) -> None:
    assert tell(HELD_PAGES + "holding()") == NO_PAGE_IS_HELD


def test_no_connection_holds_pages_of_who_sends(box: Sandbox, with_namespaces: bool) -> None:
    if not with_namespaces:
        pytest.skip("without namespaces there are none")
    result = box.run("""
import socket
listener = socket.create_server(("127.0.0.1", 0))
pairs = [socket.create_connection(listener.getsockname()), listener.accept()[0], socket.socket(type=socket.SOCK_DGRAM)]
def set_it(one):
    try: one.setsockopt(socket.SOL_SOCKET, 60, 1)
    except OSError as exc: return exc.errno
[set_it(one) for one in (*pairs, listener)]
""")
    assert result.value == [errno.ENOPROTOOPT] * 4


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in this test are those of x86-64")
def test_no_thread_has_descriptors_that_nobody_sees(tell: Callable[[str], Any]) -> None:
    """clone without CLONE_FILES, close_range and unshare of the descriptors: /proc shows those of the first thread."""
    code = "[call(56, 0x10000, 0, 0, 0, 0), call(56, 0x10B00, 0, 0, 0, 0), call(436, 900, 901, 2), call(272, 0x400)]"
    assert tell(TRY + code) == ["EPERM", "EPERM", "EINVAL", "EPERM"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in this test are those of x86-64")
def test_prctl_takes_no_memory_and_changes_nothing_that_others_see(tell: Callable[[str], Any]) -> None:
    refused = {
        "PR_FUTEX_HASH": (78, 1, 1 << 16, 0, 0), "PR_SET_MM": (35, 1, 0, 0, 0), "PR_SCHED_CORE": (62, 0, 0, 0, 0),
        "PR_SET_VMA": (0x53564D41, 0, 0, 0, 0), "PR_SET_MEMORY_MERGE": (67, 1, 0, 0, 0),
        "PR_SET_DUMPABLE": (4, 0, 0, 0, 0), "beyond 32 bits": (1 << 32 | 78, 1, 1 << 16, 0, 0),
    }  # fmt: skip
    told = tell(TRY + f"{{name: call(157, *args) for name, args in {refused!r}.items()}}")
    assert told == dict.fromkeys(refused, "EINVAL")


def test_what_programs_do_by_the_same_calls_works(tell: Callable[[str], Any]) -> None:
    told = tell("""
import ctypes, multiprocessing, os, subprocess, sys, threading, time
libc = ctypes.CDLL(None)
found = []
thread = threading.Thread(target=lambda: (os.closerange(900, 910), found.append(len(os.listdir("/proc/self/fd")))))
thread.start(); thread.join()
def exit_of(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
here, there = multiprocessing.Pipe()
spawned = multiprocessing.get_context("spawn").Process(target=print, args=("from afar",))
spawned.start(); spawned.join()
clock = time.pthread_getcpuclockid(threading.get_ident())
name = ctypes.create_string_buffer(16)
[len(found), subprocess.run(["true"], close_fds=True).returncode, os.system("exit 3") >> 8, spawned.exitcode,
 exit_of(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], {})), time.clock_gettime(clock) > 0,
 time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0, libc.prctl(15, b"mine", 0, 0, 0),
 libc.prctl(16, name, 0, 0, 0), name.value.decode(), libc.prctl(1, 0, 0, 0, 0), libc.prctl(23, 0, 0, 0, 0)]
""")
    assert told == [1, 0, 3, 0, 4, True, True, 0, 0, "mine", 0, 0]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no second table to call")
def test_calls_through_another_table_are_refused_whatever_their_number_means_in_ours(
    tell: Callable[[str], Any],
) -> None:
    told = tell(
        OTHER_TABLES
        + """
import signal
def status(call, number):
    pid = os.fork()
    if pid == 0: os._exit(-call(number))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
# Some that the monitor lets through by the number that they have in our table: connect, clone, fork, kill.
[[status(call, number) for number in (20, 39, 42, 56, 57, 62)] for call in (call_32, call_x32)]
"""
    )
    assert told[0] in ([errno.EPERM] * 6, [-signal.SIGSEGV] * 6)  # the latter by kernels without 32-bit calls
    assert told[1] == [errno.EPERM] * 6


def test_what_a_cell_started_ends_with_the_sandbox(project: Path, make_box: Callable[..., Sandbox]) -> None:
    box = make_box()
    box.run("""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    import time
    while True:
        open("results/beat", "a").write("x"); time.sleep(0.02)
""")
    beat = project / "results" / "beat"
    while not beat.exists():
        box.run("pass")
    box.close()
    size = beat.stat().st_size
    with Sandbox(project=project, validate=False) as other:  # takes longer than any beat
        other.run("import time; time.sleep(0.3)")
    assert beat.stat().st_size == size


def test_two_sandboxes_share_nothing(make_box: Callable[..., Sandbox]) -> None:
    first, second = make_box(), make_box()
    first.run("""
import socket
for base in ("/tmp", "/dev/shm", "/var/tmp"): open(base + "/mark", "w").write("x")
a = socket.socket(socket.AF_UNIX); a.bind("\\0mark"); a.listen(1)
t = socket.socket(); t.bind(("127.0.0.1", 45678)); t.listen(1)
""")
    result = second.run(
        TRY
        + """
import socket
print([os.path.exists(base + "/mark") for base in ("/tmp", "/dev/shm", "/var/tmp")],
      errno_of(lambda: socket.socket(socket.AF_UNIX).connect("\\0mark")),
      errno_of(lambda: socket.socket().connect(("127.0.0.1", 45678))))
"""
    )
    assert result.stdout.strip() == "[False, False, False] ECONNREFUSED ECONNREFUSED"


#: Takes all it can get of what the kernel counts for the user as a whole, and keeps it: inotify instances, timers (a
#: signal each that could wait), descriptors under way from one process to another.
GREED = """
import ctypes, socket
_c = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
def most(take):
    count = 0
    while count < 200_000 and take(): count += 1
    return count
pairs = []
def send():
    if len(pairs) % 5 == 0: pairs.append(socket.socketpair())
    try: socket.send_fds(pairs[-1][0], [b"x"], [0] * 100)
    except OSError: return False
    return True
instances = most(lambda: _c.inotify_init() >= 0)
[instances, most(lambda: _c.timer_create(1, None, ctypes.byref(timer)) == 0), most(send) * 100]
"""


def test_what_the_kernel_counts_for_the_user_is_left_to_others(make_box: Callable[..., Sandbox]) -> None:
    instances, timers, sent = make_box().run(GREED).value
    assert instances <= 16
    assert timers <= 1024
    assert sent >= 1000  # no bound of its own: see "Known limits"
    assert make_box().run("1 + 1").value == 2


def test_a_cell_that_replaces_the_functions_of_what_runs_it_still_ends(make_box: Callable[..., Sandbox]) -> None:
    box = make_box()
    result = box.run(
        """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("ipysandbox"):
        for key, value in list(vars(module).items()):
            if callable(value) and not isinstance(value, type):
                setattr(module, key, lambda *a, **k: None)
print("replaced")
""",
        timeout="20s",
    )
    assert (result.status, result.stdout) == ("ok", "replaced\n")
    assert box.run("print(6 * 7)", timeout="20s").stdout == "42\n"
