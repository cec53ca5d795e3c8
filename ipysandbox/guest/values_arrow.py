"""The part of the value transfer for Arrow and polars tables: each column as its raw buffers, by the Arrow format.

Not as an Arrow IPC stream: its reader would call whatever the host has registered for extension types, and unpack what
is compressed, before anybody could look. (https://arrow.apache.org/docs/format/Columnar.html)
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from .values_plain import WORKS, Buffer, Node, Untransferable, ints, label, listed, matched, text
from .values_tables import TableDecoder, TableEncoder

_SIMPLE = re.compile(
    r"null|bool|u?int(?:8|16|32|64)|halffloat|float|double|date32\[day\]|date64\[ms\]|(?:large_)?(?:string|binary)|"
    r"time32\[m?s\]|time64\[[un]s\]|(?:duration|timestamp)\[(?:s|ms|us|ns)\]",
    re.A,
)
_ZONE = re.compile(r"[A-Za-z0-9_+:/-]{1,64}", re.A)
_UNIT = re.compile(r"s|ms|us|ns")
# Not maps: pyarrow ends the process when a malformed one is made.
_NESTED = ("list", "large_list", "fixed_size_list", "struct")
_MAX_NESTING = 16
_MAX_FIELDS = 10_000


class ArrowEncoder(TableEncoder):
    """Adds ``pyarrow.Table`` and ``RecordBatch``, polars ``DataFrame`` and ``Series``, where they are loaded."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.pa: Any = sys.modules.get("pyarrow")
        polars: Any = sys.modules.get("polars")
        if self.pa is not None and hasattr(self.pa, "Table"):
            self.makers[self.pa.Table] = lambda x: self._arrow("table", x)
            self.makers[self.pa.RecordBatch] = lambda x: self._arrow("batch", self.pa.Table.from_batches([x]))
        if polars is not None and hasattr(polars, "DataFrame"):
            self.makers[polars.DataFrame] = self._polars
            self.makers[polars.Series] = lambda x: self._polars(x.to_frame(), kind="polars_series")

    def _polars(self, frame: Any, kind: str = "polars") -> Node:
        if importlib.util.find_spec("pyarrow") is None:
            raise self.refusal(frame, hint=" without pyarrow; install it, or send .to_dict()")
        self.pa = importlib.import_module("pyarrow")
        # The oldest level has no string views, which only some readers know.
        return self._arrow(kind, frame.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest()))

    def _arrow(self, kind: str, table: Any) -> Node:
        pa = self.pa
        for key in table.schema.metadata or {}:
            if key.startswith(b"ARROW:extension"):
                raise self.refusal(table)
        types = [self._type(field.type, f"column {label(field.name)}") for field in table.schema]
        # Slices and chunks become whole arrays that start at the beginning of their buffers.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        whole = pa.ipc.open_stream(sink.getvalue()).read_all().combine_chunks()
        columns = []
        for column, kind_of in zip(whole.columns, types, strict=True):
            array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            columns.append({"d": kind_of, "a": self._array_node(array)})
        names = [self._text(field.name) for field in table.schema]
        metadata = [[self.buffer(k), self.buffer(v)] for k, v in (table.schema.metadata or {}).items()]
        return {"t": "arrow", "k": kind, "n": names, "c": columns, "l": table.num_rows, "m": metadata}

    def _text(self, value: str) -> Node:
        return self.node(value)

    def _type(self, kind: Any, where: str, nesting: int = 0) -> Node:
        pa = self.pa
        name = str(kind)
        if nesting <= _MAX_NESTING:
            if _SIMPLE.fullmatch(name):
                return name
            if pa.types.is_timestamp(kind) and _ZONE.fullmatch(kind.tz or ""):
                return {"k": "timestamp", "u": kind.unit, "z": kind.tz}
            if pa.types.is_decimal128(kind):
                return {"k": "decimal", "p": kind.precision, "s": kind.scale}
            if pa.types.is_fixed_size_binary(kind):
                return {"k": "fixed", "n": kind.byte_width}
            if pa.types.is_dictionary(kind) and not kind.value_type.num_fields:
                index = self._type(kind.index_type, where, nesting + 1)
                return {"k": "dictionary", "i": index, "v": self._type(kind.value_type, where, nesting + 1),
                        "o": kind.ordered}  # fmt: skip
            nested = next((n for n in _NESTED if getattr(pa.types, f"is_{n}")(kind)), None)
            if nested is not None:
                fields = [kind.field(i) for i in range(kind.num_fields)]
                parts = [[self._text(f.name), self._type(f.type, where, nesting + 1), bool(f.nullable)] for f in fields]
                return {"k": nested, "f": parts, "n": kind.list_size if nested == "fixed_size_list" else 0}
        raise Untransferable(f"{where} of {self.where} has the Arrow type {name[:80]}, which can't cross. "
                             f"What can: {WORKS}.")  # fmt: skip

    def _array_node(self, array: Any) -> Node:
        """``array`` starts at the beginning of its buffers."""
        pa = self.pa
        kind = array.type
        if pa.types.is_dictionary(kind):
            return {"i": self._array_node(array.indices), "v": self._array_node(array.dictionary)}
        buffers = array.buffers()
        children: list[Any] = []
        own = 1 if kind.num_fields else len(buffers)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            own, children = 2, [array.values]
        elif pa.types.is_fixed_size_list(kind):
            children = [array.values]
        elif pa.types.is_struct(kind):
            children = [array.field(i) for i in range(kind.num_fields)]
        sent = [None if b is None else self.buffer(memoryview(b)) for b in buffers[:own]]
        return {"l": len(array), "b": sent, "c": [self._array_node(child) for child in children]}


