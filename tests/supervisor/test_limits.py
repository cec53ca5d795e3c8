"""Every limit ends what goes over it, says which one it was, and the next cell works."""

from __future__ import annotations

import os
import select
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ipysandbox import PolicyError, RunResult, Sandbox
from ipysandbox.backends.linux import cgroup
from ipysandbox.supervisor.limits import hit, in_words, in_words_of_a_task

MakeBox = Callable[..., Sandbox]


def ended_by(result: RunResult, name: str, *, state_kept: bool) -> None:
    assert result.status == "limit", (result.status, result.error)
    assert result.limit is not None
    assert result.limit.name == name
    assert "To allow more" in result.limit.text
    assert result.state_kept is state_kept


def works_again(box: Sandbox, *, new: bool) -> None:
    result = box.run("print('fine')")
    assert (result.status, result.stdout) == ("ok", "fine\n")
    assert any("new sandbox" in notice for notice in result.notices) is new


def test_a_cell_that_is_done_when_its_output_is_too_much_keeps_its_variables(box: Sandbox) -> None:
    """What is left then is to send: nothing that an interrupt would have to stop."""
    ended_by(box.run("x = 1\nprint('y' * 40_000_000)"), "output", state_kept=True)
    assert box.run("x").value == 1


def test_wall_time_interrupts_and_keeps_the_variables(box: Sandbox) -> None:
    box.run("x = 1")
    result = box.run("import time\ntime.sleep(60)", timeout=0.5)
    ended_by(result, "wall", state_kept=True)
    assert result.limit is not None
    assert result.limit.value == 0.5
    assert 0.5 <= float(result.limit.observed or 0) < 3
    assert box.run("x").value == 1


@pytest.mark.parametrize(
    "code",
    [
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass",
        "import signal, time\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: time.sleep(1)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import ctypes, signal\nlibc = ctypes.CDLL(None)\nlibc.signal(2, 1)\nwhile True: libc.usleep(100000)",
    ],
    ids=["handles the interrupt", "ignores signals", "stops itself", "ignores them in C"],
)
def test_code_that_will_not_stop_is_killed(box: Sandbox, code: str) -> None:
    ended_by(box.run(code, timeout=0.5), "wall", state_kept=False)
    works_again(box, new=True)


