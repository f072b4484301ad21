"""Lists that say they are sets or maps: no value, or no key, twice."""

from collections.abc import Iterator
from typing import Any

from motley.api import codec
from motley.api.status import FieldError
from motley.api.structural.node import Node


def check(node: Node, value: Any, path: str = "") -> Iterator[FieldError]:
    """Every duplicate in sets and maps below this value."""
    if isinstance(value, list):
        if node.list_type == "set":
            yield from _duplicates(path, value)
        elif node.list_type == "map":
            keys = [
                {k: item[k] for k in node.map_keys if k in item} if isinstance(item, dict) else item
                for item in (_with_defaults(node, item) for item in value)
            ]
            yield from _duplicates(path, keys)
        if node.items is not None:
            for index, inner in enumerate(value):
                yield from check(node.items, inner, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            below = node.properties.get(name) or node.additional
            if below is not None:
                yield from check(below, inner, f"{path}.{name}" if path else name)


def _with_defaults(node: Node, item: Any) -> Any:
    if not isinstance(item, dict) or node.items is None:
        return item
    return {
        **{n: p.default for n, p in node.items.properties.items() if p.has_default},
        **item,
    }


def _duplicates(path: str, keys: list[Any]) -> Iterator[FieldError]:
    seen: set[bytes] = set()
    for index, key in enumerate(keys):
        text = codec.encode(key)
        if text in seen:
            message = f"Duplicate value: {text.decode()}"
            yield FieldError(f"{path}[{index}]", "FieldValueDuplicate", message)
        seen.add(text)
