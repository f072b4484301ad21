"""The client's side of SPDY, against a server that reads frames by the book."""

import asyncio
import struct
import zlib
from contextlib import asynccontextmanager

import pytest

from motley.node.cri import spdy
from motley.node.cri.errors import RuntimeFailure


class Runtime:
    """Takes one connection, and reads what the client sends."""

    def __init__(self, answer=b"HTTP/1.1 101 Switching Protocols\r\n\r\n"):
        self._answer = answer
        self._headers = zlib.decompressobj()
        self.request = b""
        self.connected = asyncio.Event()

    async def __call__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.request = await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        self.connected.set()

    async def frame(self):
        head = await self.reader.readexactly(8)
        body = await self.reader.readexactly(int.from_bytes(head[5:], "big"))
        return head[:4], head[4], body

    async def stream(self):
        """The number and headers of a stream that the client opens."""
        first, flags, body = await self.frame()
        assert (first, flags) == (b"\x80\x03\x00\x01", 0)
        number, associated = struct.unpack(">II", body[:8])
        assert associated == 0
        return number, self._headers.decompress(body[10:])


@asynccontextmanager
async def served(runtime):
    """The address of a runtime's streaming server."""
    server = await asyncio.start_server(runtime, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(10):
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/attach/x?a=b"
    finally:
        runtime.writer.close()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connected(runtime):
    """A session with a runtime."""
    async with served(runtime) as url:
        ends = await spdy.upgrade(url, "v4.channel.k8s.io")
        async with spdy.Session(*ends) as session:
            yield session


def _words(*words):
    return b"".join(struct.pack(">I", len(word)) + word for word in words)


async def test_streams_are_opened_written_and_ended():
    runtime = Runtime()
    async with connected(runtime) as session:
        assert runtime.request.startswith(b"POST /attach/x?a=b HTTP/1.1\r\n")
        assert b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in runtime.request
        assert [await session.open({"streamtype": name}) for name in ("a", "b")] == [1, 3]
        for number, name in ((1, b"a"), (3, b"b")):
            assert await runtime.stream() == (
                number,
                struct.pack(">I", 1) + _words(b"streamtype", name),
            )
        await session.send(3, b"x" * 70_000)
        await session.end(3)
        first, second = await runtime.frame(), await runtime.frame()
        assert (first[0], first[2] + second[2]) == (b"\0\0\0\3", b"x" * 70_000)
        assert await runtime.frame() == (b"\0\0\0\3", 1, b"")


async def test_what_comes_is_told_by_stream_and_pings_are_answered():
    runtime = Runtime()
    ping = b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x02"
    async with connected(runtime) as session:
        await runtime.connected.wait()
        reply = b"\x80\x03\x00\x02\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00"  # SYN_REPLY
        runtime.writer.write(reply + ping)
        runtime.writer.write(b"\0\0\0\1\0\0\0\2hi" + b"\0\0\0\3\1\0\0\0")
        received = session.received()
        assert await anext(received) == spdy.Data(1, b"hi", False)
        assert await anext(received) == spdy.Data(3, b"", True)
        assert await runtime.reader.readexactly(12) == ping
        runtime.writer.close()
        assert [data async for data in received] == []


async def test_a_refusal_is_a_failure_of_the_runtime():
    async with served(Runtime(b"HTTP/1.1 403 Forbidden\r\n\r\n")) as url:
        with pytest.raises(RuntimeFailure, match="403 Forbidden"):
            await spdy.upgrade(url, "v4.channel.k8s.io")
