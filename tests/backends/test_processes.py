"""What /proc says of processes, at odd moments of their life."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ipysandbox.backends.linux import holdings, patience, processes
from ipysandbox.backends.linux.confined_plan import ConfinedPlan
from ipysandbox.backends.linux.disks import Disks
from ipysandbox.backends.linux.memory import of_descriptors, of_mappings, of_sockets
from ipysandbox.backends.linux.patience import Patient
from ipysandbox.backends.linux.writable import WritableFolder


@pytest.fixture(autouse=True)
def _time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(patience, "_LEAST_SECONDS", 60.0)


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
    assert not processes.ends(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert processes.ends(ended.pid)  # a zombie
    assert processes.ends(ended.pid)  # gone
    with subprocess.Popen([sys.executable, "-c", _HEADLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as headless:
        assert headless.stdout is not None
        assert headless.stdout.readline() == b"headless\n"
        assert not processes.ends(headless.pid)
        headless.communicate()


#: Its first thread waits, another computes.
_COMPUTES_BESIDE = """
import sys, threading
def compute():
    while True: pass
threading.Thread(target=compute, daemon=True).start()
print(threading.enumerate()[1].native_id, flush=True)
sys.stdin.read()
"""


def test_a_new_process_runs_if_any_of_its_threads_does() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _COMPUTES_BESIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as busy:
        assert busy.stdout is not None
        computing = int(busy.stdout.readline())
        deadline = time.monotonic() + 30
        while processes._stat(busy.pid)[0] != b"S":  # until its first thread waits
            assert time.monotonic() < deadline
        meter = processes.CpuMeter(processors=8)
        assert processes._running(busy.pid, processes._stat(busy.pid), 8) == [computing]
        assert not meter.knows(busy.pid, processes.started(busy.pid))
        processes.sample(busy.pid, meter)
        assert meter.knows(busy.pid, processes.started(busy.pid))
        busy.kill()


_HOLDS = """
import mmap, os, socket, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); os.unlink(sys.argv[1]); os.write(fd, bytes(1 << 20))
ends = socket.socketpair()
kept = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); kept.write(bytes(8 << 20))
print("ready", flush=True)
sys.stdin.read()
"""


def _holders(folder: Path, count: int) -> list[subprocess.Popen[str]]:
    found = []
    for number in range(count):
        args = [sys.executable, "-c", _HOLDS, str(folder / str(number))]
        found.append(subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for one in found:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    return found


def _end(one: subprocess.Popen[str]) -> None:
    one.communicate()


def test_a_look_that_has_no_time_goes_on_at_the_next_and_keeps_what_it_has_found(tmp_path: Path) -> None:
    holders = _holders(tmp_path, 3)
    pids = tuple(one.pid for one in holders)
    held = holdings.Holdings([os.stat(tmp_path).st_dev])
    for reached in (1, 2, 3, 3):
        found = held.look(pids, seconds=0)
        assert (found.deleted, found.sockets) == (reached << 20, 2 * reached)
    _end(holders[0])
    found = held.look(pids[1:], seconds=0)
    assert (found.deleted, found.sockets) == (2 << 20, 4)
    assert held.look(pids[1:]).deleted == 2 << 20
    for one in holders[1:]:
        _end(one)


def _sample(pids: tuple[int, ...]) -> processes.Sample:
    residents = {pid: int(processes._stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE") for pid in pids}
    return processes.Sample(0.0, sum(residents.values()), len(pids), residents, {})


def test_memory_of_what_a_look_did_not_reach_is_its_last_share_and_what_it_has_grown_by(tmp_path: Path) -> None:
    holders = _holders(tmp_path, 2)
    pids = tuple(one.pid for one in holders)
    sample, shares = _sample(pids), processes.Shares()
    whole = sum(shares.look(sample, 0, 1 << 40, seconds=0))
    assert 16 << 20 < whole <= sample.resident
    grown = {pids[0]: sample.residents[pids[0]] + (5 << 20), pids[1]: sample.residents[pids[1]]}
    later = processes.Sample(0.0, sum(grown.values()), 2, grown, {})
    assert sum(shares.look(later, 0, 1 << 40, seconds=0)) == whole + (5 << 20)
    # Before a limit is said to be exceeded, all are read again.
    assert sum(shares.look(later, 0, whole, seconds=0)) < whole + (4 << 20)
    for one in holders:
        _end(one)


def test_what_a_process_shared_that_has_ended_counts_until_the_others_have_been_read(tmp_path: Path) -> None:
    holders = _holders(tmp_path, 2)
    pids = tuple(one.pid for one in holders)
    shares = processes.Shares()
    whole = sum(shares.look(_sample(pids), 0, 1 << 40))
    _end(holders[0])
    rest = _sample(pids[1:])
    assert sum(shares.look(rest, 0, 1 << 40, seconds=0)) == whole
    assert 8 << 20 < sum(shares.look(rest, 0, 1 << 40)) < whole - (8 << 20)
    _end(holders[1])


def test_nameless_files_that_are_only_mapped_are_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = f"""
import mmap, os, sys
fd = os.open({str(path)!r}, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 1 << 20); kept = mmap.mmap(fd, 1 << 20)
os.unlink({str(path)!r}); print(os.fstat(fd).st_ino, flush=True); os.close(fd); sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maps:
        assert maps.stdout is not None
        inode = int(maps.stdout.readline())
        found = [*holdings._mapped_deleted(Path(f"/proc/{maps.pid}/maps").read_bytes())]
        ((_, span, name),) = [row for row in found if row[0] == (os.stat(tmp_path).st_dev, inode)]
        assert (len(span), name) == (1 << 20, os.fsencode(path))
        maps.communicate()


