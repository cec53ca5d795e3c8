"""Says which qualified names an expression may stand for: `f` after `f = os.system` is `os.system`.

Names are followed through imports and their aliases, simple assignments, attribute chains, getattr and friends with a
literal name, module tables and namespaces read with a literal key, and elements of literal containers. A name that the
cell doesn't bind stands for itself, since an earlier cell may have imported it. What is unknown has no names.

Spelling of results: ``os.system``; a call's result is ``tempfile.mkdtemp()``; a builtin is ``builtins.eval``; an
element of a literal container is any of its elements.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from ipysandbox.check.literals import Folder
from ipysandbox.check.scopes import Binding, Scope, Survey, Use

Names = tuple[str, ...]

BUILTINS = frozenset(dir(builtins))
MAX_DEPTH = 60  # expressions followed into each other; deeper ones are taken as unknown
MAX_NAMES = 32  # that one expression may stand for
MAX_LENGTH = 200  # characters of a qualified name

NAMESPACE = "<namespace>"  # the dict of the cell's own global names
TABLE = ".__dict__"

# Modules that are known under another module's name: `shutil.os.system` is `os.system`.
_FOLLOWED = frozenset(["os", "posix", "sys", "subprocess", "builtins", "ctypes", "shutil", "importlib", "pty"])
_SAME = {
    "__builtins__": "builtins",
    "builtins.__builtins__": "builtins",
    "_ctypes": "ctypes",
    "nt": "posix",
    "IPython.get_ipython()": "get_ipython()",
    "IPython.core.getipython.get_ipython()": "get_ipython()",
    "IPython.core.interactiveshell.InteractiveShell.instance()": "get_ipython()",
    "IPython.InteractiveShell.instance()": "get_ipython()",
    "builtins.globals()": NAMESPACE,
    "builtins.locals()": NAMESPACE,
    "builtins.vars()": NAMESPACE,
    "sys.modules.__main__": NAMESPACE,
    "importlib.__import__": "builtins.__import__",
    "importlib._bootstrap.__import__": "builtins.__import__",
    "importlib._bootstrap._gcd_import": "importlib.import_module",
    "_io.open": "builtins.open",
    "io.open": "builtins.open",
}
_NAMESPACE_ATTRIBUTES = frozenset({"f_globals", "f_locals", "__globals__", "user_ns", "user_global_ns"})
_BUILTINS_ATTRIBUTES = frozenset({"__builtins__", "f_builtins"})

_ATTRIBUTE_READERS = frozenset(
    {"builtins.getattr", "inspect.getattr_static", "builtins.object.__getattribute__", "builtins.type.__getattribute__"}
)
_IMPORTERS = frozenset({"builtins.__import__", "importlib.import_module"})
_BY_PATH = frozenset({"pkgutil.resolve_name", "pydoc.locate"})
_ITEM_READERS = frozenset({"get", "pop", "setdefault", "__getitem__"})
_PARTIAL = frozenset({"functools.partial", "functools.partialmethod"})


class Resolver:
    """Answers for one surveyed tree; every answer is computed once."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._known: dict[ast.AST, Names] = {}
        self._bound: dict[tuple[int, str], Names] = {}
        self.fold = Folder(self).fold

    def names(self, node: ast.expr, depth: int = 0) -> Names:
        known = self._known.get(node)
        if known is not None:
            return known
        if depth > MAX_DEPTH:
            return ()
        self._known[node] = ()  # an expression that depends on itself adds nothing to itself
        found = self._find(node, depth + 1)
        self._known[node] = found
        return found

    def bindings(self, node: ast.Name) -> list[Binding] | None:
        """What the cell binds the name to; None if it doesn't."""
        use = self._survey.uses.get(node)
        return None if use is None else _owner(node.id, use.scope)[1]

    def written(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that the cell binds a name to; the expression itself where it isn't a name."""
        if not isinstance(node, ast.Name):
            return [node]
        return [b.node for b in self.bindings(node) or () if b.kind == "value" and b.node is not None]

    def _find(self, node: ast.expr, depth: int) -> Names:
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.Attribute):
            return _tidy(_attribute(base, node.attr) for base in self.names(node.value, depth))
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        if isinstance(node, ast.NamedExpr):
            return self.names(node.value, depth)
        if isinstance(node, ast.IfExp):
            return _tidy(self.names(node.body, depth) + self.names(node.orelse, depth))
        if isinstance(node, ast.BoolOp):
            return self._union(node.values, depth)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.names(node.value, depth)
        return ()

    def _union(self, nodes: Iterable[ast.expr], depth: int) -> Names:
        return _tidy(name for node in nodes for name in self.names(node, depth))

    # Names and what they are bound to.

    def _name(self, node: ast.Name, depth: int) -> Names:
        use = self._survey.uses.get(node)
        return () if use is None else self._lookup(node.id, use, depth)

    def _lookup(self, name: str, use: Use, depth: int) -> Names:
        owner, bindings = _owner(name, use.scope)
        if not bindings:
            return self._free(name, use.scope.module)
        key = (id(owner), name)
        found = self._bound.get(key)
        if found is None:
            self._bound[key] = ()
            found = _tidy(n for binding in bindings for n in self._binding(binding, depth))
            self._bound[key] = found
        if name in BUILTINS and not _hidden(name, owner, bindings, use):
            return _tidy((*found, f"builtins.{name}"))
        return found

    def _free(self, name: str, module: Scope) -> Names:
        if name in BUILTINS or name == "__builtins__":
            return (_SAME.get(name, f"builtins.{name}"),)
        return _tidy([name, *(f"{star}.{name}" for star in module.stars[:MAX_NAMES])])

    def _binding(self, binding: Binding, depth: int) -> Names:
        if binding.kind == "import":
            return _tidy([binding.target])
        if binding.node is None:
            return ()
        if binding.kind == "value":
            return self.names(binding.node, depth)
        return self._elements(binding.node, depth)

    def _elements(self, node: ast.expr, depth: int) -> Names:
        """The names of what a literal container, or a name for one, holds."""
        if depth > MAX_DEPTH:
            return ()
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._union(node.elts[:MAX_NAMES], depth + 1)
        if isinstance(node, ast.Dict):
            return self._union(node.values[:MAX_NAMES], depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DICT_VIEWS:
            return self._elements(node.func.value, depth + 1)
        if isinstance(node, ast.Name):
            found: list[str] = []
            for binding in self.bindings(node) or ():
                if binding.kind == "value" and binding.node is not None and not isinstance(binding.node, ast.Name):
                    found += self._elements(binding.node, depth + 1)
            return _tidy(found)
        return ()

    # Calls and subscripts that lead to a named thing.

    def _call(self, node: ast.Call, depth: int) -> Names:
        found: list[str] = []
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Call):
            found += self._made_by_operator(node.func, node, depth)
        if method in _ITEM_READERS and node.args and isinstance(node.func, ast.Attribute):
            found += self._item(node.func.value, node.args[0], depth)
        elif method == "__getattribute__" and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            found += self._read(node.func.value, node.args[0], depth)
        for callee in self.names(node.func, depth):
            if callee in _ATTRIBUTE_READERS and len(node.args) >= 2:
                found += self._read(node.args[0], node.args[1], depth)
            elif callee in _IMPORTERS and node.args:
                found += self._imported(callee, node)
            elif callee in _BY_PATH and node.args:
                found += [text.replace(":", ".") for text in self.fold(node.args[0]) or () if isinstance(text, str)]
            elif callee == "operator.getitem" and len(node.args) == 2:
                found += self._item(node.args[0], node.args[1], depth)
            elif callee == "builtins.vars" and node.args:
                found += [base + TABLE for base in self.names(node.args[0], depth)]
            elif callee in _PARTIAL and node.args:
                found += self.names(node.args[0], depth)
            else:
                found.append(callee + "()")
        return _tidy(found)

    def _made_by_operator(self, maker: ast.Call, node: ast.Call, depth: int) -> Iterable[str]:
        """`operator.attrgetter("system")(os)` and `operator.methodcaller("system", …)(os)`."""
        if not (maker.args and node.args):
            return ()
        callees = self.names(maker.func, depth)
        if "operator.attrgetter" in callees or "operator.methodcaller" in callees:
            return self._read(node.args[0], maker.args[0], depth)
        if "operator.itemgetter" in callees:
            return self._item(node.args[0], maker.args[0], depth)
        return ()

    def _read(self, base: ast.expr, name: ast.expr, depth: int) -> list[str]:
        keys = [key for key in self.fold(name) or () if isinstance(key, str)]
        found = []
        for owner in self.names(base, depth):
            for key in keys:
                for part in key.split("."):
                    owner = _attribute(owner, part)
                found.append(owner)
        return found

    def _imported(self, callee: str, node: ast.Call) -> list[str]:
        found = []
        for text in self.fold(node.args[0]) or ():
            if isinstance(text, str):
                whole = callee == "importlib.import_module" or len(node.args) > 3
                whole = whole or any(keyword.arg == "fromlist" for keyword in node.keywords)
                found.append(text if whole else text.partition(".")[0])
        return found

    def _subscript(self, node: ast.Subscript, depth: int) -> Names:
        return _tidy([*self._item(node.value, node.slice, depth), *self._elements(node.value, depth)])

    def _item(self, base: ast.expr, key: ast.expr, depth: int) -> list[str]:
        owners = self.names(base, depth)
        if not owners and not isinstance(key, ast.Constant):
            return []
        found: list[str] = []
        for text in self.fold(key) or ():
            if not isinstance(text, str):
                continue
            if text == "__builtins__":
                found.append("builtins")
            for owner in owners:
                if owner == "sys.modules":
                    found.append(text)
                elif owner == NAMESPACE or owner == NAMESPACE + TABLE:
                    found += self._global(text, depth)
                elif owner.endswith(TABLE):
                    found.append(_attribute(owner[: -len(TABLE)], text))
                elif owner == "builtins":
                    found.append(f"builtins.{text}")
        return found

    def _global(self, name: str, depth: int) -> Names:
        module = self._survey.module
        return self._lookup(name, Use(module, 1 << 60, module.block), depth)


