"""Clients that keep connections busy without doing anything are let go; patient ones are not."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from motley.apiserver.protocol import HttpProtocol
from motley.apiserver.slowclients import SlowClients
from motley.lib.clock import SYSTEM

LARGE = b"x" * (64 << 20)  # more than any socket buffer takes


async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    body = LARGE if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/watch":
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def server():
    """A server without TLS, and the set of its connections."""
    config = uvicorn.Config(app, http=HttpProtocol, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}, _loop=loop),
        "127.0.0.1",
        0,
    )
    yield listening.sockets[0].getsockname()[1], state.connections
    for connection in list(state.connections):
        connection.transport.abort()
    listening.close()
    await listening.wait_closed()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await SYSTEM.sleep(0.01)


@pytest.mark.parametrize(
    ("sent", "is_closed"),
    [
        (b"", True),
        (b"GET / HTTP/1.1\r\nHost:", True),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc", True),
        (b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n|GET / HT", True),
        (b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n", False),
    ],
    ids=["silent", "head", "body", "unread", "idle", "second head", "watch"],
)
async def test_who_does_not_go_on_is_let_go(server, sent, is_closed):
    port, connections = server
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        first, _, second = sent.partition(b"|")
        writer.write(first)
        await until(lambda: connections)
        (connection,) = connections
        if b"large" in sent:
            await until(lambda: connection.transport.get_write_buffer_size())
        elif sent.startswith(b"GET / HTTP/1.1\r\nHost: x") or b"watch" in sent:
            assert await reader.readuntil(b"\r\n\r\n")
            if b"watch" not in sent:
                await until(lambda: connection.cycle.response_complete)
            if second:
                writer.write(second)
                await until(lambda: connection.timeout_keep_alive_task is None)
        elif b"abc" in sent:
            await until(lambda: connection.cycle is not None)
        patience = SlowClients()

        assert patience.sweep(connections, 0.0) == 0
        assert patience.sweep(connections, 20.0) == 0
        assert patience.sweep(connections, 100.0) == is_closed
        await until(lambda: bool(connections) is not is_closed)
    finally:
        writer.close()


async def test_who_reads_slowly_but_reads_is_kept(server):
    port, connections = server
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: connections)
        (connection,) = connections
        size = connection.transport.get_write_buffer_size
        await until(size)
        patience = SlowClients()
        assert patience.sweep(connections, 0.0) == 0
        for now in (50.0, 100.0, 150.0):
            before = size()
            while size() >= before:
                await reader.read(1 << 20)
            assert patience.sweep(connections, now) == 0
    finally:
        writer.close()
