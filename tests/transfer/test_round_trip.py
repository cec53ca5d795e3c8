"""Values arrive as they were sent, with their exact types, through JSON and raw buffers."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from ipysandbox.guest.values import decode, encode


def cross(value):
    tree, buffers = encode(value)
    wire = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return decode(json.loads(wire), [bytes(b) for b in buffers])


def same(a, b):
    """Equal, of one type, all the way down; NaN equals NaN and -0.0 differs from 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float | Decimal):
        return repr(a) == repr(b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    return a == b and repr(a) == repr(b) if not isinstance(a, set | frozenset) else a == b


ZONES = [
    None,
    dt.timezone.utc,
    dt.timezone(dt.timedelta(hours=-3, minutes=-30)),
    dt.timezone(dt.timedelta(hours=1), "lab time"),
    zoneinfo.ZoneInfo("Europe/Berlin"),
]
zones = st.sampled_from(ZONES)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.binary(),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(timezones=st.sampled_from(ZONES[:4])),
    st.timedeltas(),
    st.decimals(),
    st.fractions(),
    st.uuids(),
)
hashable = scalars.filter(lambda x: not (isinstance(x, Decimal) and x.is_nan()) and x == x)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(hashable, inner),
        st.dictionaries(st.tuples(hashable, hashable), inner),
        st.frozensets(hashable),
        st.sets(hashable),
    ),
    max_leaves=25,
)


@given(values)
@settings(max_examples=300, deadline=None)
def test_any_nest_of_plain_values_arrives_with_its_exact_types(value):
    assert same(cross(value), value)


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, {"b": (2, None)}], 5: {"c": [b"x", 1.5]}},
        {(1, 2): "tuple key", 1.5: "float key", None: "none key", True: "bool key"},
        2**10000,
        -(2**53),
        "\ud800 lone",
        "déjà vu 数据 🧪",
        bytearray(b"abc"),
        range(3, -9, -2),
        Decimal("1E-30"),
        Decimal("-Infinity"),
        Fraction(-3, 7),
        uuid.UUID(int=7),
        Path("results/a b.csv"),
        PurePosixPath("/x"),
        PureWindowsPath("C:\\x"),
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    ],
    ids=repr,
)
def test_plain_value_arrives(value):
    assert same(cross(value), value)


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
    np.array(5, dtype="u1"),
    np.zeros((0, 3), "f4"),
    np.array([True, False]),
    np.array(["a", "bç", ""]),
    np.array([b"a", b"bc"]),
    np.array([1 + 2j], "c8"),
    np.array([1.5], "f2"),
    np.array([1, 2], ">i4"),
    np.array(["2024-01-01", "NaT"], "M8[ns]"),
    np.array([3], "m8[25us]"),
    np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["u1", "3f8"], "offsets": [0, 8], "itemsize": 40})),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}")
def test_array_arrives_with_dtype_shape_and_order_and_can_be_written(array):
    got = cross(array)
    assert type(got) is np.ndarray
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.flags.f_contiguous == array.flags.f_contiguous or not array.flags.forc
    np.testing.assert_array_equal(got, array)
    assert got.flags.writeable


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int64(-1), np.bool_(True), np.datetime64("2024-01-01"), np.str_("x")]
)
def test_numpy_scalar_keeps_its_type(value):
    got = cross(value)
    assert type(got) is type(value)
    assert got == value


FRAMES = {
    "plain": pd.DataFrame({"a": [1, 2, 3], "b": [0.5, None, 2.0], "c": ["x", None, "数据"], "d": [True, False, True]}),
    "object-text": pd.DataFrame({"c": pd.Series(["x", None, np.nan, "y"], dtype=object)}),
    "mixed-objects": pd.DataFrame(
        {"c": pd.Series([1, "x", dt.date(2024, 1, 1), [1, 2], Decimal("1.5")], dtype=object)}
    ),
    "text-python": pd.DataFrame({"c": pd.array(["x", pd.NA], dtype=pd.StringDtype("python"))}),
    "text-pyarrow": pd.DataFrame({"c": pd.array(["x", pd.NA], dtype=pd.StringDtype("pyarrow"))}),
    "dates": pd.DataFrame(
        {
            "t": pd.date_range("2024-01-01", periods=3, freq="h", tz="Europe/Berlin"),
            "u": pd.to_datetime(["2024", None, "2025"]),
        }
    ),
    "time-index": pd.DataFrame({"v": range(4)}, index=pd.date_range("2024-03-31", periods=4, freq="D", tz="UTC")),
    "deltas": pd.DataFrame({"t": pd.to_timedelta([1, None], unit="s")}),
    "category": pd.DataFrame({"c": pd.Categorical(["b", "a", None], categories=["b", "a"], ordered=True)}),
    "category-of-dates": pd.DataFrame({"c": pd.Categorical(pd.to_datetime(["2024", "2025"]))}),
    "nullable": pd.DataFrame(
        {
            "i": pd.array([1, None], "Int16"),
            "b": pd.array([True, None], "boolean"),
            "f": pd.array([0.5, None], "Float64"),
        }
    ),
    "multi-index": pd.DataFrame(
        {"v": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None])
    ),
    "multi-columns": pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_product([["a"], [1, 2]])),
    "duplicate-columns": pd.DataFrame([[1, "x"]], columns=["a", "a"]),
    "named": pd.DataFrame({"a": [1]}, index=pd.Index([7], name="id")).rename_axis(columns="what"),
    "mixed-labels": pd.DataFrame([[1, 2, 3]], columns=["a", 1, ("t", 2)]),
    "empty": pd.DataFrame(),
    "no-rows": pd.DataFrame({"a": pd.Series([], dtype="i2"), "b": pd.Series([], dtype="M8[us]")}),
    "no-columns": pd.DataFrame(index=[1, 2]),
    "from-2d": pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=list("abc")),
}


