"""Configurations into objects, and fields out of them.

`merge` lays a configuration over an object: what it does not mention stays, items of keyed lists
meet by their keys and come in the configuration's order. `remove` takes fields out.

Invariant: the arguments are not changed; results share parts with them.
"""

from typing import Any

from motley.api.fields.pathset import PathSet, is_member
from motley.api.fields.types import DEDUCED, FREE, KEYED, OBJECT, SET, SINGLE, Type
from motley.api.fields.walk import indexed

_ABSENT: Any = object()


def merge(type_: Type, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it."""
    merged = _merged(type_, live, config)
    return {} if merged is _ABSENT else merged


def _merged(type_: Type, live: Any, config: Any) -> Any:
    form = type_.form
    if form == FREE:
        both = isinstance(live, dict) and isinstance(config, dict)
        form = OBJECT if both else SINGLE
    if form == SINGLE or (not live and not config):
        return config
    if form == OBJECT:
        found = dict(live or {})
        for name, value in (config or {}).items():
            inner = _merged(type_.child(name), found[name], value) if name in found else value
            if inner is _ABSENT:
                found.pop(name, None)
            else:
                found[name] = inner
    else:
        return _merged_list(type_, live or [], config or []) or _ABSENT
    return found or _ABSENT


def _merged_list(type_: Type, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of both: shared ones in the configuration's order, the others near their neighbours."""
    items = type_.items or DEDUCED
    before, after = indexed(type_, live), indexed(type_, config)
    left = [e for e in (type_.element(item) for item in live) if e is not None]
    right = list(after)
    rest = [item for item in live if type_.element(item) is not None]
    shared = [element for element in right if element in before]
    found: list[Any] = []
    done: set[str] = set()

    def take(element: str) -> None:
        done.add(element)
        had = before.get(element, ())
        # Of twins in the live object none is the one that is meant: the configuration's counts.
        value = after[element][0]
        inner = _merged(items, had[0], value) if len(had) == 1 else value
        if inner is not _ABSENT:
            found.append(inner)
        if shared and shared[0] == element:
            shared.pop(0)

    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left) and j < len(right):
            if left[i] == right[j]:
                take(left[i])
                i, j = i + 1, j + 1
                continue
            if left[i] in after and shared and shared[0] != left[i]:
                i += 1  # its turn comes where the configuration has it
                continue
        if i < len(left):
            if left[i] not in after:
                found.append(rest[i])
                i += 1
                continue
            if left[i] in done:
                i += 1
        if j < len(right):
            take(right[j])
            j += 1
    return found


def remove(type_: Type, value: Any, fields: PathSet) -> Any:
    """The value without these fields; None where nothing of a container is left."""
    if not value or type_.form == SINGLE:
        return None
    if isinstance(value, dict):
        return _object_without(type_, value, fields) or None
    if not isinstance(value, list) or type_.form not in (KEYED, SET):
        return None if isinstance(value, list) else value
    found = []
    for item in value:
        element = type_.element(item)
        below = fields.get(element) if element is not None else None
        if below is None:
            found.append(item)
        elif not is_member(below):
            found.append(remove(type_.items or DEDUCED, item, below))
    return found or None


def _object_without(type_: Type, value: dict[str, Any], fields: PathSet) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in value.items():
        below = fields.get(f"f:{name}")
        if below is None:
            found[name] = inner
        elif not is_member(below):
            found[name] = remove(type_.child(name), inner, below)
    return found
