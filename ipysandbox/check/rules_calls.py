"""Rules about calls and attributes: shells, deletion, and the known ways around names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ipysandbox.check.names import MAX_DEPTH
from ipysandbox.check.rules import LIST_HINT, Context, Hit, rule

# Shells and deletion.

_RUNNERS = frozenset(["run", "call", "check_call", "check_output", "Popen"])
_SHELL_POSITION = 8  # of `shell` among Popen's parameters, which run and the others pass on


@rule(
    "call.shell",
    ast.Call,
    reason="hands its text to a shell (shell=True), which runs whatever is in it",
    hint=LIST_HINT,
)
def _shell(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    if len(node.args) <= _SHELL_POSITION and not any(keyword.arg in ("shell", None) for keyword in node.keywords):
        return
    callee, arguments = _runner(node, context)
    if callee is None:
        return
    shell: ast.expr | None = None
    for keyword in node.keywords:
        if keyword.arg == "shell":
            shell = keyword.value
        elif keyword.arg is None:
            shell = _entry(keyword.value, "shell", context) or shell
    if shell is None and len(arguments) > _SHELL_POSITION:
        shell = arguments[_SHELL_POSITION]
    if shell is None:
        return
    values = context.fold(shell)
    if values is None:
        if callee.startswith("subprocess."):
            yield Hit(
                node, callee, f"{callee} may hand its text to a shell: the value of shell= is only known when it runs"
            )
    elif any(values):
        yield Hit(node, callee)


def _runner(node: ast.Call, context: Context) -> tuple[str | None, list[ast.expr]]:
    """The function of subprocess that a call runs, directly, by partial or handed to an executor, and its arguments."""
    for name in context.names(node.func):
        module, _, function = name.rpartition(".")
        if module == "subprocess" and function in _RUNNERS:
            return name, node.args
    for position, argument in enumerate(node.args):
        for name in context.names(argument):
            if name.startswith("subprocess.") and name.removeprefix("subprocess.") in _RUNNERS:
                return name, node.args[position + 1 :]
    # `sp.run(…, shell=True)` where an earlier cell imported sp: the keyword with that method says enough.
    if (
        isinstance(node.func, ast.Attribute)
        and node.func.attr in _RUNNERS
        and not isinstance(node.func.value, ast.Call)
    ):
        known = any(name.partition(".")[0] not in ("self", "cls") for name in context.names(node.func))
        if known and any(k.arg == "shell" and context.fold(k.value) == (True,) for k in node.keywords):
            return node.func.attr, node.args
    return None, []


def _entry(node: ast.expr, key: str, context: Context) -> ast.expr | None:
    """The value under ``key`` of a dict literal, of ``dict(…)``, or of a name for one."""
    for written in context.written(node):
        if isinstance(written, ast.Dict):
            for name, value in zip(written.keys, written.values, strict=True):
                if name is not None and context.fold(name) == (key,):
                    return value
        elif isinstance(written, ast.Call) and "builtins.dict()" in context.names(written):
            for keyword in written.keywords:
                if keyword.arg == key:
                    return keyword.value
    return None


@rule(
    "call.rmtree",
    ast.Call,
    reason="deletes a whole folder; the check passes only one in /tmp or a folder of files.write, its name written out",
    hint='For example shutil.rmtree("results/cache"), or a folder made with tempfile.TemporaryDirectory().',
    calls=frozenset({"shutil.rmtree"}),
)
def _rmtree(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    if "shutil.rmtree" in context.names(node.func):
        path = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "path"), None)
        if path is not None and not context.writable(path):
            yield Hit(node, "shutil.rmtree")
    for position, argument in enumerate(node.args):
        if "shutil.rmtree" in context.names(argument):
            rest = node.args[position + 1 :]
            if not rest or not context.writable(rest[0]):
                yield Hit(argument, "shutil.rmtree")


# Ways around names.


@rule(
    "call.dynamic-attribute",
    ast.Call,
    reason="calls a function of a system module whose name is only known when the code runs",
    hint="Write the attribute out (os.getcwd), or give getattr a literal.",
    calls=frozenset({"builtins.getattr"}),
)
def _dynamic_attribute(node: ast.AST, context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Call)
    reader = node.func
    if not isinstance(reader, ast.Call) or len(reader.args) < 2 or context.fold(reader.args[1]) is not None:
        return
    if "builtins.getattr" in context.names(reader.func):
        for module in context.names(reader.args[0]):
            if module in ("os", "posix", "subprocess", "pty", "shutil"):
                yield Hit(node, f"getattr({module}, …)")


_READERS = frozenset(
    {
        "builtins.getattr",
        "builtins.object.__getattribute__",
        "builtins.type.__getattribute__",
        "inspect.getattr_static",
        "operator.attrgetter",
    }
)
_WALK_ATTRIBUTES = frozenset({"__base__", "__bases__", "__mro__", "__class__"})


@rule(
    "dunder.subclasses",
    ast.Attribute,
    ast.Call,
    reason="lists every class of the process from object downwards, a known way to functions that were not imported",
    hint="A registry of your own classes works on the class itself: MyBase.__subclasses__().",
    calls=_READERS,
)
def _subclasses(node: ast.AST, context: Context) -> Iterator[Hit]:
    if isinstance(node, ast.Call):
        yield from _read_by_name(node, "__subclasses__", context)
    elif isinstance(node, ast.Attribute) and node.attr == "__subclasses__" and _from_the_root(node.value, context):
        yield Hit(node, "__subclasses__")


def _from_the_root(node: ast.expr, context: Context) -> bool:
    """Whether an expression is object, type, or climbs to them; a class by its name isn't."""
    names = context.names(node)
    if "builtins.object" in names or "builtins.type" in names:
        return True
    if any(part in _WALK_ATTRIBUTES for name in names for part in name.split(".")):
        return True
    for _ in range(MAX_DEPTH):
        if isinstance(node, ast.Attribute) and node.attr in _WALK_ATTRIBUTES:
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "mro":
                return True
            node = node.func.value
        else:
            return not isinstance(node, (ast.Name, ast.Call))
    return True


def _read_by_name(node: ast.Call, attribute: str, context: Context) -> Iterator[Hit]:
    """getattr(x, "__globals__") and its like."""
    for name in context.names(node.func):
        if name in _READERS:
            for argument in node.args:
                if attribute in (context.fold(argument) or ()):
                    yield Hit(node, attribute)
                    return


@rule(
    "dunder.globals",
    ast.Attribute,
    ast.Call,
    reason="reaches into another function's module, a known way to functions that were not imported",
    hint="Import what you need by its name.",
    calls=_READERS,
)
def _globals(node: ast.AST, context: Context) -> Iterator[Hit]:
    if isinstance(node, ast.Call):
        yield from _read_by_name(node, "__globals__", context)
    elif isinstance(node, ast.Attribute) and node.attr == "__globals__":
        yield Hit(node, "__globals__")


@rule(
    "dunder.code",
    ast.Attribute,
    reason="replaces the code of a function",
    hint="Define the function anew.",
    severity="note",
)
def _code(node: ast.AST, _context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Attribute)
    if node.attr == "__code__" and isinstance(node.ctx, ast.Store):
        yield Hit(node, "__code__")


@rule(
    "dunder.builtins",
    ast.Attribute,
    reason="reaches the builtin functions by a detour",
    hint="Call them by their names.",
    severity="note",
)
def _builtins(node: ast.AST, _context: Context) -> Iterator[Hit]:
    assert isinstance(node, ast.Attribute)
    if node.attr == "__builtins__":
        yield Hit(node, "__builtins__")