#: Maps one page of a file of 1 MiB, and closes it; argument: the file.
_MAPS_A_PAGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); os.write(fd, bytes(1 << 20))
libc.mmap(None, 4096, 1, 2, fd, 0)
os.unlink(sys.argv[1]); os.close(fd); print("ready", flush=True); sys.stdin.read()
"""


def test_a_nameless_file_of_which_a_page_is_mapped_counts_in_full_or_as_one_of_unknown_size(tmp_path: Path) -> None:
    args = [sys.executable, "-c", _MAPS_A_PAGE, str(tmp_path / "file")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as maps:
        assert maps.stdout is not None
        assert maps.stdout.readline() == b"ready\n"
        found = holdings.Holdings([os.stat(tmp_path).st_dev], places=[str(tmp_path)]).look((maps.pid,))
        known = (found.deleted, found.unsized, found.mapped) == (1 << 20, 0, 0)
        assert known or (found.deleted, found.unsized, found.mapped) == (0, 1, 4096)
        assert known or os.geteuid()  # root is told
        assert found.nameless == 1
        # As on btrfs, where stat tells another device than the maps.
        assert holdings.Holdings([1], {os.stat(tmp_path).st_dev: 1}, [str(tmp_path)]).look((maps.pid,)) == found
        # Where the code can't write, the host has replaced it, a library that runs for one.
        found = holdings.Holdings([os.stat(tmp_path).st_dev], places=["/elsewhere"]).look((maps.pid,))
        assert (found.deleted, found.unsized) == (1 << 20 if known else 4096, 0)
        maps.communicate()


def test_a_nameless_program_that_runs_counts_in_full(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/cat", program)
    with program.open("ab") as file:
        file.write(bytes(4 << 20))
    size = program.stat().st_blocks * 512
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as runs:
        assert runs.stdin is not None
        assert runs.stdout is not None
        runs.stdin.write(b"ready\n")
        runs.stdin.flush()
        assert runs.stdout.readline() == b"ready\n"
        program.unlink()
        found = holdings.Holdings([os.stat(tmp_path).st_dev]).look((runs.pid,))
        assert (found.deleted, found.unsized, found.nameless) == (size, 0, 1)
        runs.communicate()


def test_disks_tell_how_much_fuller_they_are_than_at_the_start(tmp_path: Path) -> None:
    plan = ConfinedPlan(
        (), (str(tmp_path),), "", "", "", {}, {}, processes=1, cpus=(), landlock_abi=1, absent=(), hidden=(),
        scratch_bytes=0,
    )  # fmt: skip
    device = os.stat(tmp_path).st_dev
    disks = Disks(plan)
    before = disks.grown([device])
    (tmp_path / "file").write_bytes(bytes(64 << 20))
    assert disks.grown([device]) > before + (32 << 20)  # others may be freeing some
    assert disks.grown([device + 1]) == 0
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ):
        rows = Path("/proc/self/maps").read_text().splitlines()
        (line,) = (row for row in rows if row.endswith(str(tmp_path / "file")))
    major, minor = (int(part, 16) for part in line.split()[3].split(":"))
    assert disks.shown[os.makedev(major, minor)] == device


_HAS_MAPPINGS = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
kept = mmap.mmap(-1, 4000 * mmap.PAGESIZE)
at = ctypes.addressof(ctypes.c_char.from_buffer(kept))
for n in range(0, 4000, 2): libc.mprotect(ctypes.c_void_p(at + n * mmap.PAGESIZE), mmap.PAGESIZE, 1)
print("ready", flush=True)
sys.stdin.read()
"""


