"""What the tests of sandboxes without namespaces share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .hosts import Box, Host


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


@pytest.fixture
def make_confined(host: Host, project: Path) -> Iterator[Callable[..., Box]]:
    """Starts sandboxes without namespaces on the project."""
    boxes: list[Box] = []

    def make(**options: Any) -> Box:
        box = Box(host, f"b{len(boxes)}", project, **options)
        boxes.append(box)
        return box

    yield make
    for box in boxes:
        box.close()


@pytest.fixture
def confined_box(make_confined: Callable[..., Box]) -> Box:
    return make_confined()
