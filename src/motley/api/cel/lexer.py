"""Text to tokens."""

import re
from typing import NamedTuple

from motley.api.cel.errors import CompileError


class Token(NamedTuple):
    """A piece of the source; `value` is what a literal stands for."""

    kind: str  # ident, int, uint, double, string, bytes, op, end
    text: str
    offset: int
    value: object = None


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<string>(?P<prefix>[rRbB]{0,2})(?P<quote>\"\"\"|'''|"|'))
  | (?P<double>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<int>0[xX][0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU])?
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
  | (?P<op>\[\?|\.\?|==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "?": "?",
    '"': '"',
    "'": "'",
    "`": "`",
}
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<o>[0-3][0-7]{2})|(?P<c>.))",
    re.DOTALL,
)
_MAX_INT = 2**63
_MAX_UINT = 2**64


def tokens(source: str) -> list[Token]:
    """Every token, and an `end`."""
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise CompileError(
                source, at, f"Syntax error: token recognition error at: '{source[at]}'"
            )
        kind = match.lastgroup or ""
        if match["string"] is not None:
            token = _string(source, at, match["prefix"].lower(), match["quote"])
            found.append(token)
            at += len(token.text)
            continue
        at = match.end()
        if kind == "space":
            continue
        text = match[0]
        if match["int"] is not None:
            found.append(_number(source, match))
        elif kind == "double":
            found.append(Token("double", text, match.start(), float(text)))
        elif kind == "quoted":
            found.append(Token("ident", text[1:-1], match.start()))
        else:
            found.append(Token(kind, text, match.start()))
    found.append(Token("end", "<EOF>", len(source)))
    return found


def _number(source: str, match: re.Match[str]) -> Token:
    unsigned = match["unsigned"] is not None
    value = int(match["int"], 0) if match["int"][:2] in ("0x", "0X") else int(match["int"])
    if value >= (_MAX_UINT if unsigned else _MAX_INT + 1):
        raise CompileError(source, match.start(), "invalid int literal")
    return Token("uint" if unsigned else "int", match[0], match.start(), value)


def _string(source: str, start: int, prefix: str, quote: str) -> Token:
    """A literal from its prefix to its closing quote."""
    begin = start + len(prefix) + len(quote)
    at = begin
    raw = "r" in prefix
    while not source.startswith(quote, at):
        if at >= len(source) or (len(quote) == 1 and source[at] in "\r\n"):
            raise CompileError(
                source, start, f"Syntax error: token recognition error at: '{source[start:]}'"
            )
        at += 2 if source[at] == "\\" and not raw else 1
    body = source[begin:at]
    text = source[start : at + len(quote)]
    if "b" in prefix:
        value: object = _bytes(source, start, body, raw)
        return Token("bytes", text, start, value)
    return Token("string", text, start, body if raw else _unescaped(source, start, body))


def _unescaped(source: str, start: int, body: str) -> str:
    def replace(match: re.Match[str]) -> str:
        for group, base in (("x", 16), ("u", 16), ("U", 16), ("o", 8)):
            if match[group] is not None:
                return chr(int(match[group], base))
        if match["c"] not in _ESCAPES:
            raise CompileError(
                source, start, f"Syntax error: token recognition error at: '{source[start:]}'"
            )
        return _ESCAPES[match["c"]]

    return _ESCAPE.sub(replace, body)


def _bytes(source: str, start: int, body: str, raw: bool) -> bytes:
    if raw:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[at : match.start()].encode())
        digits = match["x"] or match["o"]
        if digits is not None:  # one byte, not one character
            parts.append(bytes([int(digits, 16 if match["x"] else 8)]))
        else:
            parts.append(_unescaped(source, start, match[0]).encode())
        at = match.end()
    parts.append(body[at:].encode())
    return b"".join(parts)
