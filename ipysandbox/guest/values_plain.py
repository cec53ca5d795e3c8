"""The part of the value transfer that needs only Python: its types, their nodes, the checks on hostile nodes."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath
from typing import Any

Buffer = bytes | bytearray | memoryview
Node = Any  # JSON: None, bool, int, float, str, list of nodes, or a dict whose "t" names the kind

MAX_BYTES = 2**31
#: Of all texts in a value, which travel as JSON and are read in one go; bytes and arrays don't.
MAX_TEXT = 64 << 20
#: What the supervisor reads of a message's items is 200,000; a few belong to the message itself.
MOST_ITEMS = 190_000
MAX_DEPTH = 96  # of nested containers; the JSON parsers on the way stop at a few hundred
WORKS = (
    "None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, range, datetime, date, time, "
    "timedelta, Decimal, Fraction, UUID, paths, numpy arrays and scalars without objects, pandas DataFrame, Series, "
    "Index, Categorical, Timestamp, Timedelta (numbers, text, dates, categories), pyarrow and polars tables, "
    "scipy CSR, CSC and COO matrices, Pillow images, matplotlib figures (as PNG)"
)
NODE_COST = 64  # bytes that a small Python object takes, roughly: what a node counts against the limit

_SAFE_INT = 2**53  # larger ones would lose digits in a JSON parser that uses doubles
_INT_DIGITS = 1 << 22
_SAME_HASH = 64  # keys with one hash make a dict quadratic; honest data has a handful
_HEX = re.compile(r"-?[0-9a-f]+", re.A)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,3}", re.A)
_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]{1,18})?|Infinity|s?NaN[0-9]*)", re.A)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Untransferable(ValueError):
    """A value, or something inside it, is of a type that can't cross; the message names it and lists what can."""


def type_name(kind: type) -> str:
    """The type's name for a message: letters only, since the type may be the sandbox's own."""
    # What is defined in a function is named after it: f.<locals>.A is f.A here.
    qualified = str(kind.__qualname__).replace(".<locals>.", ".")
    module, name = (re.sub(r"[^\w.]", "?", text, flags=re.A)[:60] for text in (str(kind.__module__), qualified))
    return name if module == "builtins" else f"{module}.{name}"


def label(value: object) -> str:
    """A key or column label for a message; only plain types are asked for their text."""
    if type(value) is str:
        return ascii(value[:40])
    return str(value)[:40] if type(value) in (int, float, bool) else type_name(type(value))


