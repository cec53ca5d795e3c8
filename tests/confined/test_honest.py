# ruff: noqa: E501 - the snippets are one line each
"""What research code does works in a sandbox without namespaces, as far as it stays at home."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .hosts import Box, Host

pytestmark = pytest.mark.timeout(300)

#: What is run, and what it prints.
WORKS = {
    "copying with times": ("import shutil, os; shutil.copy2('data/x.csv', 'results/c'); print(os.stat('results/c').st_mtime)", "1000000000.0"),
    "copying": ("import shutil; shutil.copyfile('data/x.csv', 'results/cf'); print(open('results/cf').read())", "content"),
    "sending a file to a socket": ("import socket\na, b = socket.socketpair(); print(a.sendfile(open('data/x.csv', 'rb')), b.recv(100))", "8 b'content\\n'"),
    "asyncio sending a file": ("import asyncio, socket\na, b = socket.socketpair(); b.settimeout(60)\nasync def f():\n    _, w = await asyncio.open_connection(sock=a); n = await asyncio.get_running_loop().sendfile(w.transport, open('data/x.csv', 'rb')); w.close(); return n\nprint(await f(), b.recv(100))", "8 b'content\\n'"),
    "copying a folder over results": ("import shutil; shutil.copytree('data', 'results', dirs_exist_ok=True); print(open('results/x.csv').read())", "content"),
    "mode and times": ("import os; open('results/m', 'w').close(); os.chmod('results/m', 0o750); os.utime('results/m', (5, 6)); i = os.stat('results/m'); print(oct(i.st_mode), i.st_mtime)", "0o100750 6.0"),
    "mode and times by descriptor": ("import os\nwith open('results/n', 'w') as f:\n    os.fchmod(f.fileno(), 0o640); os.utime(f.fileno(), (5, 6)); i = os.fstat(f.fileno()); print(oct(i.st_mode), i.st_mtime)", "0o100640 6.0"),
    "owner as it is": ("import os; open('results/o', 'w').close(); print(os.chown('results/o', os.getuid(), -1))", "None"),
    "truncating": ("import os; open('results/t', 'w').write('x' * 100); os.truncate('results/t', 7); print(os.path.getsize('results/t'))", "7"),
    "tarfile": ("import tarfile\nwith tarfile.open('results/a.tar.gz', 'w:gz') as t: t.add('data')\nwith tarfile.open('results/a.tar.gz') as t: t.extractall('results/out')\nprint(open('results/out/data/x.csv').read())", "content"),
    "zipfile": ("import zipfile\nwith zipfile.ZipFile('results/a.zip', 'w') as z: z.write('data/x.csv')\nzipfile.ZipFile('results/a.zip').extractall('results/unzip'); print(open('results/unzip/data/x.csv').read())", "content"),
    "tempfile": ("import tempfile, os\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f, tempfile.TemporaryFile() as g: f.write(b'x'); g.write(b'y'); print(os.path.exists(f.name))\nprint(os.path.exists(d))", "True\nFalse"),
    "pathlib": ("from pathlib import Path; print(sorted(p.as_posix() for p in Path().rglob('*.csv') if 'results' not in p.parts), Path('.').resolve().is_dir())", "['data/x.csv'] True"),
    "a link of its own": ("import os; os.symlink('x.csv', 'results/link'); print(os.readlink('results/link'), os.path.islink('results/link'))", "x.csv True"),
    "subprocess": ("import subprocess; print(subprocess.run(['sh', '-c', 'echo $((6*7)); exit 3'], capture_output=True, text=True))", "CompletedProcess(args=['sh', '-c', 'echo $((6*7)); exit 3'], returncode=3, stdout='42\\n', stderr='')"),
    "commands": ("!echo hi; cat data/x.csv", "hi\ncontent"),
    "tools": ("import subprocess; print(subprocess.run('cp -a data results/copy && chmod -R a+rX results/copy && touch -d 2020-01-01 results/copy/x.csv && tar cf results/b.tar data && mkdir -p results/un && tar xpf results/b.tar -C results/un && rm -r results/copy && ls results/un && cat /proc/self/comm && ls /proc/self/fd | wc -l', shell=True, capture_output=True, text=True))", "CompletedProcess(args='cp -a data results/copy && chmod -R a+rX results/copy && touch -d 2020-01-01 results/copy/x.csv && tar cf results/b.tar data && mkdir -p results/un && tar xpf results/b.tar -C results/un && rm -r results/copy && ls results/un && cat /proc/self/comm && ls /proc/self/fd | wc -l', returncode=0, stdout='data\\ncat\\n4\\n', stderr='')"),
    "threads": ("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as p: print(sum(p.map(abs, range(100))))", "4950"),
    "a pool by fork": ("import multiprocessing as mp\nwith mp.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))", "[1, 2]"),
    "a pool by spawn": ("import multiprocessing as mp\nwith mp.get_context('spawn').Pool(2) as p: print(p.map(abs, [-1, -2]))", "[1, 2]"),
    "a pool by forkserver": ("from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(2) as p: print(list(p.map(abs, [-1, -2])))", "[1, 2]"),
    "locks and queues by fork": ("import multiprocessing as mp\nc = mp.get_context('fork'); l = c.Lock(); q = c.Queue(); v = c.Value('i', 0)\ndef f():\n    for _ in range(50):\n        with l: v.value += 1\n    q.put(1)\nps = [c.Process(target=f) for _ in range(4)]; [p.start() for p in ps]; print(sum(q.get(timeout=60) for _ in ps), v.value); [p.join() for p in ps]", "4 200"),
    "shared memory": ("from multiprocessing import shared_memory as s; a = s.SharedMemory(create=True, size=10000); a.buf[9] = 7; b = s.SharedMemory(a.name); print(b.buf[9]); b.close(); a.close(); a.unlink()", "7"),
    "a database": ("import sqlite3; d = sqlite3.connect('results/d.db'); d.execute('pragma journal_mode=wal'); d.execute('create table t(x)'); d.execute('insert into t values(3)'); d.commit(); print(d.execute('select * from t').fetchall()); d.close()", "[(3,)]"),
    "what it is": ("import os; print(os.stat('/proc/self').st_uid == os.getuid(), os.path.exists('/proc/self/fd/1'), os.path.basename(os.readlink('/proc/self/exe')).startswith('python'), os.readlink('/proc/self') == str(os.getpid()))", "True True True True"),
    "clocks of one's own": ("import threading, time; print(time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())) > 0, time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0, time.thread_time() > 0)", "True True True"),
    "posix_spawn": ("import os; print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 4'], {}), 0)[1]), os.system('exit 3') >> 8)", "4 3"),
    "asyncio's children": ("import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('echo', 'x', stdout=-1); return (await p.communicate())[0]\nprint(await f())", "b'x\\n'"),
    "a signal to a child": ("import subprocess; p = subprocess.Popen(['sleep', '60']); p.terminate(); print(p.wait())", "-15"),
    "a module of its own": ("import sys; open('results/mine.py', 'w').write('X = 4'); sys.path.insert(0, 'results'); import mine; print(mine.X)", "4"),
}  # fmt: skip
#: The same with libraries that may be missing.
LIBRARIES = {
    "joblib": ("import joblib; print(joblib.Parallel(2)(joblib.delayed(abs)(x) for x in (-1, -2)))", "[1, 2]"),
    "psutil": (
        "import psutil, subprocess; p = subprocess.Popen(['sleep', '60']); print(psutil.Process(p.pid).memory_info().rss > 0, psutil.Process().num_threads() > 0, len(psutil.Process().threads()) > 0); p.kill()",
        "True True True",
    ),
    "pandas": (
        "import pandas as pd; pd.DataFrame({'a': [1, 2]}).to_csv('results/p.csv', index=False); print(pd.read_csv('results/p.csv').a.sum())",
        "3",
    ),
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("p") / "study"
    for name in ("data/x.csv", ".env"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("content\n")

        os.utime(root / name, (1_000_000_000, 1_000_000_000))
    return root


@pytest.fixture(scope="module")
def box(host: Host, study: Path) -> Iterator[Box]:
    box = Box(host, "honest", study)
    yield box
    box.close()


@pytest.mark.parametrize("what", sorted(WORKS))
def test_it_works(box: Box, what: str) -> None:
    code, printed = WORKS[what]
    assert box.out(code, timeout=120).rstrip() == printed


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_libraries_work(box: Box, library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed here")
    code, printed = LIBRARIES[library]
    result = box.run(code, timeout=120)
    assert (result["status"], result["stdout"].rstrip(), result["stderr"]) == ("ok", printed, "")


def test_it_says_itself_what_is_weaker(box: Box) -> None:
    assert {"files.write", "network"} <= set(box.weaker)
    assert "read-only" in box.weaker["files.write"]


def test_a_figure_comes_out(box: Box) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed here")
    result = box.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", timeout=120)
    assert (result["status"], result["outputs"]) == ("ok", ["display_data"]), result


def test_pip_installs_a_wheel_into_results(box: Box, study: Path) -> None:
    wheel = study / "results/tiny-1.0-py3-none-any.whl"
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "X = 5\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    command = "[sys.executable, '-m', 'pip', 'install', '--no-index', '--no-input', '--target', 'results/site', 'results/tiny-1.0-py3-none-any.whl']"
    code = f"import subprocess, sys; r = subprocess.run({command}, capture_output=True, text=True); assert r.returncode == 0, r.stderr\nsys.path.insert(0, 'results/site'); import tiny; print(tiny.X)"
    assert box.out(code, timeout=200) == "5\n"


def test_tasks_are_limited_to_the_policys_number_and_leave_room_to_go_on(host: Host, study: Path) -> None:
    box = Box(host, "tasks", study, overrides={"limits.processes": 64})
    try:
        code = """
import os, threading
stop, made = threading.Event(), 0
try:
    while made < 1000: threading.Thread(target=stop.wait, daemon=True).start(); made += 1
except RuntimeError: pass
tasks = len(os.listdir("/proc/self/task"))
stop.set(); print(made < 1000, tasks)
"""
        assert box.out(code) == "True 64\n"
        assert box.out("import subprocess; print(subprocess.run(['true']).returncode)") == "0\n"
        # Orphans that have ended are collected: they would count.
        code = (
            "import subprocess\nfor _ in range(100): subprocess.run('(true &)', shell=True, check=True)\nprint('done')"
        )
        assert box.out(code, timeout=100) == "done\n"
    finally:
        box.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "open('data/x.csv', 'a')",
            "The project is read-only in this sandbox but for results: this machine gives it no",
        ),
        ("import os; os.mkdir('new')", "The project is read-only in this sandbox but for results"),
        (
            "import socket; socket.socket()",
            "There is no network in the sandbox; without namespaces, no loopback either.",
        ),
        ("open('.env')", "its name is hidden by files.hide"),
    ],
)
def test_what_only_this_kind_of_sandbox_refuses_is_told(box: Box, code: str, told: str) -> None:
    [notice] = box.run(code)["notices"]
    assert told in notice
