"""What a process is born with: nothing of the caller's but its work, however odd the caller is."""

from __future__ import annotations

import json
import os
import resource
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from ipysandbox import Sandbox

from .conftest import TRY

#: A caller that is odd in every way that is inherited; prints what its sandbox's cell prints.
_ODD = """
import ctypes, os, resource, signal, sys
os.umask(int(sys.argv[2], 8))
for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE,
               signal.SIGTSTP, signal.SIGTTOU, signal.SIGINT, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)
rt_sigaction = 13 if os.uname().machine == "x86_64" else 134
for number in (32, 33):  # as glibc's posix_spawn leaves them, in what make starts
    ctypes.CDLL(None).syscall(rt_sigaction, number, (ctypes.c_uint64 * 4)(1), None, 8)
ctypes.CDLL(None).prctl(29, 5_000_000, 0, 0, 0)  # PR_SET_TIMERSLACK
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
kept = [os.open(sys.argv[3], os.O_RDWR) for _ in range(2000)]
for fd in kept: os.set_inheritable(fd, True)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
from ipysandbox import Sandbox
with Sandbox(project=sys.argv[1], validate=False) as box:
    result = box.run(sys.stdin.read())
    print(result.stdout, result.stderr, result.error)
    again = box.run("import time\\nwhile True: time.sleep(0.01)", timeout=1)
    print("ENDED", again.status)
"""
_LOOK = """
import ctypes, json, os, resource, subprocess
def seen():
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    libc = ctypes.CDLL(None)
    previous = os.umask(0o077); os.umask(previous)
    stat = open("/proc/self/stat").read().rpartition(")")[2].split()
    return {
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "ShdPnd", "SigPnd")},
        "umask": previous, "slack": libc.prctl(30, 0, 0, 0, 0), "personality": libc.personality(0xFFFFFFFF),
        "tty": stat[4], "group": os.getpgrp() == os.getpid() == os.getsid(0),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "fds": sorted({os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in os.listdir("/proc/self/fd")
                       if os.path.lexists(f"/proc/self/fd/{fd}")}),
        "most": max(map(int, os.listdir("/proc/self/fd"))),
    }
print("TOLD", json.dumps(seen()))
"""


def seen_by_an_odd_caller(project: Path, tmp_path: Path, mask: str, prefix: tuple[str, ...] = ()) -> tuple[Any, str]:
    secret = tmp_path / "open-file"
    secret.write_text("secret-of-the-host")
    command = [*prefix, sys.executable, "-c", _ODD, str(project), mask, str(secret), "an-argument-of-the-host"]
    done = subprocess.run(command, input=_LOOK, capture_output=True, text=True, timeout=100)
    assert "TOLD" in done.stdout, (done.stdout, done.stderr)
    return json.loads(done.stdout.split("TOLD ", 1)[1].splitlines()[0]), done.stdout


@pytest.mark.parametrize("mask", ["000", "077"])
def test_umask_signals_slack_terminal_and_descriptors_are_the_sandboxs_own(
    project: Path, tmp_path: Path, mask: str
) -> None:
    seen, text = seen_by_an_odd_caller(project, tmp_path, mask)
    # As Python itself leaves them: SIGPIPE (13) and SIGXFSZ (25) ignored, none blocked, none waiting.
    ignored = 1 << 12 | 1 << 24
    assert {name: int(value, 16) for name, value in seen["signals"].items()} == {
        "SigBlk": 0,
        "SigIgn": ignored,
        "ShdPnd": 0,
        "SigPnd": 0,
    }
    assert seen["umask"] == 0o022
    assert seen["slack"] == 50_000  # the kernel's own, in nanoseconds
    assert seen["tty"] == "0"
    assert seen["group"]
    assert not [link for link in seen["fds"] if "open-file" in link]
    assert seen["most"] < 100
    # Nor do such a caller's signals keep the limits from working.
    assert "ENDED limit" in text


@pytest.mark.skipif(not Path("/usr/bin/setarch").exists(), reason="needs util-linux's setarch, which CI installs")
def test_addresses_stay_random_though_the_callers_are_not(project: Path, tmp_path: Path) -> None:
    seen, _ = seen_by_an_odd_caller(project, tmp_path, "022", ("setarch", "-R", "-X"))
    assert seen["personality"] == 0


def test_the_command_line_says_nothing_of_the_host(tell: Callable[[str], Any]) -> None:
    told = tell("""
import glob
[open(path, "rb").read().decode() for path in glob.glob("/proc/[0-9]*/cmdline")]
""")
    assert not [text for text in told if str(os.getpid()) in text or "pytest" in text or "kernel-" in text]


