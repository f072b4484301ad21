"""YAML request bodies, read as kubectl reads them: YAML 1.1, and the result is JSON.

`yes` and `on` are booleans, `012` is ten, `1e3` is a number; dates stay texts and `1:30` is no
number. Keys become strings. The value is built here from libyaml's events, not by its composer:
that one recurses in C, where a deep document from the network would end the process.

Invariant: what comes out is what JSON could have said (no NaN, no dates, no shared parts), and
documents that are too deep, or grow without bound through aliases, are refused.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from motley.api import status

_MAX_NODES = 1_000_000  # after aliases are unfolded; a 3 MiB body has fewer
_MAX_DEPTH = 200

_CORE = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(
    {"str", "int", "float", "bool", "null", "map", "seq", "binary", "timestamp", "merge"}
)
_INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = (
    {spelling: None for spelling in ("", "~", "null", "Null", "NULL")}
    | {s: True for w in ("y", "yes", "true", "on") for s in (w, w.capitalize(), w.upper())}
    | {s: False for w in ("n", "no", "false", "off") for s in (w, w.capitalize(), w.upper())}
)


def decode_yaml(data: bytes | str) -> Any:
    """The value of the first YAML document. Raises BadRequest."""
    return next(_Reader(data).documents(), None)


def decode_yaml_all(data: bytes | str) -> list[Any]:
    """The values of a stream of documents, empty ones left out. Raises BadRequest."""
    return [document for document in _Reader(data).documents() if document is not None]


def duplicate_yaml_keys(data: bytes | str) -> list[str]:
    """Keys given twice, in Go's words: `line 5: key "name" already set in map`."""
    reader = _Reader(data)
    for _ in reader.documents():
        pass
    return reader.duplicates


def encode_yaml(value: Any) -> str:
    """A document as Kubernetes writes it: keys sorted, texts plain where that is safe."""
    return str(yaml.dump(value, Dumper=_Writer, allow_unicode=True))


class _Writer(yaml.CSafeDumper):
    """Writes every value out, also the one it has written before: JSON knows no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(writer: _Writer, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif text in _WORDS or _resolve(writer, text) != f"{_CORE}str":
        style = '"'  # it would be read as something else
    return writer.represent_scalar(f"{_CORE}str", text, style=style)


def _resolve(writer: Any, text: str) -> str:
    """What an unquoted text would be read as."""
    return str(writer.resolve(yaml.ScalarNode, text, (True, False)))


_Writer.add_representer(str, _text)


class _Reader:
    """Builds values from the parser's events."""

    def __init__(self, data: bytes | str) -> None:
        self.duplicates: list[str] = []
        self._events = self._parse(data)
        self._anchors: dict[str, Any] = {}
        self._budget = _MAX_NODES

    def documents(self) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                yield self._value(next(self._events), 0)

    @staticmethod
    def _parse(data: bytes | str) -> Iterator[Any]:
        try:
            yield from yaml.parse(data, yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            text = f"yaml: line {line}: {error.problem or error.context}"
            raise status.BadRequest(text) from None
        except (yaml.YAMLError, UnicodeError) as error:
            raise status.BadRequest(f"yaml: {error}") from None

    def _value(self, event: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise status.BadRequest("yaml: exceeded max depth")
        self._budget -= 1
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise status.BadRequest(f"yaml: unknown anchor '{event.anchor}' referenced")
            return self._copy(self._anchors[event.anchor], depth)
        _refuse_foreign(event.tag)
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(depth)
        else:
            value = self._sequence(depth)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _sequence(self, depth: int) -> list[Any]:
        found = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._value(event, depth + 1))
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
            is_merge = is_merge and event.implicit[0]
            line = event.start_mark.line + 1
            key = _key(self._value(event, depth + 1))
            value = self._value(next(self._events), depth + 1)
            if is_merge:
                for part in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(part, dict):
                        raise status.BadRequest(
                            "yaml: map merge requires map or sequence of maps as the value"
                        )
                    merged |= part
                continue
            if key in found:
                self.duplicates.append(f'line {line}: key "{key}" already set in map')
            found[key] = value
        return merged | found if merged else found

    def _copy(self, value: Any, depth: int) -> Any:
        self._budget -= 1
        if self._budget < 0:
            raise status.BadRequest("yaml: document contains excessive aliasing")
        if depth > _MAX_DEPTH:
            raise status.BadRequest("yaml: exceeded max depth")
        if isinstance(value, dict):
            return {k: self._copy(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list):
            return [self._copy(v, depth + 1) for v in value]
        return value


def _scalar(event: Any) -> Any:
    tag = event.tag
    text = str(event.value)
    if event.implicit[0] or tag in (_CORE + "int", _CORE + "float", _CORE + "bool", _CORE + "null"):
        return _plain(text)
    return text


def _refuse_foreign(tag: str | None) -> None:
    """Tags of YAML itself that JSON has no counterpart for; a document's own tags say nothing."""
    if tag and tag.startswith(_CORE) and tag[len(_CORE) :] not in _JSON_TAGS:
        raise status.BadRequest(f"yaml: tag '{tag}' has no JSON form")


def _plain(text: str) -> Any:
    """What an unquoted scalar means to yaml.v2."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise status.BadRequest("yaml: NaN and infinity have no JSON form")
    plain = text.replace("_", "")
    if _INT.fullmatch(text):
        return _integer(plain.lower())
    if _FLOAT.fullmatch(text):
        number = float(plain)
        if not math.isfinite(number):
            return text
        # Go writes whole floats as integers, so `1e3` reaches an integer field as 1000.
        return int(number) if number == int(number) and abs(number) < 1e21 else number
    return text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-")
    if text.startswith("0x"):
        return sign * int(text, 16)
    if text.startswith("0b"):
        return sign * int(text, 2)
    if len(text) > 1 and text.startswith("0"):
        return sign * int(text[1:].lstrip("o") or "0", 8)
    if len(text) > 400:
        raise status.BadRequest("yaml: number out of range")
    return sign * int(text)


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if key is None:
        return "null"
    if isinstance(key, str | int | float):
        return str(key)
    raise status.BadRequest("yaml: a key must be a scalar")
