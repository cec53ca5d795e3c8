"""Works out texts and paths that a cell writes in pieces: `"sys" + "tem"`, f"results/{name}", Path("results") / "x"."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipysandbox.check.names import Resolver

Values = tuple[object, ...]

MAX_DEPTH = 60
MAX_VALUES = 8  # that one expression may have; more are taken as unknown
MAX_TEXT = 1_000_000  # characters of a text put together here

# What the code will see, wherever the check runs: the sandbox is Linux.
_PLATFORM = {"os.name": "posix", "sys.platform": "linux", "platform.system()": "Linux"}

# Methods that can't make a text longer than their receiver (decoding apart, which is bounded by it).
_METHODS: dict[str, Callable[..., object]] = {
    name: method
    for kind in (str, bytes)
    for name, method in vars(kind).items()
    if name in ("strip", "lstrip", "rstrip", "lower", "upper", "swapcase", "removeprefix", "removesuffix")
}


class Folder:
    """Folds constant expressions of one surveyed tree."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._open: set[ast.AST] = set()

    def fold(self, node: ast.expr, depth: int = 0) -> Values | None:
        """Every value that ``node`` may have, or None where the check can't tell."""
        if isinstance(node, ast.Constant):
            return (node.value,)
        if depth > MAX_DEPTH or node in self._open:
            return None
        self._open.add(node)
        try:
            values = self._fold(node, depth + 1)
        finally:
            self._open.discard(node)
        return values if values is not None and len(values) <= MAX_VALUES else None

    def _fold(self, node: ast.expr, depth: int) -> Values | None:
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.JoinedStr):
            return self._concatenated(node.values, depth)
        if isinstance(node, ast.FormattedValue):
            plain = node.format_spec is None and node.conversion in (-1, 115)
            return _each(str, self.fold(node.value, depth)) if plain else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._concatenated((node.left, node.right), depth)
        if isinstance(node, ast.Subscript):
            return self._slice(node, depth)
        if isinstance(node, ast.IfExp):
            return _both(self.fold(node.body, depth), self.fold(node.orelse, depth))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _each(lambda value: not value, self.fold(node.operand, depth))
        if isinstance(node, ast.NamedExpr):
            return self.fold(node.value, depth)
        if isinstance(node, ast.Compare):
            return self._compare(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Attribute):
            return self._platform(node)
        return None

    def _name(self, node: ast.Name, depth: int) -> Values | None:
        bindings = self._resolver.bindings(node)
        if not bindings:
            return None
        found: Values | None = ()
        for binding in bindings:
            if binding.node is None:
                return self._platform(node) if len(bindings) == 1 else None
            if binding.kind == "value":
                found = _both(found, self.fold(binding.node, depth))
            elif isinstance(binding.node, (ast.Tuple, ast.List, ast.Set)):
                for item in binding.node.elts:
                    found = _both(found, self.fold(item, depth))
            else:
                return None
            if found is None:
                return None
        return found

    def _platform(self, node: ast.expr) -> Values | None:
        values = [_PLATFORM[name] for name in self._resolver.names(node) if name in _PLATFORM]
        return tuple(values) or None

    def _concatenated(self, parts: Iterable[ast.expr], depth: int) -> Values | None:
        whole: Values | None = None
        for part in parts:
            values = self.fold(part, depth)
            if values is None:
                return None
            joined = values if whole is None else tuple(_add(a, b) for a in whole for b in values)
            if len(joined) > MAX_VALUES or any(value is None for value in joined):
                return None
            whole = joined
        return ("",) if whole is None else whole

    def _slice(self, node: ast.Subscript, depth: int) -> Values | None:
        values = self.fold(node.value, depth)
        if values is None or not all(isinstance(value, (str, bytes)) for value in values):
            return None
        if isinstance(node.slice, ast.Slice):
            bounds = []
            for part in (node.slice.lower, node.slice.upper, node.slice.step):
                bound = (None,) if part is None else self._integer(part, depth)
                if bound is None or (bound[0] == 0 and part is node.slice.step):
                    return None
                bounds.append(bound[0])
            return tuple(value[slice(*bounds)] for value in values)  # type: ignore[index]
        index = self._integer(node.slice, depth)
        if index is None or any(not -len(value) <= index[0] < len(value) for value in values):  # type: ignore[arg-type]
            return None
        return tuple(value[index[0]] for value in values)  # type: ignore[index]

    def _integer(self, node: ast.expr, depth: int) -> tuple[int] | None:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, node = -1, node.operand
        values = self.fold(node, depth)
        if values is not None and len(values) == 1 and type(values[0]) is int:
            return (sign * values[0],)
        return None

    def _compare(self, node: ast.Compare, depth: int) -> Values | None:
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            return None
        left, right = self.fold(node.left, depth), self.fold(node.comparators[0], depth)
        if left is None or right is None:
            return None
        wanted = isinstance(node.ops[0], (ast.Eq, ast.Is))
        return tuple((a == b) is wanted for a in left for b in right)

    def _call(self, node: ast.Call, depth: int) -> Values | None:
        if node.keywords:
            return None
        arguments = [self.fold(argument, depth) for argument in node.args[:3]]
        if isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method == "join" and len(node.args) == 1 and isinstance(node.args[0], (ast.List, ast.Tuple)):
                return self._join(node.func.value, node.args[0].elts, depth)
            if method in _METHODS or method in ("encode", "decode"):
                return self._method(method, self.fold(node.func.value, depth), arguments)
        callees = self._resolver.names(node.func)
        if len(arguments) == 1 and arguments[0] is not None:
            if callees == ("builtins.str",):
                return _each(str, arguments[0])
            if callees == ("builtins.chr",):
                return _each(_chr, arguments[0])
            if callees == ("textwrap.dedent",):
                return arguments[0]
        return self._platform(node)

    def _join(self, separator: ast.expr, items: list[ast.expr], depth: int) -> Values | None:
        between = self.fold(separator, depth)
        texts = [self.fold(item, depth) for item in items[:1000]]
        if between is None or len(between) != 1 or len(items) > 1000:
            return None
        single = [text[0] for text in texts if text is not None and len(text) == 1 and isinstance(text[0], str)]
        if len(single) != len(items) or not isinstance(between[0], str):
            return None
        if sum(map(len, single)) + len(between[0]) * len(single) > MAX_TEXT:
            return None
        return (between[0].join(single),)

    def _method(self, name: str, receivers: Values | None, arguments: list[Values | None]) -> Values | None:
        if receivers is None or len(arguments) > 1:
            return None
        extra: list[object] = []
        for argument in arguments:
            if argument is None or len(argument) != 1:
                return None
            extra.append(argument[0])
        found: list[object] = []
        for value in receivers:
            if name in ("encode", "decode"):
                coded = _coded(value, extra)
                if coded is None:
                    return None
                found.append(coded)
            elif isinstance(value, (str, bytes)) and all(type(part) is type(value) for part in extra):
                found.append(getattr(value, name)(*extra))
            else:
                return None
        return tuple(found)


