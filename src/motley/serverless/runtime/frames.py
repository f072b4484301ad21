"""What the processes of an instance say to each other: JSON heads and bytes, with their lengths."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_SIZES = struct.Struct("!II")
SIZE = _SIZES.size


class Gone(Exception):
    """The other side has closed its end."""


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """One message."""
    text = json.dumps(head).encode()
    return _SIZES.pack(len(text), len(body)) + text + body


def sizes(data: bytes) -> tuple[int, int]:
    """How long head and body are that follow."""
    head, body = _SIZES.unpack(data)
    return head, body


def receive(sock: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Wait for one message. Raises Gone."""
    head_size, body_size = sizes(_exactly(sock, SIZE))
    head: dict[str, Any] = json.loads(_exactly(sock, head_size))
    return head, _exactly(sock, body_size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size > 0:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise Gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