def test_pieces_of_address_space_count_also_where_no_look_has_come_yet(tmp_path: Path) -> None:
    args = [sys.executable, "-c", _HAS_MAPPINGS]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as has:
        assert has.stdout is not None
        assert has.stdout.readline() == b"ready\n"
        held = holdings.Holdings()
        held.look((has.pid,))
        there = len(Path(f"/proc/{has.pid}/maps").read_bytes().splitlines())
        assert there > 4000
        assert held.mappings({has.pid: 1 << 30}) == (there, 0)
        # A fork of it has as many; what has so little address space has not.
        assert held.mappings({has.pid: 1 << 30, 1: 1 << 30}) == (there, there)
        assert held.mappings({has.pid: 1 << 30, 1: 10 * os.sysconf("SC_PAGE_SIZE")}) == (there, 10)
        assert of_mappings(there) > 200 * there
        has.communicate()


def test_connections_hold_what_they_can_and_no_more_than_all_of_the_machine() -> None:
    def sockets(used: int, tcp: int, tcp_bytes: int) -> int:
        return of_sockets(processes.Sockets(used, tcp, tcp_bytes))

    assert sockets(256, 0, 1 << 30) == 0
    assert sockets(1256, 0, 0) >= 1000 * 2 * 212992
    assert sockets(600, 600, 0) == 0  # idle
    assert sockets(600, 600, 1 << 40) >= 600 * 2 * 212992
    assert sockets(600, 600, 1 << 20) == 1 << 20


def test_sockets_are_told_by_kind() -> None:
    before = processes.sockets(os.getpid())
    with socket.socket() as listener, socket.socket(socket.AF_UNIX):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        found = processes.sockets(os.getpid())
    assert found.used >= 2
    assert found.tcp >= 1
    assert before.used >= before.tcp


def test_a_large_folder_is_counted_over_several_looks(tmp_path: Path) -> None:
    folder = WritableFolder(tmp_path, lambda _: False, lambda _: False)
    for number in range(10):
        (tmp_path / str(number)).write_bytes(bytes(4096))
    folder._next = 0.0
    seen = []
    while not folder.walked:
        seen.append(folder.measure(1 << 40, seconds=0)[1])
    assert seen == [*range(1, 11), 10]
    assert folder.bytes == 10 * 4096


def test_a_look_without_an_answer_keeps_nobody_waiting_and_its_answer_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "_LEAST_SECONDS", 0.0)
    asked, answers = Patient[str](), threading.Event()

    def slow() -> str:
        answers.wait()
        return "found"

    assert asked.ask(1, slow, 0.0, seen=7) is None
    assert asked.ask(2, str, 0.0) is None  # one at a time
    assert asked.late() is None
    assert asked.hidden == 0
    monkeypatch.setattr(patience, "_MOST_SECONDS", 0.0)
    assert asked.hidden == 1
    answers.set()
    monkeypatch.setattr(patience, "_LONGEST_SECONDS", 60.0)
    assert asked.late(time.monotonic() + 60) == (1, "found", 7)
    assert asked.hidden == 0
    assert asked.late() is None
    assert asked.ask(2, lambda: "at once", time.monotonic() + 60) == "at once"


#: Records of /proc, and one of a descriptor's.
_READS_RECORDS = """
import os, sys
kept = [os.open("/proc/self/status", os.O_RDONLY) for _ in range(50)] + [os.open("/proc/self/fdinfo/0", os.O_RDONLY)]
kept += [os.eventfd(0) for _ in range(20)] + [os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)]
print("ready", flush=True)
sys.stdin.read()
"""


def test_descriptors_are_counted_and_those_of_records_by_what_the_kernel_keeps_for_them(tmp_path: Path) -> None:
    args = [sys.executable, "-c", _READS_RECORDS, str(tmp_path / "empty")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reads:
        assert reads.stdout is not None
        assert reads.stdout.readline() == b"ready\n"
        found = holdings.Holdings().look((reads.pid,))
        assert found.open >= 72
        assert 51 <= found.records <= 52  # an empty file may lie on a file system without a disk
        assert found.told == 1
        assert of_descriptors(found) > 51 * 8192
        reads.communicate()
