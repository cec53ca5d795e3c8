"""Large values are read in the sandbox's memory: what it says of where they are is believed no more than a message."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ipysandbox import Sandbox, ValueRefused, direct
from ipysandbox.backends.linux.processes import started
from ipysandbox.guest import values

SECRET = b"what the user's own process holds"
#: In a cell: the guest's own code is in the hands of whoever runs there.
FORGE = """
import ipysandbox.guest.values as values, numpy as np
kernel = get_ipython().kernel
answer = kernel._answer
def forged(stream, kind, content, *rest):
    content.update({changes})
    answer(stream, kind, content, *rest)
kernel._answer = forged
large = np.arange(1 << 18)
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(project=tmp_path, validate=False) as sandbox:
        yield sandbox


def me() -> list[int]:
    return [os.getpid(), started(os.getpid())]


@pytest.fixture
def readable() -> None:
    """Some containers' engines refuse it; values come by messages there."""
    byte = ctypes.create_string_buffer(b"x")
    try:
        direct.read(me(), [[ctypes.addressof(byte), 1]], 1)
    except direct.Unreadable:
        pytest.skip("process_vm_readv is refused here")


@pytest.mark.usefixtures("readable")
def test_what_is_read_is_what_is_there_in_memory_of_its_own() -> None:
    arrays = [np.arange(1 << 17), np.zeros(0), np.arange(3, dtype=np.uint8)]
    buffers = [memoryview(array).cast("B") for array in arrays if array.size] + [b""]
    read = direct.read(me(), values.places(buffers), 1 << 21)
    assert [bytes(buffer) for buffer in read] == [bytes(buffer) for buffer in buffers]
    arrays[0][:] = -1
    assert np.frombuffer(read[0], np.int64)[-1] == (1 << 17) - 1


@pytest.mark.parametrize(
    "spans",
    [
        None, {}, [], "at", [[1]], [[1, 2, 3]], [["1", 2]], [[1.0, 2]], [[True, 2]], [[-1, 2]], [[1, -2]],
        [[1, 1 << 70]], [[4096, 8]], [[(1 << 63) - 4096, 4096]], [[1, (1 << 20) + 1]], [[1, 1 << 19]] * 3,
        [[1, 1]] * (direct.MOST_SPANS + 1),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_not_read(spans: object) -> None:
    with pytest.raises(direct.Unreadable):
        direct.read(me(), spans, 1 << 20)


@pytest.mark.usefixtures("readable")
def test_only_the_process_that_was_meant_is_read() -> None:
    data = ctypes.create_string_buffer(SECRET)
    span = [[ctypes.addressof(data), len(SECRET)]]
    assert bytes(direct.read(me(), span, 100)[0]) == SECRET
    pid, start = me()
    for process in (None, [pid], [pid, start + 1], [pid, 0], [0, start], [-1, start], [str(pid), start]):
        with pytest.raises(direct.Unreadable):
            direct.read(process, span, 100)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(direct.Unreadable):
        direct.read([gone.pid, start], span, 100)


def test_a_large_array_is_the_caller_s_own(box: Sandbox) -> None:
    box.run("import numpy as np\nlarge = np.arange(1 << 18)\npair = (large, large, large[::-1])")
    got = box.get("large")
    box.run("large[:] = 0")
    assert (got == np.arange(1 << 18)).all()
    got[:] = 7
    assert box.get("large").max() == 0
    first, second, third = box.get("pair")
    first[0] = 5
    assert second[0] == third[-1] == 0


@pytest.mark.parametrize(
    "changes",
    [
        f"at=[[{4096}, {1 << 21}]]",
        "at=[[1, 1 << 62]]",
        "at={'no': 'list'}",
        "at=[[0, 0]] * 100_000",
        "process=[1, 1]",
    ],
)
def test_a_forged_place_gives_the_value_by_messages_or_an_error(box: Sandbox, changes: str) -> None:
    assert box.run(FORGE.format(changes=changes)).status == "ok"
    assert (box.get("large") == np.arange(1 << 18)).all()


def test_a_process_that_the_sandbox_names_is_not_read(box: Sandbox) -> None:
    """The host's own, say, by a number that code can guess."""
    data = ctypes.create_string_buffer(SECRET * (1 << 16))
    tree, _ = values.encode(np.zeros(len(SECRET) << 16, np.uint8))
    changes = f"process={me()}, at=[[{ctypes.addressof(data)}, {len(SECRET) << 16}]], tree={tree!r}"
    assert box.run(FORGE.format(changes=changes)).status == "ok"
    with pytest.raises(ValueRefused) as caught:  # the address is nothing in the sandbox, and its message fits no tree
        box.get("large")
    assert SECRET.decode() not in str(caught.value)


def test_where_the_kernel_refuses_values_come_by_messages(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object) -> int:
        return -1

    box.run("import numpy as np\nlarge = np.arange(1 << 18)")
    monkeypatch.setattr(direct, "_vm_readv", refused)
    assert (box.get("large") == np.arange(1 << 18)).all()
    assert (box.get("large") == np.arange(1 << 18)).all()


def test_a_frequency_that_the_code_forged_is_left_out_of_a_long_index(box: Sandbox) -> None:
    box.run(
        "import numpy as np, pandas as pd\n"
        "i = pd.DatetimeIndex(np.arange(100_000).view('M8[s]'))\n"
        "type(i).freqstr = property(lambda self: 'W-MON')"
    )
    index = box.get("i")
    assert len(index) == 100_000
    assert index.freq is None
