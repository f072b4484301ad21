"""A tree becomes closures; running them counts steps and stops when there were too many.

Logic is CEL's: `&&` and `||` take an error on one side as long as the other side decides, so a
rule may look at a field before it asks whether it is there.

Invariant: evaluation changes nothing it was given, and ends.
"""

from collections.abc import Callable, Mapping
from typing import Any

from motley.api.cel import tree
from motley.api.cel.checker import TYPES, qualified_name
from motley.api.cel.collector import Collector, truth
from motley.api.cel.errors import CelError, CostError
from motley.api.cel.functions import GLOBAL, METHODS
from motley.api.cel.tree import Node
from motley.api.cel.values import (
    NONE,
    Lazy,
    Message,
    Optional,
    Type,
    contains,
    hashable,
)

# Steps of one expression: about a tenth of a second, during which the server does nothing else.
BUDGET = 100_000
# What takes as long as many steps: looking through everybody's roles.
_EXPENSIVE = {"check": 500}


class Frame:
    """The variables of one run, and how much of its budget is left."""

    __slots__ = ("steps", "variables")

    def __init__(self, variables: Mapping[str, Any], steps: int = BUDGET) -> None:
        self.variables = dict(variables)
        self.steps = steps

    def spend(self, steps: int = 1) -> None:
        """Count work."""
        self.steps -= steps
        if self.steps < 0:
            raise CostError("operation cancelled: actual cost limit exceeded")


Run = Callable[[Frame], Any]


def build(node: Node) -> Run:
    """The closure of a tree."""
    return _BUILDERS[type(node)](node)


def _literal(node: tree.Literal) -> Run:
    value = node.value
    return lambda frame: value


def _name(node: tree.Name) -> Run:
    name = node.name

    def run(frame: Frame) -> Any:
        frame.spend()
        try:
            return frame.variables[name]
        except KeyError:
            if name in TYPES:
                return Type(name)
            raise CelError(f"no such attribute(s): {name}") from None

    return run


def field_of(value: Any, name: str) -> Any:
    """`value.name`; absent fields are errors."""
    if isinstance(value, dict):
        try:
            return value[name]
        except KeyError:
            raise CelError(f"no such key: {name}") from None
    if isinstance(value, Lazy):
        return value.lookup(name)
    if isinstance(value, Optional):
        return _through(value, lambda inner: field_of(inner, name), name)
    raise CelError("no such overload")


def _through(value: Optional, select: Callable[[Any], Any], key: Any) -> Optional:
    """Selecting from an optional gives an optional: missing stays missing all the way down."""
    if not value.is_present or not has_key(value.value, key):
        return NONE
    return Optional(select(value.value), True)


def has_key(value: Any, key: Any) -> bool:
    """Whether something can be selected."""
    if isinstance(value, dict | Lazy):
        return contains(value, key)
    if isinstance(value, list):
        return isinstance(key, int) and 0 <= key < len(value)
    if isinstance(value, Optional):
        return value.is_present and has_key(value.value, key)
    raise CelError("no such overload")


def _select(node: tree.Select) -> Run:
    operand, name = build(node.operand), node.field
    if node.test:

        def test(frame: Frame) -> bool:
            frame.spend()
            found = operand(frame)
            if isinstance(found, dict):
                return found.get(name) is not None
            return has_key(found, name)

        return test
    if node.optional:

        def optional(frame: Frame) -> Any:
            frame.spend()
            found = operand(frame)
            held = found if isinstance(found, Optional) else Optional(found, found is not None)
            return _through(held, lambda inner: field_of(inner, name), name)

        return optional

    def run(frame: Frame) -> Any:
        frame.spend()
        return field_of(operand(frame), name)

    return run


def item_of(value: Any, key: Any) -> Any:
    """`value[key]`."""
    if isinstance(value, list):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        if not isinstance(key, int) or isinstance(key, bool):
            raise CelError(f"unsupported index type '{type(key).__name__}' in list")
        if not 0 <= key < len(value):
            raise CelError(f"index out of bounds: {key}")
        return value[key]
    if isinstance(value, dict):
        if hashable(key) not in value:
            raise CelError(f"no such key: {key}")
        return value[key]
    if isinstance(value, Lazy):
        return value.lookup(str(key))
    if isinstance(value, Optional):
        return _through(value, lambda inner: item_of(inner, key), key)
    raise CelError("no such overload")


def _index(node: tree.Index) -> Run:
    operand, key, is_optional = build(node.operand), build(node.key), node.optional

    def run(frame: Frame) -> Any:
        frame.spend()
        found, at = operand(frame), key(frame)
        if not is_optional:
            return item_of(found, at)
        held = found if isinstance(found, Optional) else Optional(found, found is not None)
        return _through(held, lambda inner: item_of(inner, at), at)

    return run


def _decided(left: Run, right: Run, deciding: bool) -> Run:
    """`||` (deciding: true) and `&&` (deciding: false)."""

    def run(frame: Frame) -> bool:
        frame.spend()
        try:
            if truth(left(frame)) is deciding:
                return deciding
        except CostError:
            raise
        except CelError as problem:
            if truth(right(frame)) is deciding:
                return deciding
            raise problem from None
        return truth(right(frame))

    return run