def _both(a: Values | None, b: Values | None) -> Values | None:
    return None if a is None or b is None else tuple(dict.fromkeys([*a, *b]))


def _each(function: Callable[..., object], values: Values | None) -> Values | None:
    if values is None:
        return None
    results = tuple(function(value) for value in values)
    return None if any(result is None for result in results) else results


def _add(a: object, b: object) -> str | bytes | None:
    if isinstance(a, str) and isinstance(b, str) and len(a) + len(b) <= MAX_TEXT:
        return a + b
    if isinstance(a, bytes) and isinstance(b, bytes) and len(a) + len(b) <= MAX_TEXT:
        return a + b
    return None


def _chr(value: object) -> str | None:
    return chr(value) if isinstance(value, int) and 0 <= value < 0x110000 else None


def _coded(value: object, encoding: list[object]) -> str | bytes | None:
    name = encoding[0] if encoding else "utf-8"
    if name not in ("utf-8", "utf8", "ascii", "latin-1", "latin1"):
        return None
    try:
        if isinstance(value, str):
            return value.encode(str(name))
        return value.decode(str(name)) if isinstance(value, bytes) else None
    except UnicodeError:
        return None


# Paths.

TEMPORARY = "/tmp/\0"  # stands for a fresh directory whose name isn't known
_TEMPORARY_MAKERS = frozenset(
    {"tempfile.mkdtemp()", "tempfile.TemporaryDirectory()", "tempfile.TemporaryDirectory().name"}
)
_PATHS = frozenset({"pathlib.Path", "pathlib.PosixPath", "pathlib.PurePath", "pathlib.PurePosixPath", "os.fspath"})
_SAME_PATH_METHODS = frozenset({"resolve", "absolute", "expanduser", "as_posix"})


