"""Service addresses and node ports over one store: several servers, ServiceCIDRs, repairs."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.apiserver import document
from motley.apiserver.allocation import ledger, ranges, repair
from motley.apiserver.allocation.ranges import Numbers
from motley.lib.clock import SYSTEM
from motley.store.contract import Delete
from motley.store.memory import MemoryStore

SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def service(name: str, **spec) -> dict:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


@pytest.fixture
def store():
    return MemoryStore(document.stamp)


@pytest.fixture
async def two(store, serve):
    """Two servers over one store, with few addresses and ports: they meet all the time."""
    options = {"service_cidr": "10.96.0.0/26", "node_ports": "30000-30049"}
    async with serve(store, **options) as one, serve(store, **options) as other:
        yield one, other


async def held(api):
    """What is held, as sets of texts: addresses, node ports."""
    listed = (await api.get(ADDRESSES)).json["items"]
    ports = (await api.store.range(ledger.PORTS)).records
    return (
        {item["metadata"]["name"] for item in listed},
        {int(record.key.rpartition("/")[2]) for record in ports},
    )


async def in_use(api):
    """What Services say they have."""
    specs = [s["spec"] for s in (await api.get("/api/v1/services")).json["items"]]
    addresses = [a for s in specs for a in s.get("clusterIPs") or () if a != "None"]
    ports = [p["nodePort"] for s in specs for p in s.get("ports") or () if p.get("nodePort")]
    ports += [s["healthCheckNodePort"] for s in specs if s.get("healthCheckNodePort")]
    assert len(set(addresses)) == len(addresses)
    assert len(set(ports)) == len(ports)
    return set(addresses), set(ports)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 70))
def test_every_number_is_tried_once_and_the_low_ones_last(seed, size, band):
    numbers = Numbers(100, 100 + size - 1, band, frozenset({100}))

    tried = list(numbers.candidates(Random(seed)))

    assert sorted(tried) == list(range(101, 100 + size))
    above = [n for n in tried if n >= 100 + band]
    assert tried[: len(above)] == above


def test_ranges_are_checked():
    for wrong in ("10.96.0.0/30", "fd00::/64", "nonsense"):
        with pytest.raises(ValueError):
            ranges.addresses(wrong, is_default=True)
    for wrong in ("30000", "5-1", "1-99999", "a-b"):
        with pytest.raises(ValueError):
            ranges.node_ports(wrong)


async def test_an_address_is_an_object_that_names_its_service(two):
    one, other = two
    made = (await one.create(SERVICES, service("a"))).json

    found = (await other.get(f"{ADDRESSES}/{made['spec']['clusterIP']}")).json
    assert found["spec"]["parentRef"] == {
        "resource": "services",
        "namespace": "default",
        "name": "a",
    }
    assert found["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    await other.delete(f"{SERVICES}/a")
    assert (await one.get(f"{ADDRESSES}/{made['spec']['clusterIP']}")).code == 404


async def test_two_servers_give_out_everything_once_and_then_say_that_nothing_is_left(two):
    replies = await asyncio.gather(
        *(two[i % 2].create(SERVICES, service(f"s{i}", type="NodePort")) for i in range(70))
    )

    made = [r for r in replies if r.code == 201]
    refused = [r for r in replies if r.code != 201]
    assert len(made) == 50  # as many as there are node ports; of 62 addresses two are reserved
    assert {(r.code, "range is full" in r.message) for r in refused} == {(500, True)}
    assert await held(two[0]) == await in_use(two[1])


async def test_of_many_who_want_one_address_through_two_servers_one_gets_it(two):
    wanted = {"clusterIP": "10.96.0.40"}
    replies = await asyncio.gather(
        *(two[i % 2].create(SERVICES, service(f"s{i}", **wanted)) for i in range(20))
    )

    assert sorted(r.code for r in replies) == [201] + [422] * 19
    assert all("already allocated" in r.message for r in replies if r.code == 422)


async def test_a_type_takes_what_it_needs_and_gives_back_the_rest(two):
    one, other = two
    await one.create(SERVICES, service("a"))
    for number, wanted in enumerate(
        [
            {"type": "NodePort"},
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
            {"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"},
            {"type": "ExternalName", "externalName": "a.example"},
            {"type": "ClusterIP", "externalName": None},
            {"type": "NodePort"},
            {"type": "ClusterIP"},
        ]
    ):
        reply = await two[number % 2].patch(f"{SERVICES}/a", {"spec": wanted})
        assert reply.code == 200, reply.message
        addresses, ports = await held(one)
        assert (addresses, ports) == await in_use(other)
        has = {"NodePort": 1, "LoadBalancer": 1}.get(wanted["type"], 0)
        has += wanted.get("externalTrafficPolicy") == "Local"
        assert len(ports) == has
        assert len(addresses) == (1 if wanted["type"] == "ExternalName" else 2)


async def test_headless_services_and_dry_runs_hold_nothing(two):
    one, other = two
    before = await held(one)
    await one.create(SERVICES, service("h", clusterIP="None"))
    dry = service("d", type="NodePort", clusterIP="10.96.0.41")
    assert (await one.create(f"{SERVICES}?dryRun=All", dry)).code == 201
    await one.create(SERVICES, service("a"))
    await one.patch(f"{SERVICES}/a?dryRun=All", {"spec": {"type": "NodePort"}})
    await one.delete(f"{SERVICES}/a?dryRun=All")
    addresses, ports = await held(other)
    assert len(addresses) == len(before[0]) + 1
    assert ports == set()


async def test_a_service_with_a_finalizer_holds_its_address_until_it_is_gone(two):
    one, other = two
    new = service("a", type="NodePort")
    new["metadata"]["finalizers"] = ["example.com/wait"]
    made = (await one.create(SERVICES, new)).json
    await other.delete(f"{SERVICES}/a")
    assert made["spec"]["clusterIP"] in (await held(one))[0]

    await one.patch(f"{SERVICES}/a", {"metadata": {"finalizers": None}})

    assert (await one.get(f"{SERVICES}/a")).code == 404
    assert await held(one) == ({"10.96.0.1"}, set())


async def test_a_health_check_port_is_given_kept_and_refused(two):
    one, _ = two
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    made = (await one.create(SERVICES, service("a", **local))).json["spec"]
    assert made["healthCheckNodePort"] != made["ports"][0]["nodePort"]
    kept = (await one.put(f"{SERVICES}/a", service("a", **local))).json["spec"]
    assert kept["healthCheckNodePort"] == made["healthCheckNodePort"]

    changed = {"spec": {"healthCheckNodePort": 30000 + (made["healthCheckNodePort"] == 30000)}}
    refused = await one.patch(f"{SERVICES}/a", changed)
    assert (refused.code, "field is immutable" in refused.message) == (422, True)
    clash = service("b", **local, healthCheckNodePort=made["healthCheckNodePort"])
    assert "provided port is already allocated" in (await one.create(SERVICES, clash)).message


async def test_a_balancer_without_node_ports_holds_those_it_asks_for(two):
    one, _ = two
    without = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30030}]
    made = (await one.create(SERVICES, service("a", **without, ports=ports))).json["spec"]

    assert [p.get("nodePort") for p in made["ports"]] == [None, 30030]
    assert (await held(one))[1] == {30030}


async def test_too_many_node_ports_are_refused_with_words(store, serve):
    async with serve(store) as api:
        ports = [{"name": f"p{n}", "port": n} for n in range(1, 121)]
        reply = await api.create(SERVICES, service("a", type="NodePort", ports=ports))
        assert (reply.code, "at most 112 node ports" in reply.message) == (422, True)
        reply = await api.create(SERVICES, service("a", type="NodePort", ports=ports[:100]))
        assert reply.code == 201
        assert (await api.delete(f"{SERVICES}/a")).code == 200
        assert (await held(api))[1] == set()


async def test_the_default_range_is_a_service_cidr_that_is_ready(two):
    found = (await two[0].get(f"{CIDRS}/kubernetes")).json

    assert found["spec"]["cidrs"] == ["10.96.0.0/26"]
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [("Ready", "True")]


async def test_a_further_service_cidr_gives_addresses_while_it_is_ready(two):
    one, other = two
    wanted = service("a", clusterIP="10.6.0.1")
    refused = await one.create(SERVICES, wanted)
    assert "the provided network does not match the current range" in refused.message
    new = {"metadata": {"name": "more", "finalizers": ["example.com/x"]}}
    await one.create(CIDRS, {**new, "spec": {"cidrs": ["10.6.0.0/24"]}})
    assert (await one.create(SERVICES, wanted)).code == 422  # nobody has said that it is ready

    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "",
        "lastTransitionTime": "2026-11-16T00:00:00Z",
    }
    said = await one.patch(f"{CIDRS}/more/status", {"status": {"conditions": [ready]}})
    assert said.code == 200, said.message
    assert (await one.create(SERVICES, wanted)).code == 201
    for number in range(70):  # more than the default range has
        made = await one.create(SERVICES, service(f"s{number}"))
        assert made.code == 201, made.message
    assert made.json["spec"]["clusterIP"].startswith("10.6.0.")
    assert await held(one) == await in_use(other)

    await one.delete(f"{CIDRS}/more")
    assert (await one.create(SERVICES, service("b", clusterIP="10.6.0.2"))).code == 422


async def test_repair_gives_and_takes_what_somebody_lost_or_left(two):
    one, _ = two
    ports = [{"port": 80, "nodePort": 30020}]
    new = service("a", type="NodePort", clusterIP="10.96.0.40", ports=ports)
    assert (await one.create(SERVICES, new)).code == 201
    await one.delete(f"{ADDRESSES}/10.96.0.40")
    await one.store.commit([Delete(ledger.port_key(30020))])
    book = ledger.Ledger(SYSTEM, Random(1))
    gone = ("default", "gone")
    await one.store.commit([book.address("10.96.0.50", gone), book.port(30010, gone)])
    own = {"metadata": {"name": "10.96.0.51"}, "spec": {"parentRef": {"resource": "x"}}}
    own["spec"]["parentRef"]["name"] = "mine"
    assert (await one.create(ADDRESSES, own)).code == 201

    writer = one.app._core.writer
    assert await repair.run(writer, book) == 4
    assert await repair.run(writer, book) == 0

    assert await in_use(one) == ({"10.96.0.1", "10.96.0.40"}, {30020})
    assert await held(one) == ({"10.96.0.1", "10.96.0.40", "10.96.0.51"}, {30020})
    events = (await one.get("/api/v1/namespaces/default/events")).json["items"]
    told = {(e["reason"], e["involvedObject"]["name"]) for e in events}
    assert told == {("ClusterIPNotAllocated", "a"), ("PortNotAllocated", "a")}


async def test_repair_corrects_a_record_that_names_the_wrong_service(two):
    one, _ = two
    made = (await one.create(SERVICES, service("a"))).json["spec"]
    book = ledger.Ledger(SYSTEM, Random(1))
    record = await one.store.get(book.address_key(made["clusterIP"]))
    wrong = book.address(made["clusterIP"], ("default", "b"), record.revision)
    await one.store.commit([wrong])

    assert await repair.run(one.app._core.writer, book) == 1

    fixed = (await one.get(f"{ADDRESSES}/{made['clusterIP']}")).json
    assert fixed["spec"]["parentRef"]["name"] == "a"


async def test_a_service_whose_record_was_deleted_by_hand_can_be_deleted(two):
    one, other = two
    made = (await one.create(SERVICES, service("a"))).json["spec"]
    await other.delete(f"{ADDRESSES}/{made['clusterIP']}")

    assert (await one.delete(f"{SERVICES}/a")).code == 200


async def test_services_from_before_there_were_records_are_recorded_at_the_start(store, serve):
    async with serve(store) as api:
        await api.create(SERVICES, service("a", clusterIP="10.96.7.7", type="NodePort"))
        for prefix in (ledger.PORTS, "/registry/networking.k8s.io/ipaddresses/"):
            records = (await store.range(prefix)).records
            await store.commit([Delete(r.key) for r in records])
    async with serve(store) as api:
        assert await held(api) == await in_use(api)
        refused = await api.create(SERVICES, service("b", clusterIP="10.96.7.7"))
        assert "provided IP is already allocated" in refused.message