def _choice(node: tree.Choice) -> Run:
    condition, then, other = build(node.condition), build(node.then), build(node.other)

    def run(frame: Frame) -> Any:
        frame.spend()
        return then(frame) if truth(condition(frame)) else other(frame)

    return run


def _list(node: tree.ListOf) -> Run:
    items = [(build(item), optional) for item, optional in node.items]

    def run(frame: Frame) -> list[Any]:
        frame.spend(1 + len(items))
        found = []
        for item, optional in items:
            value = item(frame)
            if not optional:
                found.append(value)
            elif isinstance(value, Optional) and value.is_present:
                found.append(value.value)
        return found

    return run


def _map(node: tree.MapOf) -> Run:
    entries = [(build(k), build(v), optional) for k, v, optional in node.entries]

    def run(frame: Frame) -> dict[Any, Any]:
        frame.spend(1 + len(entries))
        found: dict[Any, Any] = {}
        for key, value, optional in entries:
            name, held = hashable(key(frame)), value(frame)
            if optional:
                if not isinstance(held, Optional) or not held.is_present:
                    continue
                held = held.value
            if name in found:
                raise CelError(f"Failed with repeated key: {name}")
            found[name] = held
        return found

    return run


def _message(node: tree.Message) -> Run:
    fields = [(name, build(value), optional) for name, value, optional in node.fields]

    def run(frame: Frame) -> Message:
        frame.spend(1 + len(fields))
        found: dict[str, Any] = {}
        for name, value, optional in fields:
            held = value(frame)
            if optional:
                if not isinstance(held, Optional) or not held.is_present:
                    continue
                held = held.value
            found[name] = held
        return Message(node.type, found)

    return run


def _call(node: tree.Call) -> Run:
    arguments = [build(argument) for argument in node.arguments]
    function = GLOBAL.get(node.name)
    if node.target is not None:
        qualified = qualified_name(node.target)
        function = GLOBAL.get(f"{qualified}.{node.name}") if qualified else None
        if function is None:
            function = METHODS.get(node.name)
            arguments.insert(0, build(node.target))
    name = node.name
    cost = _EXPENSIVE.get(name, 1)

    def run(frame: Frame) -> Any:
        values = [argument(frame) for argument in arguments]
        frame.spend(cost + _weight(values))
        if function is None:
            raise CelError(f"no such overload: {name}")
        try:
            return function(*values)
        except (TypeError, AttributeError, OverflowError, RecursionError):
            raise CelError("no such overload") from None

    return run


def _weight(values: list[Any]) -> int:
    """Work that grows with what is worked on: a step per kilobyte or hundred elements."""
    weight = 0
    for value in values:
        if isinstance(value, str | bytes):
            weight += len(value) >> 10
        elif isinstance(value, list | dict):
            weight += len(value) // 100
    return weight


def _bind(node: tree.Bind) -> Run:
    value, body, name = build(node.value), build(node.body), node.name

    def run(frame: Frame) -> Any:
        frame.spend()
        bound = value(frame)
        outer = frame.variables
        frame.variables = {**outer, name: bound}
        try:
            return body(frame)
        finally:
            frame.variables = outer

    return run


def _elements(value: Any, pairs: bool) -> list[tuple[Any, ...]]:
    if isinstance(value, list):
        return list(enumerate(value)) if pairs else [(item,) for item in value]
    if isinstance(value, dict):
        return list(value.items()) if pairs else [(key,) for key in value]
    raise CelError("no such overload")


def _comprehension(node: tree.Comprehension) -> Run:
    operand, body = build(node.operand), build(node.body)
    condition = build(node.condition) if node.condition is not None else None
    names, how = node.variables, node.how

    def run(frame: Frame) -> Any:
        frame.spend()
        over = operand(frame)
        if how.startswith("opt"):
            return _opened(frame, over, names[0], body, flat=how == "optFlatMap")
        outer = frame.variables
        inner = frame.variables = dict(outer)
        collector = Collector(how)
        try:
            for element in _elements(over, len(names) == 2):
                frame.spend()
                inner.update(zip(names, element, strict=True))
                if condition is not None and not truth(condition(frame)):
                    continue
                if collector.take(element, lambda: body(frame)):
                    break
        finally:
            frame.variables = outer
        return collector.result()

    return run


def _opened(frame: Frame, over: Any, name: str, body: Run, *, flat: bool) -> Any:
    if not isinstance(over, Optional):
        raise CelError("no such overload")
    if not over.is_present:
        return NONE
    outer = frame.variables
    frame.variables = {**outer, name: over.value}
    try:
        found = body(frame)
    finally:
        frame.variables = outer
    return found if flat else Optional(found, True)


_BUILDERS: dict[type[Node], Callable[[Any], Run]] = {
    tree.Literal: _literal,
    tree.Name: _name,
    tree.Select: _select,
    tree.Index: _index,
    tree.And: lambda node: _decided(build(node.left), build(node.right), False),
    tree.Or: lambda node: _decided(build(node.left), build(node.right), True),
    tree.Choice: _choice,
    tree.ListOf: _list,
    tree.MapOf: _map,
    tree.Message: _message,
    tree.Call: _call,
    tree.Bind: _bind,
    tree.Comprehension: _comprehension,
}
