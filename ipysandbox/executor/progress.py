"""A bar that tells how many tasks are done: tqdm's where it is installed, else rich's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(total: int | None) -> Iterator[Callable[[], None]]:
    """What to call for each task that is done. ``total``: how many there will be, where that is known."""
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        with _rich(total) as step:
            yield step
        return
    with tqdm(total=total, unit="task") as shown:
        yield lambda: shown.update(1)


@contextmanager
def _rich(total: int | None) -> Iterator[Callable[[], None]]:
    from rich.progress import Progress

    with Progress() as shown:
        task = shown.add_task("tasks", total=total)
        yield lambda: shown.update(task, advance=1)


def total_of(iterables: Sequence[Any]) -> int | None:
    """How many calls ``map`` makes of them; None where one doesn't tell its length."""
    try:
        return min(map(len, iterables), default=0)
    except TypeError:
        return None
