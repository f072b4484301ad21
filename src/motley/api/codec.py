"""Bytes to objects and back: the only module that knows which JSON and YAML libraries we use.

The server keeps objects as bytes and writes the resourceVersion into them without decoding them
again: `encode_object` puts `metadata` where `stamp` finds it.

Invariant: `decode(stamp(encode_object(o), n))` is `o` with `metadata.resourceVersion == str(n)`.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import msgspec

from motley.api import jsonsyntax, status
from motley.api.yaml import decode_yaml, decode_yaml_all, duplicate_yaml_keys, encode_yaml

__all__ = [
    "MAX_DEPTH",
    "decode",
    "decode_as",
    "decode_own",
    "decode_yaml",
    "decode_yaml_all",
    "decoder",
    "duplicate_fields",
    "duplicate_yaml_keys",
    "encode",
    "encode_object",
    "encode_yaml",
    "go_type",
    "indented",
    "questionable_fields",
    "stamp",
    "stamped_revision",
    "unstamped",
]

T = TypeVar("T")

# Deeper documents are refused: every walk of an object may be recursive because of this bound.
MAX_DEPTH = 200

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_METADATA = b'"metadata":{'
_REVISION = b'"resourceVersion":"'


def encode(obj: Any) -> bytes:
    """Compact JSON of anything JSON can say (and of views)."""
    return _encoder.encode(obj)


def decode(data: bytes | str) -> Any:
    """The value of a JSON document.

    Raises BadRequest where it is malformed, not UTF-8, nested too deeply, or has numbers out of
    range. Of a key given twice the last wins, as in Kubernetes; `duplicate_fields` finds them.
    """
    try:
        value = _decoder.decode(data)
    except RecursionError:
        raise status.BadRequest("json parse error: exceeded max depth") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        problem = jsonsyntax.problem(data) or _of_content(error)
        raise status.BadRequest(f"json parse error: {problem}") from None
    if _may_be_deep(data) and _depth_exceeds(value, MAX_DEPTH):
        raise status.BadRequest("json parse error: exceeded max depth")
    return value


def _of_content(error: Exception) -> str:
    """What is wrong where the syntax is right: texts that are no text, numbers without end."""
    if isinstance(error, UnicodeError):
        return "invalid UTF-8 in string literal"
    if "truncated" in str(error) or "surrogate" in str(error):
        return "invalid surrogate in \\u hexadecimal character escape"
    return str(error)


def decode_own(data: bytes) -> Any:
    """As `decode`, for what this program encoded itself: nothing is checked again."""
    return _decoder.decode(data)


def decode_as(data: bytes | str, type_: type[T]) -> T:
    """The document as this type (a view). Raises BadRequest where it does not fit."""
    return decoder(type_)(data)


def decoder(type_: type[T]) -> Callable[[bytes | str], T]:
    """A fast function from documents to this type; make it once, call it often."""
    typed = msgspec.json.Decoder(type_)

    def decode_typed(data: bytes | str) -> T:
        try:
            return typed.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise status.BadRequest(f"json parse error: {error}") from None

    return decode_typed


def go_type(value: Any) -> str:
    """What Go calls a decoded value in its messages."""
    if isinstance(value, bool):
        return "bool"
    names = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def indented(data: bytes) -> bytes:
    """JSON as people read it."""
    return msgspec.json.format(data, indent=2)


def encode_object(obj: dict[str, Any]) -> bytes:
    """The object as the store keeps it: kind, apiVersion, metadata first, no resourceVersion."""
    metadata = obj.get("metadata") or {}
    if "resourceVersion" in metadata:
        metadata = {k: v for k, v in metadata.items() if k != "resourceVersion"}
    ordered: dict[str, Any] = {k: obj[k] for k in ("kind", "apiVersion") if k in obj}
    ordered["metadata"] = metadata
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return _encoder.encode(ordered)


def stamp(value: bytes, revision: int) -> bytes:
    """The encoded object with the revision inside, as its resourceVersion."""
    at = value.index(_METADATA) + len(_METADATA)
    comma = b"" if value[at : at + 1] == b"}" else b","
    return b'%b"resourceVersion":"%d"%b%b' % (value[:at], revision, comma, value[at:])


def stamped_revision(value: bytes) -> int | None:
    """The revision `stamp` wrote, without decoding; None where there is none."""
    at = value.find(_METADATA)
    start = at + len(_METADATA)
    if at < 0 or not value.startswith(_REVISION, start):
        return None
    start += len(_REVISION)
    return int(value[start : value.index(b'"', start)])


def unstamped(value: bytes) -> bytes:
    """The encoded object without the revision `stamp` wrote."""
    at = value.find(_METADATA)
    start = at + len(_METADATA)
    if at < 0 or not value.startswith(_REVISION, start):
        return value
    end = value.index(b'"', start + len(_REVISION)) + 1
    if value[end : end + 1] == b",":
        end += 1
    return value[:start] + value[end:]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written: also the keys that came twice, in their order."""


def duplicate_fields(data: bytes | str) -> list[str]:
    """Paths of keys given twice, such as `metadata.name` or `spec.containers[0].image`.

    For strict field validation only: it is several times slower than `decode`, and expects that
    `decode` has accepted the document.
    """
    return [path for _, path in questionable_fields(data, ())]


def questionable_fields(data: bytes | str, unknown: Collection[str]) -> list[tuple[str, str]]:
    """Keys given twice and these unknown ones, in the order of the document: ("unknown", path).

    Nobody looks into a field nobody knows, nor minds how often it comes: as Kubernetes' decoder.
    """
    written = json.loads(data, object_pairs_hook=_Pairs)
    return list(dict.fromkeys(_questionable(written, "", frozenset(unknown))))


def _questionable(value: Any, path: str, unknown: frozenset[str]) -> Iterator[tuple[str, str]]:
    if isinstance(value, _Pairs):
        prefix = f"{path}." if path else ""
        seen = set[str]()
        for key, inner in value:
            if prefix + key in unknown:
                yield "unknown", prefix + key
                continue
            if key in seen:
                yield "duplicate", prefix + key
            seen.add(key)
            yield from _questionable(inner, prefix + key, unknown)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _questionable(inner, f"{path}[{index}]", unknown)


def _may_be_deep(data: bytes | str) -> bool:
    """Whether it takes a walk to know: each level but the last costs a bracket with content."""
    if isinstance(data, str):
        return len(data) > MAX_DEPTH
    opening = data.count(b"{") + data.count(b"[")
    return opening >= MAX_DEPTH and (opening - data.count(b"{}") - data.count(b"[]") >= MAX_DEPTH)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        level = below
    return True
