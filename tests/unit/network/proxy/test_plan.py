"""The service proxy's plan: Services in, changes of the table out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.network.proxy import layout, ruleset
from motley.network.proxy.endpoints import Target
from motley.network.proxy.fragments import Route, chain_name, fragment
from motley.network.proxy.layout import Settings
from motley.network.proxy.plan import Plan
from motley.network.proxy.ruleset import Applied, Element

HERE = Settings("node-1")


def service(name="web", ip="10.96.0.5", ports=None, **spec):
    ports = ports or [{"name": "http", "port": 80, "protocol": "TCP"}]
    return Service.of(
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"clusterIP": ip, "ports": ports, **spec},
        }
    )


def slice_of(endpoints, name="web", ports=None, number=0, **fields):
    ports = ports or [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return EndpointSlice.of(
        {
            "metadata": {"name": f"{name}-{number}", "namespace": "shop"},
            "endpoints": endpoints,
            "ports": ports,
            **fields,
        }
    )


def ready(ip, node="node-1", **conditions):
    return {"addresses": [ip], "conditions": {"ready": True, **conditions}, "nodeName": node}


def texts(found):
    return "\n".join(rule for chain in found.chains.values() for rule in chain.rules)


def test_a_service_becomes_one_map_element_and_one_chain_that_takes_turns():
    found = fragment(service(), [slice_of([ready("10.244.1.2"), ready("10.244.2.2")])], HERE)
    ((chain, content),) = found.chains.items()
    assert found.elements[Element("services", "10.96.0.5 . tcp . 80")] == f"goto {chain}"
    assert content.rules == (
        "numgen inc mod 2 0 meta l4proto tcp dnat to 10.244.1.2:8080",
        "meta l4proto tcp dnat to 10.244.2.2:8080",
    )


def test_many_endpoints_are_one_rule_with_a_map():
    many = [ready(f"10.244.1.{n}") for n in range(2, 22)]
    ((rule,),) = (c.rules for c in fragment(service(), [slice_of(many)], HERE).chains.values())
    assert rule.startswith("meta l4proto tcp dnat to numgen inc mod 20 map { 0 : 10.244.1.10 . ")


@pytest.mark.parametrize(
    "spec", [{"ip": "None"}, {"ip": ""}, {"type": "ExternalName", "externalName": "x.example"}]
)
def test_headless_and_external_name_services_have_no_rules(spec):
    found = fragment(service(**spec), [slice_of([ready("10.244.1.2")])], HERE)
    assert not found.chains
    assert not found.elements


def test_a_cluster_address_without_endpoints_needs_nothing_but_a_node_port_is_refused():
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}
    found = fragment(service(ports=[port], type="NodePort"), [], HERE)
    assert found.elements == {Element("refused-nodeports", "tcp . 30080"): "goto refuse"}
    assert not found.chains


def test_unready_endpoints_get_traffic_only_while_they_serve_and_nobody_else_does():
    dead = ready("10.244.1.2", ready=False)
    draining = ready("10.244.1.3", ready=False, serving=True, terminating=True)
    alive = ready("10.244.1.4")
    assert "10.244.1.3" not in texts(fragment(service(), [slice_of([dead, draining, alive])], HERE))
    assert "10.244.1.3" in texts(fragment(service(), [slice_of([dead, draining])], HERE))
    assert not fragment(service(), [slice_of([dead])], HERE).chains


def test_an_endpoint_in_two_slices_counts_once():
    slices = [slice_of([ready("10.244.1.2")], number=n) for n in range(2)]
    assert "numgen" not in texts(fragment(service(), slices, HERE))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "fd00::1",
        "1.2.3",
        "1.2.3.4 } ; drop",
    ],
)
def test_addresses_that_must_not_get_into_a_rule_do_not(address):
    assert not fragment(service(), [slice_of([ready(address)])], HERE).chains
    found = fragment(service(externalIPs=[address]), [slice_of([ready("10.244.1.2")])], HERE)
    assert address not in " ".join(element.key for element in found.elements)
    assert not fragment(service(ip=address), [slice_of([ready("10.244.1.2")])], HERE).elements


def test_names_never_carry_what_nft_would_read_as_syntax():
    name = chain_name("svc", 'a/b;{ drop }"\n' + "x" * 300)
    assert len(name) <= 120
    assert not set(name) & set(';{}" \n')
    assert chain_name("svc", "a" * 300 + "1") != chain_name("svc", "a" * 300 + "2")


def test_internal_policy_local_uses_this_nodes_endpoints_or_drops():
    near, far = ready("10.244.1.2"), ready("10.244.2.2", "node-2")
    local = service(internalTrafficPolicy="Local")
    assert "10.244.2.2" not in texts(fragment(local, [slice_of([near, far])], HERE))
    found = fragment(local, [slice_of([far])], HERE)
    assert found.elements[Element("refused", "10.96.0.5 . tcp . 80")] == "drop"


def test_affinity_has_a_set_per_endpoint_whose_name_carries_the_timeout():
    config = {"clientIP": {"timeoutSeconds": 60}}
    sticky = service(sessionAffinity="ClientIP", sessionAffinityConfig=config)
    found = fragment(sticky, [slice_of([ready("10.244.1.2"), ready("10.244.1.3")])], HERE)
    assert len(found.sets) == 2
    assert all(name.endswith("/60") and "timeout 60s" in s.body for name, s in found.sets.items())


def test_an_element_claimed_twice_goes_to_the_next_when_the_first_goes():
    plan = Plan(HERE)
    pods = [slice_of([ready("10.244.1.2")])]
    for name in ("b", "a"):
        claiming = service(name, ip=f"10.96.0.{ord(name)}", externalIPs=["192.0.2.1"])
        plan.put(claiming.key, claiming, pods)
    element = Element("services", "192.0.2.1 . tcp . 80")
    assert "shop/a" in plan.desired.elements[element]
    plan.put(Key("shop", "a"), None, [])
    assert "shop/b" in plan.desired.elements[element]
    assert Element("hairpin", "10.244.1.2 . 10.244.1.2") in plan.desired.elements
    plan.put(Key("shop", "b"), None, [])
    assert plan.desired == layout.base(HERE)


def test_a_udp_route_is_retired_when_its_endpoint_goes_and_only_then():
    port = {"name": "dns", "port": 53, "protocol": "UDP"}
    target = {"name": "dns", "port": 5353, "protocol": "UDP"}
    plan = Plan(HERE)
    udp = service(ports=[port])
    both = slice_of([ready("10.244.1.2"), ready("10.244.1.3")], ports=[target])
    plan.put(udp.key, udp, [both])
    assert plan.take_retired() == frozenset()
    plan.put(udp.key, udp, [slice_of([ready("10.244.1.3")], ports=[target])])
    assert plan.take_retired() == {Route("10.96.0.5", 53, Target("10.244.1.2", 5353))}
    assert plan.take_retired() == frozenset()


def test_nothing_to_do_renders_nothing_and_a_small_change_only_itself():
    plan = Plan(HERE)
    plan.commit(plan.changes())
    assert not plan.changes()
    web = service()
    plan.put(web.key, web, [slice_of([ready("10.244.1.2")])])
    lines = ruleset.render("t", plan.changes()).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["add", "chain"],
        ["add", "rule"],
        ["add", "element"],
        ["add", "element"],
    ]


def test_a_table_of_another_version_is_replaced_in_one_transaction():
    plan = Plan(HERE)
    plan.adopt(Applied(exists=True, sets={"services": "map:other"}, chains={"old": "x.y/1"}))
    changes = plan.changes()
    assert changes.rebuild
    text = ruleset.render("t", changes)
    assert text.startswith("add table ip t\ndelete table ip t\nadd table ip t\n")
    plan.commit(changes)
    assert not plan.changes()
    assert "old" not in plan.applied.chains


def test_a_chain_with_a_missing_rule_is_written_again():
    plan = Plan(HERE)
    plan.commit(plan.changes())
    plan.applied.chains["services"] = ""
    plan.adopt(plan.applied)
    assert list(plan.changes().set_rules) == ["services"]


addresses = st.integers(2, 9).map(lambda n: f"10.244.1.{n}")
endpoints = st.builds(
    lambda ip, ready_, serving, node: {
        "addresses": [ip],
        "conditions": {"ready": ready_, "serving": serving, "terminating": not ready_},
        "nodeName": node,
    },
    addresses,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["node-1", "node-2"]),
)
ports = st.lists(
    st.builds(
        lambda number, protocol, node_port: {
            "name": f"p{number}",
            "port": number,
            "protocol": protocol,
            "nodePort": node_port,
        },
        st.integers(80, 82),
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from([0, 30080, 30081]),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda p: p["name"],
)
states = st.one_of(
    st.none(),
    st.tuples(
        st.fixed_dictionaries(
            {
                "clusterIP": st.sampled_from(["10.96.0.5", "10.96.0.6", "None"]),
                "type": st.sampled_from(["ClusterIP", "NodePort"]),
                "ports": ports,
                "sessionAffinity": st.sampled_from(["None", "ClientIP"]),
                "internalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
                "externalTrafficPolicy": st.sampled_from(["Cluster", "Local"]),
                "externalIPs": st.lists(st.just("192.0.2.1"), max_size=1),
            }
        ),
        st.lists(endpoints, max_size=4),
    ),
)


def objects(name, state):
    if state is None:
        return None, []
    spec, found = state
    made = Service.of({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
    targets = [{**p, "port": p["port"] + 8000} for p in spec["ports"]]
    return made, [slice_of(found, name, targets)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), states, st.booleans()), max_size=12))
def test_changes_one_by_one_lead_to_the_table_built_from_scratch(history):
    incremental, last = Plan(HERE), {}
    for name, state, sync in history:
        last[name] = state
        incremental.put(Key("shop", name), *objects(name, state))
        if sync:
            incremental.commit(incremental.changes())
    incremental.commit(incremental.changes())
    scratch = Plan(HERE)
    for name, state in last.items():
        scratch.put(Key("shop", name), *objects(name, state))
    scratch.commit(scratch.changes())
    assert incremental.desired == scratch.desired
    assert incremental.applied == scratch.applied
    assert incremental.udp_routes() == scratch.udp_routes()
    incremental.adopt(incremental.applied)
    assert not incremental.changes()
    for rules in (chain.rules for chain in scratch.desired.chains.values()):
        assert rules, "a chain without rules could not be recognised again"
