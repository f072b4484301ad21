"""What can be known of an expression without running it: its names, and often its type.

Literals, operators and most functions have a type. A variable has one where somebody gives its
shape (the schema of a custom resource), else it is `dyn`. What is certainly wrong is refused when
a policy or a definition is stored; the rest shows when it runs.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from motley.api.cel import tree
from motley.api.cel.errors import CompileError
from motley.api.cel.functions import GLOBAL, METHODS, RESULTS
from motley.api.cel.tree import Node
from motley.api.cel.values import type_name

DYN = "dyn"
TYPES = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
)
_NUMBERS = frozenset({"int", "uint", "double"})
_ARITHMETIC = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_"})
_ORDER = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_ADDABLE = _NUMBERS | {"string", "bytes", "list"}
_TIMES = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_SCALARS = _NUMBERS | _TIMES | {"bool", "string", "bytes"}
OBJECT = "object"


class Shape(Protocol):
    """What is known of a value before there is one."""

    @property
    def type(self) -> str:
        """Its type; `object` has fields, `map` and `list` have elements."""

    def field(self, name: str) -> "Shape | None":
        """A field of an object, None if anything may be in it; KeyError: there is none."""

    @property
    def element(self) -> "Shape | None":
        """What a list or a map holds; None: anything."""


class _Typed(str):
    """A type with a shape behind it."""

    __slots__ = ("shape",)
    shape: Shape


def _typed(shape: Shape | None) -> str:
    if shape is None:
        return DYN
    found = _Typed(shape.type)
    found.shape = shape
    return found


class Checker:
    """Finds undeclared names and impossible operations; `check` gives the type."""

    def __init__(
        self, source: str, variables: Mapping[str, Shape | None], messages: Collection[str]
    ) -> None:
        self._source = source
        self._variables = {name: _typed(shape) for name, shape in variables.items()}
        self._messages = messages

    def check(self, node: Node) -> str:
        """The type of an expression, `dyn` where only running it tells."""
        match node:
            case tree.Literal(value=value):
                return type_name(value)
            case tree.Name(name=name):
                return self._name(node, name)
            case tree.Select(test=test, optional=optional):
                found = self._select(node)
                return "bool" if test else DYN if optional else found
            case tree.Index(operand=operand, key=key, optional=optional):
                found = _element(self.check(operand))
                self.check(key)
                return DYN if optional else found
            case tree.And(left=left, right=right) | tree.Or(left=left, right=right):
                self._must_be_bool(left, "_&&_" if isinstance(node, tree.And) else "_||_")
                self._must_be_bool(right, "_&&_" if isinstance(node, tree.And) else "_||_")
                return "bool"
            case tree.Choice(condition=condition, then=then, other=other):
                self._must_be_bool(condition, "_?_:_")
                first, second = self.check(then), self.check(other)
                if first != second or _shape(first) is not _shape(second):
                    return DYN
                return first
            case tree.ListOf(items=items):
                for item, _ in items:
                    self.check(item)
                return "list"
            case tree.MapOf(entries=entries):
                for key, value, _ in entries:
                    self.check(key)
                    self.check(value)
                return "map"
            case tree.Message(type=name, fields=fields):
                if name.partition(".")[0] not in self._messages:
                    raise self._undeclared(node, name)
                for _, value, _ in fields:
                    self.check(value)
                return name
            case tree.Comprehension():
                return self._comprehension(node)
            case tree.Bind(name=name, value=value, body=body):
                return self._within({name: self.check(value)}, body)
            case tree.Call():
                return self._call(node)
        return DYN

    def _undeclared(self, node: Node, name: str) -> CompileError:
        return CompileError(
            self._source, node.offset, f"undeclared reference to '{name}' (in container '')"
        )

    def _name(self, node: Node, name: str) -> str:
        if name in self._variables:
            return self._variables[name]
        if name in TYPES:
            return "type"
        raise self._undeclared(node, name)

    def _select(self, node: tree.Select) -> str:
        kind = self.check(node.operand)
        if kind in TYPES - {"map", "null_type"}:
            raise CompileError(
                self._source, node.offset, f"type '{kind}' does not support field selection"
            )
        shape = _shape(kind)
        if shape is None or kind != OBJECT:
            return _element(kind)
        try:
            return _typed(shape.field(node.field))
        except KeyError:
            raise CompileError(
                self._source, node.offset, f"undefined field '{node.field}'"
            ) from None

    def _must_be_bool(self, node: Node, operator: str) -> None:
        kind = self.check(node)
        if kind not in ("bool", DYN):
            raise CompileError(
                self._source,
                node.offset,
                f"expected type 'bool' but found '{kind}'",
            )

    def _within(self, bound: Mapping[str, str], body: Node) -> str:
        outer = self._variables
        self._variables = {**outer, **bound}
        try:
            return self.check(body)
        finally:
            self._variables = outer

    def _comprehension(self, node: tree.Comprehension) -> str:
        kind = self.check(node.operand)
        if kind not in ("list", "map", DYN) and not node.how.startswith("opt"):
            raise CompileError(
                self._source,
                node.offset,
                f"expression of type '{kind}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
        bound = _bound(node, kind)
        if node.condition is not None:
            self._within(bound, node.condition)
        body = self._within(bound, node.body)
        if node.how in ("all", "exists", "exists_one", "filter") and body not in ("bool", DYN):
            raise CompileError(
                self._source, node.body.offset, f"expected type 'bool' but found '{body}'"
            )
        if node.how in ("filter", "sortBy") and kind == "list":
            return kind
        if node.how in ("filter", "map", "sortBy", "transformList"):
            return "list"
        if node.how in ("transformMap", "transformMapEntry"):
            return "map"
        return "bool" if node.how in ("all", "exists", "exists_one") else DYN

    def _call(self, node: tree.Call) -> str:
        name = node.name
        if node.target is not None:
            qualified = qualified_name(node.target)
            if qualified and f"{qualified}.{name}" in GLOBAL:
                name = f"{qualified}.{name}"
            else:
                self.check(node.target)
                if name not in METHODS:
                    raise self._undeclared(node, name)
        elif name not in GLOBAL:
            raise self._undeclared(node, name)
        kinds = [self.check(argument) for argument in node.arguments]
        if node.target is None and len(kinds) == 2:
            self._operands(node, kinds[0], kinds[1])
        if name in _ARITHMETIC and len(set(kinds)) == 1 and kinds[0] in _ADDABLE:
            return kinds[0]
        return RESULTS.get(name, DYN)

    def _operands(self, node: tree.Call, left: str, right: str) -> None:
        """Refuse operators on types that never go together."""
        if DYN in (left, right):
            return
        name = node.name
        fits = True
        if name in _ARITHMETIC:
            fits = (left == right and left in _ADDABLE) or {left, right} <= _TIMES
        elif name in _ORDER:
            fits = left == right or {left, right} <= _NUMBERS
        elif name in ("_==_", "_!=_"):
            fits = left == right or not {left, right} <= _SCALARS
        elif name == "_in_":
            fits = right in ("list", "map")
        if not fits:
            raise CompileError(
                self._source,
                node.offset,
                f"found no matching overload for '{name}' applied to '({left}, {right})'",
            )


def _shape(kind: str) -> Shape | None:
    return kind.shape if isinstance(kind, _Typed) else None


def _element(kind: str) -> str:
    shape = _shape(kind)
    return _typed(shape.element) if shape is not None and kind in ("list", "map") else DYN


def _bound(node: tree.Comprehension, kind: str) -> dict[str, str]:
    """What a macro's variables are: the elements of a list, the keys of a map, or both."""
    key = {"list": "int", "map": "string"}.get(kind, DYN)
    element = _element(kind)
    if len(node.variables) == 1:
        return {node.variables[0]: key if kind == "map" else element}
    return dict(zip(node.variables, (key, element), strict=True))


def qualified_name(node: Node) -> str:
    """`a.b` as one name, for functions in a library; empty for anything else."""
    if isinstance(node, tree.Name):
        return node.name
    if isinstance(node, tree.Select) and not node.test and not node.optional:
        before = qualified_name(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""