class PlainEncoder:
    """Encodes Python's own types; ``makers`` is asked for the exact type, so no subclass passes for its base."""

    #: What comes out is read by who must not be held up.
    most_text = MAX_TEXT

    def __init__(self, limit: int) -> None:
        self.buffers: list[Buffer] = []
        self.limit = limit
        self.left = limit
        self.text = self.most_text
        self.depth = 0
        self.where = "the value"  # for messages
        self.makers: dict[type, Callable[[Any], Node]] = {
            type(None): self._same,
            bool: self._same,
            int: self.int,
            float: lambda x: x if math.isfinite(x) else {"t": "float", "v": repr(x)},
            complex: lambda x: {"t": "complex", "v": self.nodes((x.real, x.imag))},
            str: self._str,
            bytes: lambda x: {"t": "bytes", "b": self.buffer(x)},
            bytearray: lambda x: {"t": "bytearray", "b": self.buffer(bytes(x))},
            list: self.nodes,
            tuple: lambda x: {"t": "tuple", "v": self.nodes(x)},
            set: lambda x: {"t": "set", "v": self.nodes(x)},
            frozenset: lambda x: {"t": "frozenset", "v": self.nodes(x)},
            dict: self._dict,
            range: lambda x: {"t": "range", "v": [self.int(n) for n in (x.start, x.stop, x.step)]},
            dt.datetime: self._datetime,
            dt.date: lambda x: {"t": "date", "v": [x.year, x.month, x.day]},
            dt.time: self._time,
            dt.timedelta: lambda x: {"t": "timedelta", "v": [x.days, x.seconds, x.microseconds]},
            Decimal: lambda x: {"t": "decimal", "v": str(x)},
            Fraction: lambda x: {"t": "fraction", "v": self.nodes((x.numerator, x.denominator))},
            uuid.UUID: lambda x: {"t": "uuid", "v": x.hex},
            PosixPath: lambda x: {"t": "path", "v": self._str(str(x))},
            PurePosixPath: lambda x: {"t": "posixpath", "v": self._str(str(x))},
            PureWindowsPath: lambda x: {"t": "windowspath", "v": self._str(str(x))},
        }

    def node(self, obj: Any, where: str | None = None) -> Node:
        """The node of one value; ``where`` says in messages which one it is."""
        outer = self.where
        self.where = where or outer
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Untransferable(f"{self.where} is nested over {MAX_DEPTH} deep or holds itself; flatten it.")
        self.spend(NODE_COST)
        node = self.make(obj)
        self.depth -= 1
        self.where = outer
        return node

    def make(self, obj: Any) -> Node:
        maker = self.makers.get(type(obj))
        if maker is None:
            raise self.refusal(obj)
        return maker(obj)

    def refusal(self, obj: object, what: str = "", hint: str = "") -> Untransferable:
        return Untransferable(
            f"{what}{self.where} is of type {type_name(type(obj))}, which can't cross{hint}. What can: {WORKS}."
        )

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Untransferable(
                f"the value is larger than {self.limit} bytes (reached in {self.where}); "
                "send less of it, or write it to a file in results/."
            )

    def buffer(self, data: Buffer) -> int:
        self.spend(len(data))
        self.buffers.append(data)
        return len(self.buffers) - 1

    def nodes(self, items: Iterable[Any]) -> list[Node]:
        where = self.where if self.where.startswith("an item of ") else f"an item of {self.where}"
        return [self.node(item, where) for item in items]

    def int(self, obj: int) -> Node:
        if -_SAFE_INT < obj < _SAFE_INT:
            return obj
        self.spend(obj.bit_length() // 4)
        return {"t": "int", "v": f"{obj:x}"}

    def zone(self, zone: dt.tzinfo | None) -> Node:
        if zone is None:
            return None
        if type(zone) is dt.timezone:
            offset, name = zone.utcoffset(None), zone.tzname(None)
            plain = dt.timezone(offset).tzname(None) == name
            return {"o": [offset.days, offset.seconds, offset.microseconds], "n": None if plain else name}
        if type(zone) is zoneinfo.ZoneInfo and type(zone.key) is str and _ZONE.fullmatch(zone.key):
            return {"k": zone.key}
        raise self.refusal(zone, "the time zone of ", " (datetime.timezone and zoneinfo.ZoneInfo with a key can)")

    def _same(self, obj: Any) -> Node:
        return obj

    def _str(self, obj: str) -> Node:
        self.spend(len(obj))
        self.text -= len(obj)
        if self.text < 0:
            raise Untransferable(
                f"{self.where} is text of more than {self.most_text >> 20} MiB; give it as bytes: .encode()"
            )
        if obj.isascii() or not _SURROGATE.search(obj):
            return obj
        # UTF-8, in which the tree travels, has no lone surrogates.
        return {"t": "surrogates", "v": obj.encode("utf-8", "surrogatepass").hex()}

    def _dict(self, obj: dict[Any, Any]) -> Node:
        where = self.where
        keys = [self.node(key, f"a key of {where}") for key in obj]
        if len(where) > 200:
            return {"t": "dict", "k": keys, "v": self.nodes(obj.values())}
        return {"t": "dict", "k": keys, "v": [self.node(v, f"{where}[{label(k)}]") for k, v in obj.items()]}

    def _datetime(self, x: dt.datetime) -> Node:
        fields = [x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond, x.fold]
        return {"t": "datetime", "v": fields, "z": self.zone(x.tzinfo)}

    def _time(self, x: dt.time) -> Node:
        return {"t": "time", "v": [x.hour, x.minute, x.second, x.microsecond, x.fold], "z": self.zone(x.tzinfo)}


class PlainDecoder:
    """Builds Python's own types out of hostile nodes: no field is used before its type and bounds were checked."""

    def __init__(self, buffers: Sequence[Buffer], limit: int) -> None:
        self.buffers = [memoryview(data).cast("B") for data in buffers]
        #: Those that can be made part of the value as they are.
        self.own: set[int] = set()
        self.used: set[int] = set()
        self.limit = limit
        self.left = limit
        self.depth = 0
        self.makers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "surrogates": self._surrogates,
            "int": self._int,
            "float": lambda n: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text(n["v"])],
            "complex": lambda n: complex(*self._pair(n["v"], float)),
            "bytes": lambda n: bytes(self.buffer(n["b"])),
            "bytearray": lambda n: bytearray(self.buffer(n["b"])),
            "tuple": lambda n: tuple(self.nodes(n["v"])),
            "set": lambda n: set(self.keys(n["v"])),
            "frozenset": lambda n: frozenset(self.keys(n["v"])),
            "dict": self._dict,
            "range": lambda n: range(*ints(n["v"], 3)),
            "datetime": self._datetime,
            "date": lambda n: dt.date(*ints(n["v"], 3)),
            "time": self._time,
            "timedelta": lambda n: dt.timedelta(*ints(n["v"], 3)),
            "decimal": lambda n: Decimal(matched(_DECIMAL, n["v"])),
            "fraction": self._fraction,
            "uuid": lambda n: uuid.UUID(hex=text(n["v"], 32)),
            "path": lambda n: Path(self._str(n["v"])),
            "posixpath": lambda n: PurePosixPath(self._str(n["v"])),
            "windowspath": lambda n: PureWindowsPath(self._str(n["v"])),
        }

    def node(self, node: Node) -> Any:
        self.spend(NODE_COST)
        kind = type(node)
        if node is None or kind is bool or kind is float or kind is int:
            return node
        if kind is str:
            self.spend(len(node))
            return node
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"the value is nested more than {MAX_DEPTH} deep")
        value = self.nodes(node) if kind is list else self._make(node)
        self.depth -= 1
        return value

    def nodes(self, node: Node) -> list[Any]:
        return [self.node(item) for item in listed(node)]

    def keys(self, node: Node) -> list[Any]:
        """Values that will be hashed. Each is of an exact known type by now, so nothing of the sender's runs."""
        keys = self.nodes(node)
        check_hashes(keys)
        return keys

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"the value is larger than {self.limit} bytes")

    def buffer(self, index: Node) -> memoryview:
        if type(index) is not int or not 0 <= index < len(self.buffers):
            raise ValueError("a buffer that was not sent")
        if index in self.used:  # a small message would be hours of work
            raise ValueError("a buffer that is in two places")
        self.used.add(index)
        self.spend(len(self.buffers[index]))
        return self.buffers[index]

    def _make(self, node: Node) -> Any:
        if type(node) is not dict:
            raise ValueError("the tree holds something that is not JSON")
        maker = self.makers.get(text(node.get("t")))
        if maker is None:
            raise ValueError("the value has a kind that this version doesn't know")
        return maker(node)

    def _surrogates(self, node: dict[str, Any]) -> str:
        if type(node["v"]) is not str:
            raise ValueError("text expected")
        self.spend(len(node["v"]))
        return bytes.fromhex(node["v"]).decode("utf-8", "surrogatepass")

    def _int(self, node: dict[str, Any]) -> int:
        digits = matched(_HEX, node["v"], _INT_DIGITS)
        self.spend(len(digits))
        return int(digits, 16)

    def _str(self, node: Node) -> str:
        value = self.node(node)
        if type(value) is not str:
            raise ValueError("text expected")
        return value

    def _pair(self, node: Node, kind: type) -> list[Any]:
        values = self.nodes(node)
        if len(values) != 2 or any(type(value) is not kind for value in values):
            raise ValueError("a pair of numbers expected")
        return values

    def _fraction(self, node: dict[str, Any]) -> Fraction:
        numerator, denominator = self._pair(node["v"], int)
        if denominator <= 0:
            raise ValueError("a fraction with a malformed denominator")
        # Fraction reduces by Euclid's algorithm, quadratic in the digits.
        if max(abs(numerator), denominator).bit_length() > 1 << 16:
            raise ValueError("a fraction of more digits than can cross")
        return Fraction(numerator, denominator)

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        keys, values = self.keys(node["k"]), self.nodes(node["v"])
        if len(keys) != len(values):
            raise ValueError("a dict with unequal numbers of keys and values")
        return dict(zip(keys, values, strict=True))

    def _datetime(self, node: dict[str, Any]) -> dt.datetime:
        year, month, day, hour, minute, second, micro, fold = ints(node["v"], 8)
        return dt.datetime(year, month, day, hour, minute, second, micro, zone(node["z"]), fold=fold)

    def _time(self, node: dict[str, Any]) -> dt.time:
        hour, minute, second, micro, fold = ints(node["v"], 5)
        return dt.time(hour, minute, second, micro, zone(node["z"]), fold=fold)


