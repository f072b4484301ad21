"""The protobuf wire format, read by the table of messages into plain documents.

Go writes zero values of fields without pointers; they stay in the document, and the schema drops
those that mean nothing, as it does for JSON.
"""

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any

from motley.api import codec, status
from motley.apiserver.protobuf.table import ALTERNATIVES, SCHEMA, Field, message_of, messages
from motley.lib.clock import rfc3339, rfc3339_micro

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_MAX_DEPTH = 100
_PRESERVE = "x-kubernetes-preserve-unknown-fields"  # behind a pointer: false was said
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799  # what RFC 3339 can say


class _MalformedError(ValueError):
    """Bytes that are no protobuf of the expected message."""


def decode(body: bytes, default_api_version: str, default_kind: str) -> dict[str, Any]:
    """The document in a body, with its kind; BadRequest when it cannot be read."""
    if not body.startswith(MAGIC):
        raise status.BadRequest("provided data does not appear to be a protobuf message")
    try:
        envelope = dict(_pieces(body[len(MAGIC) :]))
        type_meta = dict(_pieces(_bytes(envelope.get(1, b""))))
        api_version = _text(type_meta.get(1, b"")) or default_api_version
        kind = _text(type_meta.get(2, b"")) or default_kind
        message = message_of(api_version, kind)
        if message is None:
            raise status.BadRequest(f'no kind "{kind}" is registered for version "{api_version}"')
        document = _message(message, _bytes(envelope.get(2, b"")), 0)
    except (_MalformedError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise status.BadRequest(str(error) or "unexpected EOF") from None
    return {"kind": kind, "apiVersion": api_version, **document}


def _pieces(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values, in the order they come."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        value: int | bytes
        if wire_type == _VARINT:
            value, at = _varint(data, at)
        elif wire_type == _BYTES:
            length, at = _varint(data, at)
            if length > end - at:
                raise _MalformedError("unexpected EOF")
            value, at = data[at : at + length], at + length
        elif wire_type == _FIXED64:
            value, at = data[at : at + 8], at + 8
        elif wire_type == _FIXED32:
            value, at = data[at : at + 4], at + 4
        else:
            raise _MalformedError(f"illegal wireType {wire_type}")
        yield number, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise _MalformedError("integer overflow")


def _message(name: str, data: bytes, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise _MalformedError("nested too deeply")
    fields = messages()[name]
    found: dict[str, Any] = {}
    for number, raw in _pieces(data):
        field = fields.get(number)
        if field is None:
            continue  # a field of a later version
        if field.shape == "*":
            found.setdefault(field.name, []).append(_value(field.type, raw, depth))
        elif field.shape == "%":
            key, value = _entry(field, raw, depth)
            found.setdefault(field.name, {})[key] = value
        elif field.shape == "^":
            found.update(_message(field.type, _bytes(raw), depth + 1))
        else:
            value = _value(field.type, raw, depth)
            if value is not None and (name != SCHEMA or _says(field, value)):
                found[field.name] = value
    return found


def _says(field: Field, value: Any) -> bool:
    """Whether it is more than Go's zero value; nobody drops those from a schema later."""
    return bool(value) or field.type not in ("string", "bool") or field.name == _PRESERVE


def _entry(field: Field, raw: int | bytes, depth: int) -> tuple[str, Any]:
    pieces = dict(_pieces(_bytes(raw)))
    key = _text(pieces.get(1, b""))
    default: int | bytes = 0 if field.type in _NUMBERS else b""
    return key, _value(field.type, pieces.get(2, default), depth)


def _value(type_: str, raw: int | bytes, depth: int) -> Any:
    read = _READERS.get(type_)
    if read is not None:
        return read(raw)
    if type_ in ALTERNATIVES:
        return _alternative(type_, _bytes(raw), depth)
    items = messages()[type_].get(1)
    if len(messages()[type_]) == 1 and items is not None and items[:2] == ("items", "string"):
        # A named list of texts (ExtraValue): a message on the wire, a list in JSON.
        return [_value(items.type, piece, depth + 1) for _, piece in _pieces(_bytes(raw))]
    return _message(type_, _bytes(raw), depth + 1)


def _alternative(type_: str, data: bytes, depth: int) -> Any:
    """A schema, or what may stand in its place: the message has a field for each."""
    schema, other = ALTERNATIVES[type_]
    pieces = list(_pieces(data))
    for number, raw in pieces:
        if number == schema:
            return _message(SCHEMA, _bytes(raw), depth + 1)
    if other == "bool":
        return any(raw for number, raw in pieces if number != schema)
    return [_value(other, raw, depth + 1) for number, raw in pieces if number != schema]


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise _MalformedError("wrong wireType: expected bytes")
    return raw


def _integer(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise _MalformedError("wrong wireType: expected a number")
    return raw


def _signed(raw: int | bytes) -> int:
    value = _integer(raw)
    return value - (1 << 64) if value >> 63 else value


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


def _time(raw: int | bytes, write: Callable[[float], str]) -> str | None:
    pieces = dict(_pieces(_bytes(raw)))
    if not pieces:
        return None  # Go's zero time
    seconds = _signed(pieces.get(1, 0)) + _signed(pieces.get(2, 0)) / 1e9
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise _MalformedError("time: year is not in the range 1 to 9999")
    return write(seconds)


def _double(raw: bytes) -> float:
    value = float(struct.unpack("<d", raw)[0])
    return int(value) if value.is_integer() else value  # as Go writes it in JSON


def _quantity(raw: int | bytes) -> str:
    return _text(dict(_pieces(_bytes(raw))).get(1, b"")) or "0"


def _int_or_string(raw: int | bytes) -> int | str:
    pieces = dict(_pieces(_bytes(raw)))
    if _integer(pieces.get(1, 0)) == 1:
        return _text(pieces.get(3, b""))
    return _signed(pieces.get(2, 0))


def _duration(raw: int | bytes) -> str:
    nanoseconds = _signed(dict(_pieces(_bytes(raw))).get(1, 0))
    return f"{nanoseconds / 1e9:g}s"


def _raw_json(raw: int | bytes) -> Any:
    inner = _bytes(dict(_pieces(_bytes(raw))).get(1, b""))
    return codec.decode(inner) if inner else None


_NUMBERS = frozenset({"int32", "int64", "uint32", "uint64", "bool"})
_READERS: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text,
    "bool": lambda raw: bool(_integer(raw)),
    "int32": _signed,
    "int64": _signed,
    "uint32": _integer,
    "uint64": _integer,
    "double": lambda raw: _double(_bytes(raw)),
    "bytes": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    "time": lambda raw: _time(raw, rfc3339),
    "microtime": lambda raw: _time(raw, rfc3339_micro),
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "duration": _duration,
    "raw": _raw_json,
}
