"""What a component says of itself over HTTP."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from motley.lib import health
from motley.lib.clock import SYSTEM

PAGES = {"/own": lambda query: (200, "text/plain", f"asked {query}".encode())}


@asynccontextmanager
async def serving(port):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(health.serve(port, lambda: True, pages=PAGES))
        yield
        task.cancel()


async def get(port, path):
    async with asyncio.timeout(10):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await SYSTEM.sleep(0.01)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    return answer


async def test_pages_of_its_own_are_served_beside_health(unused_tcp_port):
    async with serving(unused_tcp_port):
        assert (await get(unused_tcp_port, "/own?a=b")).endswith("asked a=b")
        assert (await get(unused_tcp_port, "/healthz")).endswith("ok")
        assert "404" in await get(unused_tcp_port, "/other")


@pytest.mark.parametrize(
    ("peer", "code"),
    [("127.0.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("10.0.0.7", 403)],
)
def test_pages_are_for_callers_on_the_same_machine_only(peer, code):
    writer = SimpleNamespace(get_extra_info=lambda _: (peer, 4711))
    found = health._own_page(b"GET /own HTTP/1.1\r\n\r\n", writer, PAGES)
    assert found is not None
    assert found[0] == code
