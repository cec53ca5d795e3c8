"""First walk over a tree: which scope binds which name to what, and which nodes the rules want to see."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["value", "element", "import", "opaque"]

MAX_BINDINGS = (
    64  # of one name in one scope that are looked at; machine-made cells assign the same name thousands of times
)


class Block:
    """A stretch of code that runs as a whole: a branch, a loop's body, a handler. A scope's own block has no parent."""

    __slots__ = ("parent",)

    def __init__(self, parent: Block | None = None) -> None:
        self.parent = parent

    def within(self, other: Block) -> bool:
        block: Block | None = self
        while block is not None:
            if block is other:
                return True
            block = block.parent
        return False


@dataclass(frozen=True)
class Binding:
    """One place that gives a name a value.

    ``value``: the value is that of ``node``. ``element``: one of the elements of ``node``. ``import``: what ``target``
    names. ``opaque``: something the check doesn't follow (a parameter, a class, the result of ``+=``).
    """

    kind: Kind
    order: int
    block: Block
    node: ast.expr | None = None
    target: str = ""


@dataclass(eq=False)
class Scope:
    kind: Literal["module", "class", "function", "comprehension"]
    parent: Scope | None
    block: Block = field(default_factory=Block)
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    deleted: dict[str, list[int]] = field(default_factory=dict)
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # global and nonlocal names
    stars: list[str] = field(default_factory=list)  # modules of `from m import *`

    def bind(self, name: str, binding: Binding) -> None:
        owner = self.elsewhere.get(name, self)
        known = owner.bindings.setdefault(name, [])
        if len(known) < MAX_BINDINGS:
            known.append(binding)
        elif known[-1].kind != "opaque":
            known.append(Binding("opaque", binding.order, binding.block))

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(frozen=True)
class Use:
    """Where a name is read: needed to tell whether a binding came before it."""

    scope: Scope
    order: int
    block: Block


@dataclass
class Survey:
    """What the first walk saw. ``nodes`` are in the order of the source, outer before inner."""

    module: Scope
    nodes: list[ast.AST] = field(default_factory=list)
    uses: dict[ast.Name, Use] = field(default_factory=dict)


WANTED = (
    ast.Call,
    ast.Attribute,
    ast.Name,
    ast.Subscript,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)
_SKIPPED_FIELDS = frozenset({"ctx", "op", "ops", "type_comment", "kind", "type_ignores"})


def survey(tree: ast.AST, module: Scope) -> Survey:
    """Walk ``tree`` without recursion (its depth is hostile), filling ``module``, which may hold earlier bindings."""
    walk = _Walk(module)
    walk.run(tree)
    return walk.result


Frame = tuple["ast.AST | Callable[[int], None]", Scope, Block]


class _Walk:
    def __init__(self, module: Scope) -> None:
        self.result = Survey(module)
        self.order = 0
        self.stack: list[Frame] = []
        self.special: dict[type[ast.AST], Callable[[ast.AST, Scope, Block], None]] = {
            ast.Name: self.name,
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated,
            ast.NamedExpr: self.walrus,
            ast.AugAssign: self.augmented,
            ast.Import: self.imports,
            ast.ImportFrom: self.imports_from,
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.Lambda: self.function,
            ast.ClassDef: self.class_,
            ast.For: self.loop,
            ast.AsyncFor: self.loop,
            ast.While: self.branches,
            ast.If: self.branches,
            ast.Try: self.branches,
            ast.ExceptHandler: self.handler,
            ast.With: self.with_,
            ast.AsyncWith: self.with_,
            ast.ListComp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.match_case: self.case,
            ast.MatchAs: self.pattern,
            ast.MatchStar: self.pattern,
            ast.MatchMapping: self.pattern,
            ast.Global: self.declaration,
            ast.Nonlocal: self.declaration,
        }
        try_star = getattr(ast, "TryStar", None)  # Python 3.11
        if try_star is not None:
            self.special[try_star] = self.branches

    def run(self, tree: ast.AST) -> None:
        self.stack.append((tree, self.result.module, self.result.module.block))
        special, wanted, nodes = self.special, frozenset(WANTED), self.result.nodes
        while self.stack:
            node, scope, block = self.stack.pop()
            self.order += 1
            if not isinstance(node, ast.AST):
                node(self.order)
                continue
            kind = type(node)
            if kind in wanted:
                nodes.append(node)
            handle = special.get(kind)
            if handle is not None:
                handle(node, scope, block)
            else:
                self.children(node, scope, block)

    # Pushing: the last thing pushed is visited first.

    def children(self, node: ast.AST, scope: Scope, block: Block, skip: frozenset[str] = frozenset()) -> None:
        push = self.stack.append
        for name in reversed(node._fields):
            if name in _SKIPPED_FIELDS or name in skip:
                continue
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                push((value, scope, block))
            elif isinstance(value, list):
                for item in reversed(value):
                    if isinstance(item, ast.AST):
                        push((item, scope, block))

    def several(self, nodes: list[ast.AST], scope: Scope, block: Block) -> None:
        for node in reversed(nodes):
            self.stack.append((node, scope, block))

    def later(self, scope: Scope, block: Block, action: Callable[[int], None]) -> None:
        self.stack.append((action, scope, block))

    def bind(self, name: str, scope: Scope, block: Block, kind: Kind = "opaque", node: ast.expr | None = None) -> None:
        scope.bind(name, Binding(kind, self.order, block, node))

    def bind_later(self, target: ast.expr, kind: Kind, value: ast.expr, scope: Scope, block: Block) -> None:
        """Bind ``target`` once what stands to its right has been visited; targets that aren't names are visited."""
        if isinstance(target, ast.Name):
            name = target.id
            self.later(scope, block, lambda order: scope.bind(name, Binding(kind, order, block, value)))
        elif isinstance(target, (ast.Tuple, ast.List)) and kind == "value" and _pairs_up(target, value):
            for part, item in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self.bind_later(part, kind, item, scope, block)
        else:
            self.stack.append((target, scope, block))

    # Handlers of nodes that bind names or open scopes and blocks.

    def name(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.Name)
        if isinstance(node.ctx, ast.Load):
            self.result.uses[node] = Use(scope, self.order, block)
        elif isinstance(node.ctx, ast.Store):
            self.bind(node.id, scope, block)
        else:
            scope.deleted.setdefault(node.id, []).append(self.order)

    def assign(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.Assign)
        for target in reversed(node.targets):
            self.bind_later(target, "value", node.value, scope, block)
        self.stack.append((node.value, scope, block))

    def annotated(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.AnnAssign)
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                self.stack.append((node.target, scope, block))
        else:
            self.bind_later(node.target, "value", node.value, scope, block)
            self.stack.append((node.value, scope, block))
        self.stack.append((node.annotation, scope, block))

    def walrus(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.NamedExpr)
        owner = scope
        while owner.kind == "comprehension" and owner.parent is not None:  # PEP 572: binds outside the comprehension
            owner = owner.parent
        self.bind_later(node.target, "value", node.value, owner, block)
        self.stack.append((node.value, scope, block))

    def augmented(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.AugAssign)
        self.several([node.value, node.target], scope, block)

    def imports(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.Import)
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            target = alias.name if alias.asname else name
            scope.bind(name, Binding("import", self.order, block, target=target))

    def imports_from(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.ImportFrom)
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                scope.stars.append(module)
            else:
                target = f"{module}.{alias.name}"
                scope.bind(alias.asname or alias.name, Binding("import", self.order, block, target=target))

    def function(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        inner = Scope("function", scope)
        args = node.args
        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if arg is not None:
                self.bind(arg.arg, inner, inner.block)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        self.several(body, inner, inner.block)
        if not isinstance(node, ast.Lambda):
            self.bind(node.name, scope, block)
            self.type_parameters(node, inner)
        # Decorators, defaults and annotations run where the function is written.
        self.children(node, scope, block, skip=frozenset({"body", "type_params"}))

    def class_(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.ClassDef)
        inner = Scope("class", scope)
        self.bind(node.name, scope, block)
        self.type_parameters(node, inner)
        self.several([*node.body], inner, inner.block)
        self.children(node, scope, block, skip=frozenset({"body", "type_params"}))

    def type_parameters(self, node: ast.AST, inner: Scope) -> None:
        for parameter in getattr(node, "type_params", ()):  # Python 3.12
            self.bind(parameter.name, inner, inner.block)

    def loop(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, (ast.For, ast.AsyncFor))
        body = Block(block)
        self.several([*node.orelse], scope, Block(block))
        self.several([*node.body], scope, body)
        self.bind_later(node.target, "element", node.iter, scope, body)
        self.stack.append((node.iter, scope, block))

    def branches(self, node: ast.AST, scope: Scope, block: Block) -> None:
        for name in reversed(node._fields):
            value = getattr(node, name, None)
            if isinstance(value, list):
                self.several(value, scope, Block(block))
            elif isinstance(value, ast.AST):
                self.stack.append((value, scope, block))

    def handler(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, ast.ExceptHandler)
        inner = Block(block)
        if node.name:
            self.bind(node.name, scope, inner)
        self.children(node, scope, inner)

    def with_(self, node: ast.AST, scope: Scope, block: Block) -> None:
        assert isinstance(node, (ast.With, ast.AsyncWith))
        self.several([*node.body], scope, block)
        for item in reversed(node.items):
            if item.optional_vars is not None:
                self.bind_later(item.optional_vars, "value", item.context_expr, scope, block)
            self.stack.append((item.context_expr, scope, block))

    def comprehension(self, node: ast.AST, scope: Scope, _block: Block) -> None:
        assert isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
        inner = Scope("comprehension", scope)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.several([*results], inner, inner.block)
        for generator in reversed(node.generators):
            self.several([*generator.ifs], inner, inner.block)
            self.bind_later(generator.target, "element", generator.iter, inner, inner.block)
            self.stack.append((generator.iter, inner, inner.block))

    def case(self, node: ast.AST, scope: Scope, block: Block) -> None:
        self.children(node, scope, Block(block))

    def pattern(self, node: ast.AST, scope: Scope, block: Block) -> None:
        name = getattr(node, "rest", None) if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
        if name:
            self.bind(name, scope, block)
        self.children(node, scope, block)

    def declaration(self, node: ast.AST, scope: Scope, _block: Block) -> None:
        assert isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names:
            scope.elsewhere[name] = scope.module if isinstance(node, ast.Global) else scope.parent or scope


def _pairs_up(target: ast.Tuple | ast.List, value: ast.expr) -> bool:
    return (
        isinstance(value, (ast.Tuple, ast.List))
        and len(value.elts) == len(target.elts)
        and not any(isinstance(part, ast.Starred) for part in [*target.elts, *value.elts])
    )