def test_cpu_time_counts_all_processes_together(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.cpu": "1s"})
    result = box.run("""
import os
for _ in range(3):
    if os.fork() == 0:
        while True: pass
while True: pass
""")
    ended_by(result, "cpu", state_kept=result.state_kept)
    assert result.limit is not None
    assert 1 <= float(result.limit.observed or 0) < 3


#: Children that live for ``life`` seconds, and whose times are added to nobody's.
_UNWAITED = """
import os, signal, time
def spin(life):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            end = time.process_time() + life
            while time.process_time() < end: pass
            os._exit(0)
        time.sleep(life / 2)
"""


@pytest.mark.parametrize("life", [0.3, 0.012])
def test_cpu_time_of_short_lived_children_nobody_waits_for_counts(make_box: MakeBox, life: float) -> None:
    box = make_box(overrides={"limits.cpu": "1s", "limits.wall": "60s"})
    result = box.run(f"{_UNWAITED}\nspin({life})")
    assert result.limit is not None
    assert result.limit.name == "cpu"


def test_between_cells_such_children_end_the_sandbox_too(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.cpu": "2s"})
    box.run(f"{_UNWAITED}\nif os.fork() == 0:\n    os.setsid()\n    spin(0.012)")
    deadline = time.monotonic() + 60
    while box.status()["state"] != "dead":
        assert time.monotonic() < deadline, box.status()["usage"]
        select.select([], [], [], 0.1)
    notices = box.run("1").notices
    assert any("cpu time" in notice for notice in notices), notices


def test_children_that_are_waited_for_count_once(make_box: MakeBox) -> None:
    box = make_box()
    result = box.run("""
import os, resource, subprocess
for _ in range(100): subprocess.run(["/bin/true"])
total = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
total
""")
    assert result.usage["cpu"] < result.value + 1


def test_a_fraction_of_a_processor_is_a_fraction_of_its_time(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.cpus": 0.5})
    if not any("cgroup" in layer for layer in box.status()["guarantees"]["cpu"]):
        pytest.skip(f"only a control group throttles by time: {cgroup.probe().reason}")
    result = box.run("""
import time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() < begin + 2: pass
(time.process_time() - used) / (time.monotonic() - begin)
""")
    assert 0.1 < result.value < 0.65


def test_one_greedy_process_meets_a_memory_error_and_goes_on(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "1GiB"})
    box.run("x = 1")
    ended_by(box.run("data = bytearray(4 << 30)"), "memory", state_kept=True)
    assert box.run("x").value == 1
    caught = box.run("try:\n    data = bytearray(4 << 30)\nexcept MemoryError:\n    print('caught')")
    assert (caught.status, caught.stdout) == ("ok", "caught\n")


@pytest.mark.parametrize(
    "code",
    [
        "import os, time\nfor _ in range(10):\n    if os.fork() == 0:\n        data = bytearray(200 << 20)\n"
        "        time.sleep(60)\ntime.sleep(60)",
        "import mmap, time\nm = mmap.mmap(-1, 3 << 30)\nfor at in range(0, 3 << 30, 4096): m[at] = 1",
        "import subprocess\nsubprocess.run(['sh', '-c', 'head -c 1500000000 /dev/zero | tail'])",
        "import time\nfor n in range(12): open(f'/dev/shm/{n}', 'wb').write(bytes(128 << 20))\ntime.sleep(60)",
    ],
    ids=["many processes", "shared mapping", "another program", "shared memory files"],
)
def test_memory_counts_however_it_is_taken(make_box: MakeBox, code: str) -> None:
    box = make_box(overrides={"limits.memory": "1GiB", "limits.disk": "2GiB", "limits.wall": "60s"})
    result = box.run(code)
    assert result.status in ("limit", "error", "ok"), result
    if result.status == "ok":  # the other program got no more and gave up by itself
        assert "subprocess" in code
    elif result.limit is not None and not result.state_kept:
        assert result.limit.name == "memory"
        assert float(result.limit.observed or 0) < 1.5 * (1 << 30)
    assert box.run("1").status == "ok"


def test_memory_that_is_taken_between_cells_is_named(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "512MiB"})
    box.run("""
import mmap, threading, time
kept = []
def fill():
    time.sleep(0.3)
    while True:
        kept.append(mmap.mmap(-1, 4 << 20)); kept[-1].write(bytes(4 << 20))
threading.Thread(target=fill, daemon=True).start()
""")
    deadline = time.monotonic() + 60
    while box.status()["state"] != "dead":
        assert time.monotonic() < deadline, box.status()["usage"]
        select.select([], [], [], 0.1)
    notices = box.run("1").notices
    assert any("limit on memory" in notice for notice in notices), notices


def test_processes_are_bounded_and_leave_room_to_go_on(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.processes": 64})
    result = box.run("""
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        count += 1
except BlockingIOError:
    print(count)
    raise
""")
    ended_by(result, "processes", state_kept=True)
    assert 20 < int(result.stdout) < 64


def test_scratch_space_is_bounded_by_the_kernel_itself(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.disk": "32MiB"})
    for where in ("/tmp/big", "/dev/shm/big", "/var/tmp/big", "big-in-the-project", "/home/sandbox/big"):
        result = box.run(f"import os\nwith open({where!r}, 'wb') as f:\n    f.write(bytes(40 << 20))")
        ended_by(result, "disk", state_kept=True)
        box.run(f"import os\nos.unlink({where!r})")
    many = box.run("import os\nfor n in range(100_000): open(f'/tmp/{n}', 'w').close()")
    ended_by(many, "disk", state_kept=True)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("n = 0\nwhile True:\n    open(f'results/{n}', 'wb').write(bytes(4 << 20)); n += 1", "disk"),
        (
            "import os\nn = 0\nwhile True:\n    os.posix_fallocate(os.open(f'results/{n}', 66), 0, 16 << 20); n += 1",
            "disk",
        ),
        ("import os\nfor n in range(200_000):\n    os.close(os.open(f'results/{n}', 66))", "files"),
        (
            "import os\nos.mkdir('results/d'); os.chmod('results/d', 0o300)\nn = 0\n"
            "while True:\n    open(f'results/d/{n}', 'wb').write(bytes(4 << 20)); n += 1",
            "disk",
        ),
    ],
    ids=["written", "allocated", "empty files", "unreadable folder"],
)
def test_results_are_bounded_too(project: Path, make_box: MakeBox, code: str, name: str) -> None:
    box = make_box(overrides={"limits.disk": "64MiB", "limits.open_files": 100_000})
    ended_by(box.run(code), name, state_kept=False)
    used = sum(path.stat().st_blocks * 512 for path in (project / "results").rglob("*"))
    assert used < 1 << 30
    shutil.rmtree(project / "results")
    (project / "results").mkdir()
    works_again(box, new=True)


_FOUR_MAKE_FILES = """
import os
for writer in range(4):
    if os.fork() == 0:
        n = 0
        while True:
            if n % 1000 == 0:
                os.mkdir(f"results/{writer}.{n}")
                folder = f"results/{writer}.{n}"
            os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY))
            n += 1
os.wait()
"""


def test_who_makes_files_faster_than_they_are_counted_is_held_still_for_it(project: Path, make_box: MakeBox) -> None:
    """Of 65,536 that are allowed, counting takes longer than one look."""
    box = make_box()
    assert box.run(_FOUR_MAKE_FILES).limit.name == "files"
    made = sum(len(folders) + len(files) for _, folders, files in os.walk(project / "results"))
    assert 65_536 < made < 2 * 65_536


@pytest.mark.parametrize(
    "keep",
    [
        "kept.append(fd)",
        "kept.append(mmap.mmap(fd, 4 << 20)); os.close(fd)",
        "libc.mmap(None, 4096, 1, 2, fd, 0); os.close(fd)",
    ],
    ids=["open", "mapped", "a page of it mapped"],
)
def test_files_without_a_name_count_as_long_as_they_are_held(make_box: MakeBox, keep: str) -> None:
    box = make_box(overrides={"limits.disk": "64MiB"})
    result = box.run(f"""
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
kept = []
while True:
    fd = os.open("results/x", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(4 << 20))
    os.unlink("results/x")
    {keep}
""")
    ended_by(result, "disk", state_kept=False)


def test_programs_without_a_name_count_as_long_as_they_run(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.disk": "64MiB"})
    result = box.run("""
import os, shutil, subprocess
while True:
    shutil.copy("/bin/sleep", "results/sleep")
    with open("results/sleep", "ab") as file: file.write(bytes(4 << 20))
    subprocess.Popen([os.path.abspath("results/sleep"), "60"])
    os.unlink("results/sleep")
""")
    ended_by(result, "disk", state_kept=False)


@pytest.mark.parametrize("where", ["results", "/tmp"])
def test_a_file_that_loses_its_name_counts_once(make_box: MakeBox, where: str) -> None:
    box = make_box(overrides={"limits.disk": "64MiB"})
    result = box.run(f"""
import os, time
where = "results" if {where!r} == "results" else os.environ["TMPDIR"]
for _ in range(3):
    with open(where + "/temporary", "wb") as file:
        file.write(bytes(40 << 20)); file.flush(); time.sleep(0.4)
        os.unlink(where + "/temporary"); time.sleep(0.6)
print("done")
""")
    assert (result.status, result.stdout) == ("ok", "done\n"), result


def test_opening_and_closing_files_all_the_time_hides_none(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.disk": "64MiB"})
    result = box.run("""
import os, threading
def churn():
    while True:
        for fd in [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]: os.close(fd)
for _ in range(3): threading.Thread(target=churn, daemon=True).start()
kept = []
while True:
    fd = os.open("results/x", os.O_CREAT | os.O_RDWR)
    os.write(fd, bytes(4 << 20))
    os.unlink("results/x")
    kept.append(fd)
""")
    ended_by(result, "disk", state_kept=False)
    assert result.limit is not None
    assert "hid which files" not in result.limit.text


#: The first thread of a process ends, and the others go on: /proc shows it as one that has ended.
_HEADLESS = """
import ctypes, mmap, os, threading, time
libc = ctypes.CDLL(None)
kept = []
def headless(work):
    if os.fork() == 0:
        threading.Thread(target=work).start()
        libc.pthread_exit(None)
"""


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("disk", "kept.append(os.open('results/x', 66)); os.unlink('results/x'); os.write(kept[-1], bytes(8 << 20))"),
        ("memory", "kept.append(mmap.mmap(-1, 4 << 20)); kept[-1].write(bytes(4 << 20))"),
    ],
    ids=["disk", "memory"],
)
def test_a_process_whose_first_thread_has_ended_is_seen_through(make_box: MakeBox, name: str, work: str) -> None:
    box = make_box(overrides={"limits.disk": "512MiB", "limits.memory": "512MiB", "limits.wall": "30s"})
    result = box.run(f"{_HEADLESS}\ndef work():\n    while True: {work}\nheadless(work)\ntime.sleep(60)")
    ended_by(result, name, state_kept=False)


def test_children_that_nobody_collects_are_not_taken_for_hidden(make_box: MakeBox) -> None:
    box = make_box()
    result = box.run("import os, time\nfor _ in range(5):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(3)")
    assert result.status == "ok", (result.error, result.notices)


def test_programs_that_come_and_go_are_not_taken_for_hidden(make_box: MakeBox) -> None:
    box = make_box()
    result = box.run("""
import subprocess, sys, time
end = time.monotonic() + 5
while time.monotonic() < end:
    for one in [subprocess.Popen(["/bin/true"]) for _ in range(4)]: one.wait()
""")
    assert result.status == "ok", (result.error, result.notices)


def test_a_process_that_hides_its_open_files_is_ended(make_box: MakeBox) -> None:
    box = make_box()
    result = box.run("""
import os, shutil, subprocess, time
shutil.copy("/bin/sleep", "/tmp/unreadable"); os.chmod("/tmp/unreadable", 0o111)
subprocess.Popen(["/tmp/unreadable", "60"])
n = 0
while True:
    open(f"results/{n}", "wb").write(bytes(1 << 20)); n += 1; time.sleep(0.01)
""")
    ended_by(result, "disk", state_kept=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing in a sandbox hides from root's supervisor")
def test_hiding_is_named_whenever_it_is_noticed(make_box: MakeBox) -> None:
    """Also while short cells follow one another, none of them as long as the time between two looks."""
    box = make_box()
    code = "import os, shutil, subprocess\nshutil.copy('/bin/sleep', '/tmp/u'); os.chmod('/tmp/u', 0o111)"
    result, until = box.run(f"{code}\nsubprocess.Popen(['/tmp/u', '60'])"), time.monotonic() + 10
    while not any("hid which files" in t for t in (*result.notices, result.limit.text if result.limit else "")):
        assert result.status != "died"
        assert time.monotonic() < until, "nobody has noticed"
        result = box.run("1")


_FILLS_LATER = """
import subprocess, sys
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep({}); kept = bytearray(300 << 20); time.sleep(60)"])
"""


def test_a_cell_that_comes_while_a_limit_ends_the_sandbox_is_never_lost(make_box: MakeBox) -> None:
    """It runs in the next one, or is told which limit ended it: at whatever moment of its own that was."""
    box = make_box(overrides={"limits.memory": "512MiB"})
    for number in range(8):
        code, told = _FILLS_LATER.format(0.02 * number), ""
        deadline = time.monotonic() + 30
        while "limit on memory" not in told:
            result = box.run(code)
            assert result.status in ("ok", "limit"), result.error
            told = " ".join((*result.notices, result.limit.text if result.limit else ""))
            code = "1"
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "before", ["", "import sys; sys.setswitchinterval(5)"], ids=["", "the thread that sends is late"]
)
def test_output_is_bounded_and_what_came_before_is_shown(make_box: MakeBox, before: str) -> None:
    box = make_box(overrides={"limits.output": "1MiB"})
    result = box.run(f"{before}\nwhile True: print('x' * 999)")
    ended_by(result, "output", state_kept=result.state_kept)
    assert 0 < len(result.stdout) <= (1 << 20) + 100
    works_again(box, new=not result.state_kept)


def test_open_files_are_bounded(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.open_files": 256})
    ended_by(box.run("kept = [open('/dev/null') for _ in range(1000)]"), "open_files", state_kept=True)


def test_a_cell_option_never_exceeds_what_an_administrator_allows(box: Sandbox) -> None:
    assert box.run("x = 2").status == "ok"
    with pytest.raises(PolicyError, match="1 fortnight"):
        box.run("x = 3", timeout="1 fortnight")
    assert box.run("x").value == 2


@pytest.mark.parametrize(
    ("name", "value", "observed", "advice"),
    [
        ("memory", 300 << 20, None, "--memory 600MiB or memory under"),
        ("memory", 4 << 30, 4.1 * 2**30, "--memory 8GiB or"),
        ("memory", 300 << 20, 5 << 30, "--memory 9600MiB or"),
        ("memory", 10**9, None, "--memory 2GB or"),
        ("wall", 1.0, 1.2, "--timeout 2s or"),
        ("wall", 600.0, 600.1, "--timeout 20min or"),
        ("cpu", 300.0, 700.0, "--cpu 20min or"),
    ],
)
def test_the_advice_is_a_limit_that_fits(name: str, value: float, observed: float | None, advice: str) -> None:
    assert f"To allow more: {advice}" in hit(name, value, observed).text


@pytest.mark.parametrize(
    ("name", "value", "observed", "advice"),
    [
        ("memory", 300 << 20, None, 'limits={"memory": "600MiB"}, or memory under [limits] in the policy.'),
        ("wall", 1.0, 1.2, 'timeout="2s", or wall under [limits] in the policy.'),
        ("output", 1 << 20, 3 << 20, 'limits={"output": "4MiB"}, or output under'),
        ("processes", 64, None, 'limits={"processes": 128}, or processes under'),
        ("files", 65536, 70000, 'limits={"disk": "2GiB"}, or disk under'),
        ("gpu", 1 << 30, 2 << 30, "memory_fraction under [limits.gpu] in the policy."),
    ],
)
def test_the_advice_to_an_executor_is_an_argument(name: str, value: float, observed: float, advice: str) -> None:
    assert f". To allow more: {advice}" in in_words_of_a_task(hit(name, value, observed)).text


@pytest.mark.parametrize(
    ("name", "value", "observed", "advice"),
    [
        ("memory", 300 << 20, None, 'overrides={"limits.memory": "600MiB"} or memory under [limits] in the policy.'),
        ("wall", 1.0, 1.2, 'timeout="2s" or wall under [limits] in the policy.'),
        ("cpu", 300.0, 700.0, 'cpu="20min" or cpu under'),
        ("output", 1 << 20, 3 << 20, "output under [limits] in the policy."),
    ],
)
def test_the_advice_in_python_is_an_argument(name: str, value: float, observed: float, advice: str) -> None:
    assert f". To allow more: {advice}" in in_words(hit(name, value, observed), "python").text


def test_a_sandbox_of_pythons_gets_pythons_advice(box: Sandbox) -> None:
    result = box.run("while True: pass", timeout=0.5)
    assert result.limit is not None
    assert 'To allow more: timeout="1s" or wall under [limits]' in result.limit.text


_FILL = """
data = []
try:
    while True:
        data.append(bytearray(8 << 20))
except MemoryError:
    pass
"""


@pytest.mark.parametrize("memory", ["256MiB", "300MiB", "512MiB"])
def test_a_small_sandbox_that_holds_nothing_is_not_called_full(make_box: MakeBox, memory: str) -> None:
    result = make_box(overrides={"limits.memory": memory}).run("bytearray(4 << 30)")
    ended_by(result, "memory", state_kept=True)
    assert result.hint == ""


def test_variables_that_leave_little_memory_are_told_with_what_to_do(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "600MiB"})
    result = box.run("bytearray(4 << 30)")
    ended_by(result, "memory", state_kept=True)
    assert result.hint == ""  # it holds nothing
    result = box.run("data = []\nwhile True:\n    data.append(bytearray(8 << 20))")
    ended_by(result, "memory", state_kept=True)
    assert result.hint.startswith("It still holds ")
    assert "of its 600.0 MiB of memory" in result.hint
    assert "box.restart()" in result.hint
    assert result.notices[-1] == result.hint
    assert box.run("del data").hint == ""


@pytest.mark.parametrize(("options", "name"), [({"timeout": 1}, "wall"), ({"cpu": 1}, "cpu")])
def test_memory_is_named_where_it_is_what_a_cell_waited_for(
    make_box: MakeBox, options: dict[str, float], name: str
) -> None:
    """As OpenBLAS does, which asks again and again for what it doesn't get."""
    box = make_box(overrides={"limits.memory": "600MiB"})
    plain = box.run("while True: pass", **options)
    ended_by(plain, name, state_kept=True)
    assert plain.hint == ""
    assert box.run(_FILL).status == "ok"
    result = box.run("while True: pass", **options)
    assert (result.status, result.limit.name) == ("limit", name)
    assert "of its 600.0 MiB of memory: code that needs more waits for it, or ends" in result.hint
    assert result.hint in result.limit.text
    assert 'allow more: overrides={"limits.memory": "1200MiB"}' in result.limit.text
    assert f"{options.popitem()[0]}=" in result.limit.text  # it may have needed nothing but time


def test_memory_is_named_where_it_is_what_a_process_ended_for(make_box: MakeBox) -> None:
    """As OpenBLAS does, too."""
    box = make_box(overrides={"limits.memory": "600MiB"})
    end = "import os\nos._exit({})"
    assert "memory" not in box.run(end.format(1)).error.evalue
    box.run(_FILL)
    result = box.run(end.format(1))
    assert (result.status, result.state_kept) == ("died", False)
    assert "code that needs more" in result.hint
    assert result.hint in result.error.evalue
    assert 'overrides={"limits.memory": "1200MiB"}' in result.error.evalue
    box.run(_FILL)
    assert box.run(end.format(0)).hint == ""  # it was meant to


def test_socket_buffers_count_as_memory(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "600MiB", "limits.open_files": 4096})
    result = box.run("""
import socket, time
kept = []
for _ in range(1800):
    for end in socket.socketpair():
        kept.append(end); end.setblocking(False)
    for end in kept[-2:]:
        try:
            while True: end.send(bytes(65536))
        except BlockingIOError: pass
time.sleep(30)
""")
    ended_by(result, "memory", state_kept=False)


