"""Which API servers live, and where the `kubernetes` Service leads."""

import asyncio
from random import Random

import pytest

from motley.apiserver import document, server
from motley.apiserver.presence import DURATION_S, Observed, Presence, Server, slices
from motley.lib.clock import SYSTEM
from motley.store.contract import InDoubt
from motley.store.memory import MemoryStore

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
ONE, TWO, THREE = Server("10.0.0.1", 6443), Server("10.0.0.2", 6443), Server("10.0.0.1", 6444)


class Hand:
    """A clock that is moved by hand; who sleeps waits until it has moved."""

    def __init__(self):
        self.time = 1000.0
        self._moved = asyncio.Event()

    def now(self):
        return self.time

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        until = self.time + seconds
        while self.time < until:
            await self._moved.wait()

    async def move(self, seconds):
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()


@pytest.fixture
async def api(serve):
    async with serve(MemoryStore(document.stamp)) as made:
        yield made


def shown(found):
    return {
        name: ([e["addresses"][0] for e in one["endpoints"]], one["ports"][0]["port"])
        for name, one in found.items()
    }


def test_servers_with_one_port_share_a_slice_and_others_have_their_own():
    assert shown(slices([TWO, ONE])) == {"kubernetes": (["10.0.0.1", "10.0.0.2"], 6443)}
    assert shown(slices([ONE, TWO, THREE])) == {
        "kubernetes": (["10.0.0.1", "10.0.0.2"], 6443),
        "kubernetes-6444": (["10.0.0.1"], 6444),
    }
    assert shown(slices([THREE])) == {"kubernetes": (["10.0.0.1"], 6444)}


def test_a_server_on_loopback_is_no_endpoint_and_families_do_not_mix():
    assert slices([Server("127.0.0.1", 6443)]) == {}
    both = slices([ONE, Server("fd00::1", 6443)])
    assert {name: one["addressType"] for name, one in both.items()} == {
        "kubernetes": "IPv4",
        "kubernetes-6443-ipv6": "IPv6",
    }


def test_a_lease_that_does_not_change_is_that_of_a_dead_server_by_our_own_clock():
    observed = Observed()
    # What it says of the time is of another machine's clock, and is only compared with itself.
    assert observed.living({"a": "1970", "b": "2999"}, 0.0) == {"a", "b"}
    assert observed.living({"a": "1971", "b": "2999"}, DURATION_S) == {"a", "b"}
    assert observed.living({"a": "1971", "b": "2999"}, DURATION_S + 1) == {"a"}
    assert observed.living({"a": "1971", "b": "3000"}, DURATION_S + 2) == {"a", "b"}
    assert observed.living({}, DURATION_S + 3) == set()


async def endpoints(api):
    listed = (await api.get(SLICES)).json["items"]
    found = {
        f"{endpoint['addresses'][0]}:{one['ports'][0]['port']}"
        for one in listed
        for endpoint in one.get("endpoints") or ()
    }
    if any(one["metadata"]["name"] == "extra" for one in listed):
        return found
    # Older clients look at Endpoints, which say the same.
    subsets = (await api.get(ENDPOINTS)).json.get("subsets") or ()
    assert found == {
        f"{address['ip']}:{subset['ports'][0]['port']}"
        for subset in subsets
        for address in subset["addresses"]
    }
    return found


async def eventually(check):
    for _ in range(500):
        if await check():
            return
        await SYSTEM.sleep(0.002)
    raise AssertionError("not in time")


async def _nothing():
    return None


async def test_a_server_that_dies_leaves_the_service_and_one_that_stops_does_so_at_once(api):
    hand = Hand()
    writer = api.app._core.writer
    servers = {one: Presence(writer, one, hand) for one in (ONE, TWO, THREE)}

    async def lead_to(*wanted):
        await hand.move(0.6)
        return await endpoints(api) == {str(one) for one in wanted}

    async def end(one):
        running[one].cancel()
        await asyncio.wait([running[one]])

    async with asyncio.TaskGroup() as group:
        running = {one: group.create_task(made.run()) for one, made in servers.items()}
        await eventually(lambda: lead_to(ONE, TWO, THREE))
        assert len((await api.get(LEASES)).json["items"]) == 3

        servers[TWO]._leave = _nothing  # it dies without a word
        await end(TWO)
        assert str(TWO) in await endpoints(api)
        await eventually(lambda: lead_to(ONE, THREE))
        assert hand.time > 1000.0 + DURATION_S
        assert len((await api.get(LEASES)).json["items"]) == 2

        await end(THREE)
        assert await endpoints(api) == {str(ONE)}
        kept = (await api.get(SLICES)).json["items"]
        assert [one["metadata"]["name"] for one in kept] == ["kubernetes"]
        await end(ONE)
        assert await endpoints(api) == set()


async def test_slices_that_users_added_are_left_alone(api):
    own = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "extra", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"]}],
        "ports": [{"name": "https", "port": 6443}],
    }
    assert (await api.create(SLICES, own)).code == 201
    await Presence(api.app._core.writer, ONE, Hand()).reconcile()
    assert "10.0.0.9:6443" in await endpoints(api)


class Hesitant:
    """A store whose answers take a while, each another one: whoever shares it meets others."""

    def __init__(self, store, rng):
        self._store = store
        self._rng = rng

    def __getattr__(self, name):
        asked = getattr(self._store, name)
        if name not in ("get", "range", "commit"):
            return asked

        async def slowly(*arguments, **options):
            await SYSTEM.sleep(self._rng.random() * 0.003)
            answer = await asked(*arguments, **options)
            await SYSTEM.sleep(self._rng.random() * 0.003)
            return answer

        return slowly


@pytest.mark.parametrize("seed", [0, 1])
async def test_servers_that_start_together_over_an_empty_store_do_not_stumble(tmp_path, seed):
    store, together = MemoryStore(document.stamp), asyncio.Barrier(3)

    async def serve_one(number):
        config = server.Config(
            tmp_path, store="etcd", advertise_address="10.0.0.1", port=6443 + number
        )
        slow = Hesitant(store, Random(seed * 10 + number))
        async with server.assemble(config, slow, None, None, rng=Random(seed * 10 + number)):
            await together.wait()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(serve_one(number))
    await store.close()


async def test_a_write_whose_outcome_is_unknown_is_not_asked_for_again_by_itself(api, monkeypatch):
    async def lost(*_):
        raise InDoubt("etcd did not answer; the transaction may have happened")

    monkeypatch.setattr(api.app._core.store, "commit", lost)
    answer = await api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
    assert (answer.code, answer.json["reason"]) == (504, "Timeout")
    assert "retry-after" not in answer.headers


async def test_who_finds_everything_as_it_should_be_writes_nothing(api):
    writer = api.app._core.writer
    one = Presence(writer, ONE, Hand())
    await one._renew()
    await one.reconcile()
    before = await writer.store.revision()

    await one.reconcile()

    assert await endpoints(api) == {str(ONE)}
    assert await writer.store.revision() == before