_DICT_VIEWS = frozenset({"values", "items", "copy"})


def _attribute(base: str, attr: str) -> str:
    if attr in _BUILTINS_ATTRIBUTES:
        return "builtins"
    if attr in _NAMESPACE_ATTRIBUTES:
        return NAMESPACE
    if attr in _FOLLOWED and "()" not in base and not (base == "asyncio" and attr == "subprocess"):
        return attr
    return f"{base}.{attr}"


def _tidy(names: Iterable[str]) -> Names:
    """Without repetition, in canonical spelling, bounded."""
    found: dict[str, None] = {}
    for name in names:
        name = _SAME.get(name, name)
        if name and len(name) <= MAX_LENGTH:
            found[name] = None
            if len(found) >= MAX_NAMES:
                break
    return tuple(found)


def _owner(name: str, scope: Scope) -> tuple[Scope, list[Binding] | None]:
    """The scope that holds ``name`` as Python looks it up from ``scope``, and its bindings there."""
    current: Scope | None = scope
    while current is not None:
        if name in current.elsewhere:
            current = current.elsewhere[name]
        bindings = current.bindings.get(name)
        # A class body's names are not seen from the functions in it.
        if bindings and (current.kind != "class" or current is scope):
            return current, bindings
        current = current.parent
    return scope.module, None


def _hidden(name: str, owner: Scope, bindings: list[Binding], use: Use) -> bool:
    """Whether the builtin ``name`` can't be meant any more: the cell has certainly bound the name before ``use``."""
    if owner.kind in ("function", "comprehension"):
        return True  # local from the first line to the last
    if use.scope is not owner:
        return any(binding.block is owner.block for binding in bindings)  # runs later
    last = max((b.order for b in bindings if b.order < use.order and use.block.within(b.block)), default=-1)
    return last >= 0 and not any(last < gone < use.order for gone in owner.deleted.get(name, ()))
