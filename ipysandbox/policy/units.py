"""Durations and sizes with units: read from a policy, and written back for people."""

from __future__ import annotations

import re
from decimal import Decimal

DURATION_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
# What people write instead; each is refused, because "m" and "G" mean different things to different tools.
_MEANT = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("millisecond", "milliseconds", "msec"), "ms"),
    **dict.fromkeys(("byte", "bytes"), "B"),
    **dict.fromkeys(("k", "kb"), "KiB"),
    "m/size": "MiB",
    "mb": "MB",
    **dict.fromkeys(("g", "gig"), "GiB"),
    "gb": "GB",
    "t": "TiB",
    "tb": "TB",
}
# From here on a number without a unit was hardly meant in GiB.
_MANY_GIB = 100
# Twenty digits are more than any duration or size needs, and keep the arithmetic exact.
_QUANTITY = re.compile(r"\s*([+-]?)([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)\s*", re.ASCII)


class BadValue(ValueError):
    """A value that has no meaning where it stands; ``hint`` says what to write instead."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def parse_duration(value: object) -> float:
    """Seconds meant by ``"300s"``, ``"5min"``, ``"2h"`` …; BadValue for anything else."""
    number, unit = _split(value, "a duration", "300s", "s")
    if unit not in DURATION_UNITS:
        raise _unknown_unit(value, number, unit, duration_unit(unit), DURATION_UNITS)
    return float(number * DURATION_UNITS[unit])


def parse_size(value: object) -> int:
    """Bytes meant by ``"4GiB"`` (2**30 each), ``"1GB"`` (10**9 each) …; BadValue for anything else."""
    number, unit = _split(value, "a size", "4GiB", _base_of_size(value))
    if unit not in SIZE_UNITS:
        raise _unknown_unit(value, number, unit, size_unit(unit), SIZE_UNITS)
    return int(number * SIZE_UNITS[unit])


def duration_unit(word: str) -> str | None:
    """The unit of time that is meant by a word, as it is written in a policy."""
    if word in DURATION_UNITS:
        return word
    meant = _MEANT.get(word.lower()) or _same_letters(word, DURATION_UNITS)
    return meant if meant in DURATION_UNITS else None


def size_unit(word: str) -> str | None:
    """The same of sizes."""
    if word in SIZE_UNITS:
        return word
    meant = _MEANT.get(f"{word.lower()}/size") or _MEANT.get(word.lower()) or _same_letters(word, SIZE_UNITS)
    return meant if meant in SIZE_UNITS else None


def format_duration(seconds: float) -> str:
    """The shortest exact spelling, which ``parse_duration`` reads back as the same number."""
    exact = Decimal(repr(float(seconds)))
    for unit in ("d", "h", "min", "s", "ms"):
        count = exact / DURATION_UNITS[unit]
        if count >= 1 and count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return f"{exact:f}s"


def format_size(size: int, *, exact: bool = True) -> str:
    """The shortest exact spelling; with ``exact=False`` one decimal is enough ("11.8MiB"), for measured values."""
    large_first = sorted(SIZE_UNITS.items(), key=lambda item: -item[1])
    for unit, scale in large_first:
        if size >= scale > 1 and size % scale == 0:
            return f"{size // scale}{unit}"
    for unit, scale in large_first:
        if not exact and "i" in unit and size >= scale:
            return f"{size / scale:.1f}{unit}"
    return f"{size}B"


def _base_of_size(value: object) -> str:
    """What a size without a unit was probably meant in: nobody allows a sandbox four bytes, or 2000 GiB."""
    try:
        number = float(str(value))
    except ValueError:
        return "GiB"
    return "B" if number >= SIZE_UNITS["MiB"] else "MiB" if number >= _MANY_GIB else "GiB"


def _split(value: object, what: str, example: str, base: str) -> tuple[Decimal, str]:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadValue(
            f"{what} is a text such as {quoted(example)}, not {type_name(value)}", f"write {quoted(example)}"
        )
    if not isinstance(value, str):
        if value != value or value in (float("inf"), float("-inf")):
            raise BadValue(f"{value} is no limit: {what} is always finite", f"write for example {quoted(example)}")
        if value <= 0:
            raise BadValue(f"{what} must be more than zero", f"write for example {quoted(example)}")
        if value > 10**20:
            raise BadValue("that number is out of all range, and has no unit", f"write for example {quoted(example)}")
        raise _no_unit(str(value), f"{value}{base}", example)
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise BadValue(f"{quoted(value)} is not {what}", f"write a number and a unit, for example {quoted(example)}")
    sign, digits, unit = match.groups()
    number = Decimal(digits)
    if sign == "-" or number == 0:
        raise BadValue(f"{what} must be more than zero, not {quoted(value)}", f"write for example {quoted(example)}")
    if not unit:
        raise _no_unit(quoted(value), f"{digits}{base}", example)
    return number, unit


def _no_unit(shown: str, with_unit: str, example: str) -> BadValue:
    hint = f"write {quoted(with_unit)}"
    return BadValue(
        f"{shown} has no unit", hint if with_unit == example else f"{hint}, or for example {quoted(example)}"
    )


def _same_letters(unit: str, units: dict[str, Decimal] | dict[str, int]) -> str | None:
    return next((known for known in units if known.lower() == unit.lower()), None)


def _unknown_unit(
    value: object, number: Decimal, unit: str, meant: str | None, units: dict[str, Decimal] | dict[str, int]
) -> BadValue:
    hint = f"write {quoted(f'{number}{meant}')}" if meant else f"units are {', '.join(units)}"
    return BadValue(f"{quoted(str(value))} has an unknown unit {quoted(unit)}", hint)


def quoted(text: str) -> str:
    """The text as a reader would write it in TOML: one line, at most 80 characters, control characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return f'"{shown if len(shown) <= 80 else shown[:77] + "…"}"'


def type_name(value: object) -> str:
    """How TOML calls the type of a value."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", tuple: "a list"}
    return names.get(type(value), "a table" if isinstance(value, dict) else f"a {type(value).__name__}")