def test_a_connection_holds_no_more_than_another_socket(make_box: MakeBox) -> None:
    """However much its windows have grown while both ends read."""
    box = make_box()
    if not box.status()["guarantees"].get("network"):
        pytest.skip("without namespaces there are none")
    result = box.run("""
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname()); other, _ = listener.accept()
def read():
    left = 256 << 20
    while left: left -= len(other.recv(min(left, 1 << 20)))
reads = threading.Thread(target=read); reads.start()
one.sendall(bytes(256 << 20)); reads.join()
one.settimeout(2)
waiting = 0
try:
    while True: waiting += one.send(bytes(65536))
except TimeoutError: pass
waiting
""")
    assert 0 < result.value < 1 << 20


_NO_GROUP = pytest.mark.skipif(
    bool(cgroup.probe().version), reason="a control group counts it, whatever the figures of /proc say"
)


@_NO_GROUP
def test_page_tables_count_as_memory(make_box: MakeBox) -> None:
    """One byte read for every 2 MiB of address space: each takes a page of tables, and none of memory."""
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "60s"})
    result = box.run("""
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for _ in range(3):
    at = libc.mmap(None, 256 << 30, 1, 0x4022, -1, 0)
    libc.madvise(at, 256 << 30, 15)
    for offset in range(0, 256 << 30, 2 << 20): ctypes.c_char.from_address(at + offset).value
time.sleep(60)
""")
    ended_by(result, "memory", state_kept=False)


