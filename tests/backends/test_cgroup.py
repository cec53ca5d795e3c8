"""Where a sandbox gets its control group from on which machine; that nothing leaves it, and that it goes."""

from __future__ import annotations

import asyncio
import glob
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ipysandbox import Sandbox
from ipysandbox.backends.linux import cgroup, group_keeper, groups, scope
from ipysandbox.backends.linux.cgroup import Facts, Hierarchy, facts, hierarchies
from ipysandbox.backends.linux.processes import tree
from ipysandbox.supervisor.spawn import Supervisor

MakeBox = Callable[..., Sandbox]

_V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
_V1_OWN = "9:name=systemd:/\n8:pids:/\n5:devices:/\n4:memory:/host/a b\n1:cpu,cpuacct:/\n0::/\n"
_V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
_CONTAINER = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
_TOP = "/sys/fs/cgroup"
_ALL = "cpuset cpu io memory pids\n"


@dataclass(frozen=True)
class Table:
    """A machine's files, as ``cgroup.Look`` reads them."""

    files: Mapping[str, str]
    ours: frozenset[str] = frozenset()

    def read(self, path: str) -> str:
        return self.files.get(path, "")

    def writable(self, path: str) -> bool:
        return path in self.ours

    def exists(self, path: str) -> bool:
        return path in self.files


def _machine(own: str, mounts: str, *ours: str, **files: str) -> Table:
    there = {path.replace("__", "/"): text for path, text in files.items()}
    return Table({"/proc/self/cgroup": own, "/proc/self/mountinfo": mounts, **there}, frozenset(ours))


def _v2(
    own: str, groups_there: Mapping[str, Mapping[str, str]], *ours: str, bus: str = "", uid0: bool = False
) -> Table:
    """A version 2 machine: ``groups_there`` by path below the mount, each with its files."""
    files = {"/proc/self/cgroup": f"0::{own}\n", "/proc/self/mountinfo": _V2_MOUNTS}
    for path, content in groups_there.items():
        files.update({f"{_TOP}{path}/cgroup.{name}": text for name, text in content.items()})
    if bus:
        files.update({bus: "", cgroup.BUSCTL: ""})
    if uid0:
        files["/run/systemd/system"] = ""
    writable = [name for path in ours for name in (f"{_TOP}{path}", *(f"{_TOP}{path}/cgroup.{n}" for n in _FILES))]
    return Table(files, frozenset(writable))


_FILES = ("procs", "subtree_control")
_SESSION = "/user.slice/user-1000.slice/session-3.scope"
_SERVICE = "/user.slice/user-1000.slice/user@1000.service/app.slice/hub.service"
_USER_BUS = "/run/user/1000/bus"


@pytest.mark.parametrize(
    ("look", "uid", "expected"),
    [
        pytest.param(
            _machine(
                _V1_OWN, _V1_MOUNTS, *(f"{path}{tail}" for tail in ("", "/tasks") for path in (
                    f"{_TOP}/memory/host/a b", f"{_TOP}/pids", f"{_TOP}/cpu,cpuacct")),
            ),
            0,
            Facts(1, "v1", ("memory", "pids", "cpu", "cpuacct"), {
                "memory": f"{_TOP}/memory/host/a b", "pids": f"{_TOP}/pids",
                "cpu": f"{_TOP}/cpu,cpuacct", "cpuacct": f"{_TOP}/cpu,cpuacct"}),
            id="version 1, root",
        ),
        pytest.param(
            _machine(_V1_OWN, _V1_MOUNTS), 1000,
            Facts(reason="control groups of version 1 are not writable for this user"), id="version 1, plain user",
        ),
        pytest.param(
            _v2(_SESSION, {_SESSION: {"controllers": "", "type": "domain", "procs": "7\n"}}, bus=_USER_BUS), 1000,
            Facts(2, "systemd scope", bus=f"unix:path={_USER_BUS}", mount=_TOP), id="version 2, a login",
        ),
        pytest.param(
            _v2(_SESSION, {}), 1000,
            Facts(reason="no control group is delegated to this user, and no systemd of his answers"),
            id="version 2, no systemd for the user",
        ),
        pytest.param(
            _v2(
                f"{_SERVICE}/leaf", {_SERVICE: {"controllers": _ALL, "type": "domain", "procs": ""}},
                _SERVICE, f"{_SERVICE}/leaf",
            ),
            1000, Facts(2, "subtree", ("memory", "pids", "cpu"), {"": f"{_TOP}{_SERVICE}"}, mount=_TOP),
            id="version 2, the folder above is delegated and empty",
        ),
        pytest.param(
            _v2(_SERVICE, {_SERVICE: {"controllers": _ALL, "type": "domain", "procs": "7\n"}}, _SERVICE), 1000,
            Facts(reason="no control group is delegated to this user, and no systemd of his answers"),
            id="version 2, delegated but others' processes are in the way",
        ),
        pytest.param(
            _v2("/", {"": {"controllers": _ALL, "procs": "1\n", "subtree_control": "memory pids\n"}}, "", bus=""), 0,
            Facts(2, "subtree", ("memory", "pids", "cpu"), {"": _TOP}, mount=_TOP), id="version 2, root at the top",
        ),
        pytest.param(
            _v2(
                "/system.slice/a.service", {"/system.slice": {"controllers": _ALL, "subtree_control": _ALL}},
                "/system.slice", "/system.slice/a.service", bus="/run/dbus/system_bus_socket", uid0=True,
            ),
            0, Facts(2, "systemd scope", bus="unix:path=/run/dbus/system_bus_socket", mount=_TOP),
            id="version 2, root asks systemd although it could write",
        ),
        pytest.param(
            _machine("0::/\n", _CONTAINER), 0, Facts(reason="control groups are mounted read-only"),
            id="inside Docker",
        ),
        pytest.param(_machine("", ""), 1000, Facts(reason="no control groups are mounted"), id="none"),
    ],
)  # fmt: skip
def test_the_group_comes_from_where_this_machine_gives_one(look: Table, uid: int, expected: Facts) -> None:
    assert facts(look, uid=uid) == expected


