"""What is refused is in the audit trail; and it stays refused whatever becomes of the process that answers."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipysandbox import Sandbox
from ipysandbox.audit import AuditLog, iter_records
from ipysandbox.backends.attempt import Attempt
from ipysandbox.backends.linux import details, libc, notify, processes, seccomp, syscalls
from ipysandbox.backends.linux.attempts import Attempts
from ipysandbox.output.redact import Redactor
from ipysandbox.supervisor.attempts import Attempts as Recorder
from ipysandbox.supervisor.trail import Trail

from ..escapes.conftest import OTHER_TABLES

_PATIENCE = 20.0  # seconds: a loaded machine's
_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in this test are those of x86-64")

#: In a cell: ``call(number, *arguments)`` answers with the name of the error.
CALL = """
import ctypes, errno
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    result = _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    return "worked" if result != -1 else errno.errorcode[ctypes.get_errno()]
"""


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of this test's sandbox, to find its records by."""
    return f"t{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def watched(name: str, make_box: Callable[..., Sandbox]) -> Sandbox:
    return make_box(name=name)


def recorded(name: str, until: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Details of what the trail says was refused in the sandbox ``name``, once ``until`` holds for it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        rows = [
            {"action": record["action"], **record["details"]}
            for record in iter_records(sandbox=name)
            if record["action"] in ("syscall.refused", "network.refused")
        ]
        if until(rows):
            return rows
        assert time.monotonic() < deadline, rows
        select.select([], [], [], 0.05)  # other processes write it


@_X86
def test_refused_calls_are_in_the_trail_with_name_detail_process_and_count(name: str, watched: Sandbox) -> None:
    tried = {
        "unshare CLONE_NEWNS|CLONE_NEWUSER": (272, 0x10020000),
        "mount ": (165, 0, 0, 0, 0, 0),
        "ptrace PTRACE_ATTACH": (101, 16, 1, 0, 0),
        "socket AF_VSOCK": (41, 40, 1, 0),
        "socket AF_INET type 1 protocol 262": (41, 2, 0o2000001, 262),
        "socketpair AF_TIPC": (53, 30, 5, 0, 0),
        "prctl PR_FUTEX_HASH": (157, 78, 1, 1 << 16, 0, 0),
        "prctl 68": (157, 68, 0, 0, 0, 0),
        "clone a thread with descriptors of its own": (56, 0x10B00, 0, 0, 0, 0),
        "io_uring_setup ": (425, 1, 0),
        "bpf BPF_PROG_LOAD": (321, 5, 0, 0),
        "keyctl KEYCTL_JOIN_SESSION_KEYRING": (250, 1, 0, 0, 0, 0),
        "clone CLONE_NEWUSER": (56, 0x10000011, 0, 0, 0, 0),
        "ioctl TIOCSTI": (16, 0, 0xF_0000_5412, 0),
        "ioctl SIOCGIFHWADDR": (16, 0, 0x1_0000_8927, 0),
        "fchmod set-user-ID": (91, 0, 0o4755),
        "mknodat character device": (259, -100, 0, 0o020666, 0),
        "process_vm_readv ": (310, 1, 0, 0, 0, 0, 0),
        "open_by_handle_at ": (304, 0, 0, 0),
        "seccomp ": (317, 1, 8, 0),
        "pidfd_getfd ": (438, 3, 0, 0),
    }
    code = CALL + f"print([call(*args) for args in {list(tried.values())!r}])"
    result = watched.run(code)
    others = {"AF_VSOCK": "EAFNOSUPPORT", "AF_TIPC": "EAFNOSUPPORT", "262": "EPROTONOSUPPORT"}
    others |= {"PR_FUTEX_HASH": "EINVAL", "68": "EINVAL"}
    expected = [others.get(text.rpartition(" ")[2], "EPERM") for text in tried]
    assert result.stdout.strip() == str(expected), (result.stdout, result.error)
    rows = recorded(name, lambda rows: len(rows) >= len(tried))
    found = {f"{row['name']} {row['detail']}": row for row in rows}
    assert set(found) == set(tried)
    assert {row["count"] for row in rows} == {1}
    assert all(row["pid"] > 1 and row["comm"] for row in rows)


@_X86
def test_calls_through_another_table_are_in_the_trail_by_their_kind(name: str, watched: Sandbox) -> None:
    code = OTHER_TABLES + "print([call_x32(39), call_x32(42), *([call_32(20), call_32(42)] if has_32 else [])])"
    has_32 = _has_32_bit_calls()
    refused, kinds = [-errno.EPERM] * (4 if has_32 else 2), ["a 32-bit call"] * has_32 + ["an x32 call"]
    result = watched.run(f"has_32 = {has_32}\n{code}")
    assert result.stdout.strip() == str(refused), result.error
    rows = recorded(name, lambda rows: sum(row["count"] for row in rows) >= len(refused))
    assert sorted({row["name"] for row in rows}) == kinds
    assert sum(row["count"] for row in rows) == len(refused)


def _has_32_bit_calls() -> bool:
    """Many kernels leave them out (CONFIG_IA32_EMULATION)."""
    code = OTHER_TABLES + "raise SystemExit(call_32(20) <= 0)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_connects_that_leave_loopback_are_in_the_trail_with_their_address(name: str, watched: Sandbox) -> None:
    result = watched.run("""
import os, socket
def tried(family, address):
    with socket.socket(family) as sock:
        try: sock.connect(address)
        except OSError as exc: return exc.errno
server = socket.create_server(("127.0.0.1", 0))
path = socket.socket(socket.AF_UNIX); path.bind(os.environ["TMPDIR"] + "/here"); path.listen()
print([tried(2, ("192.0.2.7", 443)), tried(10, ("2001:db8::7", 80)), tried(2, server.getsockname()),
       tried(10, ("::1", 9)), tried(socket.AF_UNIX, path.getsockname())])
""")
    assert result.stdout.strip() == str([errno.ENETUNREACH, errno.ENETUNREACH, None, errno.ECONNREFUSED, None]), (
        result.error
    )
    rows = recorded(name, lambda rows: len(rows) >= 2)
    assert [(row["action"], row["address"]) for row in rows] == [
        ("network.refused", "192.0.2.7:443"),
        ("network.refused", "[2001:db8::7]:80"),
    ]


@_X86
def test_a_flood_is_counted_to_the_last_and_neither_fills_the_trail_nor_slows_the_supervisor(
    name: str, watched: Sandbox
) -> None:
    from ipysandbox.supervisor.spawn import Supervisor

    pid = Supervisor.current().pid
    watched.run("1")
    before, began = processes.sample(pid, processes.CpuMeter()).cpu, time.monotonic()
    own_before = _own_cpu(pid)
    result = watched.run(CALL + "for _ in range(100_000): call(272, 0x10000000)", timeout=300)
    seconds = time.monotonic() - began
    assert result.status == "ok", result.error
    rows = recorded(name, lambda rows: sum(row["count"] for row in rows) >= 100_000)
    assert sum(row["count"] for row in rows) == 100_000
    assert len(rows) <= seconds + 3
    own = _own_cpu(pid) - own_before
    print(f"100,000 refused calls in {seconds:.1f} s, {len(rows)} records, {own:.2f} s of the supervisor's")
    # As much as it takes to watch any sandbox for so long.
    assert own < 0.5 * seconds
    # What answering took is the sandbox's own: the monitor's time is more than nothing and was counted.
    assert result.usage["cpu"] > 0.5 * (processes.sample(pid, processes.CpuMeter()).cpu - before - own)


def _own_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@_X86
def test_what_was_tried_right_before_the_end_is_counted(name: str, watched: Sandbox) -> None:
    watched.run(
        CALL + "for _ in range(500): call(272, 0x10000000)\nfor _ in range(2):\n"
        "    for family in range(1000, 1060): call(41, family, 1, 0)"
    )
    watched.close()
    rows = recorded(name, lambda rows: sum(row["count"] for row in rows) >= 620)
    assert sum(row["count"] for row in rows) == 620


@_X86
def test_a_flood_of_different_calls_is_bounded_as_well(name: str, watched: Sandbox) -> None:
    code = CALL + "for family in range(100, 5100): call(41, family, 1, 0)\nprint('done')"
    assert watched.run(code, timeout=120).stdout == "done\n"
    rows = recorded(name, lambda rows: sum(row["count"] for row in rows) >= 5_000)
    assert len(rows) <= 250
    assert sum(row["count"] for row in rows) == 5_000


# -- the process that answers


def monitor_of(box: Sandbox) -> int:
    init = box.status()["pid"]
    return int(Path(f"/proc/{init}/stat").read_text().rpartition(")")[2].split()[1])


@_X86
def test_while_the_monitor_stands_still_refused_calls_wait_and_others_go_on(watched: Sandbox) -> None:
    monitor = monitor_of(watched)
    os.kill(monitor, signal.SIGSTOP)
    result = watched.run(
        CALL
        + """
import os, time
pid = os.fork()
if pid == 0: os._exit(0 if call(272, 0x10000000) == "EPERM" else 1)
time.sleep(0.5)
open("/tmp/works", "w").close()
waits = os.waitpid(pid, os.WNOHANG) == (0, 0)
print(waits)
"""
    )
    assert result.stdout == "True\n", (result.stdout, result.error)
    os.kill(monitor, signal.SIGCONT)
    assert watched.run("print(os.waitpid(pid, 0)[1])").stdout == "0\n"


@_X86
@pytest.mark.parametrize("stopped_first", [True, False], ids=["with a call in flight", "at work"])
def test_when_the_monitor_dies_so_does_the_sandbox(watched: Sandbox, stopped_first: bool) -> None:
    monitor, inside = monitor_of(watched), processes.tree(watched.status()["pid"])
    watched.run(
        CALL + "import os\nif os.fork() == 0:\n    while call(272, 0x10000000) == 'EPERM': pass\n    os._exit(1)"
    )
    inside = processes.tree(watched.status()["pid"])
    if stopped_first:
        os.kill(monitor, signal.SIGSTOP)
    os.kill(monitor, signal.SIGKILL)
    _gone([monitor, *inside])


@_X86
def test_killing_the_sandbox_with_calls_in_flight_leaves_nothing(watched: Sandbox) -> None:
    watched.run(
        CALL + "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        while True: call(165, 0, 0, 0, 0, 0)"
    )
    everything = [monitor_of(watched), *processes.tree(watched.status()["pid"])]
    assert len(everything) > 20
    watched.close()
    _gone(everything)


def _gone(pids: list[int]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while left := [pid for pid in pids if _alive(pid)]:
        assert time.monotonic() < deadline, left
        select.select([], [], [], 0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_listener_is_in_no_hand_inside(watched: Sandbox) -> None:
    told = watched.run("""
import os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError: found.append(f"closed {pid}"); continue
    for name in names:
        try: found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError: pass
print([link for link in found if "seccomp" in link], "closed 1" in found)
""").stdout
    assert told == "[] True\n"


#: A container whose engine watches calls already: here, a filter with a listener that lets everything through.
_WATCHED_ALREADY = """
import struct, sys
from ipysandbox import Sandbox
from ipysandbox.backends.linux import libc, seccomp
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
held = seccomp.install(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), listener=True)
with Sandbox(name=sys.argv[2], project=sys.argv[1], validate=False) as box:
    print(box.status()["guarantees"]["syscalls"])
    print(box.run(sys.stdin.read()).stdout)
"""


@_X86
def test_where_calls_are_watched_already_refusals_hold_and_no_trail_is_promised(name: str, project: Path) -> None:
    command = [sys.executable, "-c", _WATCHED_ALREADY, str(project), name]
    code = CALL + "print([call(272, 0x10000000), call(41, 40, 1, 0)])"
    done = subprocess.run(command, input=code, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[:2] == ["['seccomp', 'no capabilities']", "['EPERM', 'EAFNOSUPPORT']"], done.stderr
    assert recorded(name, lambda rows: True) == []


@_X86
def test_a_person_reads_it_in_the_audit(name: str, watched: Sandbox) -> None:
    assert "user notification" in watched.status()["guarantees"]["syscalls"]
    watched.run(CALL + "call(272, 0x10000000)")
    recorded(name, lambda rows: len(rows) >= 1)
    command = [sys.executable, "-m", "ipysandbox", "audit", "tail", "--sandbox", name]
    shown = subprocess.run(command, capture_output=True, text=True).stdout
    assert "WARNING syscall.refused name=unshare detail=CLONE_NEWUSER pid=" in shown
    assert "count=1" in shown


# -- the filter by itself


def confined(check: Callable[[int], int], listener: Callable[[int], None]) -> int:
    """Run ``check`` (0 means that it held) in a process that the filter holds, with what became of its listener."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
            fd = seccomp.install(seccomp.program(), listener=True)
            assert fd is not None
            listener(fd)
            status = check(fd)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _errno_of(name: str, *args: int) -> int:
    try:
        libc.syscall(name, *args)
    except OSError as exc:
        return exc.errno or 0
    return 0


def _x32_errno(number: int) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if library.syscall(ctypes.c_long(1 << 30 | number)) == -1 else 0


def test_with_the_listener_closed_refused_calls_fail_all_the_same() -> None:
    def check(_fd: int) -> int:
        tried = [
            ("unshare", libc.CLONE_NEWUSER),
            ("mount", 0, 0, 0, 0, 0),
            ("ptrace", 0, 0, 0, 0),
            ("socket", 40, 1, 0),
        ]
        failed = sum(_errno_of(*call) != errno.ENOSYS for call in tried)  # type: ignore[arg-type]
        if os.uname().machine == "x86_64":
            failed += _x32_errno(39) != errno.ENOSYS
        return failed

    assert confined(check, os.close) == 0


def test_with_the_listener_closed_nobody_can_become_the_listener() -> None:
    """A second filter that waits for its own listener could be told to go on with the call."""

    def check(_fd: int) -> int:
        try:
            seccomp.install(seccomp.program(), listener=True)
        except OSError as exc:
            return 0 if exc.errno == errno.ENOSYS else 2
        return 1

    assert confined(check, os.close) == 0


def test_a_filter_of_the_codes_own_is_an_ordinary_thing() -> None:
    def check(_fd: int) -> int:
        seccomp.install(seccomp.program(notify=False))
        return 0 if _errno_of("unshare", libc.CLONE_NEWUSER) == errno.EPERM else 1

    assert confined(check, os.close) == 0


# -- parts


def test_details_name_what_the_numbers_mean() -> None:
    assert details.of("unshare", [0x10000000 | 0x40000000, *[0] * 5]) == "CLONE_NEWUSER|CLONE_NEWNET"
    assert details.of("socket", [16, 3, 9, 0, 0, 0]) == "AF_NETLINK"
    assert details.of("socket", [2**64 - 1, 3, 9, 0, 0, 0]) == "0xffffffff"
    assert details.of("openat", [0, 0, 0o100, 0o6755, 0, 0]) == "set-user-ID set-group-ID"
    for name in syscalls.TABLE:
        for value in (0, 1, 2**31, 2**63, 2**64 - 1):
            assert len(details.of(name, [value] * 6)) <= 120


def test_attempts_of_a_kind_are_told_at_once_and_then_once_a_second() -> None:
    trail = notify.Trail()
    add = lambda name, detail="": trail.add(name, detail, 7, lambda _pid: "python")  # noqa: E731
    add("mount")
    assert [(a.name, a.count, a.pid, a.comm) for a in trail.take(100.0)] == [("mount", 1, 7, "python")]
    for _ in range(9):
        add("mount")
    add("unshare", "CLONE_NEWUSER")
    assert [(a.name, a.count) for a in trail.take(100.5)] == [("unshare", 1)]
    assert trail.wait(100.5) == 0.5
    assert [(a.name, a.count) for a in trail.take(101.0)] == [("mount", 9)]
    assert trail.wait(101.0) is None


def test_a_thousand_kinds_become_few_and_none_is_lost() -> None:
    trail = notify.Trail()
    for number in range(1000):
        trail.add("socket", str(number), 7, lambda _pid: "x")
    rows: list[Attempt] = []
    now = 100.0
    while trail.wait(now) is not None:
        rows += trail.take(now)
        now += 1.0
    assert len(rows) <= 70
    assert sum(row.count for row in rows) == 1000


def test_what_is_tried_all_the_time_does_not_hide_what_is_tried_once(tmp_path: Path) -> None:
    with AuditLog(tmp_path) as log:
        recorder = Recorder(Trail(log, "box", None, [], Redactor()))
        for second in range(200):
            recorder.note([Attempt("socket", "AF_UNIX", 7, "ls", 2)])
            if second == 190:
                recorder.note([Attempt("mount", "", 7, "python", 1)])
        recorder.sum_up()
    rows = [record["details"] for record in iter_records(tmp_path / "audit.jsonl")]
    assert sum(row["count"] for row in rows) == 401
    assert [row["count"] for row in rows if row["name"] == "mount"] == [1]
    assert len(rows) == 62
    assert rows[-1]["name"] == "…"


@pytest.mark.parametrize(
    "rows",
    [None, 5, "x", {}, [5], [[]], [["a", "b", 1, "c"]], [["a", "b", "1", "c", 1]], [["a", "b", -1, "c", 1]],
     [["a", "b", 1, "c", 0]], [["a", "b", 1, "c", 1 << 70]], [["a", "b", True, "c", 1]], [[None] * 5]],
)  # fmt: skip
def test_what_is_not_a_row_of_the_monitors_is_left_out(rows: object) -> None:
    heard: list[Attempt] = []
    attempts = Attempts()
    attempts.on(heard.extend)
    attempts.hear(rows)
    assert heard == []


def test_what_a_process_calls_itself_is_harmless_to_show() -> None:
    heard: list[Attempt] = []
    attempts = Attempts()
    attempts.hear([["mount", "x" * 5000, 7, "\x1b[31mred\x07\u202e", 1]] * 5000)
    attempts.on(heard.extend)
    assert 0 < len(heard) <= 200
    assert all("\x1b" not in a.comm and "\u202e" not in a.comm and len(a.detail) <= 200 for a in heard)
