"""Checking values against a schema: types, bounds, patterns, and combinations of schemas.

Every problem is one `FieldError` with Kubernetes' words. On an update, a value that was already
there is not blamed again ("ratcheting"): tightening a schema does not lock out old objects.

Invariant: nothing here changes a value.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from motley.api import codec, patterns
from motley.api.status import FieldError
from motley.api.structural import formats

Schema = Mapping[str, Any]
ABSENT: Any = object()
"""No old value to compare with."""
NOWHERE = "<nil>"
"""How Kubernetes prints the path of a problem that has none."""

# One check of a value against one schema; kept flat because combinations call it again.
_RANGES = {"int32": 2**31, "int64": 2**63}


def check(
    schema: Schema, value: Any, path: str = "", *, old: Any = ABSENT, name: str | None = None
) -> Iterator[FieldError]:
    """All that is wrong with a value. `name` is the path as messages say it, where it differs."""
    name = path if name is None else name
    if old is not ABSENT and old == value and type(old) is type(value):
        return
    if value is None and schema.get("nullable"):
        return
    yield from _type(schema, value, path, name)
    if isinstance(value, str):
        yield from _string(schema, value, path, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(schema, value, path, name)
    elif isinstance(value, list):
        yield from _list(schema, value, path, name, old)
    elif isinstance(value, dict):
        yield from _object(schema, value, path, name, old)
    enum = schema.get("enum")
    if enum and not any(_same(value, allowed) for allowed in enum):
        shown = ", ".join(f'"{v}"' if isinstance(v, str) else f'"{_json(v)}"' for v in enum)
        message = f"Unsupported value: {_json(value)}: supported values: {shown}"
        yield FieldError(path or NOWHERE, "FieldValueNotSupported", message)
    yield from _combinations(schema, value, path, name, old)


def _json(value: Any) -> str:
    return codec.encode(value).decode()


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) is isinstance(other, bool)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A wrong value."""
    return FieldError(
        path or NOWHERE, "FieldValueInvalid", f"Invalid value: {_json(value)}: {detail}"
    )


def type_name(value: Any) -> str:
    """A value's type in OpenAPI's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "array" if isinstance(value, list) else "object"


def _type(schema: Schema, value: Any, path: str, name: str) -> Iterator[FieldError]:
    given = type_name(value)
    if schema.get("x-kubernetes-int-or-string"):
        if given not in ("integer", "string"):
            detail = f'{name} in body must be of type integer,string: "{given}"'
            yield _wrong_type(path, given, detail)
        return
    wanted = schema.get("type")
    if not wanted or given == wanted or (wanted == "number" and given == "integer"):
        format_ = schema.get("format", "")
        if isinstance(value, str) and format_ and not formats.is_valid(format_, value):
            detail = f'{name} in body must be of type {format_}: "{value}"'
            yield _wrong_type(path, value, detail)
        return
    yield _wrong_type(path, given, f'{name} in body must be of type {wanted}: "{given}"')


def _wrong_type(path: str, value: Any, detail: str) -> FieldError:
    message = f"Invalid value: {_json(value)}: {detail}"
    return FieldError(path or NOWHERE, "FieldValueTypeInvalid", message)


def _string(schema: Schema, value: str, path: str, name: str) -> Iterator[FieldError]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        yield FieldError(
            path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes"
        )
        return
    if shortest is not None and len(value) < shortest:
        yield invalid(path, value, f"{name} in body should be at least {shortest} chars long")
        return
    expression = schema.get("pattern")
    if expression and not patterns.compiled(expression).is_in(value):
        yield invalid(path, value, f"{name} in body should match '{expression}'")


def _number(schema: Schema, value: float, path: str, name: str) -> Iterator[FieldError]:
    wanted, format_ = schema.get("type"), schema.get("format", "")
    if wanted == "integer":
        bound = _RANGES.get(format_)
        is_fraction = isinstance(value, float) and not value.is_integer()
        if is_fraction or (bound is not None and not -bound <= value < bound):
            yield _out_of_format(wanted, format_, name)
    top, bottom = schema.get("maximum"), schema.get("minimum")
    if top is not None:
        if schema.get("exclusiveMaximum"):
            if value >= top:
                yield invalid(path, value, f"{name} in body should be less than {top}")
        elif value > top:
            yield invalid(path, value, f"{name} in body should be less than or equal to {top}")
    if bottom is not None:
        if schema.get("exclusiveMinimum"):
            if value <= bottom:
                yield invalid(path, value, f"{name} in body should be greater than {bottom}")
        elif value < bottom:
            detail = f"{name} in body should be greater than or equal to {bottom}"
            yield invalid(path, value, detail)
    factor = schema.get("multipleOf")
    if factor and not _is_multiple(value, factor):
        yield invalid(path, value, f"{name} in body should be a multiple of {factor}")


def _is_multiple(value: float, factor: float) -> bool:
    quotient = value / factor
    return math.isclose(quotient, round(quotient), abs_tol=1e-9)


def _out_of_format(wanted: str, format_: str, name: str) -> FieldError:
    described = f"with format {format_}" if format_ else "(default format)"
    return invalid("", "", f"Checked value must be of type {wanted} {described} in {name}")


def _list(schema: Schema, value: list[Any], path: str, name: str, old: Any) -> Iterator[FieldError]:
    most, fewest = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if fewest is not None and len(value) < fewest:
        yield invalid(path, value, f"{name} in body should have at least {fewest} items")
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return
    before = correlated(schema, old)
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    for index, inner in enumerate(value):
        known = before.get(item_key(inner, keys), ABSENT) if before else ABSENT
        yield from check(items, inner, f"{path}[{index}]", old=known, name=f"{name}[{index}]")


def correlated(schema: Schema, old: Any) -> dict[str, Any]:
    """The old items of a list by key, where the schema says that items have one."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return {item_key(item, keys): item for item in old}


