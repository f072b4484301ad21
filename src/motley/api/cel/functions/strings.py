"""Texts: the standard tests, cel-go's string extensions and Kubernetes' regex functions."""

import base64
import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from motley.api import patterns
from motley.api.cel.errors import CelError
from motley.api.cel.functions import conversions
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import Timestamp, type_name
from motley.api.patterns import Pattern, PatternError

_ASCII_LOWER = {c: c + 32 for c in range(65, 91)}
_ASCII_UPPER = {c: c - 32 for c in range(97, 123)}


def _text(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise no_overload(value)


def _pattern(value: Any, text: Any) -> Pattern:
    _text(value, text)
    try:
        return patterns.compiled(text)
    except PatternError as error:
        raise CelError(str(error)) from None


def matches(value: Any, expression: Any) -> bool:
    """Whether a pattern is found anywhere."""
    return _pattern(value, expression).is_in(value)


def find(value: Any, expression: Any) -> str:
    """The first match, or nothing."""
    return next(_pattern(value, expression).found(value), "")


def find_all(value: Any, expression: Any, limit: Any = -1) -> list[str]:
    """Every match, or the first few."""
    found = _pattern(value, expression).found(value)
    return list(found) if limit < 0 else list(islice(found, limit))


def _tested(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def tested(value: Any, other: Any) -> bool:
        _text(value, other)
        return test(value, other)

    return tested


def char_at(value: Any, at: Any) -> str:
    """One character; nothing just behind the end."""
    _text(value)
    if not 0 <= at <= len(value):
        raise CelError(f"index out of range: {at}")
    return str(value[at : at + 1])


def substring(value: Any, start: Any, end: Any = None) -> str:
    """A part of a text."""
    _text(value)
    end = len(value) if end is None else end
    if not 0 <= start <= end <= len(value):
        raise CelError(f"index out of range: {start}")
    return str(value[start:end])


def replace(value: Any, old: Any, new: Any, limit: Any = -1) -> str:
    """A text with parts replaced."""
    _text(value, old, new)
    return str(value.replace(old, new, limit))


def split(value: Any, separator: Any, limit: Any = -1) -> list[str]:
    """The parts between separators."""
    _text(value, separator)
    if limit == 0:
        return []
    if not separator:
        parts = list(value)
        return (
            parts
            if limit < 0 or len(parts) <= limit
            else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
        )
    return list(value.split(separator, limit - 1 if limit > 0 else -1))


def join(items: Any, separator: Any = "") -> str:
    """A list of texts as one."""
    if not isinstance(items, list):
        raise no_overload(items)
    _text(separator, *items)
    return str(separator).join(items)


def reverse(value: Any) -> Any:
    """Backwards."""
    if isinstance(value, str | list):
        return value[::-1]
    raise no_overload(value)


def escape_key(value: Any) -> str:
    """A key as a part of a JSON pointer: `/` and `~` would be taken for its syntax."""
    _text(value)
    return str(value).replace("~", "~0").replace("/", "~1")


def quote(value: Any) -> str:
    """A text as a literal."""
    _text(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    for raw, shown in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"), ("\a", "\\a")):
        escaped = escaped.replace(raw, shown)
    return f'"{escaped}"'


_VERB = re.compile(r"%(?:%|(?:\.(?P<precision>[0-9]+))?(?P<verb>[a-zA-Z]))")


def format_(value: Any, arguments: Any) -> str:
    """`"%s is %d".format([name, count])`."""
    _text(value)
    if not isinstance(arguments, list):
        raise no_overload(arguments)
    rest = iter(arguments)

    def written(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        try:
            argument = next(rest)
        except StopIteration:
            raise CelError("index out of range: not enough arguments for format") from None
        return _formatted(argument, match["verb"], match["precision"])

    return _VERB.sub(written, value)


def _formatted(value: Any, verb: str, precision: str | None) -> str:
    digits = int(precision) if precision else 6
    try:
        if verb == "s":
            return shown(value)
        if verb == "d":
            return str(int(value))
        if verb == "f":
            return f"{float(value):.{digits}f}"
        if verb == "e":
            return f"{float(value):.{digits}e}"
        if verb == "b":
            return f"{int(value):b}"
        if verb == "o":
            return f"{int(value):o}"
        if verb in ("x", "X"):
            text = value.encode().hex() if isinstance(value, str) else f"{int(value):x}"
            return text.upper() if verb == "X" else text
    except (TypeError, ValueError):
        raise no_overload(value) from None
    raise CelError(f"unrecognized formatting clause: %{verb}")


def shown(value: Any) -> str:
    """Any value as `%s` shows it."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(shown(item) for item in value)}]"
    if isinstance(value, dict):
        entries = sorted((shown(k), shown(v)) for k, v in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in entries) + "}"
    if isinstance(value, bool | int | float | str | bytes | Timestamp):
        return conversions.to_string(value)
    return type_name(value)


def decode_base64(value: Any) -> bytes:
    """Bytes of a base64 text, padded or not."""
    _text(value)
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        raise CelError("illegal base64 data") from None


def encode_base64(value: Any) -> str:
    """Base64 of bytes."""
    if not isinstance(value, bytes):
        raise no_overload(value)
    return base64.b64encode(value).decode()


def _mapped(change: Callable[[str], str]) -> Callable[[Any], str]:
    def mapped(value: Any) -> str:
        _text(value)
        return change(value)

    return mapped


GLOBAL: dict[str, Callable[..., Any]] = {
    "matches": matches,
    "strings.quote": quote,
    "jsonpatch.escapeKey": escape_key,
    "base64.encode": encode_base64,
    "base64.decode": decode_base64,
}
METHODS: dict[str, Callable[..., Any]] = {
    "startsWith": _tested(str.startswith),
    "endsWith": _tested(str.endswith),
    "contains": _tested(str.__contains__),
    "matches": matches,
    "find": find,
    "findAll": find_all,
    "charAt": char_at,
    "substring": substring,
    "replace": replace,
    "split": split,
    "join": join,
    "reverse": reverse,
    "format": format_,
    "lowerAscii": _mapped(lambda s: s.translate(_ASCII_LOWER)),
    "upperAscii": _mapped(lambda s: s.translate(_ASCII_UPPER)),
    "trim": _mapped(str.strip),
}
RESULTS = {
    "startsWith": "bool",
    "endsWith": "bool",
    "contains": "bool",
    "matches": "bool",
    "find": "string",
    "findAll": "list",
    "charAt": "string",
    "substring": "string",
    "replace": "string",
    "split": "list",
    "join": "string",
    "format": "string",
    "lowerAscii": "string",
    "upperAscii": "string",
    "trim": "string",
    "strings.quote": "string",
    "jsonpatch.escapeKey": "string",
    "base64.encode": "string",
    "base64.decode": "bytes",
}
