"""Objects to sets of fields: what an object states, and what a change of it touches.

`stated` is for configurations that are applied: exactly what they say. `whole` and `between` are
for writes: an object that appears is owned with all its parts, also the containers on the way.

Invariant: nothing here changes the values it looks at.
"""

from typing import Any, NamedTuple

from motley.api.fields import pathset
from motley.api.fields.pathset import LEAF, MEMBER, PathSet
from motley.api.fields.types import DEDUCED, FREE, OBJECT, SINGLE, Type


class Changes(NamedTuple):
    """What a write does to an object."""

    changed: PathSet  # fields that got another value, or one for the first time
    removed: PathSet

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.changed or self.removed)


def whole(type_: Type, value: Any) -> PathSet:
    """The node of a value that is new: itself and everything in it."""
    form = type_.form
    if form == SINGLE or not value:
        return LEAF
    if form == OBJECT:
        if not isinstance(value, dict):
            return LEAF  # not what the schema says: validation will tell, or the schema changed
        node = {MEMBER: LEAF}
        fields = type_.fields
        for name in sorted(value):
            known = fields.get(name)
            if known is None:
                node[f"f:{name}"] = whole(type_.items or DEDUCED, value[name])
            else:
                key, inner = known
                node[key] = whole(inner, value[name]) if inner.form else LEAF
        return node
    if form == FREE:
        if not isinstance(value, dict):
            return LEAF
        return {MEMBER: LEAF} | {f"f:{k}": whole(DEDUCED, value[k]) for k in sorted(value)}
    if not isinstance(value, list):
        return LEAF
    found = {MEMBER: LEAF}
    items = type_.items or DEDUCED
    element_of = type_.element
    for item in value:
        element = element_of(item)
        if element is not None:
            # Twins cannot be told apart: the pair is owned as one.
            found[element] = LEAF if element in found else whole(items, item)
    return pathset.ordered(found) if len(found) > 2 else found


def stated(type_: Type, value: Any) -> PathSet:
    """The fields that a configuration states."""
    return _stated(type_, value) or LEAF


def _stated(type_: Type, value: Any) -> PathSet | None:
    form = type_.form
    if form == SINGLE:
        return LEAF
    if form == FREE and not isinstance(value, dict):
        return LEAF
    if not value:
        return None
    found: PathSet = {}
    if form in (OBJECT, FREE):
        for name in sorted(value):
            inner = value[name]
            below = _stated(type_.child(name), inner)
            if inner is None or inner == {} or name not in type_.fields:
                below = _as_member(below)
            if below is not None:
                found[f"f:{name}"] = below
        return found or None
    items = type_.items or DEDUCED
    for item in value:
        element = type_.element(item)
        if element is not None:
            found[element] = LEAF if element in found else _as_member(_stated(items, item))
    return pathset.ordered(found) if found else None


def _as_member(node: PathSet | None) -> PathSet:
    if not node or MEMBER in node:
        return node or LEAF
    return {MEMBER: LEAF, **node}


Nodes = tuple[PathSet | None, PathSet | None]
"""What changed and what was removed at one place; None where nothing did."""


def between(type_: Type, old: Any, new: Any) -> Nodes:
    """What makes `new` of `old`."""
    form = type_.form
    if form == FREE:
        if not isinstance(old, dict | None) or not isinstance(new, dict | None):
            return _changes_of_kind(old, new)
        form = OBJECT
    if form == SINGLE or (not old and not new):
        return (None if old == new else LEAF), None
    wanted = dict if form == OBJECT else list
    if not isinstance(old or wanted(), wanted) or not isinstance(new or wanted(), wanted):
        return _changes_of_kind(old, new)
    if form == OBJECT:
        return _object_changes(type_, old or {}, new or {})
    return _list_changes(type_, old or [], new or [])


def _changes_of_kind(old: Any, new: Any) -> Nodes:
    """Without a schema an object may become a text: what was in it is gone."""
    if old == new:
        return None, None
    removed = {k: v for k, v in whole(DEDUCED, old).items() if k != MEMBER}
    return LEAF, removed or None


def _object_changes(type_: Type, old: dict[str, Any], new: dict[str, Any]) -> Nodes:
    changed: PathSet = {}
    removed: PathSet = {}
    for name in sorted(new):
        value = new[name]
        if name in old:
            before = old[name]
            if before is value or before == value:
                continue
            more, less = between(type_.child(name), before, value)
            if more is not None:
                changed[f"f:{name}"] = more
            if less is not None:
                removed[f"f:{name}"] = less
        else:
            changed[f"f:{name}"] = whole(type_.child(name), value)
    for name, value in old.items():
        if name not in new:
            removed[f"f:{name}"] = whole(type_.child(name), value)
    return changed or None, removed or None


def _list_changes(type_: Type, old: list[Any], new: list[Any]) -> Nodes:
    before, after = indexed(type_, old), indexed(type_, new)
    items = type_.items or DEDUCED
    changed: PathSet = {}
    removed: PathSet = {}
    for element, found in after.items():
        had = before.get(element)
        if had is None:
            changed[element] = whole(items, found[0]) if len(found) == 1 else LEAF
        elif len(had) == len(found) == 1:
            more, less = between(items, had[0], found[0])
            if more is not None:
                changed[element] = more
            if less is not None:
                removed[element] = less
        elif len(had) > 1 and len(found) > 1:
            if had != found:
                changed[element] = LEAF
        elif len(found) == 1:
            changed[element], removed[element] = whole(items, found[0]), LEAF
        else:
            changed[element], removed[element] = LEAF, whole(items, had[0])
    for element, had in before.items():
        if element not in after:
            removed[element] = whole(items, had[0]) if len(had) == 1 else LEAF
    if len(changed) > 1:
        changed = pathset.ordered(changed)
    return changed or None, removed or None


def indexed(type_: Type, items: list[Any]) -> dict[str, list[Any]]:
    """A list's items by their path elements; more than one where keys repeat."""
    found: dict[str, list[Any]] = {}
    for item in items:
        element = type_.element(item)
        if element is not None:
            found.setdefault(element, []).append(item)
    return found


def with_containers(type_: Type, node: PathSet) -> PathSet:
    """The set, and with each declared field that has something in it the field itself."""
    found: PathSet = {}
    for key, below in node.items():
        if not below:
            found[key] = below
            continue
        if key.startswith("f:"):
            inner = with_containers(type_.child(key[2:]), below)
            found[key] = _as_member(inner) if key[2:] in type_.fields else inner
        else:
            found[key] = with_containers(type_.items or DEDUCED, below)
    return found
