"""Telling whoever asked that an invocation has ended."""

from random import Random

import pytest
from aiohttp import web

from motley.api.views.serverless import Invocation
from motley.serverless.callback import Callbacks


class Clock:
    """Sleeps take no time, and are remembered."""

    def __init__(self):
        self.slept = []

    def now(self):
        return 0.0

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        self.slept.append(seconds)


class Client:
    def __init__(self):
        self.noted = []

    async def patch(self, cls, name, namespace, body, *, subresource):
        self.noted.append(body["status"]["callback"])


@pytest.fixture
async def receiver():
    """Answers with the codes it is given, and keeps what came."""
    got, codes = [], []

    async def take(request):
        got.append(await request.json())
        return web.Response(status=codes.pop(0) if codes else 200)

    app = web.Application()
    app.router.add_post("/done", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/done", got, codes
    await runner.cleanup()


def invocation(url):
    return Invocation.of(
        {
            "metadata": {"name": "i", "namespace": "ns"},
            "spec": {"function": "f", "callbackURL": url},
            "status": {"phase": "Succeeded", "result": {"n": 1}},
        }
    )


async def deliver(url, *, allow_local=True):
    client, clock = Client(), Clock()
    await Callbacks(client, clock, Random(1), allow_local=allow_local).deliver(invocation(url))
    return client.noted[0], clock


async def test_the_result_is_sent_and_noted(receiver):
    url, got, _ = receiver
    noted, _ = await deliver(url)
    assert noted == {"delivered": True, "attempts": 1}
    assert (got[0]["id"], got[0]["result"]) == ("i", {"n": 1})


async def test_it_is_tried_again_but_not_for_ever(receiver):
    url, got, codes = receiver
    codes += [500, 503]
    assert (await deliver(url))[0] == {"delivered": True, "attempts": 3}
    codes += [500] * 9
    noted, clock = await deliver(url)
    assert (noted["delivered"], noted["attempts"]) == (False, 5)
    assert clock.slept == sorted(clock.slept)
    assert len(got) == 3 + 5


async def test_the_control_planes_own_addresses_are_not_called(receiver):
    url, got, _ = receiver
    noted, _ = await deliver(url, allow_local=False)
    assert not noted["delivered"]
    assert "not called from here" in noted["message"]
    assert got == []