def item_key(item: Any, keys: Any) -> str:
    """What tells an item of a map-like list from the others."""
    return _json([item.get(k) for k in keys]) if isinstance(item, dict) else _json(item)


def _too_many(path: str, count: int, most: int) -> FieldError:
    message = f"Too many: {count}: must have at most {most} items"
    return FieldError(path or NOWHERE, "FieldValueTooMany", message)


def _object(
    schema: Schema, value: dict[str, Any], path: str, name: str, old: Any
) -> Iterator[FieldError]:
    most, fewest = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if fewest is not None and len(value) < fewest:
        yield invalid(path, value, f"{name} in body should have at least {fewest} properties")
    for required in schema.get("required") or ():
        if required not in value:
            yield FieldError(_below(path, required), "FieldValueRequired", "Required value")
    before = old if isinstance(old, dict) else {}
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, inner in value.items():
        below = properties.get(key)
        if below is None and isinstance(additional, Mapping):
            below = additional
        if below is not None:
            inner_name = _below(name, key)
            yield from check(
                below, inner, _below(path, key), old=before.get(key, ABSENT), name=inner_name
            )


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _combinations(
    schema: Schema, value: Any, path: str, name: str, old: Any
) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from check(part, value, path, old=old, name=name)
    alternatives = schema.get("anyOf")
    if alternatives:
        failures = [list(check(a, value, path, name=name)) for a in alternatives]
        if all(failures):
            yield invalid("", "", f'"{name}" must validate at least one schema (anyOf)')
            yield from min(failures, key=len)
    choices = schema.get("oneOf")
    if choices:
        failures = [list(check(c, value, path, name=name)) for c in choices]
        passed = failures.count([])
        if passed != 1:
            found = f"Found {passed} valid alternatives" if passed else "Found none valid"
            problem = f'"{name}" must validate one and only one schema (oneOf). {found}'
            yield invalid("", "", problem)
            if not passed:
                yield from min(failures, key=len)
    forbidden = schema.get("not")
    if forbidden and not any(True for _ in check(forbidden, value, path, name=name)):
        yield invalid("", "", f'"{name}" must not validate the schema (not)')
