"""As much SPDY/3.1 as it takes to be a client of a runtime's streaming server.

Its WebSockets have no word for the end of one stream, and take a stream that nobody asked for as
one that has ended; SPDY has neither trouble, and every runtime speaks it, as the kubelet does.

Frames are told apart by their first bit: data of a stream, or control. Of control frames we send
SYN_STREAM and answers to PING, and of those received only PING matters: what else there is says
nothing that the end of a stream or of the connection does not. The peers use no flow control.
Header blocks are compressed without SPDY's dictionary, which a receiver must not insist on.
"""

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from motley.node.cri.errors import RuntimeFailure

_CONNECT_S = 10.0
_VERSION = 0x8003  # the control bit, and version 3
_SYN_STREAM, _PING = 1, 6
_FIN = 0x01
_HEAD = struct.Struct(">IB3s")
_PIECE = 64 * 1024


class Data(NamedTuple):
    """What has come on a stream."""

    stream: int
    data: bytes
    is_last: bool


async def upgrade(url: str, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that speaks SPDY from now on. Raises RuntimeFailure and TimeoutError."""
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\n"
        f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n"
        "Content-Length: 0\r\n\r\n"
    )
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(head.encode())
            answer = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeFailure(f"runtime refused to stream: {answer[:100]!r}")
    except BaseException as error:
        if writer is not None:
            writer.close()
        if isinstance(error, (ConnectionError, asyncio.IncompleteReadError)):
            raise RuntimeFailure(f"runtime does not stream: {error}") from None
        raise
    return reader, writer


class Session:
    """One connection and its streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._headers = zlib.compressobj()
        self._next = 1  # a client's streams have odd numbers

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def open(self, headers: Mapping[str, str]) -> int:
        """Begin a stream; its number."""
        stream, self._next = self._next, self._next + 2
        block = struct.pack(">I", len(headers))
        for word in (part for pair in headers.items() for part in pair):
            block += struct.pack(">I", len(word)) + word.encode()
        packed = self._headers.compress(block) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIBB", stream, 0, 0, 0) + packed
        await self._send(_VERSION << 16 | _SYN_STREAM, 0, body)
        return stream

    async def send(self, stream: int, data: bytes) -> None:
        """Send on a stream."""
        for at in range(0, len(data), _PIECE):
            await self._send(stream, 0, data[at : at + _PIECE])

    async def end(self, stream: int) -> None:
        """Nothing more comes on a stream from here; from there it may."""
        await self._send(stream, _FIN, b"")

    async def _send(self, first: int, flags: int, body: bytes) -> None:
        self._writer.write(_HEAD.pack(first, flags, len(body).to_bytes(3, "big")) + body)
        await self._writer.drain()

    async def received(self) -> AsyncIterator[Data]:
        """What comes on all streams, until the connection ends."""
        while True:
            try:
                first, flags, size = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                body = await self._reader.readexactly(int.from_bytes(size, "big"))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if not first >> 31:
                yield Data(first, body, bool(flags & _FIN))
            elif first & 0xFFFF == _PING and not int.from_bytes(body, "big") % 2:
                await self._send(first, 0, body)  # theirs; an odd one would be an answer to ours
