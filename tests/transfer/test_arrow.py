"""Arrow and polars tables arrive as they were sent; what is hostile in one gets no further than a ValueError."""

from __future__ import annotations

import copy
import datetime as dt
import json
import random
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from ipysandbox.guest.values import Untransferable, decode, encode

COLUMNS = {
    "int": pa.array([1, None, 3], pa.int32()),
    "text": pa.array(["a", None, "ü"]),
    "truth": pa.array([True, False, None]),
    "float": pa.array([1.5, None, 2.5]),
    "half": pa.array([1, None, 2.5], pa.float16()),
    "zoned": pa.array([1, 2, None], pa.timestamp("us", "Europe/Berlin")),
    "moment": pa.array([1, 2, None], pa.timestamp("ns")),
    "duration": pa.array([1, 2, None], pa.duration("ms")),
    "time": pa.array([1, 2, None], pa.time64("ns")),
    "date": pa.array([dt.date(2020, 1, 1), None, None]),
    "decimal": pa.array([Decimal("1.23"), None, Decimal("9.99")]),
    "bytes": pa.array([b"x", b"", None]),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "category": pa.array(["x", "y", None]).dictionary_encode(),
    "list": pa.array([[1, 2], None, []]),
    "pair": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2)),
    "large": pa.array([["a"], None, []], pa.large_list(pa.large_string())),
    "struct": pa.array([{"a": 1, "b": ["q"]}, None, {"a": None, "b": None}]),
    "nothing": pa.nulls(3),
}
WHOLE = pa.table(COLUMNS, metadata={"made": "by hand"})


def cross(value):
    tree, buffers = encode(value)
    wire = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return decode(json.loads(wire), [bytes(b) for b in buffers])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_arrives_whole_sliced_chunked_and_empty(name):
    table = pa.table({name: COLUMNS[name]})
    for sent in (table, table.slice(1), table.slice(1, 1), table.slice(0, 0), pa.concat_tables([table, table])):
        got = cross(sent)
        assert type(got) is pa.Table
        assert got.schema.equals(sent.schema)
        assert got.equals(sent)


def test_a_table_and_a_batch_arrive_with_their_metadata():
    assert cross(WHOLE).equals(WHOLE, check_metadata=True)
    batch = WHOLE.to_batches()[0]
    assert type(cross(batch)) is pa.RecordBatch
    assert cross(batch).equals(batch)
    assert cross(pa.table({})).equals(pa.table({}))


def test_polars_frames_and_series_arrive():
    frame = pl.from_arrow(WHOLE.drop_columns(["half"]))
    got = cross(frame)
    assert got.schema == frame.schema
    assert got.equals(frame)
    assert cross(frame["zoned"]).equals(frame["zoned"])
    categories = pl.DataFrame({"c": ["a", "b", "a"]}, schema={"c": pl.Categorical})
    assert cross(categories).schema == categories.schema
    assert cross(pl.DataFrame()).equals(pl.DataFrame())


class Tensor(pa.ExtensionType):
    """Of a kind that its reader asks the host's own classes about."""

    def __init__(self):
        super().__init__(pa.int64(), "test.tensor")

    def __arrow_ext_serialize__(self):
        return b"hostile"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        raise AssertionError("code of the host ran on what a sandbox sent")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.ExtensionArray.from_storage(Tensor(), pa.array([1])),
        pa.array(["x"], pa.string_view()),
        pa.RunEndEncodedArray.from_arrays([1], [1]),
    ],
    ids=lambda column: str(column.type)[:12],
)
def test_other_types_are_refused_by_column_and_name(column):
    with pytest.raises(Untransferable, match=r"column 'odd' of the value has the Arrow type .* can't cross"):
        encode(pa.table({"odd": column}))


def test_no_extension_type_comes_in_by_the_metadata_either():
    pa.register_extension_type(Tensor())
    try:
        tree, buffers = encode(pa.table({"a": [1]}, metadata={"x": "y"}))
        buffers[tree["value"]["m"][0][0]] = b"ARROW:extension:name"
        with pytest.raises(ValueError, match="extension"):
            decode(tree, buffers)
    finally:
        pa.unregister_extension_type("test.tensor")


def _places(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def _at(node, path):
    for key in path:
        node = node[key]
    return node


ODD = [None, True, 0, 1, -1, 3, 100, 2**31, 2**62, 2**63, "int64", "string", "list", "struct", "a", [], {}, [0, 0, 0]]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_that_was_tampered_with_is_refused_or_well_formed(name):
    """Whatever was changed, pyarrow neither reads past a buffer nor ends the process."""
    chance = random.Random(name)
    tree, buffers = encode(pa.table({name: COLUMNS[name]}))
    places = [path for path in _places(tree) if path and path[0] == "value" and len(path) > 1]
    for _ in range(400):
        bad, data = copy.deepcopy(tree), [bytearray(b) for b in buffers]
        if data and chance.random() < 0.5:
            one = chance.choice(data)
            if chance.random() < 0.3:
                del one[chance.randrange(len(one) + 1) :]
            elif one:
                one[chance.randrange(len(one))] = chance.choice([0, 1, 127, 128, 255])
        else:
            *parents, key = chance.choice(places)
            other = chance.choice([*ODD, _at(tree, chance.choice(places))])
            _at(bad, parents)[key] = copy.deepcopy(other)
        try:
            got = decode(bad, data, limit=10**6)
        except ValueError:
            continue
        if isinstance(got, pa.Table):
            got.validate(full=True)
            assert got.nbytes < 10**6
        repr(got)


def test_a_length_without_bytes_behind_it_counts_against_the_limit():
    tree, buffers = encode(pa.table({"n": pa.nulls(3)}))
    tree["value"]["l"] = tree["value"]["c"][0]["a"]["l"] = 2**40
    with pytest.raises(ValueError, match="larger than"):
        decode(tree, buffers, limit=10**6)


def test_a_large_column_is_sent_as_it_lies():
    values = np.arange(1_000_000.0)
    _, buffers = encode(pa.table({"x": values}))
    assert sum(map(len, buffers)) < values.nbytes * 1.01


def test_a_dictionary_counts_as_what_it_stands_for():
    """A reader may write it out: a thousand bytes that stand for a gigabyte are a gigabyte."""
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), ["x" * 1_000_000])
    tree, buffers = encode(pa.table({"c": long}))
    assert sum(map(len, buffers)) < 1_100_000
    with pytest.raises(ValueError, match="larger than"):
        decode(tree, buffers, limit=100_000_000)
    nested = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[1, 2]]))
    with pytest.raises(Untransferable, match="Arrow type dictionary"):
        encode(pa.table({"c": nested}))
