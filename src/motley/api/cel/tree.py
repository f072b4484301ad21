"""The tree of an expression."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression, and where it begins."""

    offset: int


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`; `has(operand.field)` only tests; `operand.?field` gives an optional."""

    operand: Node
    field: str
    test: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`operand[key]`, or `operand[?key]`."""

    operand: Node
    key: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`name(arguments)`, or with a target `target.name(arguments)`; operators too."""

    name: str
    target: Node | None
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class And(Node):
    """`left && right`: false if either is, whatever the other does."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Or(Node):
    """`left || right`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """`condition ? then : other`."""

    condition: Node
    then: Node
    other: Node


@dataclass(frozen=True, slots=True)
class ListOf(Node):
    """`[a, ?b]`; optional elements are left out when they are none."""

    items: tuple[tuple[Node, bool], ...]


@dataclass(frozen=True, slots=True)
class MapOf(Node):
    """`{key: value}`."""

    entries: tuple[tuple[Node, Node, bool], ...]


@dataclass(frozen=True, slots=True)
class Message(Node):
    """`Type{field: value}`."""

    type: str
    fields: tuple[tuple[str, Node, bool], ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Node):
    """A macro over a list or a map.

    `how` is all, exists, exists_one, filter, map, sortBy, transformList, transformMap or
    transformMapEntry; with two variables the first is the index or the key. Or it is optMap or
    optFlatMap, over an optional.
    """

    how: str
    operand: Node
    variables: tuple[str, ...]
    condition: Node | None
    body: Node


@dataclass(frozen=True, slots=True)
class Bind(Node):
    """`cel.bind(name, value, body)`."""

    name: str
    value: Node
    body: Node


def walk(node: Node) -> Iterator[Node]:
    """The node and everything in it."""
    yield node
    for one in fields(node):
        yield from _within(getattr(node, one.name))


def _within(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield from walk(value)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _within(inner)
