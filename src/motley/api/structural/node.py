"""A structural schema as a tree: the part of OpenAPI that says what an object is made of.

Kubernetes splits a schema in two. The *structure* (types, properties, items, defaults and the
`x-kubernetes-` marks) is compiled into `Node`s once; the *value validations* (minimum, pattern,
allOf …) stay as they were written, because they may nest without naming a type.

Invariant: a compiled node never changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What every object has beside what its schema says.
FRAME = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """One place in the structure. `additional` is what a map holds; None: it is no map.

    `anything` stands for `additionalProperties: true`: entries are kept, their content unknown.
    """

    type: str = ""
    properties: dict[str, "Node"] = field(default_factory=dict)
    additional: "Node | None" = None
    anything: bool = False
    items: "Node | None" = None
    preserves_unknown: bool = False
    is_embedded: bool = False
    int_or_string: bool = False
    nullable: bool = False
    has_default: bool = False
    default: Any = None
    list_type: str = ""
    map_keys: tuple[str, ...] = ()
    map_type: str = ""
    rules: tuple[Rule, ...] = ()
    has_defaults: bool = False
    has_rules: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)

    def children(self) -> "list[Node]":
        """The nodes directly below."""
        found = list(self.properties.values())
        found += [n for n in (self.additional, self.items) if n is not None]
        return found


def compile_schema(schema: Mapping[str, Any]) -> Node:
    """The tree of an `openAPIV3Schema`."""
    additional = schema.get("additionalProperties")
    items = schema.get("items")
    node = Node(
        type=schema.get("type") or "",
        properties={n: compile_schema(s) for n, s in (schema.get("properties") or {}).items()},
        additional=compile_schema(additional) if isinstance(additional, Mapping) else None,
        anything=additional is True,
        items=compile_schema(items) if isinstance(items, Mapping) else None,
        preserves_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        is_embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        int_or_string=bool(schema.get("x-kubernetes-int-or-string")),
        nullable=bool(schema.get("nullable")),
        has_default=schema.get("default") is not None,
        default=schema.get("default"),
        list_type=schema.get("x-kubernetes-list-type") or "",
        map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        map_type=schema.get("x-kubernetes-map-type") or "",
        rules=tuple(_rule(r) for r in schema.get("x-kubernetes-validations") or ()),
        values=schema,
    )
    below = node.children()
    node.has_defaults = node.has_default or any(n.has_defaults for n in below)
    node.has_rules = bool(node.rules) or any(n.has_rules for n in below)
    return node


def _rule(given: Mapping[str, Any]) -> Rule:
    return Rule(
        rule=given.get("rule", ""),
        message=given.get("message") or "",
        message_expression=given.get("messageExpression") or "",
        reason=given.get("reason") or "",
        field_path=given.get("fieldPath") or "",
        optional_old_self=bool(given.get("optionalOldSelf")),
    )
