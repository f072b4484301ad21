"""Service addresses and node ports are given out exactly once."""

import asyncio

SERVICES = "/api/v1/namespaces/demo/services"


def service(name: str, **spec) -> dict:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_a_service_gets_an_address(api):
    made = (await api.create(SERVICES, service("a"))).json

    assert made["spec"]["clusterIP"].startswith("10.96.")
    assert made["spec"]["clusterIPs"] == [made["spec"]["clusterIP"]]
    assert made["spec"]["ipFamilies"] == ["IPv4"]


async def test_a_chosen_address_is_taken_once(api):
    first = await api.create(SERVICES, service("a", clusterIP="10.96.7.7"))
    second = await api.create(SERVICES, service("b", clusterIP="10.96.7.7"))
    outside = await api.create(SERVICES, service("c", clusterIP="192.168.1.1"))

    assert first.code == 201
    assert (second.code, second.json["reason"]) == (422, "Invalid")
    assert "provided IP is already allocated" in second.message
    assert outside.code == 422


async def test_the_first_address_belongs_to_kubernetes(api):
    own = (await api.get("/api/v1/namespaces/default/services/kubernetes")).json
    assert own["spec"]["clusterIP"] == "10.96.0.1"

    assert (await api.create(SERVICES, service("a", clusterIP="10.96.0.1"))).code == 422
    dns = await api.create(SERVICES, service("dns", clusterIP="10.96.0.10"))
    assert dns.code == 201


async def test_a_deleted_service_gives_its_address_and_port_back(api):
    spec = {"clusterIP": "10.96.7.7", "type": "NodePort"}
    ports = [{"port": 80, "nodePort": 30123}]
    await api.create(SERVICES, service("a", **spec, ports=ports))
    await api.delete(f"{SERVICES}/a")

    assert (await api.create(SERVICES, service("b", **spec, ports=ports))).code == 201


async def test_refused_and_dry_creates_hold_nothing(api):
    address = {"clusterIP": "10.96.7.7"}
    await api.create(f"{SERVICES}?dryRun=All", service("dry", **address))
    broken = service("broken", **address, ports=[{"port": 0}])
    assert (await api.create(SERVICES, broken)).code == 422
    await api.create(SERVICES, service("a"))
    assert (await api.create(SERVICES, service("a", **address))).code == 409

    assert (await api.create(SERVICES, service("b", **address))).code == 201


async def test_concurrent_creates_never_share_an_address_or_a_port(api):
    replies = await asyncio.gather(
        *(api.create(SERVICES, service(f"s{i}", type="NodePort")) for i in range(60))
    )

    specs = [r.json["spec"] for r in replies]
    assert len({s["clusterIP"] for s in specs}) == 60
    assert len({s["ports"][0]["nodePort"] for s in specs}) == 60


async def test_of_many_who_want_one_port_one_gets_it(api):
    ports = [{"port": 80, "nodePort": 31000}]

    replies = await asyncio.gather(
        *(api.create(SERVICES, service(f"s{i}", type="NodePort", ports=ports)) for i in range(20))
    )

    assert sorted(r.code for r in replies) == [201] + [422] * 19


async def test_an_update_keeps_what_it_does_not_name(api):
    made = (await api.create(SERVICES, service("a", type="NodePort"))).json

    kept = (await api.put(f"{SERVICES}/a", service("a", type="NodePort"))).json

    assert kept["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert kept["spec"]["ports"] == made["spec"]["ports"]


async def test_changing_the_type_takes_and_gives_back_node_ports(api):
    await api.create(SERVICES, service("a"))

    opened = (await api.patch(f"{SERVICES}/a", {"spec": {"type": "NodePort"}})).json
    port = opened["spec"]["ports"][0]["nodePort"]
    closed = (await api.patch(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}})).json

    assert 30000 <= port <= 32767
    assert "nodePort" not in closed["spec"]["ports"][0]
    taken = service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    assert (await api.create(SERVICES, taken)).code == 201


async def test_a_node_port_outside_the_range_is_refused(api):
    ports = [{"port": 80, "nodePort": 80}]

    refused = await api.create(SERVICES, service("a", type="NodePort", ports=ports))

    assert refused.code == 422
    assert "The range of valid ports is 30000-32767" in refused.message


async def test_headless_and_external_services_have_no_address(api):
    headless = await api.create(SERVICES, service("h", clusterIP="None", selector={"a": "b"}))
    external = await api.create(
        SERVICES,
        {"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "a.b"}},
    )

    assert headless.json["spec"]["clusterIP"] == "None"
    assert "clusterIP" not in external.json["spec"]