def test_hierarchies_that_the_mounts_do_not_show_are_left_out() -> None:
    inside = "30 23 0:26 /docker/0a /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"
    assert hierarchies("0::/docker/0a/b\n", inside) == [Hierarchy(2, (), _TOP, f"{_TOP}/b", False)]
    for own in ("0::/docker/0ab\n", "0::/../other\n", "garbage\n0:\n", ""):
        assert hierarchies(own, inside) == []
    assert hierarchies("0::/\n", "too short - cgroup2\n30 23 0:26 / /a\\040b rw - cgroup2 x rw\n")[0].mount == "/a b"


def _here() -> Facts:
    return cgroup.probe()


needs_group = pytest.mark.skipif(not _here().version, reason=f"no control group to be had here: {_here().reason}")


def _leftovers() -> list[str]:
    """Groups of this process's sandboxes, wherever this machine may hold them: others may be using it too."""
    folder = Supervisor.current().client.folder
    return glob.glob(f"/sys/fs/cgroup/**/ipysandbox-{folder.name}-*", recursive=True)


@needs_group
def test_every_process_of_a_sandbox_is_in_its_group_and_none_gets_out(make_box: MakeBox) -> None:
    box = make_box()
    status = box.status()
    assert any("cgroup" in layer for layer in status["guarantees"]["memory"])
    mounts = [row.mount for row in hierarchies(*(Path(f"/proc/self/{n}").read_text() for n in ("cgroup", "mountinfo")))]
    result = box.run(f"""
import ctypes, os, subprocess, time
for _ in range(3): subprocess.Popen(["sleep", "60"], start_new_session=True)
got_out = []
for folder in {mounts!r}:
    for name in ("cgroup.procs", "tasks"):
        try:
            with open(folder + "/" + name, "w") as file: file.write("0")
            got_out.append(folder)
        except OSError: pass
temporary = os.environ["TMPDIR"] + "/c"
os.mkdir(temporary)
libc = ctypes.CDLL(None, use_errno=True)
for kind in (b"cgroup2", b"cgroup"):
    if libc.mount(b"none", temporary.encode(), kind, 0, b"memory") == 0: got_out.append(kind)
if libc.unshare(0x02000000) == 0: got_out.append("CLONE_NEWCGROUP")
print(got_out)
""")
    assert result.stdout == "[]\n", result
    own = {names: path for names, path in _groups_of(status["pid"]).items() if "ipysandbox-" in path}
    assert own
    for pid in tree(status["pid"]):
        assert {names: _groups_of(pid)[names] for names in own} == own


@needs_group
def test_no_control_groups_exist_inside(make_box: MakeBox) -> None:
    box = make_box()
    if "mount namespace" not in box.status()["guarantees"]["files.read"]:
        pytest.skip("without namespaces, paths are the host's; Landlock closes them")
    result = box.run("""
import os
print(os.path.exists("/sys/fs/cgroup"), "cgroup" in open("/proc/self/mountinfo").read())
print({line.split(":")[2] for line in open("/proc/self/cgroup").read().split()})
""")
    assert result.stdout == "False False\n{'/'}\n", result


def _groups_of(pid: int) -> dict[str, str]:
    rows = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return {names: path for _, names, path in rows}


@needs_group
def test_pages_of_the_zygote_are_nobodys_burden_and_the_group_goes_with_the_sandbox(make_box: MakeBox) -> None:
    before = set(_leftovers())
    box = make_box()
    box.run("import numpy, pandas")
    assert box.status()["usage"]["memory"] < 150 << 20
    assert set(_leftovers()) - before
    box.close()
    _wait_until(lambda: all("scope" in path for path in set(_leftovers()) - before))


