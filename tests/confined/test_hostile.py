# ruff: noqa: E501 - the snippets are one line each
"""Native code that attacks a sandbox without namespaces: what it reaches, changes and learns outside is nothing."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..escapes.conftest import HELD_PAGES, NO_PAGE_IS_HELD, OTHER_TABLES
from .hosts import Box, Host, recorded

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in these snippets are those of x86-64"),
    pytest.mark.timeout(300),
]

#: In a cell: ``call(number, *arguments)`` answers with the result or the error's name, ``tried(f)`` likewise.
PRELUDE = """
import ctypes, errno, fcntl, os, socket, struct, sys, threading, time
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    result = _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result if result != -1 else errno.errorcode[ctypes.get_errno()]
def tried(action):
    try: return action()
    except OSError as exc: return errno.errorcode[exc.errno]
buffer = ctypes.create_string_buffer(65536)
"""


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file outside of everything that the policy names, and its user's own."""
    path = tmp_path_factory.mktemp("outside") / "key"
    path.write_text("secret")
    path.chmod(0o600)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("p") / "study"
    for name in ("data/x.csv", ".env", ".env~", "keys/server.pem", "m.git/config", "m.git/HEAD", "m.git/objects/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("content\n")
        os.utime(root / name, (1_000_000_000, 1_000_000_000))
    return root


@pytest.fixture(scope="module")
def box(host: Host, study: Path, secret: Path) -> Iterator[Box]:
    box = Box(host, "hostile", study)
    box.out(PRELUDE + f"S = {str(secret)!r}; SB = S.encode(); P = os.getcwd(); M = {box.pid}")
    yield box
    box.close()


@pytest.fixture(autouse=True)
def _nothing_outside_changed(study: Path, secret: Path) -> Iterator[None]:
    before = _state(study, secret)
    yield
    assert _state(study, secret) == before


def _state(study: Path, secret: Path) -> list[Any]:
    paths = [secret, *(path for path in sorted(study.rglob("*")) if "results" not in path.parts)]
    infos = [(path, os.lstat(path)) for path in paths]
    return [
        (path, i.st_mode, i.st_size, i.st_mtime_ns, i.st_nlink, path.read_bytes() if stat.S_ISREG(i.st_mode) else b"")
        for path, i in infos
    ]


GONE, DENIED = "ENOENT", ("EACCES", "EPERM", "ENOENT", "ELOOP", "EXDEV", "EROFS", "ENOTTY", "EAFNOSUPPORT", "ENOSYS")
#: What is evaluated inside, by what it tries; each must be one of ``DENIED``, or what stands behind it.
REFUSED: dict[str, str | tuple[str, object]] = {
    # -- reading, and asking about
    "open to read": "tried(lambda: open(S))",
    "open for neither (access mode 3)": "call(257, -100, SB, 3)",
    "open for neither, truncating": "call(257, -100, SB, 3 | os.O_TRUNC)",
    "open to read, truncating": "call(257, -100, (P + '/data/x.csv').encode(), os.O_TRUNC)",
    "the same by open": "call(2, (P + '/data/x.csv').encode(), os.O_TRUNC)",
    "the same with rubbish above": "call(257, -100, (P + '/data/x.csv').encode(), 1 << 40 | os.O_TRUNC)",
    "open O_PATH": "tried(lambda: os.open(S, os.O_PATH))",
    "open O_PATH of the folder": "tried(lambda: os.open(os.path.dirname(S), os.O_PATH | os.O_DIRECTORY))",
    "open without flags": "call(2, SB, 0)",
    "open as the guest does": "call(257, -100, SB, os.O_CLOEXEC | os.O_NOCTTY)",
    "openat2": ("call(437, -100, SB, buffer, 24)", "ENOSYS"),
    "open by handle": "call(304, -100, buffer, 0)",
    "a handle": "call(303, -100, SB, buffer, buffer, 0)",
    "list a folder outside": "tried(lambda: os.listdir(os.path.dirname(S)))",
    "list the root": "tried(lambda: os.listdir('/'))",
    "list the processes": "tried(lambda: os.listdir('/proc'))",
    "list with a temporary file's flag": "tried(lambda: os.open(os.path.dirname(S), os.O_TMPFILE | os.O_RDWR))",
    "a hidden file": "tried(lambda: open(P + '/.env'))",
    "a copy of a hidden file": "tried(lambda: open(P + '/.env~'))",
    "a bare repository's settings": "tried(lambda: open(P + '/m.git/config'))",
    "a hidden file's size": ("tried(lambda: os.stat(P + '/.env'))", GONE),
    "stat": ("tried(lambda: os.stat(S))", GONE),
    "lstat": ("call(6, SB, buffer)", GONE),
    "newfstatat with every flag": ("call(262, -100, SB, buffer, 0x1900)", GONE),
    "statx": ("call(332, -100, SB, 0, 0xfff, buffer)", GONE),
    "statx with every flag": ("call(332, -100, SB, 0x7900, 0xffffffff, buffer)", GONE),
    "access": ("call(21, SB, 0)", GONE),
    "faccessat2": ("call(439, -100, SB, 4, 0x200)", GONE),
    "readlink": ("tried(lambda: os.readlink(S))", GONE),
    "stat by way of ..": ("tried(lambda: os.stat(P + '/data/../../../' + '../' * 20 + S[1:]))", GONE),
    "stat by the working folder": ("tried(lambda: (os.chdir(os.path.dirname(S)), os.stat('key')))", GONE),
    "stat of the working folder": ("(tried(lambda: os.chdir(os.path.dirname(S))), call(262, -100, b'', buffer, 0x1000))[1]", GONE),
    "stat of the working folder by no path": ("call(332, -100, 0, 0x1000, 0xfff, buffer)", GONE),
    "stat of the working folder by a dot": ("tried(lambda: os.stat('.'))", GONE),
    "back": ("tried(lambda: os.chdir(P))", None),
    "attributes": ("tried(lambda: os.listxattr(S))", "ENOTSUP"),
    "watching": "(lambda fd: call(254, fd, SB, 0xfff))(call(294, 0))",
    "fanotify": "call(300, 0, 0)",
    # -- other processes
    "the monitor's command line": "tried(lambda: open(f'/proc/{M}/cmdline'))",
    "the monitor's command line without flags": "call(2, b'/proc/%d/cmdline' % M, 0)",
    "that there is a monitor": ("tried(lambda: os.stat(f'/proc/{M}'))", GONE),
    "its root": "tried(lambda: os.stat(f'/proc/{M}/root/etc'))",
    "its folder": "tried(lambda: os.readlink(f'/proc/{M}/cwd'))",
    "its descriptors": "tried(lambda: os.listdir(f'/proc/{M}/fd'))",
    "its memory": "tried(lambda: open(f'/proc/{M}/mem', 'rb'))",
    "self, by the monitor's eyes": "tried(lambda: os.stat('/proc/./self/status'))",
    "self, from /proc": "(os.chdir('/proc'), tried(lambda: os.stat('self/status')), os.chdir(P))[1]",
    "the root by a link of one's own": "tried(lambda: open(f'/proc/self/root{S}'))",
    "the same, asked about": "tried(lambda: os.stat(f'/proc/self/root{S}'))",
    "the same by number": "tried(lambda: os.stat(f'/proc/{os.getpid()}/root{S}'))",
    "the same by thread": "tried(lambda: os.stat(f'/proc/thread-self/root{S}'))",
    "the same, without flags": "call(2, b'/proc/self/root' + SB, 0)",
    "the network's tables": "tried(lambda: open('/proc/self/net/tcp'))",
    "the same by thread, without flags": "call(2, b'/proc/thread-self/net/unix', 0)",
    "the same by task": "call(2, b'/proc/self/task/%d/net/unix' % os.getpid(), 0)",
    "pages' places in memory": "call(2, b'/proc/self/pagemap', 0)",
    "out of the own folder": "call(2, b'/proc/self/task/../../%d/stat' % M, 0)",
    "a signal to the monitor": "tried(lambda: os.kill(M, 0))",
    "a signal to the whole machine": ("(lambda p: (os.kill(p, 9), os.waitpid(p, 0), tried(lambda: os.kill(1, 9)))[2])(os.fork() or time.sleep(60))", "EPERM"),
    "a signal by thread": "call(234, M, M, 9)",
    "a signal by descriptor": "(lambda fd: call(424, fd, 9, 0, 0))(call(434, M, 0))",
    "a signal with a message": "call(129, M, 9, buffer)",
    "a signal by a pipe's owner": "fcntl_of(8, M)",
    "a signal of another number by a pipe": "fcntl_of(10, 9)",
    "a signal by a pipe's owner, long form": "tried(lambda: fcntl.fcntl(0, 15, struct.pack('ii', 1, M)))",
    "a signal by a socket's owner": ("tried(lambda: fcntl.ioctl(socket.socketpair()[0], 0x8902, struct.pack('i', M)))", "ENOTTY"),
    "its time": ("call(228, ~M << 3 | 2, buffer)", "EINVAL"),
    "waiting for its time": ("call(230, ~M << 3 | 2, 0, bytes(16), 0)", "EINVAL"),
    "a timer by its time": ("call(222, ~M << 3 | 2, 0, buffer)", "EINVAL"),
    "whether it has a time": ("call(229, ~M << 3 | 2, buffer)", "EINVAL"),
    "time of one of its threads": ("call(228, ~M << 3 | 6, buffer)", "EINVAL"),
    "priority": "call(141, 0, M, 19)",
    "priority of the user's": "call(141, 2, os.getuid(), 19)",
    "limits": "call(302, M, 7, 0, buffer)",
    "affinity": "call(203, M, 8, buffer)",
    "scheduler": "call(314, M, buffer, 0)",
    "input and output priority": "call(251, 1, M, 7)",
    "tracing": "call(101, 16, M, 0, 0)",
    "memory": "call(310, M, 0, 0, 0, 0, 0)",
    "descriptors": "call(438, call(434, M, 0), 0, 0)",
    "advice on memory": "call(440, call(434, M, 0), 0, 0, 0, 0)",
    "facts by a process's descriptor": ("tried(lambda: fcntl.ioctl(call(434, M, 0), 0xC040FF0B, bytearray(64)))", "ENOTTY"),
    # -- changing
    "mode": "tried(lambda: os.chmod(S, 0o777))",
    "mode of the project's": "tried(lambda: os.chmod('data/x.csv', 0o777))",
    "mode by descriptor": "tried(lambda: os.fchmod(os.open('data/x.csv', os.O_RDONLY), 0o777))",
    "mode by a descriptor's name": "tried(lambda: os.chmod('/proc/self/fd/%d' % os.open('data/x.csv', os.O_RDONLY), 0o777))",
    "mode by a folder's descriptor": "tried(lambda: os.chmod('x.csv', 0o777, dir_fd=os.open('data', os.O_RDONLY)))",
    "mode through a link": "(os.path.lexists('results/l') or os.symlink(S, 'results/l'), tried(lambda: os.chmod('results/l', 0o777)))[1]",
    "times through a link": "tried(lambda: os.utime('results/l'))",
    "length through a link": "tried(lambda: os.truncate('results/l', 0))",
    "writing through a link": "tried(lambda: open('results/l', 'w'))",
    "fchmodat2 of an empty path": "call(452, os.open('data', os.O_RDONLY), b'', 0o777, 0x1000)",
    "times": "tried(lambda: os.utime(S))",
    "times by descriptor": "tried(lambda: os.utime(os.open('data/x.csv', os.O_RDONLY)))",
    "times, the old way": "call(132, SB, 0)",
    "times, the older way": "call(235, SB, 0)",
    "times, by folder": "call(261, -100, SB, 0)",
    "owner": "tried(lambda: os.chown(S, os.getuid(), os.getgid()))",
    "owner of a link": "tried(lambda: os.lchown(P + '/data', os.getuid(), os.getgid()))",
    "length": "tried(lambda: os.truncate(S, 0))",
    "writing": "tried(lambda: open(S, 'w'))",
    "appending to the project": "tried(lambda: open('data/x.csv', 'a'))",
    "making": "tried(lambda: open(os.path.dirname(S) + '/new', 'x'))",
    "removing": "tried(lambda: os.unlink(S))",
    "moving out of results": "(open('results/m', 'w').close(), tried(lambda: os.rename('results/m', 'data/x.csv')))[1]",
    "moving over": "tried(lambda: os.rename('results/m', S))",
    "exchanging": "call(316, -100, b'results/m', -100, b'data/x.csv', 2)",
    "a device in the place of what moves": ("call(316, -100, b'results/m', -100, b'results/w', 4)", "EINVAL"),
    "linking into results": "tried(lambda: os.link(S, 'results/h'))",
    "linking the project's": "tried(lambda: os.link('data/x.csv', 'results/h'))",
    "linking by descriptor": "call(265, os.open('data/x.csv', os.O_RDONLY), b'', -100, b'results/h', 0x1000)",
    "linking by a descriptor's name": "call(265, -100, b'/proc/self/fd/%d' % os.open('data/x.csv', os.O_RDONLY), -100, b'results/h', 0x400)",
    "a set-id file": "call(257, -100, b'results/sid', 0o101, 0o4755)",
    "a set-id file by open": "call(2, b'results/sid', 0o101, 0o6755)",
    "set-id bits": "(open('results/s', 'w').close(), tried(lambda: os.chmod('results/s', 0o4755)))[1]",
    "a device": "tried(lambda: os.mknod('results/d', 0o020666, 0x103))",
    "a pipe in results": "tried(lambda: os.mkfifo('results/f'))",
    "attributes of one's own": ("tried(lambda: os.setxattr('results/s', 'user.a', b'1'))", "ENOTSUP"),
    "making a file unchangeable": ("tried(lambda: fcntl.ioctl(os.open('data/x.csv', os.O_RDONLY), 0x40806685, bytes(128)))", "ENOTTY"),
    "a snapshot of a volume": ("call(16, os.open('results', os.O_RDONLY), 0x50009401, buffer)", "ENOTTY"),
    # -- the rest of the kernel
    "TCP": ("tried(lambda: socket.socket())", "EAFNOSUPPORT"),
    "unix": ("tried(lambda: socket.socket(socket.AF_UNIX))", "EAFNOSUPPORT"),
    "netlink": ("tried(lambda: socket.socket(16, 3, 0))", "EAFNOSUPPORT"),
    "a pair of datagrams": "tried(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))",
    "a pair of raw": "tried(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW))",
    "a pair of another family": "tried(lambda: socket.socketpair(30, socket.SOCK_SEQPACKET))",
    "binding one of a pair": "tried(lambda: socket.socketpair()[0].bind(os.environ['TMPDIR'] + '/s'))",
    "connecting one of a pair": "tried(lambda: socket.socketpair()[0].connect('/tmp/x'))",
    "devices by a socket": ("tried(lambda: fcntl.ioctl(socket.socketpair()[0], 0x8910, struct.pack('16si20x', b'', 1)))", "ENOTTY"),
    "shared memory of System V": "call(29, 0, 4096, 0o1600)",
    "semaphores of System V": "call(64, 0, 1, 0o1600)",
    "messages of System V": "call(68, 0, 0o1600)",
    "keys": "call(250, 0, -3, 0)",
    "a ring": "call(425, 1, buffer)",
    "asynchronous input": "call(206, 1, buffer)",
    "a filter with a listener": "call(317, 1, 8, buffer)",
    "a namespace": "call(272, 0x10000000)",
    "a process in a namespace": "call(56, 0x10000011, 0, 0, 0, 0)",
    "clone3": ("call(435, buffer, 88)", "ENOSYS"),
    "a thread with descriptors of its own": "call(56, 0x10000, 0, 0, 0, 0)",
    "descriptors of one's own": ("call(436, 900, 901, 2)", "EINVAL"),
    "rules for files": ("call(444, 0, 0, 1)", "ENOSYS"),
    "memory for futexes": ("call(157, 78, 1, 1 << 16, 0, 0)", "EINVAL"),
    "memory files": ("call(319, b'x', 0)", "ENOSYS"),
    "writing to /proc/sys": "tried(lambda: open('/proc/sys/kernel/random/uuid', 'w'))",
    "a score for the OOM killer": "tried(lambda: open('/proc/self/oom_score_adj', 'w'))",
    "a terminal": "tried(lambda: open('/dev/ptmx'))",
    "shared memory of the machine's": "tried(lambda: os.listdir('/dev/shm'))",
}  # fmt: skip


def test_the_table_is_refused(box: Box) -> None:
    box.out("def fcntl_of(command, value): return tried(lambda: fcntl.fcntl(os.pipe()[0], command, value))")
    rows = "".join(
        f"    ({what!r}, lambda: {code if isinstance(code, str) else code[0]}),\n" for what, code in REFUSED.items()
    )
    text = box.out(f"rows = [\n{rows}]\nprint([(what, repr(f())) for what, f in rows])", timeout=200)
    got: dict[str, str] = dict(eval(text))
    wrong = {
        what: found
        for what, found in got.items()
        if (found not in map(repr, DENIED) if isinstance(REFUSED[what], str) else found != repr(REFUSED[what][1]))
    }
    assert wrong == {}


def test_no_pipe_and_no_socket_holds_a_page_that_nobody_counts(box: Box) -> None:
    assert eval(box.out(HELD_PAGES + "print(holding())")) == NO_PAGE_IS_HELD


#: Arguments that no program passes. None of them may do anything, and the monitor must live on.
ODD = """
import itertools, random
random.seed({seed})
page = ctypes.create_string_buffer(8192)
paths = [b"", b"/", b".", b"..", b"x" * 4095, b"x" * 70000, b"/" * 4000, b"\\xff\\xfe", b"a\\nb (deleted)", b"/proc/self/fd/1", b"/proc/self/fd/99999",
         b"/dev/fd/1", b"/proc/self", b"/proc/thread-self", b"/proc/self/", b"/proc/self/task/999999999/stat", b"/proc/99999999999/stat",
         b"/proc/self/fd/" + b"9" * 40, SB, b"results", b"results/odd"]
pointers = [0, 1, -1, -4096, 1 << 47, 1 << 63, ctypes.addressof(page), 0xffffffffff600000] + [ctypes.create_string_buffer(p) for p in paths]
numbers = [0, 1, -1, -100, 3, 0o1777, 0o4755, 0x100, 0x1000, 0x1100, 0x7fffffff, 1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]
calls = [2, 4, 6, 21, 76, 77, 89, 90, 91, 92, 93, 94, 132, 235, 257, 260, 261, 262, 267, 268, 269, 280, 332, 439, 452]
for _ in range(4000):
    arguments = [random.choice(random.choice([pointers, numbers])) for _ in range(5)]
    nr = random.choice(calls)
    if nr in (91, 93, 77): arguments[0] = random.choice([-1, 0, 1, 2, 99999, 1 << 31])
    got = call(nr, *arguments)
    if nr in (2, 257) and isinstance(got, int) and got > 2: os.close(got)
print("lives", os.stat("data/x.csv").st_size)
"""


@pytest.mark.parametrize("seed", range(3))
def test_arguments_that_make_no_sense_do_nothing_and_end_nothing(box: Box, seed: int) -> None:
    before = len(os.listdir(f"/proc/{box.pid}/fd")) if os.geteuid() == 0 else 0
    # The kernel writes where it is told to: that is done in a process of its own.
    text = box.out(
        f"pid = os.fork()\nif pid == 0:\n    exec({ODD.format(seed=seed)!r})\n    os._exit(0)\nos.waitpid(pid, 0)",
        timeout=250,
    )
    del text
    assert box.out("print(os.stat('data/x.csv').st_size)") == "8\n"
    if os.geteuid() == 0:
        assert len(os.listdir(f"/proc/{box.pid}/fd")) <= before


RACES = {
    "a path's bytes": """
good, bad = b"results/race\\0", (SB + b"\\0")
text = ctypes.create_string_buffer(256)
def flip():
    while not done: ctypes.memmove(text, bad, len(bad)); ctypes.memmove(text, good, len(good))
def act():
    call(90, text, 0o777); call(76, text, 0); call(280, -100, text, 0, 0)
    got = call(4, text, buffer)
    if got == 0: sizes.add(struct.unpack_from("q", buffer, 48)[0])
""",
    "a link": """
def flip():
    while not done:
        for target in (S, P + "/results/race"):
            os.symlink(target, "results/new"); os.rename("results/new", "results/link")
def act():
    for f in (lambda: os.chmod("results/link", 0o777), lambda: os.utime("results/link"), lambda: os.truncate("results/link", 0)): tried(f)
    got = tried(lambda: os.stat("results/link"))
    if not isinstance(got, str): sizes.add(got.st_size)
""",
    "a folder": """
os.makedirs("results/a", exist_ok=True); open("results/a/key", "w").close()
def flip():
    while not done:
        tried(lambda: os.rename("results/a", "results/b")); tried(lambda: os.symlink(os.path.dirname(S), "results/a"))
        tried(lambda: os.unlink("results/a")); tried(lambda: os.rename("results/b", "results/a"))
def act():
    for f in (lambda: os.chmod("results/a/key", 0o777), lambda: os.utime("results/a/key"), lambda: os.truncate("results/a/key", 0)): tried(f)
    got = tried(lambda: os.stat("results/a/key"))
    if not isinstance(got, str): sizes.add(got.st_size)
""",
    "a descriptor": """
inside, outside = os.open("results/race", os.O_RDWR), os.open("data/x.csv", os.O_RDONLY)
slot = os.dup(inside)
def flip():
    while not done: os.dup2(outside, slot); os.dup2(inside, slot)
def act():
    call(91, slot, 0o777); call(280, slot, 0, 0, 0); tried(lambda: os.chmod(f"/proc/self/fd/{slot}", 0o777))
""",
    "the working folder": """
here = P + "/results"; open(here + "/key", "w").close()
def flip():
    while not done: os.chdir(os.path.dirname(S)); os.chdir(here)
def act():
    tried(lambda: os.chmod("key", 0o777)); tried(lambda: os.truncate("key", 0)); tried(lambda: os.utime("key"))
    got = tried(lambda: os.stat("key"))
    if not isinstance(got, str): sizes.add(got.st_size)
""",
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(RACES))
def test_what_changes_while_it_is_looked_at_changes_nothing_outside(box: Box, what: str) -> None:
    code = f"""
done, sizes = False, set()
open("results/race", "w").close()
{RACES[what]}
thread = threading.Thread(target=flip); thread.start()
end = time.monotonic() + 3
while time.monotonic() < end: act()
done = True; thread.join(); os.chdir(P)
print(sizes - {{0}})
"""
    assert box.out(code, timeout=60) == "set()\n"


def test_what_is_refused_outside_is_in_the_trail(host: Host, study: Path, secret: Path) -> None:
    name = f"told-{os.getpid()}"
    box = Box(host, name, study)
    try:
        text = box.out(
            PRELUDE
            + OTHER_TABLES
            + f"S = {str(secret)!r}; M = {box.pid}"
            + """
own = os.environ["TMPDIR"] + "/own"
open(own, "w").close(); os.chmod(own, 0o600); os.utime(own); os.truncate(own, 3)
me = os.pidfd_open(os.getpid()); os.kill(os.getpid(), 0); call(424, me, 0, 0, 0); os.killpg(0, 0)
print(tried(lambda: os.kill(M, 9)), call(424, call(434, M, 0), 9, 0, 0), tried(lambda: os.chmod(S, 0o777)),
      tried(lambda: os.chmod(own, 0o4755)), tried(lambda: os.utime(S)), tried(lambda: os.truncate(S, 0)),
      call_x32(62), tried(lambda: os.kill(2 ** 22 - 1, 0)), call(424, 0, 9, 0, 0))
"""
        )
        assert text == "EPERM EPERM EPERM EPERM EPERM EPERM -1 ESRCH EBADF\n"
        process, folder = "not a process of this sandbox", "not in a writable folder"
        told = {
            ("kill", process), ("pidfd_send_signal", process), ("chmod", folder), ("chmod", "set-user-ID"),
            ("utimensat", folder), ("truncate", folder), ("an x32 call", ""),
        }  # fmt: skip
        assert recorded(name, told) == told
    finally:
        box.close()


def test_two_sandboxes_of_one_user_see_nothing_of_each_other(make_confined: Callable[..., Box], box: Box) -> None:
    other = make_confined()
    place = other.out(
        "import os; open(os.environ['TMPDIR'] + '/mine', 'w').close(); print(os.environ['TMPDIR'])"
    ).strip()
    code = f"print([tried(lambda: f({place!r} + p)) for f in (os.stat, os.listdir, open) for p in ('', '/mine')])"
    assert set(eval(box.out(code))) <= {"ENOENT", "EACCES"}
    assert box.out(f"print(tried(lambda: os.kill({other.pid}, 0)))") in ("EPERM\n",)


def test_what_the_kernel_counts_for_the_user_is_left_to_others(make_confined: Callable[..., Box], box: Box) -> None:
    code = """
pairs, sent, timers, timer = [], 0, 0, ctypes.c_void_p()
while timers < 5000 and _libc.timer_create(1, None, ctypes.byref(timer)) == 0: timers += 1
while sent < 5000:
    if len(pairs) % 5 == 0: pairs.append(socket.socketpair())
    if tried(lambda: socket.send_fds(pairs[-1][0], [b"x"], [0] * 100)) != 1: break
    sent += 100
print([call(253), call(294, 0), timers <= 1024, sent >= 1000])  # inotify_init, inotify_init1
"""
    assert box.out(code) == "['EPERM', 'EPERM', True, True]\n"
    assert make_confined().out("print(1 + 1)") == "2\n"


def test_environment_holds_nothing_of_the_hosts(box: Box) -> None:
    names = set(eval(box.out("print(sorted(os.environ))")))
    assert not names & {"XDG_STATE_HOME", "PYTEST_CURRENT_TEST", "SSH_AUTH_SOCK", "OLDPWD"}


def test_no_descriptor_is_the_hosts(box: Box) -> None:
    links = eval(
        box.out("print([tried(lambda: os.readlink(f'/proc/self/fd/{n}')) for n in os.listdir('/proc/self/fd')])")
    )
    assert not [link for link in links if "seccomp" in link or (link.startswith("/") and not _known(link))]


def _known(link: str) -> bool:
    return link == "/dev/null" or "/ipysandbox-" in link or "/study" in link or link.startswith("/proc/")


def test_a_secret_that_appears_later_beside_hidden_ones_is_not_read(host: Host, project: Path) -> None:
    box = Box(host, "later", project)
    try:
        # While a cell runs: before the next one, the sandbox would be ended for it.
        thread = threading.Thread(target=_write_secrets, args=(project,))
        thread.start()
        code = (
            "open('results/ready', 'w').close()\nwhile not os.path.lexists('results/go'): time.sleep(0.01)\n"
            + "".join(
                f"print(tried(lambda: os.read(os.open({name!r}, {flags}), 9)))\n"
                for name in (".env.local", "keys/other.pem")
                for flags in ("0", "os.O_PATH", "os.O_PATH | os.O_NOFOLLOW", "os.O_NOCTTY")
            )
        )
        result = box.run(PRELUDE + code)
        thread.join()
        assert result["stdout"], result
        assert set(result["stdout"].split()) <= {"EACCES", "ENOENT", "EPERM", "EBADF"}
    finally:
        box.close()


def _write_secrets(project: Path) -> None:
    while not (project / "results/ready").exists():
        select.select([], [], [], 0.01)
    (project / ".env.local").write_text("TOKEN=later")
    (project / "keys/other.pem").write_text("later")
    (project / "results/go").touch()


def test_a_link_put_where_the_policy_names_a_folder_is_not_followed(host: Host, project: Path, secret: Path) -> None:
    """Another sandbox that may write to the folder above could swap it between the plan and the rules."""
    from ipysandbox.backends.linux import landlock

    (project / "results").mkdir()
    (project / "results/link").symlink_to(secret.parent)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            landlock.restrict([landlock.Rule(str(project / "results/link"), landlock.WRITE)], 1, held={})
        except OSError as exc:
            status = 0 if exc.errno == 40 else 2  # ELOOP
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
