"""Graphics cards: a sandbox gets those that its policy names, no other, and is ended when it holds more than its share.

There is no card here. NVIDIA's management library is a stand-in built from ``stub_nvml.c``, and the files in /dev are
``cards.py``'s; check_card.py does the same with a real card.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ipysandbox.guest.after_import import AfterImport

_HERE = Path(__file__).parent
_GIB = 1 << 30
_UUIDS = [f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(3)]
#: Two whole cards, the second of them the file nvidia7, and one that is divided.
_STATE = f"card 0 {_UUIDS[0]} {16 * _GIB} 2\ncard 7 {_UUIDS[1]} {8 * _GIB} 0\ncard 1 {_UUIDS[2]} {8 * _GIB} 1\n"

_BEGIN = """
import os, sys, time
from pathlib import Path
from ipysandbox import Sandbox, StartError
state = Path(os.environ["STUB_NVML"])
whole = state.read_text()

def policy(*devices, **more):
    return {"limits": {"gpu": {"devices": list(devices), **more}, "wall": "60s"}}

def pids(box):
    found, queue = [], [box.status()["pid"]]
    while queue:
        pid = queue.pop()
        found.append(pid)
        for task in os.listdir(f"/proc/{pid}/task"):
            queue += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found

def hold(*rows):
    "Each row: (card, pid, bytes). Written beside and renamed: a reading sees the one or the other."
    new = state.with_suffix(".new")
    new.write_text(whole + "".join(f"process {c} {p} {b}\\n" for c, p, b in rows))
    new.rename(state)
"""

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stand-in for NVIDIA's library."""
    folder = tmp_path_factory.mktemp("nvml")
    out = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, _HERE / "stub_nvml.c"], check=True)
    return folder