@pytest.mark.parametrize(
    "name",
    ["environ", "mem", "maps", "smaps", "pagemap", "auxv", "stack", "syscall", "fd", "fdinfo", "cwd", "root", "exe",
     "map_files", "io", "timers", "ns/mnt", "personality"],
)  # fmt: skip
def test_pid_1_shows_nothing_of_itself(box: Sandbox, name: str) -> None:
    code = TRY + (
        f"path = '/proc/1/{name}'\n"
        "look = os.readlink if os.path.islink(path) else os.listdir if os.path.isdir(path) else "
        "(lambda path: open(path, 'rb').read(1))\n"
        "print(errno_of(lambda: look(path)))"
    )
    assert box.run(code).stdout.strip() in ("EACCES", "EPERM", "ENOENT")


def test_the_memory_of_pid_1_cannot_be_read_by_call_either(tell: Callable[[str], Any]) -> None:
    told = tell(TRY + "[call(310, 1, 0, 0, 0, 0, 0), call(311, 1, 0, 0, 0, 0, 0), call(101, 16, 1, 0, 0)]")
    assert set(told) == {"EPERM"}


def test_no_setting_of_the_kernel_can_be_written(tell: Callable[[str], Any], with_namespaces: bool) -> None:
    """/proc/sys/net belongs to the owner of the network namespace, whoever that is inside."""
    names = [f"{folder}/{name}" for folder, _, names in os.walk("/proc/sys") for name in names]
    told = tell(f"""
import os
found = []
for path in {{*{names!r}, *(f"{{folder}}/{{name}}" for folder, _, names in os.walk("/proc/sys") for name in names)}}:
    try: os.close(os.open(path, os.O_WRONLY))
    except OSError: continue
    found.append(path)
[found, open("/proc/sys/kernel/ostype").read(), os.statvfs("/proc/sys").f_flag & os.ST_RDONLY]
""")
    assert len(names) > 100
    # Without namespaces it is the machine's own /proc, which Landlock keeps from being written.
    assert told == [[], "Linux\n", os.ST_RDONLY if with_namespaces else told[2]]


def test_files_of_proc_about_the_whole_machine_are_empty_or_not_there(tell: Callable[[str], Any]) -> None:
    names = ["kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "sysrq-trigger",
             "latency_stats", "acpi", "asound", "scsi", "driver"]  # fmt: skip
    told = tell(f"""
import os
found = []
for name in {names!r}:
    path = "/proc/" + name
    try: text = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100)
    except OSError: continue
    if text: found.append(name)
found
""")
    assert told == []


def test_nothing_of_proc_but_its_own_processes_can_be_written(tell: Callable[[str], Any]) -> None:
    told = tell("""
import os, stat
found = []
for folder, folders, names in os.walk("/proc"):
    folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
    for name in names:
        path = f"{folder}/{name}"
        if stat.S_ISLNK(os.lstat(path).st_mode): continue
        try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        found.append(path)
[path for path in found if not stat.S_ISCHR(os.stat(path).st_mode)]
""")
    assert told == []


def test_sys_is_little_and_read_only_and_dev_is_the_minimum(tell: Callable[[str], Any], with_namespaces: bool) -> None:
    told = tell("""
import os, stat
writable = []
for folder, _, names in os.walk("/sys"):
    for name in names:
        try: os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        writable.append(f"{folder}/{name}")
try: names = sorted(os.listdir("/dev"))
except PermissionError: names = []
devices = {name: [os.major(info.st_rdev), os.minor(info.st_rdev)] for name in names
           if stat.S_ISCHR((info := os.stat("/dev/" + name)).st_mode) and not os.path.islink("/dev/" + name)}
[writable, names, devices, os.path.exists("/sys/fs/cgroup"), os.path.exists("/sys/kernel")]
""")
    devices = {"null": [1, 3], "zero": [1, 5], "full": [1, 7], "random": [1, 8], "urandom": [1, 9]}
    names = sorted([*devices, "fd", "ptmx", "pts", "shm", "stderr", "stdin", "stdout"])
    assert told == [[], names if with_namespaces else [], devices if with_namespaces else {}, False, False]