@_NO_GROUP
def test_pieces_of_address_space_count_as_memory(make_box: MakeBox) -> None:
    """The kernel keeps a record of each, and copies them all for a fork; nothing of them is mapped to memory."""
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "60s"})
    result = box.run("""
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
kept = mmap.mmap(-1, 60000 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(kept))
for n in range(0, 60000, 2): libc.mprotect(ctypes.c_void_p(at + n * mmap.PAGESIZE), mmap.PAGESIZE, 1)
for _ in range(20):
    if os.fork() == 0: time.sleep(60)
time.sleep(60)
""")
    ended_by(result, "memory", state_kept=False)


@_NO_GROUP
def test_programs_beside_one_of_many_pieces_are_not_taken_for_its_forks(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "768MiB", "limits.wall": "60s"})
    result = box.run("""
import ctypes, mmap, subprocess, sys, time
libc = ctypes.CDLL(None)
kept = mmap.mmap(-1, 60000 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(kept))
for n in range(0, 60000, 2): libc.mprotect(ctypes.c_void_p(at + n * mmap.PAGESIZE), mmap.PAGESIZE, 1)
time.sleep(1)
code = "import mmap, time; kept = mmap.mmap(-1, 1 << 30, flags=0x22, prot=1); time.sleep(3)"
for one in [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(30)]: one.wait()
print("done")
""")
    assert (result.status, result.stdout) == ("ok", "done\n"), result


