"""Arguments and results: JSON in an Invocation, bytes with a content type on the wire."""

import base64
from typing import Any

import msgspec

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
BYTES = "application/octet-stream"
# An object of the API holds argument, result and steps; etcd takes 1.5 MB of one.
MOST_STORED = 1_000_000


def to_wire(value: Any) -> tuple[str, bytes]:
    """Text stays text, everything else is JSON; bytes are written as {"base64": …}."""
    if isinstance(value, str):
        return TEXT, value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        return BYTES, base64.b64decode(value["base64"])
    return JSON, msgspec.json.encode(value)


def from_wire(kind: str, body: bytes) -> Any:
    """The value of a body; raises ValueError when JSON was promised and is not there."""
    plain = kind.partition(";")[0].strip().lower()
    if plain == JSON or plain.endswith("+json"):
        return msgspec.json.decode(body) if body else None
    if plain == BYTES:
        return {"base64": base64.b64encode(body).decode()}
    return body.decode("utf-8", "replace")
