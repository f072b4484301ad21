"""PEM: binary data as lines of text between BEGIN and END, read as Go reads it.

What stands between the blocks is ignored, and so is a block that does not decode: a bundle may hold
remarks, and half a block does not spoil the others.

Invariant: reading takes time in proportion to the text, whatever the text is.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field

CERTIFICATE = "CERTIFICATE"
_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_WIDTH = 64  # characters in a line, as RFC 7468 writes them


@dataclass(frozen=True, slots=True)
class Block:
    """One block: what it says it is, its headers, its data."""

    kind: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


def blocks(text: str) -> Iterator[Block]:
    """The well-formed blocks of a text, in order."""
    kind: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        line = line.rstrip()
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            kind, lines = line[len(_BEGIN) : -len(_DASHES)], []
        elif kind is not None and line == f"{_END}{kind}{_DASHES}":
            if (found := _block(kind, lines)) is not None:
                yield found
            kind = None
        elif kind is not None:
            lines.append(line)


def _block(kind: str, lines: list[str]) -> Block | None:
    headers: dict[str, str] = {}
    first = 0
    for first, line in enumerate(lines):  # noqa: B007 - where the data begins is used below
        name, colon, value = line.partition(":")
        if not colon:
            break
        headers[name.strip()] = value.strip()
    try:
        data = base64.b64decode("".join(lines[first:]), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Block(kind, data, headers)


def encode(kind: str, data: bytes) -> str:
    """One block."""
    text = base64.b64encode(data).decode()
    lines = (text[i : i + _WIDTH] for i in range(0, len(text), _WIDTH))
    return "\n".join((f"{_BEGIN}{kind}{_DASHES}", *lines, f"{_END}{kind}{_DASHES}", ""))