class PathReader:
    """Says where paths lead that are literal, or begin with a literal directory."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def inside(self, node: ast.expr, directories: Iterable[str]) -> bool:
        """Whether every path that ``node`` may be lies in one of ``directories`` or strictly below /tmp.

        An unknown last part (``f"results/{run}"``) counts as a name: this is a tripwire, and the sandbox holds anyway.
        """
        paths = self.paths(node, 0)
        roots = [posixpath.normpath(directory) for directory in directories]
        return bool(paths) and all(_below(path, roots) for path in paths)

    def paths(self, node: ast.expr, depth: int) -> list[str]:
        if depth > 12:
            return []
        texts = self._resolver.fold(node)
        if texts is not None:
            return [text for text in texts if isinstance(text, str)] if all(isinstance(t, str) for t in texts) else []
        if isinstance(node, ast.Name):
            return self._bound(node, depth)
        names = self._resolver.names(node)
        if names and all(name in _TEMPORARY_MAKERS for name in names):
            return [TEMPORARY]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
            return self._joined([node.left, node.right], depth, "/" if isinstance(node.op, ast.Div) else "")
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            return self._joined(parts, depth, "")
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return []

    def _bound(self, node: ast.Name, depth: int) -> list[str]:
        found: list[str] = []
        for binding in self._resolver.bindings(node) or ():
            if binding.kind != "value" or binding.node is None:
                return []
            paths = self.paths(binding.node, depth + 1)
            if not paths:
                return []
            found += paths
        return found[:MAX_VALUES]

    def _call(self, node: ast.Call, depth: int) -> list[str]:
        names = self._resolver.names(node.func)
        if node.args and names and all(name in _PATHS for name in names):
            return self._joined(node.args, depth, "/")
        if node.args and names and all(name in ("os.path.join", "posixpath.join") for name in names):
            return self._joined(node.args, depth, "/")
        if (
            names
            and all(name in ("builtins.str", "os.path.abspath", "os.path.realpath") for name in names)
            and node.args
        ):
            return self.paths(node.args[0], depth + 1)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "joinpath":
                return self._joined([node.func.value, *node.args], depth, "/")
            if node.func.attr in _SAME_PATH_METHODS:
                return self.paths(node.func.value, depth + 1)
        return []

    def _joined(self, parts: list[ast.expr], depth: int, between: str) -> list[str]:
        heads = self.paths(parts[0], depth + 1)
        if not heads:
            return []
        for part in parts[1:]:
            tails = self.paths(part, depth + 1) or ["\0"]
            heads = [_join(head, tail, between) for head in heads for tail in tails][:MAX_VALUES]
        return heads


def _join(head: str, tail: str, between: str) -> str:
    return posixpath.join(head, tail) if between else head + tail


def _below(path: str, roots: list[str]) -> bool:
    if not path or path.startswith("\0"):
        return False
    normal = posixpath.normpath(path)
    known = normal.partition("\0")[0]
    # "results\0" (an unknown ending of the same name) is not a place in results.
    if any(normal == root or known.startswith(root + "/") for root in roots if root not in (".", "/")):
        return True
    if "." in roots and normal != "." and not normal.startswith(("/", "..")):
        return True
    return known.startswith("/tmp/") and normal != "/tmp"
