"""Strategic merge patch: a merge patch that knows which lists are really maps.

The schema says for each list whether it merges and by which key. Directives inside the patch
change the rules: `$patch: replace|delete|merge`, `$retainKeys`, `$deleteFromPrimitiveList/NAME`
and `$setElementOrder/NAME`, as kubectl computes them.

Order of a merged list: items the patch names stand in the patch's order, the others in the
target's; a new item comes before those it cannot be compared with.

Invariant: neither target nor patch is changed; unchanged parts of the target are shared.
"""

from collections.abc import Callable
from typing import Any

from motley.api import scheme, status
from motley.api.schema import Field, Schema, of, of_type

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_SET_ORDER = "$setElementOrder/"

_ANY = Schema("any", "interface {}")
_ANY_FIELD = Field(_ANY)


def apply(kind: scheme.Kind, target: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The target with the patch merged into it. Raises BadRequest where the patch is malformed."""
    return apply_as(of(kind), target, patch)


def apply_to_type(
    api_version: str, kind: str, target: dict[str, Any], patch: Any
) -> dict[str, Any]:
    """As `apply`, for types that are no resources of their own (Scale)."""
    return apply_as(of_type(api_version, kind), target, patch)


def apply_as(schema: Schema, target: dict[str, Any], patch: Any) -> dict[str, Any]:
    """As `apply`, by an explicit schema."""
    if not isinstance(patch, dict):
        raise status.BadRequest("error decoding patch: a strategic merge patch is an object")
    return _merged_object(schema, target, patch)


def _field(schema: Schema, name: str) -> Field:
    if schema.type == "map" and schema.items is not None:
        return Field(schema.items)
    return schema.fields.get(name, _ANY_FIELD)


def _merged_object(schema: Schema, target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if _PATCH in patch:
        directive = patch[_PATCH]
        if directive == "replace":
            return {k: _clean(v) for k, v in patch.items() if k != _PATCH and v is not None}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise _bad_directive(directive, patch)
    found = _retained(target, patch)
    ordered = _apply_orders(schema, found, patch)
    for key, value in patch.items():
        if key in ordered or key in (_PATCH, _RETAIN_KEYS) or key.startswith(_SET_ORDER):
            continue
        if key.startswith(_DELETE_FROM):
            _delete_from(found, key.removeprefix(_DELETE_FROM), value)
        elif value is None or (_is_special(value) and not isinstance(found.get(key), dict)):
            found.pop(key, None)  # a directive for an object that is not there means nothing
        else:
            found[key] = _merged_value(_field(schema, key), found.get(key), value)
    return found


def _merged_value(field: Field, target: Any, patch: Any) -> Any:
    if isinstance(target, dict) and isinstance(patch, dict):
        if "replace" in field.strategies:
            return _clean(patch)
        return _merged_object(field.schema, target, patch)
    if isinstance(target, list) and isinstance(patch, list):
        if "merge" not in field.strategies:
            return _clean(patch)
        return _merged_list(field, target, patch)
    return _clean(patch)


def _retained(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    if _RETAIN_KEYS not in patch:
        return dict(target)
    retained = patch[_RETAIN_KEYS]
    if not isinstance(retained, list):
        raise status.BadRequest("invalid patch format of retainKeys")
    for key, value in patch.items():
        if not key.startswith("$") and value is not None and key not in retained:
            raise status.BadRequest("invalid patch format of retainKeys")
    return {k: v for k, v in target.items() if k in retained}


def _delete_from(found: dict[str, Any], key: str, removed: Any) -> None:
    if not isinstance(removed, list):
        raise status.BadRequest(f"{_DELETE_FROM}{key} must be a list")
    current = found.get(key)
    if isinstance(current, list):
        found[key] = [item for item in current if item not in removed]


def _merged_list(field: Field, target: list[Any], patch: list[Any]) -> list[Any]:
    if not target and not patch:
        return target
    of_objects = [isinstance(item, dict) for item in (*target, *patch)]
    if any(of_objects) != all(of_objects):
        raise status.BadRequest("list element types are not identical")
    if not of_objects[0]:
        merged = list({_hashable(item): item for item in (*target, *patch)}.values())
        return _in_order(merged, patch, target, _hashable)
    key = field.merge_key
    if not key:
        raise status.BadRequest("cannot merge lists without merge key")
    target, patch = _special_items(target, patch, key)
    items = field.schema.items or _ANY
    merged = list(target)
    positions = {_identity(item, key): i for i, item in enumerate(merged)}
    for item in patch:
        name = _identity(item, key, required=True)
        at = positions.get(name)
        if at is None:
            positions[name] = len(merged)
            merged.append(_clean(item))
        else:
            merged[at] = _merged_object(items, merged[at], item)
    return _in_order(merged, patch, target, lambda item: _identity(item, key))


def _special_items(target: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Carry out `$patch` of list items; what is left are items to merge."""
    plain: list[Any] = []
    is_replaced = False
    for item in patch:
        directive = item.get(_PATCH)
        if directive is None or directive == "merge":
            plain.append(item)
        elif directive == "replace":
            is_replaced = True
        elif directive == "delete":
            name = _identity(item, key, required=True)
            target = [t for t in target if _identity(t, key) != name]
        else:
            raise _bad_directive(directive, item)
    return ([_clean(p) for p in plain], []) if is_replaced else (target, plain)


def _apply_orders(schema: Schema, found: dict[str, Any], patch: dict[str, Any]) -> set[str]:
    """Merge and order the lists that have a `$setElementOrder`; returns their names."""
    done: set[str] = set()
    for directive, order in patch.items():
        if not directive.startswith(_SET_ORDER):
            continue
        name = directive.removeprefix(_SET_ORDER)
        field = _field(schema, name)
        target, changes = found.get(name), patch.get(name)
        if not isinstance(order, list) or not isinstance(changes, list | None):
            raise status.BadRequest(f"{directive} and {name} must be lists")
        if target is None and changes is None:
            continue
        identity = _identify(field.merge_key)
        _check_order(directive, changes or [], order, identity)
        previous = target if isinstance(target, list) else []
        if changes is None:
            merged = previous
        else:
            merged = _merged_value(field, target, changes)
        found[name] = _in_order(merged, order, previous, identity)
        done.add(name)
    return done


def _check_order(
    directive: str, changes: list[Any], order: list[Any], identity: Callable[[Any], Any]
) -> None:
    positions = {identity(item): index for index, item in enumerate(order)}
    last = -1
    for item in changes:
        if isinstance(item, dict) and item.get(_PATCH) in ("delete", "replace"):
            continue
        at = positions.get(identity(item), -1)
        if at <= last:
            raise status.BadRequest(
                f"The order in patch list:\n{changes}\n doesn't match {directive} list:\n{order}\n"
            )
        last = at


def _in_order(
    merged: list[Any], wanted: list[Any], previous: list[Any], identity: Callable[[Any], Any]
) -> list[Any]:
    """Items of `wanted` in its order, woven into the others, which keep the target's order."""
    rank = {identity(item): index for index, item in enumerate(wanted)}
    place = {identity(item): index for index, item in enumerate(previous)}
    named = sorted(
        (item for item in merged if identity(item) in rank), key=lambda i: rank[identity(i)]
    )
    others = [item for item in merged if identity(item) not in rank]
    result: list[Any] = []
    for item in others:
        here = place.get(identity(item))
        while named:
            there = place.get(identity(named[0]))
            if here is not None and there is not None and here < there:
                break
            result.append(named.pop(0))
        result.append(item)
    return result + named


def _identify(key: str) -> Callable[[Any], Any]:
    return (lambda item: _identity(item, key)) if key else _hashable


def _hashable(item: Any) -> Any:
    """Lists and objects cannot be keys; nobody merges by one, but a patch may say anything."""
    return str(item) if isinstance(item, dict | list) else item


def _identity(item: Any, key: str, *, required: bool = False) -> Any:
    value = item.get(key) if isinstance(item, dict) else item
    if value is None and required:
        raise status.BadRequest(f"map: {item} does not contain declared merge key: {key}")
    return _hashable(value)


def _clean(value: Any) -> Any:
    """A part of the patch as it enters the object: without directives and nulls."""
    if isinstance(value, dict):
        return {
            k: _clean(v)
            for k, v in value.items()
            if v is not None and not _is_directive(k) and not _is_special(v)
        }
    if isinstance(value, list):
        return [_clean(v) for v in value if not _is_special(v)]
    return value


def _is_special(value: Any) -> bool:
    return isinstance(value, dict) and _PATCH in value


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN_KEYS) or key.startswith((_DELETE_FROM, _SET_ORDER))


def _bad_directive(directive: Any, patch: dict[str, Any]) -> status.BadRequest:
    return status.BadRequest(f"unknown patch type: {directive} in map: {patch}")
