"""The health endpoint over a real socket."""

import asyncio

import aiohttp
import pytest

from motley.lib import health
from motley.ops.freeports import free_port


@pytest.fixture
def port():
    return free_port()


async def fetch(port, path, method="GET"):
    async with aiohttp.ClientSession() as http:
        for _ in range(200):
            try:
                async with http.request(method, f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.to_thread(lambda: None)
    raise AssertionError("the endpoint never came up")


async def test_it_is_unready_until_ready_and_serves_metrics(port):
    state = {"ready": False}
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(health.serve(port, lambda: state["ready"]))
        assert await fetch(port, "/healthz") == (503, "not ready")
        assert (await fetch(port, "/livez"))[0] == 200
        state["ready"] = True
        assert await fetch(port, "/healthz") == (200, "ok")
        assert await fetch(port, "/readyz?verbose") == (200, "ok")
        code, text = await fetch(port, "/metrics")
        assert code == 200
        assert "python_info" in text
        assert (await fetch(port, "/other"))[0] == 404
        assert (await fetch(port, "/healthz", "POST"))[0] == 405
        serving.cancel()


async def test_port_zero_serves_nothing():
    await health.serve(0, lambda: True)
