"""Drives each limit of a sandbox from inside, in four ways, and reads how it was enforced. For tests and benchmarks."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ipysandbox import RunResult, Sandbox

#: One process; ten that each take a tenth; one that has left its parents behind; C calls in a process that ignores
#: every signal that can be ignored.
ACTORS = ("one", "many", "daemon", "C")
MANY = 10

#: Set in the policy: small enough to be reached in a second or two.
LIMITS: dict[str, tuple[str | int, float]] = {
    "wall": ("1s", 1.0),
    "cpu": ("1s", 1.0),
    "memory": ("512MiB", 512 << 20),
    "disk": ("256MiB", 256 << 20),
    "processes": (64, 64),
    "open_files": (256, 256),
    "output": ("1MiB", 1 << 20),
}
_REST = {"limits.wall": "60s", "limits.cpu": "120s"}
_METER = "results/meter"

#: ``note(slot, amount)`` tells the host how much a process has taken, and when; it outlives the sandbox.
_PRELUDE = f"""
import ctypes, errno, mmap, os, signal, struct, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.malloc.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
meter_fd = os.open({_METER!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(meter_fd, 4096)
meter = mmap.mmap(meter_fd, 4096)
os.close(meter_fd)
def note(slot, amount, share=0, refused=0):
    now, passed = time.monotonic(), struct.unpack_from("d", meter, slot * 32 + 8)[0]
    if share and amount >= share and not passed:
        passed = now
    struct.pack_into("qddq", meter, slot * 32, amount, passed, now, refused)
def refused(slots):
    return [struct.unpack_from("q", meter, slot * 32 + 24)[0] for slot in range(slots)]
def ignore_signals():
    for number in range(1, 65):
        libc.signal(number, ctypes.c_void_p(1))
def many(work, count={MANY}):
    for slot in range(count):
        if os.fork() == 0:
            try: work(slot, count)
            except BaseException: pass
            os._exit(0)
def daemon(work):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            try: work(0, 1)
            except BaseException: pass
        os._exit(0)
    os.wait()
def rest():
    while True: time.sleep(60)
"""

#: ``work(slot, of)`` takes what it can, as one of ``of`` processes; ``c_work`` does it by calls into C.
_WORK = {
    "wall": """
def work(slot, of):
    rest()
def c_work(slot, of):
    while True: libc.pause()
""",
    "cpu": """
def work(slot, of):
    while True: pass
def c_work(slot, of):
    page = libc.malloc(1 << 20)
    while True: libc.memset(page, 1, 1 << 20)
""",
    "memory": """
STEP = 2 << 20
def work(slot, of):
    kept, taken = [], 0
    while True:
        kept.append(mmap.mmap(-1, STEP)); kept[-1].write(bytes(STEP)); taken += STEP
        note(slot, taken, LIMIT // of)
def c_work(slot, of):
    taken = 0
    while True:
        page = libc.malloc(STEP) or libc.mmap(None, STEP, 3, 0x21, -1, 0)  # shared: no limit on data holds it
        if page == ctypes.c_void_p(-1).value: raise MemoryError
        libc.memset(page, 1, STEP); taken += STEP
        note(slot, taken, LIMIT // of)
""",
    "disk": """
STEP = 1 << 20
def work(slot, of):
    taken = 0
    with open(f"results/{slot}", "wb", buffering=0) as file:
        while True:
            file.write(bytes(STEP)); taken += STEP
            note(slot, taken, LIMIT // of)
def c_work(slot, of):
    taken, fd = 0, libc.open(b"results/c", os.O_CREAT | os.O_WRONLY, 0o600)
    while True:
        if libc.posix_fallocate(fd, ctypes.c_long(taken), ctypes.c_long(STEP)): raise OSError(errno.ENOSPC, "full")
        taken += STEP
        note(slot, taken, LIMIT // of)
""",
    "processes": """
def work(slot, of):
    made = 0
    while True:
        try:
            if os.fork() == 0: rest()
        except BlockingIOError as exc:
            note(slot, made, refused=exc.errno)
            if of == 1 and os.getpid() == KERNEL: raise
            rest()
        made += 1
        note(slot, made)
def c_work(slot, of):
    made = 0
    while True:
        pid = libc.fork()
        if pid == 0: rest()
        if pid < 0: raise OSError(ctypes.get_errno(), "fork")
        made += 1
        note(slot, made)
""",
    "open_files": """
def work(slot, of):
    kept = []
    while True:
        try:
            kept.append(open("/dev/null"))
        except OSError as exc:
            note(slot, len(kept), refused=exc.errno)
            if of == 1 and os.getpid() == KERNEL: raise
            rest()
        note(slot, len(kept))
def c_work(slot, of):
    count = 0
    while True:
        if libc.open(b"/dev/null", 0) < 0: raise OSError(ctypes.get_errno(), "open")
        count += 1
        note(slot, count)
""",
    "output": """
def work(slot, of):
    while True: print("x" * 999)
c_work = work  # what C writes to its standard output is no output of the cell
""",
}
#: Those that the kernel refuses to go over: the refusal of a process elsewhere has to reach the cell.
_REFUSED = ("processes", "open_files")


@dataclass(frozen=True)
class Reading:
    """How one limit was enforced."""

    verdict: str
    #: What was taken beyond the limit, as a share of it; negative where less was.
    overshoot: float
    #: From when the limit was reached to when no more was taken (seconds).
    seconds: float
    state_kept: bool
    result: RunResult


def read(make_box: Callable[..., Sandbox], project: Path, limit: str, actor: str) -> Reading:
    """Drive ``limit`` in a new sandbox on ``project``."""
    word, value = LIMITS[limit]
    overrides = {**_REST, "limits.disk": "1GiB", f"limits.{limit}": word}
    box = make_box(overrides=overrides)
    box.run("import os; KERNEL = os.getpid()")
    before = box.status()["usage"]["memory"]
    allowed = int(value) - before if limit == "memory" else int(value)
    start = time.monotonic()
    result = box.run(_code(limit, actor, allowed))
    seconds = time.monotonic() - start
    verdict = result.limit.name if result.limit else result.status
    amounts, passed, last = _meter(project)
    if limit == "wall":
        overshoot, late = seconds / value - 1, seconds - value
    elif limit == "cpu":
        used = _cpu_in_the_end(box, result)
        overshoot, late = used / value - 1, (used - value) / (2 if actor == "many" else 1)
    elif limit == "output":
        overshoot, late = len(result.stdout) / value - 1, 0.0
    elif limit == "open_files":
        overshoot, late = max(amounts) / value - 1, 0.0
    else:
        overshoot, late = sum(amounts) / allowed - 1, max(0.0, last - passed) if passed else 0.0
    box.close()
    return Reading(verdict, overshoot, late, result.state_kept, result)


def _code(limit: str, actor: str, allowed: int) -> str:
    calls = {"one": "work(0, 1)", "many": "many(work)", "daemon": "daemon(work)", "C": "ignore_signals(); c_work(0, 1)"}
    code = f"{_PRELUDE}\nLIMIT = {allowed}\n{_WORK[limit]}\n{calls[actor]}\n"
    if actor in ("many", "daemon"):
        if limit in _REFUSED:
            slots = MANY if actor == "many" else 1
            code += (
                f"while not all(refused({slots})): time.sleep(0.01)\nraise OSError(refused({slots})[0], 'refused')\n"
            )
        else:
            code += "rest()\n"
    return code


def _meter(project: Path) -> tuple[list[int], float, float]:
    """(taken by each, when the last of them had its share, when the last took some)."""
    path = project / _METER
    data = path.read_bytes() if path.exists() else b""
    if not data:
        return [0], 0.0, 0.0
    rows = [struct.unpack_from("qddq", data, slot * 32) for slot in range(MANY)]
    passed = [row[1] for row in rows if row[1]]
    return [row[0] for row in rows], max(passed, default=0.0), max(row[2] for row in rows)


def _cpu_in_the_end(box: Sandbox, result: RunResult) -> float:
    """Processor seconds of the cell, and of what it left running until that was ended."""
    used = result.usage["cpu"]
    state = box.status()
    at_end = state["usage"]["cpu_total"]
    quiet_since = time.monotonic()
    last = at_end
    while state["state"] != "dead" and time.monotonic() - quiet_since < 1.5:
        time.sleep(0.05)
        state = box.status()
        if state["usage"]["cpu_total"] > last + 0.02:
            last, quiet_since = state["usage"]["cpu_total"], time.monotonic()
    return float(used + state["usage"]["cpu_total"] - at_end)
