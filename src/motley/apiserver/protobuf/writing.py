"""Documents written as protobuf, for the rare client that accepts nothing else.

The same table of messages is followed the other way round. Slower than JSON, which is at hand
encoded, so nobody gets it who takes JSON too.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from motley.api import codec
from motley.apiserver.protobuf.table import (
    ALTERNATIVES,
    SCHEMA,
    Field,
    Message,
    message_of,
    messages,
)
from motley.apiserver.protobuf.wire import MAGIC
from motley.lib.clock import parse_rfc3339

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def encode(document: Mapping[str, Any]) -> bytes | None:
    """The document in its envelope; None when its kind has no protobuf form."""
    api_version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    name = message_of(api_version, kind)
    if name is not None:
        raw = _message(messages()[name], document)
    elif kind.endswith("List") and (item := message_of(api_version, kind[: -len("List")])):
        raw = _list(item, document)
    else:
        return None
    type_meta = text(1, api_version) + text(2, kind)
    return MAGIC + piece(1, type_meta) + piece(2, raw) + piece(3, b"") + piece(4, b"")


def _list(item: str, document: Mapping[str, Any]) -> bytes:
    """Every list has its metadata as field 1 and its items as field 2."""
    fields = messages()[item]
    metadata = _message(messages()["meta.ListMeta"], document.get("metadata") or {})
    items = [piece(2, _message(fields, one)) for one in document.get("items") or ()]
    return b"".join([piece(1, metadata), *items])


def _message(fields: Message, document: Mapping[str, Any]) -> bytes:
    return b"".join(
        part for number, field in sorted(fields.items()) for part in _field(number, field, document)
    )


def _field(number: int, field: Field, document: Mapping[str, Any]) -> Iterator[bytes]:
    if field.shape == "^":
        if inner := _message(messages()[field.type], document):
            yield piece(number, inner)
        return
    value = document.get(field.name)
    if value is None:
        return
    if field.shape == "*":
        for one in value:
            yield _value(number, field.type, one)
    elif field.shape == "%":
        for key in sorted(value):
            yield piece(number, text(1, key) + _value(2, field.type, value[key]))
    else:
        yield _value(number, field.type, value)


def _value(number: int, type_: str, value: Any) -> bytes:
    write = _WRITERS.get(type_)
    if write is not None:
        return write(number, value)
    if type_ in ALTERNATIVES:
        return piece(number, _alternative(type_, value))
    fields = messages()[type_]
    if isinstance(value, list):  # a named list of texts: a message on the wire, a list in JSON
        return piece(number, b"".join(_value(1, fields[1].type, one) for one in value))
    return piece(number, _message(fields, value))


def _alternative(type_: str, value: Any) -> bytes:
    """See `wire`: a boolean stands beside the schema too, which it then does not deny."""
    schema, other = ALTERNATIVES[type_]
    if isinstance(value, dict):
        beside = integer(1, 1) if other == "bool" else b""
        return beside + piece(schema, _message(messages()[SCHEMA], value))
    if isinstance(value, bool):
        return integer(1, value)
    return b"".join(_value(3 - schema, other, one) for one in value)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are written as their 64-bit complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def piece(number: int, data: bytes) -> bytes:
    """A field that holds bytes: a text, or a message."""
    return _key(number, _BYTES) + _varint(len(data)) + data


def integer(number: int, value: int) -> bytes:
    """A field that holds a whole number or a boolean."""
    return _key(number, _VARINT) + _varint(int(value))


def text(number: int, value: str) -> bytes:
    """A field that holds a text."""
    return piece(number, value.encode())


def _time(number: int, value: str) -> bytes:
    moment = parse_rfc3339(value)
    seconds = int(moment // 1)
    nanoseconds = round((moment - seconds) * 1e6) * 1000
    return piece(number, integer(1, seconds) + (integer(2, nanoseconds) if nanoseconds else b""))


def _int_or_string(number: int, value: int | str) -> bytes:
    if isinstance(value, str):
        return piece(number, integer(1, 1) + text(3, value))
    return piece(number, integer(1, 0) + integer(2, value))


def _duration(number: int, value: str) -> bytes:
    return piece(number, integer(1, round(float(value.removesuffix("s")) * 1e9)))


_WRITERS: dict[str, Callable[[int, Any], bytes]] = {
    "string": text,
    **dict.fromkeys(("bool", "int32", "int64", "uint32", "uint64"), integer),
    "double": lambda number, value: _key(number, _FIXED64) + struct.pack("<d", value),
    "bytes": lambda number, value: piece(number, base64.b64decode(value)),
    "time": _time,
    "microtime": _time,
    "quantity": lambda number, value: piece(number, text(1, str(value))),
    "intorstring": _int_or_string,
    "duration": _duration,
    "raw": lambda number, value: piece(number, piece(1, codec.encode(value))),
}
