"""What /proc says of processes, at odd moments of their life."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ipysandbox.backends.linux import processes
from ipysandbox.backends.linux.writable import WritableFolder

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
    holdings = processes.Holdings([os.stat(tmp_path).st_dev])
    for reached in (1, 2, 3, 3):
        found = holdings.look(pids, seconds=0)
        assert (found.deleted, found.sockets) == (reached << 20, 2 * reached)
    _end(holders[0])
    found = holdings.look(pids[1:], seconds=0)
    assert (found.deleted, found.sockets) == (2 << 20, 4)
    assert holdings.look(pids[1:]).deleted == 2 << 20
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
        found = dict(processes._mapped_deleted(Path(f"/proc/{maps.pid}/maps").read_bytes()))
        assert len(found[os.stat(tmp_path).st_dev, inode]) == 1 << 20
        maps.communicate()


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
