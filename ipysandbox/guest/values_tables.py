"""The part of the value transfer for numpy, pandas and scipy, each imported only when a value needs it."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from .values_plain import (
    NODE_COST,
    WORKS,
    Buffer,
    Node,
    PlainDecoder,
    PlainEncoder,
    Untransferable,
    check_hashes,
    ints,
    label,
    listed,
    matched,
    text,
    zone,
)

_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_DTYPE = re.compile(
    r"[<>|](?:b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SUV][1-9][0-9]{0,8}"
    rf"|[mM]8(?:\[(?:[1-9][0-9]{{0,5}})?(?:{'|'.join(_UNITS)})\])?)",
    re.A,
)
_STAMP_UNIT = re.compile(r"s|ms|us|ns")
# pandas compares an index with all dates of its frequency. Those of a fixed step it makes in compiled code, others one
# by one, and for business hours and large multiples of business days each takes a loop of its own: none of those here.
_FREQ = re.compile(r"-?[0-9]{0,4}(?:D|[hH]|min|T|[sS]|ms|L|us|U|ns|N)", re.A)
_CALENDAR = re.compile(r"-?[0-9]{0,2}(?:B|W|SM[ES]?|B?[MQYA][ES]?)(?:-(?:[A-Z]{3}|[0-9]{1,2}))?", re.A)
#: Of all indexes of a value that have such a frequency.
_MOST_DATES = 10_000
_NULLABLE = re.compile(r"U?Int(?:8|16|32|64)|Float(?:32|64)|boolean")
_SPARSE = re.compile(r"(?:cs[rc]|coo)_(?:matrix|array)")
_MAX_DIMENSIONS = 32
_MOST_UNSORTED = 10_000
_MAX_NESTING = 8  # of dtypes in dtypes, and of lists and dicts in a table's attrs
#: Of a table's attrs, in characters and some for each value: pandas copies them with each operation.
_MOST_ATTRS, _EACH = 1 << 16, 16


class TableEncoder(PlainEncoder):
    """Adds the arrays and tables of the libraries that the process has loaded: a value of others can't exist."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.np: Any = sys.modules.get("numpy")
        self.pd: Any = sys.modules.get("pandas")
        sparse: Any = sys.modules.get("scipy.sparse")
        if self.np is not None:
            self.makers[self.np.ndarray] = self._array
        if sparse is not None:
            for name in ("csr_matrix", "csc_matrix", "csr_array", "csc_array"):
                self.makers[getattr(sparse, name)] = self._sparse
            for name in ("coo_matrix", "coo_array"):
                self.makers[getattr(sparse, name)] = self._coo
        if self.pd is not None:
            self._add_pandas(self.pd)

    def _add_pandas(self, pd: Any) -> None:
        self.makers |= {
            pd.DataFrame: self._frame,
            pd.Series: self._series,
            pd.Categorical: lambda x: {"t": "categorical", "v": self._column(x)},
            pd.Timestamp: self._timestamp,
            pd.Timedelta: lambda x: {"t": "pdelta", "v": self.int(int(x.to_timedelta64().astype("i8"))), "u": x.unit},
            type(pd.NaT): lambda _: {"t": "NaT"},
            type(pd.NA): lambda _: {"t": "NA"},
        }
        for name in ("Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "CategoricalIndex"):
            self.makers[getattr(pd, name)] = self._index

    def make(self, obj: Any) -> Node:
        if self.np is not None and isinstance(obj, self.np.generic) and type(obj) is obj.dtype.type:
            return {"t": "npscalar", "v": self._array(self.np.asarray(obj))}
        return super().make(obj)

    # ---- numpy and scipy

    def _dtype(self, dtype: Any) -> Node:
        if dtype.hasobject:
            hint = "convert it, e.g. with .astype(float) or .astype(str), or send .tolist()"
            raise Untransferable(f"{self.where} has dtype object: objects can't cross as an array; {hint}.")
        if dtype.subdtype is not None:
            return {"base": self._dtype(dtype.subdtype[0]), "shape": list(dtype.subdtype[1])}
        if dtype.names is not None and all(len(field) == 2 for field in dtype.fields.values()):
            fields = [[name, self._dtype(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
            return {"fields": fields, "size": dtype.itemsize}
        if dtype.names is None and _DTYPE.fullmatch(dtype.str):
            return dtype.str
        raise Untransferable(f"{self.where} has the dtype {str(dtype)[:80]}, which can't cross. What can: {WORKS}.")

    def _array(self, x: Any) -> Node:
        np = self.np
        node = {"t": "array", "d": self._dtype(x.dtype), "s": list(x.shape), "f": False}
        if x.ndim > 1 and x.flags.f_contiguous and not x.flags.c_contiguous:
            node["f"], x = True, x.T
        flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8) if x.size else np.empty(0, np.uint8)
        return {**node, "b": self.buffer(flat.data)}

    def _sparse(self, x: Any) -> Node:
        parts = {"d": self._array(x.data), "i": self._array(x.indices), "p": self._array(x.indptr)}
        return {"t": "sparse", "k": type(x).__name__, "s": [int(n) for n in x.shape], **parts}

    def _coo(self, x: Any) -> Node:
        if x.ndim != 2:
            raise self.refusal(x, hint=f" with {x.ndim} dimensions")
        parts = {"d": self._array(x.data), "i": self._array(x.row), "p": self._array(x.col)}
        return {"t": "sparse", "k": type(x).__name__, "s": [int(n) for n in x.shape], **parts}

    # ---- pandas

    def _timestamp(self, x: Any) -> Node:
        moment = x if x.tzinfo is None else x.tz_convert(None)
        value = self.int(int(moment.to_datetime64().astype("i8")))
        return {"t": "timestamp", "v": value, "u": x.unit, "z": self.zone(x.tzinfo)}

    def _texts(self, values: Any) -> Node | None:
        """Text with holes as one UTF-8 buffer, lengths, and the kind of each hole; None if it holds anything else."""
        np, pd = self.np, self.pd
        holes, lengths = np.zeros(len(values), np.uint8), np.zeros(len(values), np.int64)
        pieces: list[bytes] = []
        for i, value in enumerate(values):
            if type(value) is str:
                pieces.append(value.encode("utf-8", "surrogatepass"))
                lengths[i] = len(pieces[-1])
            elif value is None:
                holes[i] = 1
            elif type(value) is float and math.isnan(value):
                holes[i] = 2
            elif value is pd.NA:
                holes[i] = 3
            else:
                return None
        packed = {"b": self.buffer(b"".join(pieces)), "n": self._array(lengths)}
        return {**packed, "h": self._array(holes) if holes.any() else None}

    def _column(self, x: Any) -> Node:
        """One pandas array, by its exact dtype."""
        np, pd = self.np, self.pd
        if type(x) is pd.arrays.NumpyExtensionArray:  # what pandas wraps a plain numpy array in
            x = np.asarray(x)
        dtype = x.dtype
        if isinstance(dtype, np.dtype):
            if dtype.kind != "O":
                return {"k": "numpy", "a": self._array(np.asarray(x))}
            values = np.asarray(x, dtype=object)
            texts = self._texts(values)
            return {"k": "values", "v": self.nodes(values)} if texts is None else {"k": "object", **texts}
        if type(dtype) is pd.CategoricalDtype:
            categories = self._index(x.categories)
            return {"k": "category", "a": self._array(np.asarray(x.codes)), "c": categories, "o": bool(x.ordered)}
        if type(dtype) is pd.DatetimeTZDtype:
            naive = np.asarray(pd.DatetimeIndex(x).tz_convert(None))
            return {"k": "zoned", "a": self._array(naive), "z": self.zone(dtype.tz)}
        if type(dtype) is pd.StringDtype:
            texts = self._texts(x.to_numpy(dtype=object))
            if texts is not None:
                return {"k": "string", "p": dtype.storage == "pyarrow", "na": dtype.na_value is pd.NA, **texts}
        name = str(dtype)
        if _NULLABLE.fullmatch(name):
            kind = dtype.numpy_dtype
            values = self._array(x.to_numpy(dtype=kind, na_value=kind.type(0)))
            return {"k": "nullable", "d": name, "a": values, "m": self._array(np.asarray(x.isna(), bool))}
        raise Untransferable(f"{self.where} has the pandas dtype {name[:80]}, which can't cross. What can: {WORKS}.")

    def _part(self, what: str, maker: Any, value: Any) -> Node:
        """``maker(value)`` while messages say ``what`` it is a part of."""
        outer = self.where
        self.where = f"{what} of {outer}"
        node = maker(value)
        self.where = outer
        return node

    def _index(self, x: Any) -> Node:
        pd = self.pd
        if type(x) is pd.RangeIndex:
            return {
                "t": "index",
                "k": "range",
                "v": [self.int(n) for n in (x.start, x.stop, x.step)],
                "n": self.node(x.name),
            }
        if type(x) is pd.MultiIndex:
            levels = [self._index(level) for level in x.levels]
            codes = [self._array(self.np.asarray(codes)) for codes in x.codes]
            return {"t": "index", "k": "multi", "l": levels, "c": codes, "n": self.nodes(x.names)}
        if self.makers.get(type(x)) != self._index:
            raise self.refusal(x)
        freq = getattr(x, "freqstr", None)
        known = freq if type(freq) is str and (_FREQ.fullmatch(freq) or _CALENDAR.fullmatch(freq)) else None
        return {"t": "index", "k": "array", "a": self._column(x.array), "n": self.node(x.name), "q": known}

    def _series(self, x: Any) -> Node:
        index = self._part("the index", self._index, x.index)
        name = self._part("the name", self.node, x.name)
        return {"t": "series", "a": self._column(x.array), "i": index, "n": name, **self._attrs(x)}

    def _frame(self, x: Any) -> Node:
        labels = self._part("the column labels", self._index, x.columns)
        names = x.columns.tolist()
        parts = [self._part(f"column {label(names[i])}", self._column, x.iloc[:, i].array) for i in range(x.shape[1])]
        index = self._part("the index", self._index, x.index)
        return {"t": "frame", "a": parts, "c": labels, "i": index, **self._attrs(x)}

    def _attrs(self, x: Any) -> dict[str, Node]:
        """What its user noted about a table, units for one, as far as it is plain: not worth refusing the table for."""
        found: dict[str, Any] = {}
        room: float = _MOST_ATTRS - _EACH
        for key, value in x.attrs.items():
            weight = _weight_of((key, value))
            if weight <= room:
                found[key], room = value, room - weight
        return {"m": self._part("the attrs", self.node, found)} if found else {}


class TableDecoder(PlainDecoder):
    """Builds arrays and tables out of hostile nodes, from exact arrays only: no library guesses a type from data."""

    def __init__(self, buffers: Sequence[Buffer], limit: int) -> None:
        super().__init__(buffers, limit)
        self.dates = _MOST_DATES
        self.compared = _MOST_UNSORTED**2
        self.makers |= {
            "array": self._array,
            "npscalar": self._scalar,
            "sparse": self._sparse,
            "NaT": lambda _: self.pd.NaT,
            "NA": lambda _: self.pd.NA,
            "timestamp": self._timestamp,
            "pdelta": lambda n: self.pd.Timedelta(self.np.timedelta64(*_moment(n))),
            "categorical": self._categorical,
            "index": self._index,
            "series": self._series,
            "frame": self._frame,
        }

    @property
    def np(self) -> Any:
        return importlib.import_module("numpy")

    @property
    def pd(self) -> Any:
        return importlib.import_module("pandas")

    # ---- numpy and scipy

    def _dtype(self, node: Node, nesting: int = 0) -> Any:
        np = self.np
        if nesting > _MAX_NESTING:
            raise ValueError("a dtype nested too deeply")
        if type(node) is not dict:
            return np.dtype(matched(_DTYPE, node, 64))
        if "base" in node:
            shape = _shape(node["shape"])
            base = self._dtype(node["base"], nesting + 1)
            if not 0 < math.prod(shape) * base.itemsize < 2**31:
                raise ValueError("a dtype of an impossible size")
            return np.dtype((base, tuple(shape)))
        fields = [
            (text(name), self._dtype(kind, nesting + 1), at) for name, kind, at in map(listed, listed(node["fields"]))
        ]
        (size, *offsets) = ints([node["size"], *(at for _, _, at in fields)], len(fields) + 1)
        if not fields or not 0 < size < 2**31:
            raise ValueError("a dtype of an impossible size")
        # numpy adds up offset and size in 32 bits, and believes the sum. Fields that overlap are much for little.
        end = 0
        for offset, kind in sorted((at, kind.itemsize) for at, (_, kind, _) in zip(offsets, fields, strict=True)):
            if not end <= offset <= size - kind:
                raise ValueError("a dtype whose fields don't fit into it")
            end = offset + kind
        names, formats = [name for name, _, _ in fields], [kind for _, kind, _ in fields]
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

    def _array(self, node: Node) -> Any:
        """A writable array in memory of its own: a copy of the buffer, or that itself if it is ours, the first time."""
        np = self.np
        if type(node) is not dict:
            raise ValueError("an array expected")
        dtype, shape, data = self._dtype(node["d"]), _shape(node["s"]), self.buffer(node["b"])
        if math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("an array whose shape and length disagree")
        bytes_ = np.frombuffer(data, np.uint8)
        if node["b"] in self.own:
            self.own.discard(node["b"])
        else:
            bytes_ = bytes_.copy()
        flat = bytes_.view(dtype) if len(data) else np.empty(0, dtype)
        self._check_items(flat, dtype)
        if dtype.subdtype is not None:
            raise ValueError("an array of arrays")
        return flat.reshape(shape[::-1]).T if node.get("f") is True else flat.reshape(shape)

    def _check_items(self, flat: Any, dtype: Any) -> None:
        """Refuses bit patterns that numpy itself never makes and that its compiled code doesn't expect."""
        np = self.np
        if dtype.names is not None:
            for name in dtype.names:
                field = dtype.fields[name][0]
                self._check_items(flat[name], field.subdtype[0] if field.subdtype is not None else field)
        elif dtype.kind == "b" and flat.size and np.ascontiguousarray(flat).view(np.uint8).max() > 1:
            raise ValueError("a truth value that is neither")
        elif dtype.kind == "U" and flat.size:
            points = np.ascontiguousarray(flat).reshape(-1).view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
            if points.max() > sys.maxunicode:
                raise ValueError("text with a character that doesn't exist")

    def _scalar(self, node: dict[str, Any]) -> Any:
        array = self._array(node["v"])
        if array.shape != ():
            raise ValueError("a scalar with a shape")
        return array[()]

    def _vector(self, node: Node, kinds: str) -> Any:
        array = self._array(node)
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise ValueError("a column of the wrong kind")
        return array

    def _sparse(self, node: dict[str, Any]) -> Any:
        name = matched(_SPARSE, node["k"])
        data, indices, indptr = (self._vector(node[k], kinds) for k, kinds in (("d", "biufc"), ("i", "i"), ("p", "i")))
        shape = tuple(_shape(node["s"]))
        if len(shape) != 2:
            raise ValueError("a matrix without rows and columns")
        make = getattr(importlib.import_module("scipy.sparse"), name)
        if name.startswith("coo"):  # it looks at each index itself
            return make((data, (indices, indptr)), shape=shape)
        matrix = make((data, indices, indptr), shape=shape)
        # scipy's compiled code trusts its indices; only the full check looks at each of them.
        matrix.check_format(full_check=True)
        return matrix

    # ---- pandas

    def _timestamp(self, node: dict[str, Any]) -> Any:
        stamp, where = self.pd.Timestamp(self.np.datetime64(*_moment(node))), zone(node["z"])
        return stamp if where is None else stamp.tz_localize("UTC").tz_convert(where)

    def _texts(self, node: dict[str, Any]) -> Any:
        lengths, data = self._vector(node["n"], "i"), self.buffer(node["b"])
        holes = None if node["h"] is None else self._vector(node["h"], "u")
        count = len(lengths)
        self.spend(NODE_COST * count)
        if count and not 0 <= int(lengths.min()) <= int(lengths.max()) <= len(data):
            raise ValueError("text with a malformed length")
        if holes is not None and (len(holes) != count or (count and int(holes.max()) > 3)):
            raise ValueError("text with malformed holes")
        values = self.np.empty(count, dtype=object)
        missing = (None, None, math.nan, self.pd.NA)
        at = 0
        for i, length in enumerate(lengths.tolist()):
            if holes is not None and holes[i]:
                values[i] = missing[holes[i]]
            else:
                values[i] = str(data[at : at + length], "utf-8", "surrogatepass")
            at += length
        if at != len(data):
            raise ValueError("text whose lengths disagree with its buffer")
        return values

    def _column(self, node: Node) -> Any:
        """A one-dimensional numpy or pandas array."""
        pd = self.pd
        if type(node) is not dict:
            raise ValueError("a column expected")
        kind = text(node["k"])
        if kind == "numpy":
            return self._vector(node["a"], "biufcmM")
        if kind == "object":
            return self._texts(node)
        if kind == "values":
            items = self.nodes(node["v"])
            values = self.np.empty(len(items), dtype=object)
            for i, item in enumerate(items):
                values[i] = item
            return values
        if kind == "category":
            codes, categories = self._vector(node["a"], "i"), self._distinct(self._index(node["c"]))
            return pd.Categorical.from_codes(codes, categories=categories, ordered=node["o"] is True)
        if kind == "zoned":
            naive, where = pd.DatetimeIndex(self._vector(node["a"], "M")), zone(node["z"])
            if where is None:
                raise ValueError("a zoned column without a zone")
            return naive.tz_localize("UTC").tz_convert(where).array
        if kind == "string":
            storage = "pyarrow" if node["p"] is True and importlib.util.find_spec("pyarrow") else "python"
            dtype = pd.StringDtype(storage, na_value=pd.NA if node["na"] is True else math.nan)
            return pd.array(self._texts(node), dtype=dtype)
        if kind == "nullable":
            values, mask = self._vector(node["a"], "biuf"), self._vector(node["m"], "b")
            arrays = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
            column = arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values, mask)
            if str(column.dtype) == matched(_NULLABLE, node["d"]):
                return column
        raise ValueError("a column of a kind that can't cross")

    def _distinct(self, index: Any) -> Any:
        """``index``, which pandas will look through for equals.

        Sorted numbers it compares one by one; others go into a table, whose collisions their sender can choose: then
        each is compared with each.
        """
        if index.dtype.kind != "O" and not index.is_monotonic_increasing:
            self.compared -= len(index) ** 2
            if self.compared < 0:
                raise ValueError(f"more than {_MOST_UNSORTED} categories or levels in no order")
        return index

    def _categorical(self, node: dict[str, Any]) -> Any:
        column = self._column(node["v"])
        if type(column) is not self.pd.Categorical:
            raise ValueError("a categorical expected")
        return column

    def _index(self, node: Node) -> Any:
        pd = self.pd
        if type(node) is not dict:
            raise ValueError("an index expected")
        kind = text(node["k"])
        if kind == "multi":
            levels, codes = (listed(node[key]) for key in "lc")
            if any(type(level) is not dict or level.get("k") == "multi" for level in levels):
                raise ValueError("a level that has levels")
            arrays = [self._vector(code, "i") for code in codes]
            names = self.keys(node["n"])
            return pd.MultiIndex(
                levels=[self._distinct(self._index(level)) for level in levels], codes=arrays, names=names
            )
        (name,) = self.keys([node["n"]])
        if kind == "range":
            span = range(*ints(node["v"], 3))
            self.spend(8 * len(span))  # what it takes once somebody looks at it
            return pd.RangeIndex(span, name=name)
        if kind != "array":
            raise ValueError("an index of a kind that can't cross")
        column = self._column(node["a"])
        if column.dtype.kind == "O" and isinstance(column, self.np.ndarray):
            check_hashes(column, halved=True)
        index = pd.Index(column, dtype=column.dtype, name=name, tupleize_cols=False)
        if node.get("q") is not None and type(index) in (pd.DatetimeIndex, pd.TimedeltaIndex):
            self._set_freq(index, text(node["q"]))
        return index

    def _set_freq(self, index: Any, freq: str) -> None:
        """Checks it against each date; what would take long is left out, which costs an index nothing else."""
        if _CALENDAR.fullmatch(freq):
            if len(index) > self.dates:
                return
            self.dates -= len(index)
        elif not _FREQ.fullmatch(freq):
            return
        index.freq = freq

    def _series(self, node: dict[str, Any]) -> Any:
        column, index, (name,) = self._column(node["a"]), self._index(node["i"]), self.keys([node["n"]])
        if len(column) != len(index):
            raise ValueError("a series whose index has another length")
        series = self.pd.Series(column, index=index, name=name, dtype=column.dtype, copy=False)
        return self._with_attrs(series, node)

    def _frame(self, node: dict[str, Any]) -> Any:
        pd = self.pd
        index, labels = self._index(node["i"]), self._index(node["c"])
        columns = [self._column(part) for part in listed(node["a"])]
        if len(columns) != len(labels) or any(len(column) != len(index) for column in columns):
            raise ValueError("a table whose parts have different lengths")
        parts = {i: pd.Series(column, index=index, dtype=column.dtype, copy=False) for i, column in enumerate(columns)}
        frame = pd.DataFrame(parts, index=index, copy=False)
        frame.columns = labels
        return self._with_attrs(frame, node)

    def _with_attrs(self, table: Any, node: dict[str, Any]) -> Any:
        if "m" in node:
            attrs = self.node(node["m"])
            if type(attrs) is not dict or _EACH + sum(map(_weight_of, attrs.items())) > _MOST_ATTRS:
                raise ValueError("attrs of a kind or size that can't cross")
            table.attrs = attrs
        return table


def _weight_of(entry: tuple[Any, Any]) -> float:
    key, value = entry
    return _weight(key) + _weight(value) if type(key) is str else math.inf


def _weight(value: Any) -> float:
    """How large a plain value is: text, a number, None, or lists and dicts of such. Infinite for any other, and for one
    of more than ``_MOST_ATTRS``, which is not looked at to its end: its parts may be shared."""
    weight, left = _EACH, [(value, 0)]
    while left:
        item, nesting = left.pop()
        kind = type(item)
        inner: list[Any] = []
        if kind is str:
            weight += len(item)
        elif kind is int:
            weight += item.bit_length() // 4
        elif kind in (list, tuple, dict) and nesting < _MAX_NESTING:
            if kind is dict and not all(type(key) is str for key in item):
                return math.inf
            inner = [*item, *item.values()] if kind is dict else [*item]
        elif item is not None and kind not in (bool, float):
            return math.inf
        weight += _EACH * len(inner)
        if weight > _MOST_ATTRS:
            return math.inf
        left += [(one, nesting + 1) for one in inner]
    return weight


def _shape(node: Node) -> list[int]:
    shape = ints(node, None)
    if len(shape) > _MAX_DIMENSIONS or any(not 0 <= n < 2**62 for n in shape):
        raise ValueError("an impossible shape")
    return shape


def _moment(node: dict[str, Any]) -> tuple[int, str]:
    (value,) = ints([node["v"]], 1)
    if not -(2**63) <= value < 2**63:
        raise ValueError("a moment out of range")
    return value, matched(_STAMP_UNIT, node["u"])