@_NO_GROUP
def test_what_is_sent_to_connections_that_nobody_accepts_counts_as_memory(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "60s"})
    if not box.status()["guarantees"].get("network"):
        pytest.skip("without namespaces nothing listens")
    result = box.run("""
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0l"); listener.listen(65535)
for _ in range(3500):
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect("\\0l")
        try:
            while True: client.send(bytes(65536))
        except BlockingIOError: pass
time.sleep(60)
""")
    ended_by(result, "memory", state_kept=False)


#: Each fills ``piece`` bytes of shared memory and takes them out of its page tables; the memory stays.
_OUT_OF_SIGHT = {
    "dropped": "m = mmap.mmap(-1, piece); m.write(bytes(piece)); m.madvise(mmap.MADV_DONTNEED); kept.append(m)",
    "dropped, of a device": "m = mmap.mmap(zero, piece); m.write(bytes(piece)); m.madvise(mmap.MADV_DONTNEED); "
    "kept.append(m)",
    "unmapped but for a page": "at = libc.mmap(None, piece, 3, 0x21, -1, 0); libc.memset(at, 1, piece); "
    "libc.munmap(at + 4096, piece - 4096)",
    "of a child": "m = mmap.mmap(-1, piece)\n    if os.fork() == 0:\n        m.write(bytes(piece)); "
    "m.madvise(mmap.MADV_DONTNEED); time.sleep(60)\n    m.close()",
}