def check_hashes(values: Iterable[Any], *, halved: bool = False) -> None:
    """Raises ValueError if many of ``values`` have one hash, TypeError if one has none.

    ``halved``: as pandas makes 32 bits of it for its own tables (khash_python.h).
    """
    counts: dict[int, int] = {}
    for value in values:
        code = hash(value)
        if halved:
            code = (code >> 32 ^ code) & 0xFFFFFFFF
        counts[code] = counts.get(code, 0) + 1
    if counts and max(counts.values()) > _SAME_HASH:
        raise ValueError("too many keys with the same hash")


def text(node: Node, limit: int = 256) -> str:
    if type(node) is not str or len(node) > limit:
        raise ValueError("text expected")
    return node


def matched(pattern: re.Pattern[str], node: Node, limit: int = 1 << 16) -> str:
    if not pattern.fullmatch(text(node, limit)):
        raise ValueError("text that doesn't say what it should")
    return str(node)


def listed(node: Node) -> list[Any]:
    if type(node) is not list:
        raise ValueError("a list expected")
    return node


def ints(node: Node, count: int | None) -> list[int]:
    """``count`` whole numbers of at most 64 bits; those above 2**53 come as nodes of their own."""
    items = [int(matched(_HEX, i["v"], 17), 16) if type(i) is dict else i for i in listed(node)]
    if (count is not None and len(items) != count) or any(type(i) is not int or abs(i) > 2**63 for i in items):
        raise ValueError("whole numbers expected")
    return items


def zone(node: Node) -> dt.tzinfo | None:
    if node is None:
        return None
    if type(node) is dict and "k" in node:
        return zoneinfo.ZoneInfo(matched(_ZONE, node["k"]))  # reads time zone data by a name that has no dots
    if type(node) is dict and "o" in node:
        days, seconds, micros = ints(node["o"], 3)
        offset, name = dt.timedelta(days, seconds, micros), node.get("n")
        if name is not None:
            return dt.timezone(offset, text(name))
        return dt.timezone(offset) if offset else dt.timezone.utc
    raise ValueError("a time zone expected")
