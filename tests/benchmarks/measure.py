"""Takes samples of several cases in turns, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: Takes one sample and returns its seconds (or bytes); what is not meant (clearing up, for one) it leaves out itself.
Sample = Callable[[], float]

#: From so many samples on, the 95th of a hundred says something.
_ENOUGH_FOR_P95 = 40


class CannotDo(Exception):
    """Raised by a sample: what runs here does not do this work, and why."""


@dataclass(frozen=True)
class Group:
    """Cases that do the same work in different surroundings; ``baseline`` names the one that ratios refer to."""

    key: str
    title: str
    baseline: str
    cases: Mapping[str, Sample]
    rounds: int
    #: Rounds with ``--quick``; 0: left out there.
    quick: int = 2
    #: Of what a sample returns: seconds, bytes, or seconds of each task.
    unit: str = "s"
    #: Whether each case is taken once unmeasured first: caches fill, lazy imports happen.
    warm: bool = True


@dataclass(frozen=True)
class Row:
    """The samples of one case, in seconds or bytes."""

    name: str
    samples: tuple[float, ...]
    #: Median of this case by the median of the baseline, both of this run.
    ratio: float

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Half of the samples lie between these two."""
        if len(self.samples) == 1:
            return self.samples[0], self.samples[0]
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    @property
    def p95(self) -> float | None:
        if len(self.samples) < _ENOUGH_FOR_P95:
            return None
        return statistics.quantiles(self.samples, n=20, method="inclusive")[-1]


@dataclass(frozen=True)
class Result:
    """What a run of one group gave; the baseline is the first row."""

    key: str
    title: str
    rows: list[Row]
    #: Cases that can't do this work, and why.
    left_out: Mapping[str, str]
    unit: str = "s"


def measure(group: Group, rounds: int, on_sample: Callable[[], None]) -> Result:
    """In rounds that start at another case each. A case that can't go on is left out of this group, with its reason."""
    samples: dict[str, list[float]] = {name: [] for name in group.cases}
    left_out: dict[str, str] = {}

    def take(name: str, kept: bool) -> None:
        try:
            value = group.cases[name]()
        except CannotDo as exc:
            left_out[name] = str(exc)
            del samples[name]
            return
        if kept:
            samples[name].append(value)

    if group.warm:
        for name in group.cases:
            take(name, kept=False)
    for number in range(rounds):
        names = list(samples)
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            take(name, kept=True)
            on_sample()
    return Result(group.key, group.title, _rows(group.baseline, samples), left_out, group.unit)


def _rows(baseline: str, samples: Mapping[str, list[float]]) -> list[Row]:
    """The baseline first; where it could not be taken, the first case stands for it."""
    names = sorted(samples, key=lambda name: name != baseline)
    base = statistics.median(samples[names[0]]) if names else 1.0
    return [Row(name, tuple(samples[name]), statistics.median(samples[name]) / base) for name in names]