@pytest.fixture
def run(library: Path, project: Path, tmp_path: Path) -> Run:
    """Runs a script on the host side, on a machine with cards; the lines it prints."""

    def call(script: str, *, cards: bool = True, nvml: bool = True) -> list[str]:
        state = tmp_path / "state"
        state.write_text(_STATE)
        environ = {**os.environ, "STUB_NVML": str(state), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        if nvml:
            environ["LD_LIBRARY_PATH"] = str(library)
        prefix = [sys.executable, str(_HERE / "cards.py")] if cards else []
        command = [*prefix, sys.executable, "-c", _BEGIN + script]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return call


def test_only_the_cards_that_are_named_exist_inside(run: Run) -> None:
    code = "import os; print(sorted(n for n in os.listdir('/dev') if n.startswith('nvidia')))"
    assert run(f"""
for devices in ((), ("0",), ("{_UUIDS[1]}",), ("1", "0")):
    with Sandbox(policy(*devices), validate=False) as box:
        print(box.run({code!r}).stdout.strip())
""") == [
        "[]",
        "['nvidia-uvm', 'nvidia-uvm-tools', 'nvidia0', 'nvidiactl']",
        "['nvidia-uvm', 'nvidia-uvm-tools', 'nvidia7', 'nvidiactl']",
        "['nvidia-uvm', 'nvidia-uvm-tools', 'nvidia0', 'nvidia7', 'nvidiactl']",
    ]


def test_what_cuda_insists_on_works_and_nothing_else_of_proc_is_written(run: Run) -> None:
    code = """
import os, threading
def opens(path, flags=os.O_RDWR):
    try: os.close(os.open(path, flags)); return True
    except OSError: return False
print(opens('/dev/nvidia0'), opens('/dev/nvidia-uvm'))
names = []
def rename():
    with open(f'/proc/self/task/{threading.get_native_id()}/comm', 'r+') as file: file.write('cuda00001400006')
    names.append(open(f'/proc/self/task/{threading.get_native_id()}/comm').read().strip())
thread = threading.Thread(target=rename); thread.start(); thread.join()
print(names)
open('/proc/self/comm', 'w').close()  # with O_TRUNC
for path in ('/proc/1/comm', '/proc/1/oom_score_adj', '/proc/sys/kernel/hostname', '/proc/sysrq-trigger'):
    try: fd = os.open(path, os.O_WRONLY); os.write(fd, b'1')
    except OSError: continue
    if os.stat(path).st_rdev != os.stat('/dev/null').st_rdev: print('wrote', path)
"""
    assert run(f"""
with Sandbox(policy("0"), validate=False) as box:
    result = box.run({code!r})
    print(result.stdout + (str(result.error) if result.error else ""), end="")
""") == ["True True", "['cuda00001400006']"]


def test_without_a_card_proc_stays_unwritable(run: Run) -> None:
    code = "open('/proc/self/comm', 'w')"
    assert run(f"""
with Sandbox(validate=False) as box:
    print(box.run({code!r}).error.ename, "CUDA_VISIBLE_DEVICES" in box.run("import os; dict(os.environ)").value)
""") == ["PermissionError False"]


def test_libraries_find_the_cards_and_their_share_in_the_environment(run: Run) -> None:
    code = "import os; [os.environ[n] for n in ('CUDA_VISIBLE_DEVICES', 'XLA_PYTHON_CLIENT_MEM_FRACTION')]"
    assert run(f"""
with Sandbox(policy("1", "0", memory_fraction=0.25), validate=False) as box:
    print(box.run({code!r}).value)
""") == [f"['{_UUIDS[1]},{_UUIDS[0]}', '0.2500']"]


def test_who_holds_more_than_its_share_is_ended_and_the_limit_named(run: Run) -> None:
    lines = run("""
with Sandbox(policy("0", "1", memory_fraction=0.5), validate=False) as box:
    box.run("kept = 1")
    kernel = pids(box)[-1]
    hold((0, kernel, 8 << 30), (1, 1, 8 << 30))  # all of its share; and another's process holds the whole other card
    result = box.run("import time; time.sleep(1); kept")
    print(result.status, result.value)
    hold((1, kernel, (4 << 30) + 1))
    began = time.monotonic()
    result = box.run("import time; time.sleep(50)")
    print(result.status, result.limit.name, result.limit.value == 4 << 30, result.limit.observed - (4 << 30))
    print(time.monotonic() - began < 10, result.state_kept)
    print(result.limit.text)
    hold()
    print(box.run("1").status)
""")
    assert lines[:3] == ["ok 1", "limit gpu True 1", "True False"]
    assert "graphics memory" in lines[3]
    assert "memory_fraction under [limits.gpu]" in lines[3]
    assert lines[4:] == ["ok"]


def test_many_processes_count_together(run: Run) -> None:
    assert run("""
with Sandbox(policy("0", memory_fraction=0.5), validate=False) as box:
    box.run("import subprocess; children = [subprocess.Popen(['sleep', '60']) for _ in range(4)]")
    hold(*((0, pid, 2 << 30) for pid in pids(box)[-5:]))
    result = box.run("import time; time.sleep(50)")
    print(result.status, result.limit and result.limit.name)
""") == ["limit gpu"]


@pytest.mark.parametrize("word", ["fail", "hang"])
def test_a_driver_that_no_longer_tells_ends_the_sandbox(run: Run, word: str) -> None:
    lines = run(f"""
began = time.monotonic()
with Sandbox(policy("0"), validate=False) as box:
    box.run("1")
    whole += "{word}\\n"
    hold()
    result = box.run("import time; time.sleep(50)")
    print(result.status)
    print(" ".join(result.notices), result.error)
print("closed", time.monotonic() - began < 40)
""")
    assert lines[0] == "died"
    assert "graphics card" in " ".join(lines[1:-1])
    assert lines[-1] == "closed True"


REFUSED = {
    "a card that is not there": ('policy("5")', True, True, "there is no card 5 here"),
    "an identifier of no card": (
        'policy("GPU-aaaaaaaa-1111-2222-3333-444444444444")',
        True,
        True,
        "there is no card GPU-a",
    ),
    "a divided card": ('policy("2")', True, True, "divided into instances (MIG)"),
    "no driver": ('policy("0")', True, False, "libnvidia-ml.so.1"),
    "no files in /dev": ('policy("0")', False, True, "/dev/nvidia0 is not there"),
}


@pytest.mark.parametrize(("policy", "cards", "nvml", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_card_that_can_not_be_given_or_watched_refuses_the_start(
    run: Run, policy: str, cards: bool, nvml: bool, reason: str
) -> None:
    script = f"""
from ipysandbox.supervisor.spawn import Supervisor
folder = Supervisor.current().client.folder
before = sorted(os.listdir(folder))
try: Sandbox({policy}).start()
except StartError as exc: print(exc)
assert sorted(os.listdir(folder)) == before, os.listdir(folder)
"""
    text = "\n".join(run(script, cards=cards, nvml=nvml))
    assert "limits.gpu.devices" in text
    assert reason in text
    assert len(text.splitlines()) > 1  # and what to do


def test_a_sandbox_without_namespaces_gets_no_card(run: Run) -> None:
    pod = _HERE.parent / "pod.py"
    script = f"""
import subprocess
code = '''
from ipysandbox import Sandbox, StartError
try: Sandbox({{"limits": {{"gpu": {{"devices": ["0"]}}}}}}).start()
except StartError as exc: print(exc.message)
'''
print(subprocess.run([sys.executable, {str(pod)!r}, sys.executable, "-c", code], capture_output=True, text=True).stdout)
"""
    assert "only to a sandbox with namespaces" in "\n".join(run(script))


def test_who_asks_without_starting_is_told_what_a_start_would_say(run: Run) -> None:
    """`policy lint` and `trust` do; see tests/doors/test_commands.py."""
    script = (
        "from ipysandbox.doctor import without_cards\nprint([without_cards(cards) for cards in (['0', '1'], ['5'])])"
    )
    [told] = run(script)
    assert told.startswith("['', 'limits.gpu.devices: there is no card 5 here")


# -- inside: libraries keep to their share by themselves


_TORCH = """
calls, queue = [], []
class cuda:
    @staticmethod
    def device_count(): return 2
    @staticmethod
    def set_per_process_memory_fraction(fraction, device): calls.append((fraction, device))
    @staticmethod
    def _lazy_call(call): queue.append(call)
"""
_TENSORFLOW = """
from types import SimpleNamespace
calls = []
config = SimpleNamespace(
    list_physical_devices=lambda kind: [kind + "0"],
    LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
    set_logical_device_configuration=lambda card, limits: calls.append((card, limits)),
)
"""


def test_torch_and_tensorflow_are_told_their_share_at_import(run: Run, project: Path) -> None:
    (project / "torch.py").write_text(_TORCH)
    (project / "tensorflow.py").write_text(_TENSORFLOW)
    code = """
import sys
print('torch' in sys.modules, 'tensorflow' in sys.modules)
import torch, tensorflow
print(torch.calls, tensorflow.calls)
for call in torch.queue: call()
print(torch.calls, type(torch.__spec__.loader).__name__, type(torch.__loader__).__name__)
"""
    assert run(f"""
with Sandbox(policy("0", memory_fraction=0.25), validate=False) as box:
    result = box.run({code!r})
    print(result.stdout + result.stderr + str(result.error or ""), end="")
""") == [
        "False False",
        "[] [('GPU0', [4096])]",
        "[(0.25, 0), (0.25, 1)] SourceFileLoader SourceFileLoader",
    ]


def _import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, action: Callable[[Any], None]) -> ModuleType:
    (tmp_path / "some_library.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [AfterImport({"some_library": action}), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "some_library", raising=False)
    import some_library  # type: ignore[import-not-found]

    return some_library  # type: ignore[no-any-return]


def test_a_library_that_changed_its_interface_still_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: Any) -> None:
        module.no_such_thing()

    with pytest.warns(UserWarning, match="some_library could not be fitted to the sandbox"):
        module = _import(tmp_path, monkeypatch, "x = 1", broken)
    assert module.x == 1


def test_a_library_that_fails_to_import_fails_as_it_would_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ZeroDivisionError):
        _import(tmp_path, monkeypatch, "1 / 0", lambda _module: None)


def test_a_library_that_is_not_installed_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = AfterImport({"no_such_library": lambda _module: None})
    assert finder.find_spec("no_such_library") is None
    assert finder.find_spec("json") is None
    assert SimpleNamespace(**finder.__dict__)._actions.keys() == {"no_such_library"}
