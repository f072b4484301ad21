"""What is wrong with a text that is no JSON, in the words Go clients know.

The fast decoder only says that something is wrong. People who sent YAML, a truncated body or two
documents deserve to know where; so a refused body is read once more, slowly, by RFC 8259.
"""

import re

_SPACE = re.compile(rb"[ \t\n\r]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LITERALS = (b"true", b"false", b"null")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_END = "unexpected end of JSON input"


class _SyntaxError(ValueError):
    """The message is the answer."""


def problem(data: bytes | str) -> str:
    """The first mistake; empty when the syntax is right (and something else is wrong)."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    try:
        at = _skip(raw, _value(raw, _skip(raw, 0)))
        if at < len(raw):
            raise _unexpected(raw, at, "after top-level value")
    except _SyntaxError as error:
        return str(error)
    except RecursionError:
        return "exceeded max depth"
    return ""


def _unexpected(data: bytes, at: int, where: str) -> _SyntaxError:
    if at >= len(data):
        return _SyntaxError(_END)
    char = chr(data[at])  # Go looks at bytes, too
    shown = {"'": r"'\''", '"': "'\"'"}.get(char) or (
        f"'{char}'" if char.isprintable() else f"'\\x{data[at]:02x}'"
    )
    return _SyntaxError(f"invalid character {shown} {where}")


def _skip(data: bytes, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _value(data: bytes, at: int) -> int:
    """The end of the value that begins here."""
    first = data[at : at + 1]
    if first == b"{":
        return _object(data, at + 1)
    if first == b"[":
        return _array(data, at + 1)
    if first == b'"':
        return _string(data, at + 1)
    if found := _NUMBER.match(data, at):
        return found.end()
    for literal in _LITERALS:
        if first == literal[:1] and first:
            return _literal(data, at, literal)
    raise _unexpected(data, at, "looking for beginning of value")


def _literal(data: bytes, at: int, literal: bytes) -> int:
    for offset in range(1, len(literal)):
        if data[at + offset : at + offset + 1] != literal[offset : offset + 1]:
            where = f"in literal {literal.decode()} (expecting '{chr(literal[offset])}')"
            raise _unexpected(data, at + offset, where)
    return at + len(literal)


def _string(data: bytes, at: int) -> int:
    while True:
        if at >= len(data):
            raise _SyntaxError(_END)
        byte = data[at]
        if byte == 0x22:
            return at + 1
        if byte < 0x20:
            raise _unexpected(data, at, "in string literal")
        at = _escape(data, at + 1) if byte == 0x5C else at + 1


def _escape(data: bytes, at: int) -> int:
    char = data[at : at + 1]
    if char == b"u":
        for offset in range(1, 5):
            if data[at + offset : at + offset + 1] and data[at + offset] in _HEX:
                continue
            raise _unexpected(data, at + offset, "in \\u hexadecimal character escape")
        return at + 5
    if char and char in b'"\\/bfnrt':
        return at + 1
    raise _unexpected(data, at, "in string escape code")


def _array(data: bytes, at: int) -> int:
    at = _skip(data, at)
    if data[at : at + 1] == b"]":
        return at + 1
    while True:
        at = _skip(data, _value(data, _skip(data, at)))
        if data[at : at + 1] == b"]":
            return at + 1
        if data[at : at + 1] != b",":
            raise _unexpected(data, at, "after array element")
        at += 1


def _object(data: bytes, at: int) -> int:
    at = _skip(data, at)
    if data[at : at + 1] == b"}":
        return at + 1
    while True:
        at = _skip(data, at)
        if data[at : at + 1] != b'"':
            raise _unexpected(data, at, "looking for beginning of object key string")
        at = _skip(data, _string(data, at + 1))
        if data[at : at + 1] != b":":
            raise _unexpected(data, at, "after object key")
        at = _skip(data, _value(data, _skip(data, at + 1)))
        if data[at : at + 1] == b"}":
            return at + 1
        if data[at : at + 1] != b",":
            raise _unexpected(data, at, "after object key:value pair")
        at += 1
