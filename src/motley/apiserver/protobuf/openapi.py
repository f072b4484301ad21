"""The OpenAPI v2 document as protobuf: the only form in which kubectl reads it.

Old kubectls fetch every schema this way; new ones come here when they look for a kind that the
newer documents do not have. The message is gnostic's `openapi.v2.Document`; below are its fields
as far as our documents use them. What has no place in it (`x-kubernetes-…`) travels as a named
piece of YAML, of which JSON is a part.

A key that is in none of the tables has no place in the message and is left out: one odd schema
of one custom resource must not take the document from everybody. A test sees to it that nothing
of our own is lost that way.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from motley.api import codec
from motley.apiserver.protobuf.writing import integer, piece, text

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# Until 1.26 clients asked for it by a name that is no valid media type.
ACCEPTED = frozenset({MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})

Write = Callable[[int, Any], bytes]
Fields = dict[str, tuple[int, Write]]
_FIXED64 = 1


def encode(document: Mapping[str, Any]) -> bytes:
    """A whole OpenAPI v2 document."""
    return _message(_DOCUMENT, 0, document)


def _message(fields: Fields, extensions: int, value: Any) -> bytes:
    """A message; `extensions` is the number of the field for `x-…` keys."""
    pieces = []
    for key, inner in value.items():
        if key.startswith("x-"):
            pieces.append(_named(extensions, key, _any(2, inner)))
        elif key in fields:
            at, write = fields[key]
            pieces.append(write(at, inner))
    return b"".join(pieces)


def _named(at: int, name: str, value: bytes) -> bytes:
    return piece(at, text(1, name) + value)


def _any(at: int, value: Any) -> bytes:
    return piece(at, text(2, codec.encode(value).decode()))


def _double(at: int, value: float) -> bytes:
    return bytes((at << 3 | _FIXED64,)) + struct.pack("<d", value)


def _each(write: Write) -> Write:
    def write_all(at: int, values: Iterable[Any]) -> bytes:
        return b"".join(write(at, value) for value in values)

    return write_all


_texts = _each(text)


def _schema(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, _message(_SCHEMA, 31, value))


def _schemas_by_name(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, b"".join(_named(1, name, _schema(2, one)) for name, one in value.items()))


def _additional(at: int, value: Any) -> bytes:
    return piece(at, integer(2, value) if isinstance(value, bool) else _schema(1, value))


def _types(at: int, value: Any) -> bytes:
    return piece(at, _texts(1, [value] if isinstance(value, str) else value))


def _items(at: int, value: Any) -> bytes:
    return piece(at, _each(_schema)(1, value if isinstance(value, list) else [value]))


def _info(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, _message(_INFO, 7, value))


def _paths(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, b"".join(_named(2, path, _path_item(2, one)) for path, one in value.items()))


def _path_item(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, _message(_PATH_ITEM, 10, value))


def _operation(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, _message(_OPERATION, 13, value))


def _parameter(at: int, value: Mapping[str, Any]) -> bytes:
    """Three unions, one in the other: a parameter or a reference, in the body or not, and where."""
    if value["in"] == "body":
        return piece(at, piece(1, piece(1, _message(_BODY_PARAMETER, 6, value))))
    place, fields, extensions = _PLACES[value["in"]]
    inner = piece(place, _message(fields, extensions, value))
    return piece(at, piece(1, piece(2, inner)))


def _responses(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(
        at,
        b"".join(
            _named(1, code, piece(2, piece(1, _message(_RESPONSE, 5, one))))
            for code, one in value.items()
        ),
    )


def _response_schema(at: int, value: Mapping[str, Any]) -> bytes:
    return piece(at, _schema(1, value))


_INFO: Fields = {"title": (1, text), "version": (2, text)}
_SCHEMA: Fields = {
    "$ref": (1, text),
    "format": (2, text),
    "title": (3, text),
    "description": (4, text),
    "default": (5, _any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, integer),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, integer),
    "maxLength": (11, integer),
    "minLength": (12, integer),
    "pattern": (13, text),
    "maxItems": (14, integer),
    "minItems": (15, integer),
    "uniqueItems": (16, integer),
    "maxProperties": (17, integer),
    "minProperties": (18, integer),
    "required": (19, _texts),
    "enum": (20, _each(_any)),
    "additionalProperties": (21, _additional),
    "type": (22, _types),
    "items": (23, _items),
    "allOf": (24, _each(_schema)),
    "properties": (25, _schemas_by_name),
    "externalDocs": (29, lambda at, value: piece(at, _message(_EXTERNAL_DOCS, 3, value))),
    "example": (30, _any),
}
_EXTERNAL_DOCS: Fields = {"description": (1, text), "url": (2, text)}
_RESPONSE: Fields = {
    "description": (1, text),
    "schema": (2, _response_schema),
}
_BODY_PARAMETER: Fields = {
    "description": (1, text),
    "name": (2, text),
    "in": (3, text),
    "required": (4, integer),
    "schema": (5, _schema),
}
_PARAMETER: Fields = {
    "required": (1, integer),
    "in": (2, text),
    "description": (3, text),
    "name": (4, text),
}
_IN_QUERY: Fields = {**_PARAMETER, "type": (6, text), "uniqueItems": (20, integer)}
_IN_PATH: Fields = {**_PARAMETER, "type": (5, text), "uniqueItems": (19, integer)}
_PLACES: dict[str, tuple[int, Fields, int]] = {
    "query": (3, _IN_QUERY, 23),
    "path": (4, _IN_PATH, 22),
}
_OPERATION: Fields = {
    "tags": (1, _texts),
    "description": (3, text),
    "operationId": (5, text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _each(_parameter)),
    "responses": (9, _responses),
    "schemes": (10, _texts),
}
_PATH_ITEM: Fields = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "options": (6, _operation),
    "head": (7, _operation),
    "patch": (8, _operation),
    "parameters": (9, _each(_parameter)),
}
_DOCUMENT: Fields = {
    "swagger": (1, text),
    "info": (2, _info),
    "paths": (8, _paths),
    "definitions": (9, _schemas_by_name),
}