def test_no_device_of_the_host_opens_but_those_that_hold_nothing(tell: Callable[[str], Any]) -> None:
    modes = {entry.path: entry.stat().st_mode for entry in os.scandir("/dev") if not entry.is_symlink()}
    names = [path for path, mode in modes.items() if stat.S_ISCHR(mode) or stat.S_ISBLK(mode)]
    told = tell(f"""
import os
opened = []
for path in {names!r}:
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try: os.close(os.open(path, mode | os.O_NONBLOCK | os.O_NOCTTY))
        except OSError: continue
        opened.append(path)
opened
""")
    assert "/dev/null" in told
    # Where there is a ptmx, it is the sandbox's own.
    assert set(told) <= {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "ptmx")}


def test_there_is_no_terminal_to_open_or_push_keys_into(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY
        + """
import fcntl, pty, struct, termios
try: master, slave = pty.openpty()
except OSError: slave = 0  # without namespaces there are none to be had
def push(command): fcntl.ioctl(slave, command, b"x")
[errno_of(lambda: os.open("/dev/tty", os.O_RDWR)), errno_of(lambda: push(termios.TIOCSTI)),
 call(16, slave, 0x5412 | 1 << 40, 0), call(16, slave, 0x541C | 1 << 63, 0)]
"""
    )
    assert told[0] in ("ENOENT", "ENXIO", "EACCES")
    assert set(told[1:]) == {"EPERM"}


def test_no_key_of_the_host_can_be_found(tell: Callable[[str], Any]) -> None:
    told = tell(
        TRY + "[call(250, 0, -n, 0, 0, 0) for n in range(1, 9)] + [call(248, 0, 0, 0, 0, 0), call(249, 0, 0, 0, 0)]"
    )
    assert set(told) == {"EPERM"}


# -- what a crash leaves


def test_no_limit_brings_core_files_back(tell: Callable[[str], Any]) -> None:
    """1 byte, not 0: with 0 the kernel still feeds a crash to the program of a `|` in core_pattern (core(5))."""
    told = tell("""
import resource
before = resource.getrlimit(resource.RLIMIT_CORE)
for wanted in ((0, 0), (0, before[1])): resource.setrlimit(resource.RLIMIT_CORE, wanted)
[before, resource.getrlimit(resource.RLIMIT_CORE)]
""")
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    here = 1 if most == resource.RLIM_INFINITY else min(1, most)
    assert told == [[here, here], [here, here]]


# -- a person's shell


def test_a_sandbox_stops_neither_the_shell_nor_its_jobs(project: Path) -> None:
    """Called from a shell with job control, in the foreground and in the background; on a real terminal."""
    token = secrets.token_hex(4)
    script = project / "host.py"
    script.write_text(
        "import sys\nfrom ipysandbox import Sandbox\n"
        f"with Sandbox(project={str(project)!r}, validate=False) as box:\n"
        "    result = box.run('''\nimport os, signal\n"
        "for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP): os.kill(0, number) if False else None\n"
        "tried = []\n"
        "for fd in range(3):\n"
        "    try: os.tcsetpgrp(fd, os.getpgrp()); tried.append(fd)\n"
        "    except OSError: pass\n"
        "print(tried, os.isatty(0), os.isatty(1))\n''')\n"
        f"    print('{token}', result.stdout, result.status)\n"
    )
    environment = {**os.environ, "PS1": "$ ", "TERM": "dumb"}
    shell = pexpect.spawn("/bin/bash", ["--norc", "--noprofile", "-i"], env=environment, encoding="utf-8", timeout=60)
    shell.setecho(False)
    expected = f"{token} \\[\\] False (False|True)"
    shell.sendline(f"{sys.executable} {script}")
    shell.expect(expected)
    shell.sendline(f"{sys.executable} {script} & wait %1; echo status=$?")
    shell.expect(expected)
    shell.expect("status=0")
    shell.sendline("jobs -s; echo stopped=$(jobs -s | wc -l)")
    shell.expect("stopped=0")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
    shell.close()


def test_it_goes_before_the_users_own_work_when_the_machine_is_out_of_memory(box: Sandbox) -> None:
    def score(pid: int | str) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    box.run("import subprocess\nchild = subprocess.Popen(['sleep', '60'])")
    pid = box.status()["pid"]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    grandchildren = [
        one for child in children for one in Path(f"/proc/{child}/task/{child}/children").read_text().split()
    ]
    assert grandchildren
    assert min(map(score, [*children, *grandchildren])) >= 300 > score("self")
    box.run("open('/proc/self/oom_score_adj', 'w').write('0')")
    assert score(children[0]) >= 300