@_NO_GROUP
@pytest.mark.parametrize("fill", _OUT_OF_SIGHT.values(), ids=_OUT_OF_SIGHT)
def test_shared_memory_that_is_in_no_page_table_counts(make_box: MakeBox, fill: str) -> None:
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "60s"})
    result = box.run(f"""
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
kept, piece, zero = [], 12 << 20, os.open("/dev/zero", os.O_RDWR)
for _ in range(42):
    {fill}
time.sleep(60)
""")
    ended_by(result, "memory", state_kept=False)


@_NO_GROUP
def test_shared_memory_beyond_the_limit_is_refused_and_the_code_goes_on(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "512MiB"})
    code = "import mmap\ntry: mmap.mmap(-1, 2 << 30)\nexcept OSError as exc: print(exc.errno)"
    result = box.run(code)
    assert (result.status, result.stdout) == ("ok", "12\n")


@pytest.mark.parametrize(
    "use",
    [
        "m[0] = 1; m.close()",
        "m.write(bytes(64 << 20)); m.close()",
        "pid = os.fork() or os._exit(0); os.waitpid(pid, 0)",
    ],
    ids=["touched", "filled", "shared"],
)
def test_shared_memory_that_was_given_back_counts_no_more(make_box: MakeBox, use: str) -> None:
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "120s"})
    count = 20 if "write" in use else 200
    code = f"import mmap, os\nfor _ in range({count}):\n    m = mmap.mmap(-1, 64 << 20); {use}"
    result = box.run(f"{code}\ndel m; kept = bytearray(150 << 20)\nprint('done')")
    assert (result.status, result.stdout) == ("ok", "done\n"), result


