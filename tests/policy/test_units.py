"""Promises about durations and sizes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipysandbox.policy.units import BadValue, format_duration, format_size, parse_duration, parse_size, quoted


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300s", 300), ("5min", 300), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), ("1.5h", 5400), (" 30 s ", 30)],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 * 2**30), ("1GB", 10**9), ("500MB", 5 * 10**8), ("64KiB", 65536), ("10B", 10), ("1.5GiB", 3 * 2**29)],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (300, 'write "300s"'),
        (300.5, 'write "300.5s"'),
        ("300", 'write "300s"'),
        ("5m", 'write "5min"'),
        ("5 minutes", 'write "5min"'),
        ("5MIN", 'write "5min"'),
        ("4GiB", "units are ms, s, min, h, d"),
        ("-5s", "300s"),
        ("0s", "300s"),
        ("", "300s"),
        ("soon", "300s"),
        ("inf", "300s"),
        ("nan", "300s"),
        (float("nan"), "300s"),
        (float("inf"), "300s"),
        (-1, "300s"),
        (True, "300s"),
        (None, "300s"),
        (["1s"], "300s"),
        ("1e3s", "300s"),
        ("1_000s", "300s"),
        ("٣s", "300s"),
        ("9" * 5000 + "s", "300s"),
        pytest.param(16**5000, "300s", id="a number too long to show"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_to_write(value: object, advice: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_duration(value)
    assert advice in str(caught.value.hint)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (4, 'write "4GiB"'),
        (4 << 30, 'write "4294967296B", or for example "4GiB"'),
        ("4", '"4GiB"'),
        (2000, 'write "2000MiB"'),
        ("512", 'write "512MiB"'),
        ("4G", 'write "4GiB"'),
        ("4gb", 'write "4GB"'),
        ("500m", 'write "500MiB"'),
        ("4gib", 'write "4GiB"'),
        ("2 TiBs", "units are"),
        ("5min", "units are"),
        ("-4GiB", "4GiB"),
        ("NaN", "4GiB"),
    ],
)
def test_what_is_no_size_is_refused_with_what_to_write(value: object, advice: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_size(value)
    assert advice in str(caught.value.hint)


@given(st.floats(min_value=0.05, max_value=30 * 86400))
def test_a_duration_is_written_so_that_it_reads_back_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=1, max_value=2**46))
def test_a_size_is_written_so_that_it_reads_back_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.binary(), st.lists(st.text())))
def test_nothing_but_a_bad_value_error_comes_out_of_odd_input(value: object) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(BadValue):
            assert parse(value) >= 0


def test_people_read_the_shortest_spelling() -> None:
    assert [format_duration(s) for s in (300, 90, 7200, 0.25, 86400)] == ["5min", "90s", "2h", "250ms", "1d"]
    assert [format_size(n) for n in (4 * 2**30, 5 * 10**8, 2**25, 12_345_678)] == [
        "4GiB",
        "500MB",
        "32MiB",
        "12345678B",
    ]
    assert format_size(12_345_678, exact=False) == "11.8MiB"


def test_a_quoted_text_is_one_short_printable_line() -> None:
    assert quoted("a\x1b[31m\n\u202eb") == '"a\\x1b[31m\\n\\u202eb"'
    assert len(quoted("x" * 1000)) == 80
