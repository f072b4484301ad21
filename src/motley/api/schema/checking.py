"""Reading an object by its schema: what Kubernetes' decoder would have made of the JSON.

Unknown fields are dropped and listed, nulls and meaningless zero values are dropped, quantities,
times and base64 are brought to the one form Kubernetes prints. The first value of a wrong type
refuses the whole object.

Invariant: after a successful check nothing inside the object is shared with its former content.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from motley.api import codec, quantity, scheme, status
from motley.api.schema import model
from motley.api.schema.model import Schema
from motley.api.status import FieldError
from motley.lib import clock
from motley.lib.memo import Memo

_EMPTY: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "quantity": "0",
    "int-or-string": 0,
    "bytes": "",
    "time": None,
    "microtime": None,
    "any": None,
}

# Pods of one template say the same to the last byte: the form of a spec is looked up by what was
# said, and only what fits its schema without a word is remembered.
_REMEMBERED = "PodSpec"
_known = Memo[bytes](8 * 2**20)

Path = tuple[Any, str]  # (parent path or None, segment): text is made only when it is needed


class Checked(NamedTuple):
    """What is wrong with an object: paths no schema knows, and the first value of a wrong type."""

    unknown: list[str]
    errors: list[FieldError]

    def raise_for(self, kind: scheme.Kind) -> None:
        """Refuse a value of a wrong type, in the words of Kubernetes' decoder."""
        if self.errors:
            raise status.BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"{self.errors[0].message}"
            )


def check(kind: scheme.Kind, obj: dict[str, Any]) -> Checked:
    """Bring the object to the form a typed server holds; says what was dropped or is wrong.

    The object's content is replaced by a normalised copy, so that nothing inside is shared with
    where it came from (a patch shares with its target). A wrong type leaves it as it is.
    """
    return check_as(model.of(kind), obj)


def check_as(schema: Schema, obj: dict[str, Any]) -> Checked:
    """As `check`, for types that are no resources of their own (Scale, Binding, DeleteOptions)."""
    unknown: list[str] = []
    try:
        found = _object(schema, obj, None, unknown)
    except _MismatchError as error:
        field, message = error.args
        return Checked(unknown, [FieldError(field, "FieldValueTypeInvalid", message)])
    obj.clear()
    obj.update(found)
    return Checked(unknown, [])


def prune(kind: scheme.Kind, obj: dict[str, Any]) -> list[str]:
    """Drop what the schema does not know, and say what that was."""
    return check(kind, obj).unknown


class _MismatchError(Exception):
    """A value that does not fit its schema: (path, message)."""


def _object(schema: Schema, value: Mapping[str, Any], path: Any, unknown: list[str]) -> Any:
    found: dict[str, Any] = {}
    fields = schema.fields
    for name, inner in value.items():
        known = fields.get(name)
        if known is None:
            if schema.keeps_unknown:
                found[name] = _plain_copy(inner)
            else:
                unknown.append(_text((path, name)))
            continue
        if inner is None:
            continue
        read = _value(known.schema, inner, (path, name), schema, unknown)
        if not read and known.drops_zero:
            continue
        if read is not None:
            found[name] = read
    return found


def _value(schema: Schema, value: Any, path: Path, owner: Schema, unknown: list[str]) -> Any:
    type_ = schema.type
    if type_ == "string":
        if isinstance(value, str):
            return value
    elif type_ == "object":
        if isinstance(value, dict):
            if schema.name == _REMEMBERED:
                return _remembered(schema, value, path, unknown)
            return _object(schema, value, path, unknown)
    elif type_ == "list":
        if isinstance(value, list):
            return _list(schema, value, path, owner, unknown)
    elif type_ == "map":
        if isinstance(value, dict):
            return _map(schema, value, path, owner, unknown)
    elif type_ == "integer":
        if isinstance(value, int) and not isinstance(value, bool):
            if schema.minimum <= value <= schema.maximum:
                return value
            raise _mismatch(f"number {value}", schema, path, owner)
        if isinstance(value, float):
            raise _mismatch(f"number {value}", schema, path, owner)
    elif type_ == "boolean":
        if isinstance(value, bool):
            return value
    elif type_ == "any":
        # Sets of fields are large, and nobody ever changes one.
        return value if schema.name == "FieldsV1" else _plain_copy(value)
    elif type_ == "int-or-string":
        return _int_or_string(value, path, owner)
    elif type_ == "number":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    else:
        return _leaf(type_, value, path)
    raise _mismatch(_go_name(value), schema, path, owner)