def test_files_that_are_mapped_shared_are_not_memory(make_box: MakeBox) -> None:
    box = make_box(overrides={"limits.memory": "512MiB", "limits.disk": "2GiB"})
    result = box.run("""
import mmap, os
fd = os.open("results/sparse", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 1 << 30)
kept = [mmap.mmap(fd, 1 << 30) for _ in range(4)]
kept[0][0] = 1
os.unlink("results/sparse")
print("done")
""")
    assert (result.status, result.stdout) == ("ok", "done\n"), result


_KEEPS_ITS_MAP_LOCKED = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size, count = 100 << 20, 300
fd = os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT)
for _ in range(100):
    os.write(fd, b"x" * (1 << 20))
pieces = libc.mmap(None, 50_000 * 4096, 3, 0x4022, -1, 0)
for n in range(0, 50_000, 2):
    libc.mprotect(pieces + n * 4096, 4096, 1)
large = libc.mmap(None, size * count, 0, 0x4022, -1, 0)
for n in range(count):
    libc.mmap(large + n * size, size, 1, 0x8011, fd, 0)
def lock():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        libc.mprotect(large, size * count, 1)
        libc.mprotect(large, size * count, 3)
for _ in range(6):
    threading.Thread(target=lock).start()
while True:
    time.sleep(1)
