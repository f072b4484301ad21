"""Filling in a schema's defaults, and dropping nulls that mean "not given".

A null where the schema does not say `nullable` is as good as absent: it takes the default, or
goes. A null where it does is a value and stays.
"""

from typing import Any

from motley.api.structural.node import Node


def apply(node: Node, value: Any) -> None:
    """Complete a value in place; idempotent."""
    if isinstance(value, dict):
        if node.has_defaults:
            for name, prop in node.properties.items():
                if prop.has_default and _is_absent(value.get(name, _MISSING), prop):
                    value[name] = copied(prop.default)
        for name in list(value):
            below = node.properties.get(name) or node.additional
            if below is None:
                continue
            if value[name] is None and not below.nullable:
                if below.has_default:
                    value[name] = copied(below.default)
                elif name in node.properties:
                    del value[name]
                    continue
            apply(below, value[name])
    elif isinstance(value, list) and node.items is not None:
        for index, inner in enumerate(value):
            if inner is None and not node.items.nullable and node.items.has_default:
                value[index] = copied(node.items.default)
            apply(node.items, value[index])


_MISSING = object()


def _is_absent(value: Any, node: Node) -> bool:
    return value is _MISSING or (value is None and not node.nullable)


def copied(value: Any) -> Any:
    """An independent copy."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if isinstance(value, list) else value
