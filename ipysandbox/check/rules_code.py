"""Rules about imports, and about text that is run as code: eval and its kin, timeit, IPython's own run_cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ipysandbox.check.rules import Context, Hit, rule

# Imports.

IMPORTERS = frozenset({"builtins.__import__", "importlib.import_module"})

_NATIVE = {"ctypes": "import.ctypes", "_ctypes": "import.ctypes", "cffi": "import.cffi", "_cffi_backend": "import.cffi"}


def imported(node: ast.AST, context: Context) -> Iterator[tuple[ast.AST, str]]:
    """(place, qualified name) of everything that a statement or call imports by a name the check can read."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _located(alias, node), alias.name
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        for alias in node.names:
            yield _located(alias, node), node.module if alias.name == "*" else f"{node.module}.{alias.name}"
    elif isinstance(node, ast.Call) and node.args and _importer(node, context):
        for value in context.fold(node.args[0]) or ():
            if isinstance(value, str):
                yield node, value


def _located(alias: ast.alias, statement: ast.stmt) -> ast.AST:
    return alias if hasattr(alias, "lineno") else statement


def _importer(node: ast.Call, context: Context) -> str | None:
    for name in context.names(node.func):
        if name in IMPORTERS:
            return name
    return None


def _import_rule(rule_id: str) -> None:
    @rule(
        rule_id,
        ast.Import,
        ast.ImportFrom,
        ast.Call,
        reason="calls any C function and writes any memory of the process",
        hint="Use a package that wraps what you need, or allow the rule if you trust this code.",
        calls=IMPORTERS,
    )
    def look(node: ast.AST, context: Context) -> Iterator[Hit]:
        for place, name in imported(node, context):
            if _NATIVE.get(name.partition(".")[0]) == rule_id:
                yield Hit(place, name)


_import_rule("import.ctypes")
_import_rule("import.cffi")


@rule(
    "call.dynamic-import",
    ast.Call,
    reason="imports a module whose name is only known when the code runs",
    hint="Write an import statement, or give the name as a literal.",
    calls=IMPORTERS,
)
def _dynamic_import(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    callee = _importer(node, context)
    if callee is not None and (not node.args or context.fold(node.args[0]) is None):
        yield Hit(node, _plain(callee))


# Code from text.

_CODE = {"builtins.eval": "call.eval", "builtins.exec": "call.exec", "builtins.compile": "call.compile"}
_HARMLESS_WITH_FUNCTION = frozenset(
    f"builtins.{name}()"
    for name in ["callable", "print", "repr", "str", "type", "id", "isinstance", "hash", "help", "dir"]
)
# Standard functions that run a text; (name, positions of texts).
_TEXT_RUNNERS = {
    "timeit.timeit": (0, 1),
    "timeit.repeat": (0, 1),
    "timeit.Timer": (0, 1),
    "cProfile.run": (0,),
    "profile.run": (0,),
    "pdb.run": (0,),
}


def _code_rule(callee: str, rule_id: str) -> None:
    short = _plain(callee)

    @rule(
        rule_id,
        ast.Call,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        reason="runs a text that is only known when the code runs, so the check can't see what it does",
        hint="Read data with ast.literal_eval or json.loads, choose functions from a dict, or write the code out.",
        calls=frozenset({callee}),
    )
    def look(node: ast.AST, context: Context) -> Iterator[Hit]:
        if not isinstance(node, ast.Call):
            for decorator in node.decorator_list:  # type: ignore[attr-defined]
                if callee in context.names(decorator):
                    yield Hit(decorator, short)
        elif callee in context.names(node.func):
            if not _known_code(node, short, context):
                yield Hit(node, short)
        elif not _HARMLESS_WITH_FUNCTION.intersection(context.names(node)):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if callee in context.names(argument):
                    yield Hit(argument, short, f"{short} is handed on, to be called with texts the check can't see")


def _known_code(node: ast.Call, callee: str, context: Context) -> bool:
    """Whether the text given to eval, exec or compile is a literal; then it is checked in turn."""
    text = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "source"), None)
    if text is None:
        return not node.keywords  # a call that can only raise TypeError
    if "builtins.compile()" in context.names(text):
        return True  # the rule for compile looks at that call
    values = context.fold(text)
    if values is None:
        return False
    for value in values:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            context.read_python(value.lstrip(" \t"), node, callee)
    return True


def _plain(name: str) -> str:
    return name.removeprefix("builtins.")


for _callee, _id in _CODE.items():
    _code_rule(_callee, _id)


@rule("call.run-text", ast.Call, reason="runs a text as code", hint="", severity="note", calls=frozenset(_TEXT_RUNNERS))
def _run_text(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    for name in context.names(node.func):
        for position in _TEXT_RUNNERS.get(name, ()):
            if position < len(node.args):
                for value in context.fold(node.args[position]) or ():
                    if isinstance(value, str):
                        context.read_python(value, node, name)
    yield from ()


# Text given to IPython.


@rule(
    "call.run-cell",
    ast.Call,
    reason="runs a cell or magic whose text is only known when the code runs",
    hint="",
    severity="note",
    calls=frozenset({"get_ipython()"}),
)
def _run_cell(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    for name in context.names(node.func):
        owner, _, method = name.rpartition(".")
        if owner != "get_ipython()" or method not in _IPYTHON_METHODS:
            continue
        texts = [context.fold(argument) for argument in node.args[:3]]
        strings = [text[0] for text in texts if text is not None and len(text) == 1 and isinstance(text[0], str)]
        if len(strings) != len(texts) or not strings:
            yield Hit(node, f"get_ipython().{method}")
        elif method in ("run_cell", "run_cell_async", "run_code", "ex", "ev"):
            context.read_cell(strings[0], node, f"get_ipython().{method}")
        elif method == "run_cell_magic" and len(strings) == 3:
            context.read_magic(strings[0], strings[1], strings[2], node)
        elif method == "run_line_magic":
            context.read_magic(strings[0], strings[1] if len(strings) > 1 else "", None, node)
        elif method == "magic":
            first, _, rest = strings[0].lstrip("%").partition(" ")
            context.read_magic(first, rest, None, node)


_IPYTHON_METHODS = frozenset(
    {"run_cell", "run_cell_async", "run_code", "ex", "ev", "run_cell_magic", "run_line_magic", "magic"}
)