def _remembered(schema: Schema, value: dict[str, Any], path: Path, unknown: list[str]) -> Any:
    """As `_object`; what a decoder gave is told apart by its bytes."""
    said = codec.encode(value)
    known = _known.get(said)
    if known is not None:
        return codec.decode_own(known)
    complaints = len(unknown)
    found = _object(schema, value, path, unknown)
    if len(unknown) == complaints:
        form = codec.encode(found)
        _known.put(said, form, len(form))
    return found


def _list(
    schema: Schema, value: list[Any], path: Path, owner: Schema, unknown: list[str]
) -> list[Any]:
    items = schema.items
    assert items is not None
    return [
        _zero(items)
        if inner is None
        else _value(items, inner, (path, f"[{index}]"), owner, unknown)
        for index, inner in enumerate(value)
    ]


def _map(
    schema: Schema, value: dict[str, Any], path: Path, owner: Schema, unknown: list[str]
) -> dict[str, Any]:
    items = schema.items
    assert items is not None
    if items.type == "quantity":
        return {k: _resource_quantity(v, (path, k)) for k, v in value.items()}
    return {
        key: _zero(items) if inner is None else _value(items, inner, (path, key), owner, unknown)
        for key, inner in value.items()
    }


def _zero(schema: Schema) -> Any:
    """What Go makes of a null where no "absent" exists: in a list, as a value of a map."""
    if schema.type in ("object", "map"):
        return {}
    return [] if schema.type == "list" else _EMPTY[schema.type]


def _int_or_string(value: Any, path: Path, owner: Schema) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31:
        return value
    given = f"number {value}" if isinstance(value, int | float) else _go_name(value)
    if isinstance(value, bool):
        given = "bool"
    raise _mismatch(given, Schema("integer", "int32"), path, owner)


def _leaf(type_: str, value: Any, path: Path) -> str:
    try:
        return _LEAVES[type_](value)
    except ValueError as error:
        raise _MismatchError(_text(path), str(error)) from None


def _quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(quantity.WRONG_FORMAT)
    return quantity.canonical(value.strip() if isinstance(value, str) else value)


def _resource_quantity(value: Any, path: Path) -> str:
    """An entry of a resource list, which Kubernetes also rounds up to thousandths."""
    return "0" if value is None else quantity.canonical_resource(_leaf("quantity", value, path))


def _time(value: Any, layout: str, digits: int) -> str:
    if not isinstance(value, str):
        raise ValueError(f"json: cannot unmarshal {_go_name(value)} into Go value of type string")
    try:
        seconds = clock.parse_rfc3339(value)
    except ValueError:
        shown = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
        raise ValueError(shown) from None
    return clock.rfc3339_micro(seconds) if digits else clock.rfc3339(seconds)


def _bytes(value: Any) -> str:
    """Base64 in its canonical form: Kubernetes keeps the bytes, not the text."""
    if not isinstance(value, str):
        raise ValueError(f"json: cannot unmarshal {_go_name(value)} into Go value of type []uint8")
    text = value.replace("\n", "").replace("\r", "")
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise ValueError(f"illegal base64 data at input byte {_wrong_base64_byte(text)}") from None


def _wrong_base64_byte(text: str) -> int:
    body = text.rstrip("=")
    for index, char in enumerate(body):
        if not (char.isascii() and (char.isalnum() or char in "+/")):
            return index
    return len(body) // 4 * 4


_LEAVES: dict[str, Callable[[Any], str]] = {
    "quantity": _quantity,
    "time": lambda v: _time(v, "2006-01-02T15:04:05Z07:00", 0),
    "microtime": lambda v: _time(v, "2006-01-02T15:04:05.000000Z07:00", 6),
    "bytes": _bytes,
}


def _plain_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain_copy(v) for k, v in value.items()}
    return [_plain_copy(v) for v in value] if isinstance(value, list) else value


def _go_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _mismatch(given: str, schema: Schema, path: Path, owner: Schema) -> _MismatchError:
    field = _text(path, indexes=False, within=owner)
    return _MismatchError(
        _text(path),
        f"json: cannot unmarshal {given} into Go struct field {owner.name}.{field}"
        f" of type {schema.go}",
    )


def _text(path: Any, *, indexes: bool = True, within: Schema | None = None) -> str:
    segments: list[str] = []
    while path is not None:
        path, segment = path
        segments.append(segment)
    segments.reverse()
    if indexes:
        return ".".join(segments).replace(".[", "[")
    named = [s for s in segments if not s.startswith("[")]
    if within is not None and named and named[-1] not in within.fields:
        named.pop()  # a key of a map: Go names only the field that holds the map
    return ".".join(named)