class ArrowDecoder(TableDecoder):
    """Builds tables out of buffers whose every offset, index and character pyarrow has checked."""

    def __init__(self, buffers: Sequence[Buffer], limit: int) -> None:
        super().__init__(buffers, limit)
        self.makers["arrow"] = self._arrow

    @property
    def pa(self) -> Any:
        return importlib.import_module("pyarrow")

    def _arrow(self, node: dict[str, Any]) -> Any:
        pa = self.pa
        kind, (rows,) = text(node["k"]), ints([node["l"]], 1)
        names = [self._str(name) for name in listed(node["n"])]
        types, arrays = [], []
        for column in listed(node["c"]):
            types.append(self._type(column["d"]))
            arrays.append(self._array_of(column["a"], types[-1]))
        if len(arrays) != len(names) or any(len(array) != rows for array in arrays):
            raise ValueError("a table whose parts have different lengths")
        metadata = {bytes(self.buffer(k)): bytes(self.buffer(v)) for k, v in map(listed, listed(node["m"]))}
        if any(key.startswith(b"ARROW:extension") for key in metadata):
            raise ValueError("a table of extension types")
        schema = pa.schema([pa.field(n, t) for n, t in zip(names, types, strict=True)], metadata=metadata or None)
        table = pa.Table.from_arrays(arrays, schema=schema)
        table.validate(full=True)
        if kind == "table":
            return table
        if kind == "batch":
            return table.to_batches()[0] if rows else pa.RecordBatch.from_arrays(arrays, schema=schema)
        frame = _polars_of(table)
        if kind == "polars":
            return frame
        if kind == "polars_series" and frame.width == 1:
            return frame.to_series()
        raise ValueError("a table of a kind that this version doesn't know")

    def _type(self, node: Node, nesting: int = 0) -> Any:
        pa = self.pa
        if nesting > _MAX_NESTING:
            raise ValueError("a type nested too deeply")
        if type(node) is not dict:
            name = matched(_SIMPLE, node, 32)
            base, _, unit = name.rstrip("]").partition("[")
            given = [unit] if unit and not base.startswith("date") else []
            return getattr(pa, _CONSTRUCTORS.get(base, base))(*given)
        kind = text(node["k"])
        if kind == "timestamp":
            return pa.timestamp(matched(_UNIT, node["u"]), tz=matched(_ZONE, node["z"]))
        if kind == "decimal":
            return pa.decimal128(*ints([node["p"], node["s"]], 2))
        if kind == "fixed":
            (width,) = ints([node["n"]], 1)
            if not 0 < width < 2**20:
                raise ValueError("a type of an impossible size")
            return pa.binary(width)
        if kind == "dictionary":
            index, values = self._type(node["i"], nesting + 1), self._type(node["v"], nesting + 1)
            if values.num_fields or pa.types.is_dictionary(values):
                raise ValueError("a dictionary of nested values")
            return pa.dictionary(index, values, ordered=node["o"] is True)
        fields = listed(node["f"])
        if kind not in _NESTED or len(fields) > _MAX_FIELDS:
            raise ValueError("a type of a kind that can't cross")
        parts = [
            pa.field(self._str(name), self._type(inner, nesting + 1), nullable=nullable is True)
            for name, inner, nullable in map(listed, fields)
        ]
        if kind == "struct":
            return pa.struct(parts)
        (part,) = parts
        if kind == "fixed_size_list":
            (size,) = ints([node["n"]], 1)
            if not 0 < size < 2**20:
                raise ValueError("a type of an impossible size")
            return pa.list_(part, size)
        return (pa.list_ if kind == "list" else pa.large_list)(part)

    def _array_of(self, node: Node, kind: Any) -> Any:
        pa, np = self.pa, self.np
        if type(node) is not dict:
            raise ValueError("an array expected")
        if pa.types.is_dictionary(kind):
            indices, values = self._array_of(node["i"], kind.index_type), self._array_of(node["v"], kind.value_type)
            array = pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered)
            self.spend(self._written_out(array))  # as some readers do at once
            return array
        (length,) = ints([node["l"]], 1)
        # A length alone costs nothing to send and is as much as its rows once somebody looks at them.
        self.spend(max(0, length))
        buffers = [
            None if index is None else pa.py_buffer(np.frombuffer(self.buffer(index), np.uint8).copy())
            for index in listed(node["b"])
        ]
        inner = [kind.field(i).type for i in range(kind.num_fields)]
        nodes = listed(node["c"])
        if len(nodes) != len(inner) or length < 0:
            raise ValueError("an array whose parts don't fit its type")
        children = [self._array_of(child, type_) for child, type_ in zip(nodes, inner, strict=True)]
        array = pa.Array.from_buffers(kind, length, buffers, children=children or None)
        array.validate(full=True)
        return array

    def _written_out(self, array: Any) -> int:
        """Bytes of a dictionary array with each value in its place."""
        compute = importlib.import_module("pyarrow.compute")
        values = array.dictionary
        try:
            return len(array) * (int(values.type.bit_width) // 8 + 1)
        except ValueError:  # of no fixed width
            lengths = compute.binary_length(values).cast("int64").take(array.indices)
            return 8 * len(array) + int(compute.sum(lengths).as_py() or 0)


#: What pyarrow calls the function that makes a type, where that is not the type's own name.
_CONSTRUCTORS = {"bool": "bool_", "halffloat": "float16", "float": "float32", "double": "float64"}


def _polars_of(table: Any) -> Any:
    try:
        return importlib.import_module("polars").from_arrow(table)
    except (KeyboardInterrupt, SystemExit, ImportError):
        raise
    except BaseException as exc:  # noqa: BLE001 - Rust's panics are no Exception
        raise ValueError(f"a table that polars refuses ({type(exc).__name__})") from None
