"""Over a real connection: long lists in blocks, changes pushed to watchers, slow clients."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from motley.api import scheme
from motley.apiserver import app, document
from motley.apiserver.protocol import HttpProtocol
from motley.lib.clock import SYSTEM

MAPS = "/api/v1/namespaces/demo/configmaps"


class Client:
    """One connection, read only when a test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, *paths: str) -> bytes:
        """Send requests at once, and read the head of the first answer."""
        for path in paths:
            head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer admin\r\n\r\n"
            self.writer.write(head.encode())
        async with asyncio.timeout(10):
            return (await self.reader.readuntil(b"\r\n\r\n")).lower()

    async def chunk(self) -> bytes:
        async with asyncio.timeout(10):
            size = int(await self.reader.readline(), 16)
            chunk = await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        return chunk

    async def events(self, count: int = 0) -> list[tuple[str, str]]:
        """The next events, or all until the answer ends, as (type, name)."""
        found: list[tuple[str, str]] = []
        while not count or len(found) < count:
            chunk = await self.chunk()
            if not chunk:
                break
            events = [json.loads(line) for line in chunk.splitlines()]
            found += [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]
        return found


class Served:
    """The application of `api` on a socket of its own."""

    def __init__(self, api, server, address) -> None:
        self.api = api
        self.server = server
        self._address = address

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            own.setblocking(False)
            await asyncio.get_running_loop().sock_connect(own, self._address)
            client = Client(*await asyncio.open_connection(sock=own, limit=65536))
            yield client
            client.writer.close()

    async def put(self, name: str, size: int = 1) -> None:
        reply = await self.api.create(MAPS, {"metadata": {"name": name}, "data": {"x": "y" * size}})
        assert reply.code == 201


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self):
        yield


@pytest.fixture
async def served(api):
    settings = uvicorn.Config(
        api.app, http=HttpProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = _Server(settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            yield Served(api, server, listener.getsockname())
            api.app.end_streams()
            server.should_exit = True


@pytest.fixture
def pushed(monkeypatch):
    """What was written past the tasks, and whether it could be."""
    seen: list[bool] = []
    pusher = HttpProtocol.pusher

    def counting(self, scope):
        push = pusher(self, scope)

        def counted(chunk):
            seen.append(push(chunk))
            return seen[-1]

        return counted

    monkeypatch.setattr(HttpProtocol, "pusher", counting)
    return seen


async def test_changes_are_pushed_to_watchers_in_order(served, pushed):
    async with served.client() as one, served.client() as two:
        for client in (one, two):
            assert b"200 ok" in await client.ask(f"{MAPS}?watch=true&resourceVersion=0")
        for name in "abc":
            await served.put(name)
            assert [await one.events(1), await two.events(1)] == [[("ADDED", name)]] * 2
        await served.api.delete(f"{MAPS}/b")
        assert [await one.events(1), await two.events(1)] == [[("DELETED", "b")]] * 2
    assert pushed == [True] * 8  # else tasks were woken for some of them


async def test_a_watcher_that_pauses_misses_nothing_and_holds_nobody_up(served, pushed):
    names = [f"m{i:03}" for i in range(60)]
    async with served.client() as slow, served.client() as quick:
        await slow.ask(f"{MAPS}?watch=true&resourceVersion=0")
        await quick.ask(f"{MAPS}?watch=true&resourceVersion=0")
        for name in names:
            await served.put(name, 200_000)
            assert await quick.events(1) == [("ADDED", name)]
        assert not all(pushed)
        assert await slow.events(60) == [("ADDED", name) for name in names]


async def test_a_watcher_that_the_ring_has_passed_is_told_to_list_again(served):
    kind = scheme.resource("", "v1", "configmaps")
    served.api.app._core.caches[kind]._capacity = 4
    async with served.client() as slow, served.client() as quick:
        await slow.ask(f"{MAPS}?watch=true&resourceVersion=0")
        await quick.ask(f"{MAPS}?watch=true&resourceVersion=0")
        for i in range(60):
            await served.put(f"m{i:03}", 200_000)
            assert await quick.events(1) == [("ADDED", f"m{i:03}")]
        seen = await slow.events()
        told = len(seen) - 1
        assert 0 < told < 60
        assert seen == [*(("ADDED", f"m{i:03}") for i in range(told)), ("ERROR", "")]


async def test_a_request_sent_ahead_of_its_turn_does_not_disturb_the_watch_before_it(served):
    async with served.client() as client:
        await client.ask(f"{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=1", "/version")
        await served.put("a")
        assert await client.events() == [("ADDED", "a")]
        async with asyncio.timeout(10):
            assert b"200 OK" in await client.reader.readuntil(b"\r\n\r\n")


async def test_a_long_list_comes_whole_and_says_how_long_it_is(served):
    for i in range(30):
        await served.put(f"m{i:03}", 50_000 + i)
    async with served.client() as client:
        head = await client.ask(MAPS)
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await client.reader.readexactly(length)
        assert length > 4 * document.BLOCK
        items = json.loads(body)["items"]
        assert [len(item["data"]["x"]) for item in items] == [50_000 + i for i in range(30)]
        assert b"200 ok" in await client.ask("/version")  # nothing was left over


async def test_a_client_that_does_not_take_its_list_is_hung_up_on(served, monkeypatch):
    for i in range(20):
        await served.put(f"m{i:03}", 900_000)
    monkeypatch.setattr(app, "SLOW_CLIENT_S", 0.05)
    async with served.client() as client:
        head = await client.ask(MAPS)
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        async with asyncio.timeout(10):
            while served.server.server_state.tasks:
                await SYSTEM.sleep(0.01)
            received = 0
            while part := await client.reader.read(2**20):
                received += len(part)
        assert 0 < received < length