@pytest.mark.parametrize("name", FRAMES)
def test_table_arrives_with_exact_dtypes_and_labels(name):
    got = cross(FRAMES[name])
    pd.testing.assert_frame_equal(
        got, FRAMES[name], check_exact=True, check_column_type="exact", check_index_type="exact"
    )


@pytest.mark.parametrize("name", [n for n in FRAMES if FRAMES[n].shape[1]])
def test_series_and_index_arrive(name):
    frame = FRAMES[name]
    series = frame.iloc[:, 0]
    pd.testing.assert_series_equal(cross(series), series, check_exact=True)
    pd.testing.assert_index_equal(cross(frame.index), frame.index, exact=True)
    pd.testing.assert_index_equal(cross(frame.columns), frame.columns, exact=True)


def test_a_table_that_arrived_can_be_changed():
    got = cross(FRAMES["plain"])
    got["e"] = got["a"] * 2
    got.loc[0, "a"] = 9
    assert got["a"].tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp("2024-01-01 12:00", tz="Europe/Berlin"),
        pd.Timestamp("2024-01-01").as_unit("ms"),
        pd.Timestamp.max,
        pd.Timedelta("3s"),
        pd.Categorical(["a", "b"]),
    ],
    ids=repr,
)
def test_pandas_scalars_arrive(value):
    got = cross(value)
    assert type(got) is type(value)
    assert (got == value) is True or (got == value).all()
    assert getattr(got, "unit", None) == getattr(value, "unit", None)


def test_missing_values_of_pandas_stay_singletons():
    assert cross([pd.NaT, pd.NA]) == [pd.NaT, pd.NA] or cross([pd.NaT])[0] is pd.NaT
    assert cross(pd.NA) is pd.NA


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "csr_array", "csc_array", "coo_matrix", "coo_array"])
def test_sparse_matrix_arrives(kind):
    matrix = getattr(scipy.sparse, kind)(np.eye(3)[[0, 2, 2]])
    got = cross(matrix)
    assert type(got) is type(matrix)
    np.testing.assert_array_equal(got.toarray(), matrix.toarray())


def test_attributes_of_a_table_stay_behind():
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["x"] = object()
    assert cross(frame).attrs == {}


def test_a_large_array_is_not_copied_on_the_way_out_and_has_memory_of_its_own_after_it():
    array = np.ones(12_500_000)
    tree, buffers = encode(array)
    assert np.shares_memory(np.frombuffer(buffers[0], np.uint8), array)
    assert not np.shares_memory(decode(tree, buffers), array)


def test_floats_that_json_lacks_arrive():
    got = cross([math.inf, -math.inf, math.nan, -0.0])
    assert got[0] == math.inf
    assert got[1] == -math.inf
    assert math.isnan(got[2])
    assert math.copysign(1, got[3]) == -1


def test_what_is_noted_about_a_table_crosses_with_it_as_far_as_it_is_plain():
    plain = {"units": {"a": "kg", "b": None}, "made": [2024, 1.5, True, ("x",)], "größe": "ß"}
    shared: list = [1] * 10
    for _ in range(7):
        shared = [shared] * 100
    other = {1: "x", "when": dt.date(2024, 1, 1), "f": len, "much": "x" * 100_000, "shared": shared}
    for table in (pd.DataFrame({"a": [1, 2]}), pd.Series([1.0])):
        table.attrs = {**other, **plain}
        crossed = cross(table)
        assert same(crossed.attrs, plain)
        table.attrs = {}
        assert cross(table).attrs == {}


@pytest.mark.parametrize("freq", "D 3D h 15min s ms B W W-SUN ME MS QE QS-APR YE YS BME SMS 2W-MON 2QE".split())
def test_frequency_of_an_index_arrives(freq):
    got = cross(pd.date_range("2024-01-01", periods=200, freq=freq))
    assert got.freqstr == pd.tseries.frequencies.to_offset(freq).freqstr


@pytest.mark.parametrize("step", ["D", "h", "s"])
def test_frequency_of_a_fixed_step_arrives_however_long_the_index(step):
    assert cross(pd.date_range("1900-01-01", periods=70_000, freq=step, unit="s")).freqstr == step


def test_frequency_of_the_calendar_is_left_out_of_a_long_index():
    index = pd.date_range("1900-01-01", periods=20_000, freq="B")
    got = cross(index)
    assert got.freq is None
    assert got.equals(index)


ALIKE = {
    "sixteenths": lambda i: i / 16,
    "tenths": lambda i: i * 0.1,
    "pairs": lambda i: (i, i),
    "shifted": lambda i: i << 20,
    "negative": lambda i: -i,
    "whole": float,
    "moments": lambda i: dt.datetime(2024, 1, 1) + dt.timedelta(minutes=i),
}


@pytest.mark.parametrize("name", ALIKE)
def test_labels_that_look_alike_arrive(name):
    labels = pd.Index([ALIKE[name](i) for i in range(5000)], dtype=object, tupleize_cols=False)
    assert cross(labels).equals(labels)