@needs_group
@pytest.mark.skipif(_here().version != 1, reason="version 2 has cgroup.kill")
def test_killing_a_group_ends_what_forks_all_the_time() -> None:
    group = groups.Group(_here(), groups.name("f" * 12, os.getpid()))
    group.make(groups.Bounds(64 << 20, 64, 1.0))
    try:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            group.add(os.getpid())
            while True:
                if os.fork():
                    os._exit(0)
        os.waitpid(pid, 0)
        group.kill()
        _wait_until(group.remove)
    finally:
        group.kill()
        group.remove()


#: Fills the buffers of a connection of its own, and says how much waits in them.
_FILLS_TCP = """
import socket, sys
sys.stdin.readline()
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); other, _ = listener.accept()
one.settimeout(2)
waiting = 0
try:
    while True: waiting += one.send(bytes(65536))
except TimeoutError: pass
print(waiting, flush=True)
sys.stdin.readline()
"""


@needs_group
@pytest.mark.skipif(_here().how == "systemd scope", reason="a scope is made for the zygote alone")
def test_buffers_of_connections_count_in_the_group() -> None:
    group = groups.Group(_here(), groups.name("d" * 12, os.getpid()))
    group.make(groups.Bounds(256 << 20, 64, 1.0))
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _FILLS_TCP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as fills:
            assert fills.stdin is not None
            assert fills.stdout is not None
            group.add(fills.pid)
            before = group.used().memory
            fills.stdin.write("\n")
            fills.stdin.flush()
            waiting = int(fills.stdout.readline())
            after = group.used().memory
            fills.communicate("\n")
        assert before is not None
        assert after is not None
        assert waiting > 1 << 20
        assert after >= before + waiting
    finally:
        group.kill()
        _wait_until(group.remove)


@needs_group
@pytest.mark.skipif(_here().how == "systemd scope", reason="systemd removes what is left in a scope")
def test_groups_of_supervisors_that_were_killed_are_removed_at_the_next_start() -> None:
    here = _here()
    left = groups.Group(here, groups.name("e" * 12, os.getpid()))
    left.make(groups.Bounds(64 << 20, 64, 1.0))
    assert all(map(os.path.isdir, left.folders))
    groups.sweep(here)
    assert not any(map(os.path.exists, left.folders))


def test_a_group_that_cannot_be_made_leaves_nothing_and_is_not_claimed(tmp_path: Path) -> None:
    facts = Facts(2, "subtree", ("memory",), {"": str(tmp_path)}, mount="/")
    keeper = group_keeper.GroupKeeper(facts, "a" * 12, itertools.count(1), itertools.count(1))
    group = keeper.plan()
    assert group is not None
    assert not keeper.fill(group, os.getpid(), groups.Bounds(1, 1, 1.0))  # a plain folder has no memory.max
    assert keeper.plan() is None
    assert not keeper.facts.version
    assert "could not be made" in keeper.facts.reason
    assert os.listdir(tmp_path) == []


@contextmanager
def _silent_bus(folder: Path) -> Iterator[str]:
    """A bus that takes every connection and never says a word."""
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(str(folder / "bus"))
        bus.listen(8)
        kept: list[socket.socket] = []
        accept = threading.Thread(target=lambda: _accept_all(bus, kept), daemon=True)
        accept.start()
        yield str(folder / "bus")
        bus.shutdown(socket.SHUT_RDWR)
        accept.join()
        for connection in kept:
            connection.close()


def _accept_all(bus: socket.socket, kept: list[socket.socket]) -> None:
    while True:
        try:
            kept.append(bus.accept()[0])
        except OSError:
            return


@pytest.mark.skipif(not os.path.exists(cgroup.BUSCTL), reason="needs systemd's busctl, as any machine with systemd has")
def test_a_bus_that_never_answers_costs_two_seconds_and_no_more(tmp_path: Path) -> None:
    with _silent_bus(tmp_path) as bus:
        offered = Facts(2, "systemd scope", bus=f"unix:path={bus}", mount="/sys/fs/cgroup")
        started = time.monotonic()
        got = asyncio.run(_obtain(offered))
        seconds = time.monotonic() - started
    assert got == replace(Facts(), reason=got.reason)
    assert "2 s" in got.reason
    assert seconds < 3.5


@pytest.mark.skipif(not os.path.exists(cgroup.BUSCTL), reason="needs systemd's busctl, as any machine with systemd has")
def test_a_bus_without_a_systemd_is_named_as_the_reason(tmp_path: Path) -> None:
    offered = Facts(2, "systemd scope", bus=f"unix:path={tmp_path}/no-bus", mount="/sys/fs/cgroup")
    got = asyncio.run(_obtain(offered))
    assert (got.version, got.how) == (0, "")
    assert "systemd gave no control group" in got.reason


async def _obtain(offered: Facts) -> Facts:
    """With a zygote that has loaded at once."""
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    started.set_result(None)
    return await scope.obtain(offered, os.getpid(), "ipysandbox-test.scope", started)


def _wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)
