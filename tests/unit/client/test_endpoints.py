"""Which API server is asked next, and how a client gets by when some are dead."""

import asyncio
from collections import Counter
from contextlib import aclosing
from itertools import pairwise
from random import Random

import pytest
from aiohttp import web

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.client import kubeconfig
from motley.client.endpoints import Endpoints
from motley.client.kubeconfig import Config, ConfigError
from motley.client.rest import Client
from motley.lib.clock import SYSTEM

A, B, C = "https://a:1", "https://b:1", "https://c:1"


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def hand():
    return Hand()


@pytest.fixture
def three(hand):
    return Endpoints([A, B, C], hand, Random(1))


def chosen(endpoints, count):
    return Counter(endpoints.choose() for _ in range(count))


def test_requests_go_round_all_servers(three):
    assert chosen(three, 30) == {A: 10, B: 10, C: 10}


def test_clients_with_the_same_list_begin_at_different_servers(hand):
    first = {Endpoints([A, B, C], hand, Random(seed)).choose() for seed in range(20)}
    assert first == {A, B, C}


def test_a_server_that_failed_is_left_at_once_and_tried_again_by_one_request(three, hand):
    three.failed(B)
    assert chosen(three, 20) == {A: 10, C: 10}
    hand.time += 0.6
    assert chosen(three, 20)[B] == 1  # everybody else waits for what comes of it
    three.answered(B)
    assert chosen(three, 30)[B] == 10


def test_a_server_that_stays_away_is_tried_less_and_less(three, hand):
    tries = []
    for _ in range(1200):
        if three.choose() == B:
            three.failed(B)
            tries.append(hand.time)
        hand.time += 0.1
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps[0] < 1.0
    assert 5.0 < max(gaps) < 17.0
    assert len(tries) < 20


def test_requests_that_failed_together_are_one_failure(three, hand):
    for _ in range(10):
        three.failed(B)
    hand.time += 0.6
    assert B in chosen(three, 3)


def test_when_all_have_failed_the_one_that_is_due_first_is_asked(three, hand):
    for server in (A, B, C):
        three.failed(server)
        hand.time += 0.05
    assert not three.has_other
    assert three.choose() in (A, B, C)


def test_the_server_just_asked_in_vain_is_avoided(three):
    assert all(three.choose(avoid=A) != A for _ in range(10))


def test_one_server_is_always_the_one(hand):
    alone = Endpoints([A], hand, Random(1))
    alone.failed(A)
    assert alone.choose(avoid=A) == A
    assert not alone.has_other


def test_what_is_known_of_servers_that_stay_is_kept(three):
    three.failed(A)
    three.replace([A, B])
    assert chosen(three, 10) == {B: 10}


# The list in a kubeconfig


def test_the_list_is_written_where_kubectl_keeps_it_and_read_back(tmp_path):
    path = tmp_path / "config"
    path.write_text(kubeconfig.render(Config(server=A, further=(B, C), token="t"), user="u"))
    assert kubeconfig.load(path).servers == (A, B, C)
    assert "extensions" not in kubeconfig.render(Config(server=A, token="t"), user="u")


@pytest.mark.parametrize("wrong", ["https://b:1", [1], {"a": 1}, ["http://b:1"]])
def test_a_list_that_is_none_is_refused(tmp_path, wrong):
    text = kubeconfig.render(Config(server=A, further=("PLACE",), token="t"), user="u")
    path = tmp_path / "config"
    path.write_text(text.replace("servers:\n        - PLACE", f"servers: {wrong!r}"))
    with pytest.raises(ConfigError, match=r"motley\.io/servers"):
        kubeconfig.load(path)


# The client


class Scripted:
    """A server that counts, and can be taken away and brought back."""

    def __init__(self):
        self.asked = Counter()
        self.port = 0
        self.code = 200
        self._runner = None

    async def _handle(self, request):
        self.asked[request.method] += 1
        if self.code != 200:
            body = {"kind": "Status", "code": self.code, "message": "no"}
            return web.json_response(body, status=self.code, headers={"Retry-After": "30"})
        if "watch" in request.query:
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(
                b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}\n'
            )
            await asyncio.Event().wait()
        return web.json_response({"metadata": {"name": "a", "namespace": "n"}})

    async def start(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
async def servers():
    made = [Scripted() for _ in range(3)]
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.stop()


@pytest.fixture
async def client(servers):
    first, *further = (one.url for one in servers)
    async with Client(Config(server=first, further=tuple(further)), rng=Random(1)) as made:
        yield made


async def test_a_clients_requests_are_spread(client, servers):
    for _ in range(30):
        await client.get(ConfigMap, "a", "n")
    assert [one.asked["GET"] for one in servers] == [10, 10, 10]


async def test_no_request_fails_when_a_server_goes_and_it_is_used_again_when_it_is_back(
    client, servers
):
    await servers[1].stop()
    begun = SYSTEM.monotonic()
    for _ in range(20):
        await client.get(ConfigMap, "a", "n")
        await client.create(ConfigMap, {"metadata": {"name": "a"}}, "n")
    assert SYSTEM.monotonic() - begun < 15
    assert servers[1].asked == {}
    await servers[1].start()
    deadline = SYSTEM.monotonic() + 20
    while not servers[1].asked and SYSTEM.monotonic() < deadline:
        await client.get(ConfigMap, "a", "n")
        await SYSTEM.sleep(0.02)
    assert servers[1].asked["GET"]


async def test_a_question_one_server_cannot_answer_is_put_to_another_without_waiting(
    client, servers
):
    servers[0].code = 503
    begun = SYSTEM.monotonic()
    for _ in range(6):
        await client.get(ConfigMap, "a", "n")
    assert SYSTEM.monotonic() - begun < 10
    assert servers[0].asked["GET"]


async def test_a_write_whose_answer_was_lost_is_not_repeated_elsewhere(servers):
    async def vanish(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    gone = await asyncio.start_server(vanish, "127.0.0.1", 0)
    lost = f"http://127.0.0.1:{gone.sockets[0].getsockname()[1]}"
    async with (
        gone,
        Client(Config(server=lost, further=(servers[0].url,)), rng=Random(1)) as client,
    ):
        outcomes = []
        for _ in range(2):
            try:
                await client.create(ConfigMap, {"metadata": {"name": "a"}}, "n")
                outcomes.append("made")
            except status.GatewayTimeout:
                outcomes.append("unknown")
    assert sorted(outcomes) == ["made", "unknown"]
    assert servers[0].asked["POST"] == 1


async def test_a_watch_that_breaks_is_begun_again_at_another_server(client, servers):
    async def follow():
        async with aclosing(client.watch(ConfigMap, resource_version="1")) as events:
            async for event in events:
                return event.resource_version

    where = []
    for _ in range(3):
        before = [one.asked["GET"] for one in servers]
        assert await follow() == "5"
        now = [one.asked["GET"] for one in servers]
        where.append(next(n for n in range(3) if now[n] != before[n]))
    assert sorted(where) == [0, 1, 2]
    for number in (0, 1):
        await servers[number].stop()
    for _ in range(3):  # each failure leads on
        try:
            assert await follow() == "5"
            break
        except status.ServiceUnavailable:
            continue
    assert servers[2].asked["GET"] == 2