"""


def test_who_keeps_its_memory_from_being_looked_at_is_ended_and_holds_up_nobody(make_box: MakeBox) -> None:
    """Reading a process's maps waits for a lock that its threads can hold."""
    other = make_box(name="other")
    other.run("1")
    box = make_box(overrides={"limits.memory": "512MiB", "limits.wall": "15s"})
    with ThreadPoolExecutor(1) as thread:
        hostile = thread.submit(box.run, _KEEPS_ITS_MAP_LOCKED)
        waits = []
        while not hostile.done():
            began = time.monotonic()
            assert other.run("1 + 1").value == 2
            waits.append(time.monotonic() - began)
    result = hostile.result()
    assert result.status == "limit"
    assert result.usage["wall"] < 25
    assert max(waits) < 10


@_NO_GROUP
@pytest.mark.parametrize(
    "code",
    [
        "def hold():\n"
        "    kept = [os.open('/proc/self/status', os.O_RDONLY) for _ in range(900)]\n"
        "    [os.read(fd, 1) for fd in kept]\n"
        "for _ in range(120):\n"
        "    if os.fork() == 0: hold(); time.sleep(60)\n",
        "kept = [os.open('/proc/self/fdinfo/0', os.O_RDONLY) for _ in range(40)]\n",
    ],
    ids=["records", "lists"],
)
def test_what_the_kernel_keeps_of_open_records_counts(make_box: MakeBox, code: str) -> None:
    box = make_box(overrides={"limits.memory": "512MiB"})
    assert box.run(f"import os, time\n{code}time.sleep(30)").limit.name == "memory"


_LETS_SINGLE_BYTES_WAIT = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
def pair():
    client = socket.create_connection(listener.getsockname())
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(False)
    return client, listener.accept()[0]
through, out = pair()
rest, kept = bytes(32 * 1024 - 1), []
for _ in range(60):
    kept.append(pair())
    try:
        for _ in range(3000):
            kept[-1][0].send(b"x")
            left = len(rest)
            while left:
                left -= through.send(rest[:left])
            left = len(rest)
            while left:
                left -= len(out.recv(left))
    except BlockingIOError:
        pass
"""


def test_pages_of_which_a_byte_waits_in_a_connection_count(make_box: MakeBox) -> None:
    """TCP counts bytes, for control groups too."""
    box = make_box(overrides={"limits.memory": "256MiB", "limits.wall": "120s"})
    if "namespace" not in str(box.status()["guarantees"]["network"]):
        pytest.skip("without namespaces there is no TCP")
    assert box.run(_LETS_SINGLE_BYTES_WAIT).limit.name == "memory"
