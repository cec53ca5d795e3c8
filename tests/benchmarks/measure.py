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
    #: Of what a sample returns: seconds or bytes.
    unit: str = "s"


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


def measure(group: Group, on_sample: Callable[[], None]) -> Result:
    """All cases once unmeasured (caches fill, lazy imports happen), then in rounds that start at another case each."""
    names, left_out = [], {}
    for name, sample in group.cases.items():
        try:
            sample()
            names.append(name)
        except CannotDo as exc:
            left_out[name] = str(exc)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(group.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(group.cases[name]())
            on_sample()
    base = statistics.median(samples[group.baseline])
    order = [group.baseline, *(name for name in names if name != group.baseline)]
    rows = [Row(name, tuple(samples[name]), statistics.median(samples[name]) / base) for name in order]
    return Result(group.key, group.title, rows, left_out, group.unit)
