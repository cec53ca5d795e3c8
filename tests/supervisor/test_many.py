"""Many sandboxes in one host: each is still watched, and each end is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ipysandbox import Sandbox
from ipysandbox.supervisor.spawn import Supervisor

MakeBox = Callable[..., Sandbox]

#: So many that the supervisor holds more than 1,024 descriptors, which select(2) knows.
_MANY = 48


@pytest.mark.timeout(300)
def test_the_end_of_the_last_of_many_sandboxes_is_noticed(make_box: MakeBox) -> None:
    with ThreadPoolExecutor(4) as threads:
        boxes = list(threads.map(lambda _: make_box(overrides={"limits.memory": "1GiB"}), range(_MANY)))
        assert list(threads.map(lambda box: box.run("6 * 7").status, boxes)) == ["ok"] * _MANY
    if os.geteuid() == 0:  # an ordinary user may not look: the supervisor hides its memory
        assert len(os.listdir(f"/proc/{Supervisor.current().pid}/fd")) > 1024
    for box in (boxes[0], boxes[-1]):
        assert box.run("import os; os._exit(3)", timeout=30).status == "died"
        assert box.run("1", timeout=30).status == "ok"
    result = boxes[-1].run("while True: pass", timeout=0.5)
    assert result.limit is not None
    assert result.limit.name == "wall"
