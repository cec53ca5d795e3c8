"""What can't cross is refused by name, and nothing hostile gets more out of decode than a ValueError."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import functools
import math
import threading
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipysandbox.errors import ValueRefused
from ipysandbox.guest.values import Untransferable, decode, encode
from ipysandbox.output.values import receive, send


class Own:
    def __repr__(self):
        raise AssertionError("the repr of a value ran")

    __str__ = __hash__ = __eq__ = __len__ = __bool__ = __iter__ = __getstate__ = __repr__


class OwnList(list):
    pass


class OwnDatetime(dt.datetime):
    pass


class OwnArray(np.ndarray):
    pass


class OwnFrame(pd.DataFrame):
    pass


class Zone(dt.tzinfo):
    def utcoffset(self, when):
        raise AssertionError("the time zone's code ran")


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")

REFUSED = {
    "object": Own(),
    "object-in-list": [1, (2, Own())],
    "object-as-value": {"k": Own()},
    "function": lambda: 1,
    "class": Own,
    "module": math,
    "partial": functools.partial(print, 1),
    "bound-method": [].append,
    "code": (lambda: 1).__code__,
    "generator": (x for x in ()),
    "list-subclass": OwnList(),
    "named-tuple": Point(1, 2),
    "ordered-dict": collections.OrderedDict(),
    "enum": Colour.RED,
    "datetime-subclass": OwnDatetime(2024, 1, 1),
    "own-time-zone": dt.datetime(2024, 1, 1, tzinfo=Zone()),
    "array-subclass": np.zeros(1).view(OwnArray),
    "masked-array": np.ma.array([1]),
    "matrix": np.matrix([[1]]),
    "object-array": np.array([1, None], dtype=object),
    "object-field": np.zeros(1, dtype=[("a", object)]),
    "frame-subclass": OwnFrame({"a": [1]}),
    "object-in-column": pd.DataFrame({"n": [1, 2], "o": [Own(), "x"]}),
    "object-as-label": pd.DataFrame([[1]], columns=pd.Index([len], dtype=object)),
    "object-in-index": pd.Series([1], index=pd.Index([len], dtype=object)),
    "object-as-category": pd.Series(pd.Categorical.from_codes([0], categories=pd.Index([len], dtype=object))),
    "object-in-name": pd.Series([1], name=("a", len)),
    "period": pd.Series(pd.period_range("2024", periods=2, freq="D")),
    "interval": pd.Series(pd.interval_range(0, 2)),
    "sparse-column": pd.Series(pd.arrays.SparseArray([0, 1])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_value_is_refused_with_its_type_and_what_works(name):
    with pytest.raises(Untransferable, match="can't cross") as caught:
        encode(REFUSED[name])
    assert len(str(caught.value)) < 1500


def test_refusal_names_column_and_type():
    with pytest.raises(Untransferable, match=r"column 'o' of the value is of type [\w.]*Own"):
        encode(REFUSED["object-in-column"])


def test_refusal_names_a_local_class_plainly():
    class Local:
        pass

    with pytest.raises(Untransferable, match=r"test_refused\.test_refusal_names_a_local_class_plainly\.Local,"):
        encode(Local())


def test_refusal_names_the_path_to_a_nested_value():
    with pytest.raises(Untransferable, match=r"the value\['a'\]\['b'\] is of type"):
        encode({"a": {"b": Own()}})


def test_container_that_holds_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(Untransferable, match="holds itself"):
        encode(loop)


def test_list_that_shares_its_parts_exponentially_is_refused():
    shared: list = [1] * 10
    for _ in range(30):
        shared = [shared] * 10
    with pytest.raises(Untransferable, match="larger than"):
        encode(shared, limit=1 << 20)


def test_value_above_the_limit_is_refused():
    with pytest.raises(Untransferable, match="larger than 1000 bytes"):
        encode(np.zeros(1000), limit=1000)
    tree, buffers = encode(np.zeros(1000))
    with pytest.raises(ValueError, match="larger than"):
        decode(tree, buffers, limit=1000)


def test_functions_and_classes_go_in_and_never_out():
    tree, buffers = send({"f": lambda: 1, "class": Own, "partial": functools.partial(print, 1)})
    inside = decode(tree, buffers, inward=True)
    assert inside["f"]() == 1
    assert [inside["class"].__name__, inside["partial"].args] == ["Own", (1,)]
    with pytest.raises(ValueRefused, match="a kind that this version doesn't know"):
        receive(tree, buffers)


def test_a_function_that_holds_what_can_not_go_is_refused_by_name():
    lock = threading.Lock()
    with pytest.raises(ValueRefused, match=r"type function, which can't cross: .*lock"):
        send(lambda: lock)


def test_the_host_side_raises_the_packages_own_error():
    with pytest.raises(ValueRefused, match="can't cross"):
        send(Own())
    with pytest.raises(ValueRefused):
        receive({"v": 1, "value": {"t": "pickle", "b": 0}}, [b"x"])


def value(node, *buffers):
    return {"v": 1, "value": node}, list(buffers)


def array(dtype, shape, index=0):
    return {"t": "array", "d": dtype, "s": shape, "f": False, "b": index}


INT64 = np.zeros(1, "i8").tobytes()
RANGE = {"t": "index", "k": "range", "v": [0, 1, 1], "n": None}


def with_attrs(attrs):
    return value({"t": "frame", "a": [], "c": {**RANGE, "v": [0, 0, 1]}, "i": RANGE, "m": attrs})


HOSTILE = {
    "not-a-dict": ([], []),
    "other-version": ({"v": 2, "value": 1}, []),
    "unknown-kind": value({"t": "pickle", "b": 0}, b"cos\nsystem\n."),
    "kind-is-a-list": value({"t": []}),
    "missing-buffer": value({"t": "bytes", "b": 3}, b"x"),
    "negative-buffer": value({"t": "bytes", "b": -1}, b"x"),
    "boolean-buffer": value({"t": "bytes", "b": True}, b"x", b"y"),
    "object-dtype": value(array("|O", [1]), INT64),
    "object-dtype-8": value(array("|O8", [1]), INT64),
    "object-field": value(array({"fields": [["a", "|O", 0]], "size": 8}, [1]), INT64),
    "comma-dtype": value(array("i4,O", [1]), INT64),
    "huge-item": value(array("|V999999999", [1]), INT64),
    "shape-too-long": value(array("<i8", [2]), INT64),
    "negative-shape": value(array("<i8", [-1, -1]), INT64),
    "overflowing-shape": value(array("<i8", [2**32, 2**32, 0, 2**60]), INT64),
    "shape-of-floats": value(array("<i8", [1.0]), INT64),
    "many-dimensions": value(array("<i8", [1] * 200), INT64),
    "field-outside": value(array({"fields": [["a", "<i8", 100]], "size": 8}, [1]), INT64),
    "negative-offset": value(array({"fields": [["a", "<i8", -8]], "size": 8}, [1]), INT64),
    "field-far-outside": value(array({"fields": [["a", "<U3", 2147483640]], "size": 32}, [3]), b"x" * 96),
    "subarray-outside": value(
        array({"fields": [["a", {"base": "|u1", "shape": [2147483640]}, 16]], "size": 32}, [1]), b"x" * 32
    ),
    "fields-on-fields": value(array({"fields": [["a", "<i8", 0], ["b", "<i8", 4]], "size": 16}, [1]), b"x" * 16),
    "huge-subarray": value(array({"fields": [["a", {"base": "<i8", "shape": [2**40]}, 0]], "size": 8}, [1]), INT64),
    "third-truth": value(array("|b1", [1]), b"\x02"),
    "no-such-character": value(array("<U1", [1]), b"\xff\xff\xff\xff"),
    "colliding-keys": value({"t": "set", "v": [{"t": "int", "v": f"{i * (2**61 - 1):x}"} for i in range(100_000)]}),
    "unhashable-key": value({"t": "dict", "k": [[]], "v": [1]}),
    "unequal-dict": value({"t": "dict", "k": ["a"], "v": []}),
    "not-hex": value({"t": "int", "v": "__import__('os')"}),
    "million-digit-fraction": value({"t": "fraction", "v": [{"t": "int", "v": "f" * 10**6}, 3]}),
    "no-denominator": value({"t": "fraction", "v": [1, 0]}),
    "zone-with-dots": value({"t": "datetime", "v": [2024, 1, 1, 0, 0, 0, 0, 0], "z": {"k": "../../etc/passwd"}}),
    "zone-absolute": value({"t": "datetime", "v": [2024, 1, 1, 0, 0, 0, 0, 0], "z": {"k": "/etc/passwd"}}),
    "zone-is-a-folder": value({"t": "datetime", "v": [2024, 1, 1, 0, 0, 0, 0, 0], "z": {"k": "America"}}),
    "zone-unknown": value({"t": "datetime", "v": [2024, 1, 1, 0, 0, 0, 0, 0], "z": {"k": "No/Where"}}),
    "month-13": value({"t": "date", "v": [2024, 13, 1]}),
    "decimal-words": value({"t": "decimal", "v": "1_0"}),
    "null-in-path": value({"t": "path", "v": 5}),
    "timestamp-out-of-range": value({"t": "timestamp", "v": {"v": "-ffffffffffffffff"}, "u": "ns", "z": None}),
    "timestamp-unit": value({"t": "timestamp", "v": 1, "u": "Y", "z": None}),
    "endless-range-index": value({"t": "index", "k": "range", "v": [0, {"v": "7fffffffffffffff"}, 1], "n": None}),
    "zero-step": value({"t": "range", "v": [0, 1, 0]}),
    "unequal-table": value({"t": "frame", "a": [], "c": RANGE, "i": RANGE}),
    "attrs-of-a-kind": with_attrs([]),
    "attrs-with-a-key-of-a-kind": with_attrs({"t": "dict", "k": [1], "v": ["x"]}),
    "attrs-with-a-value-of-a-kind": with_attrs({"t": "dict", "k": ["x"], "v": [{"t": "date", "v": [1, 1, 1]}]}),
    "attrs-too-large": with_attrs({"t": "dict", "k": ["x"], "v": ["y" * 70_000]}),
    "column-of-2d": value(
        {"t": "series", "a": {"k": "numpy", "a": array("<i8", [1, 1])}, "i": RANGE, "n": None}, INT64
    ),
    "codes-outside": value(
        {
            "t": "categorical",
            "v": {"k": "category", "a": array("<i8", [1]), "c": {**RANGE, "v": [0, 0, 1]}, "o": False},
        },
        INT64,
    ),
    "categories-in-no-order": value(
        {
            "t": "categorical",
            "v": {
                "k": "category",
                "a": array("<i8", [1]),
                "c": {"t": "index", "k": "array", "a": {"k": "numpy", "a": array("<i8", [20_000], 1)}, "n": None},
                "o": False,
            },
        },
        INT64,
        (np.arange(20_000, dtype="i8")[::-1] << 40).tobytes(),
    ),
    "index-of-collisions": value(
        {
            "t": "series",
            "a": {"k": "numpy", "a": array("<i8", [1000])},
            "i": {
                "t": "index",
                "k": "array",
                "a": {"k": "values", "v": [{"t": "int", "v": f"{i * (2**61 - 1):x}"} for i in range(1000)]},
                "n": None,
            },
            "n": None,
        },
        INT64 * 1000,
    ),
    "categories-with-one-half-hash": value(
        {
            "t": "categorical",
            "v": {
                "k": "category",
                "a": array("<i8", [1]),
                # i * 2**32 + i: pandas takes the upper half of a hash and the lower one by exclusive or.
                "c": {
                    "t": "index",
                    "k": "array",
                    "a": {"k": "values", "v": [{"t": "int", "v": f"{i << 32 | i:x}"} for i in range(1, 60_000)]},
                    "n": None,
                },
                "o": False,
            },
        },
        INT64,
    ),
    "many-levels-in-no-order": value(
        {
            "t": "index",
            "k": "multi",
            "l": [
                {"t": "index", "k": "array", "a": {"k": "numpy", "a": array("<i8", [9_000], i)}, "n": None}
                for i in range(4)
            ],
            "c": [array("<i8", [1], i) for i in range(4, 8)],
            "n": [None] * 4,
        },
        *[np.arange(9_000, dtype="i8")[::-1].tobytes()] * 4,
        *[bytes(8)] * 4,
    ),
    "one-buffer-many-times": value([{"t": "bytes", "b": 0}] * 2, b"x"),
    "one-buffer-in-two-columns": value(
        {
            "t": "frame",
            "a": [{"k": "numpy", "a": array("<i8", [1])}] * 2,
            "c": {**RANGE, "v": [0, 2, 1]},
            "i": {**RANGE, "v": [0, 1, 1]},
        },
        INT64,
    ),
    "text-length-negative": value(
        {"t": "series", "a": {"k": "object", "b": 1, "n": array("<i8", [1]), "h": None}, "i": RANGE, "n": None},
        np.array([-1], "i8").tobytes(),
        b"",
    ),
    "text-lengths-wrap": value(
        {"t": "series", "a": {"k": "object", "b": 1, "n": array("<i8", [2]), "h": None}, "i": RANGE, "n": None},
        np.array([2**62, 2**62], "i8").tobytes(),
        b"",
    ),
    "text-not-utf8": value(
        {"t": "series", "a": {"k": "object", "b": 1, "n": array("<i8", [1]), "h": None}, "i": RANGE, "n": None},
        np.array([1], "i8").tobytes(),
        b"\xff",
    ),
    "sparse-index-outside": value(
        {
            "t": "sparse",
            "k": "csr_matrix",
            "s": [1, 1],
            "d": array("<i8", [1], 0),
            "i": array("<i8", [1], 1),
            "p": array("<i8", [2], 2),
        },
        INT64,
        np.array([10**9], "i8").tobytes(),
        np.array([0, 1], "i8").tobytes(),
    ),
    "coordinates-outside": value(
        {
            "t": "sparse",
            "k": "coo_array",
            "s": [1, 1],
            "d": array("<i8", [1], 0),
            "i": array("<i8", [1], 1),
            "p": array("<i8", [1], 1),
        },
        INT64,
        np.array([10**9], "i8").tobytes(),
    ),
    "sparse-class": value({"t": "sparse", "k": "__builtins__", "s": [1, 1]}),
    "levels-in-levels": value({"t": "index", "k": "multi", "l": [{"t": "index", "k": "multi"}], "c": [], "n": []}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_value_is_refused(name):
    tree, buffers = HOSTILE[name]
    start = time.thread_time()
    with pytest.raises(ValueError):  # noqa: PT011  (that it is this class is the promise)
        decode(tree, buffers)
    assert time.thread_time() - start < 2


def dates(freq, count, unit, buffer=0):
    column = {"k": "numpy", "a": array(f"<M8[{unit}]", [count], buffer)}
    return {"t": "index", "k": "array", "a": column, "n": None, "q": freq}


@pytest.mark.parametrize("freq", ["cbh", "bh", "9999B", "C", "CBMS", "LWOM-FRI", "W-MON", "ME", "YE-DEC"])
def test_no_date_is_made_for_a_frequency_that_takes_long(freq, monkeypatch):
    made = []
    monkeypatch.setattr(pd.DatetimeIndex, "freq", property(lambda _: None, lambda *_: made.append(1)))
    moments = np.arange(20_000, dtype="i8")
    got = decode(*value(dates(freq, 20_000, "s"), moments.tobytes()))
    assert got.equals(pd.DatetimeIndex(moments.view("M8[s]")))
    assert made == []


def test_short_indexes_together_make_no_more_dates_than_a_long_one():
    moments = pd.date_range("2000-01-01", periods=4_000, freq="W-MON").to_numpy().astype("M8[s]")
    got = decode(*value([dates("W-MON", 4_000, "s", i) for i in range(5)], *[moments.tobytes()] * 5))
    assert [index.freqstr for index in got] == ["W-MON"] * 2 + [None] * 3


def test_deep_nesting_is_refused_without_exhausting_the_stack():
    node: object = 1
    for _ in range(50_000):
        node = [node]
    with pytest.raises(ValueError, match="deep"):
        decode({"v": 1, "value": node}, [])
    node = 1
    for _ in range(50_000):
        node = {"t": "tuple", "v": [node]}
    with pytest.raises(ValueError, match="deep"):
        decode({"v": 1, "value": node}, [])


KINDS = [
    "surrogates int float complex bytes bytearray tuple set frozenset dict range datetime date time timedelta decimal",
    "fraction uuid path posixpath windowspath array npscalar sparse NaT NA timestamp pdelta categorical index series",
    "frame arrow image figure code nonsense",
]
DTYPES = st.sampled_from(
    ["<i8", "<f8", "|b1", "<U1", "|S8", "<M8[ns]", "<M8", "<m8[us]", "|u1", "|V8", "|O", "<f16", ">c16", "", "i8"]
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    DTYPES,
    st.sampled_from("numpy object values category zoned string nullable range multi array Int64 ns D a ff".split(" ")),
)
shapes = st.lists(st.integers(-1, 4), max_size=3)
arrays = st.builds(array, DTYPES, shapes, st.integers(0, 3))
indexes = st.builds(
    lambda a, b, n: {"t": "index", "k": "range", "v": [a, b, 1], "n": n}, st.integers(0, 2), st.integers(0, 4), leaves
)


def nested(inner):
    keys = st.sampled_from([*"tvbkadsfilnchzuqpom", "na", "base", "shape", "fields", "size"])
    kinds = st.sampled_from(" ".join(KINDS).split())
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=7),
        st.builds(lambda kind, rest: {**rest, "t": kind}, kinds, st.dictionaries(keys, inner, max_size=7)),
    )


columns = st.one_of(
    st.builds(lambda a: {"k": "numpy", "a": a}, arrays),
    st.builds(
        lambda k, b, n, h: {"k": k, "b": b, "n": n, "h": h, "p": True, "na": True},
        st.sampled_from(["object", "string"]),
        st.integers(0, 3),
        arrays,
        st.one_of(st.none(), arrays),
    ),
    st.builds(lambda a, c: {"k": "category", "a": a, "c": c, "o": True}, arrays, indexes),
    st.builds(lambda a: {"k": "zoned", "a": a, "z": {"k": "UTC"}}, arrays),
    st.builds(lambda a, m: {"k": "nullable", "d": "Int64", "a": a, "m": m}, arrays, arrays),
)
trees = st.one_of(
    st.recursive(st.one_of(leaves, arrays, indexes, columns), nested, max_leaves=12),
    st.builds(lambda a, i, n: {"t": "series", "a": a, "i": i, "n": n}, columns, indexes, leaves),
    st.builds(lambda a, q: {"t": "index", "k": "array", "a": a, "n": None, "q": q}, columns, leaves),
    st.builds(lambda a, c, i: {"t": "frame", "a": a, "c": c, "i": i}, st.lists(columns, max_size=2), indexes, indexes),
)


@given(trees, st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([INT64, INT64 * 2, b"\1" * 8])), max_size=4))
@settings(max_examples=600, deadline=None)
def test_no_tree_gets_more_than_a_value_error_out_of_decode(tree, buffers):
    try:
        got = decode({"v": 1, "value": tree}, buffers, limit=1 << 16)
    except ValueError:
        return
    repr(got)  # what a notebook does first


def test_decode_of_lying_lengths_allocates_nothing_near_what_they_say():
    tracemalloc.start()
    try:
        for tree, buffers in HOSTILE.values():
            with pytest.raises(ValueError):  # noqa: PT011
                decode(tree, buffers, limit=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
