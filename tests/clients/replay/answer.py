"""An answer of the live server, in the recording's form."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

# The headers that a recording keeps; others (dates, lengths, connection) say nothing about the API.
HEADERS = (
    "retry-after",
    "allow",
    "location",
    "www-authenticate",
    "vary",
    "etag",
    "x-content-type-options",
)


@dataclass
class Answer:
    """Status 0 stands for no answer at all; `text` then says why."""

    status: int
    content_type: str | None = None
    warnings: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    events: list[dict[str, Any]] | None = None
    server_ended: bool | None = None

    @property
    def text(self) -> str:
        """The raw body as text."""
        return self.raw.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; UNSET when it is none."""
        try:
            return msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.UNSET

    def at(self, pointer: str) -> Any:
        """The value at a JSON pointer; an empty string when there is none."""
        value = self.json()
        for token in tokens(pointer):
            try:
                value = value[int(token)] if isinstance(value, list) else value[token]
            except (KeyError, IndexError, ValueError, TypeError):
                return ""
        return value


def tokens(pointer: str) -> tuple[str, ...]:
    """The parts of a JSON pointer (RFC 6901)."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
