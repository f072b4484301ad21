"""Topology hints, as the EndpointSlice controller gives them."""

import collections

import pytest

from motley.api.views.core import Endpoint, Node, Service
from motley.controllers import hints


def node(name, zone, cpu="4", ready="True", **labels):
    found = {hints.ZONE: zone, **labels} if zone else labels
    return Node.of(
        {
            "metadata": {"name": name, "labels": found},
            "status": {
                "allocatable": {"cpu": cpu},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }
    )


def endpoints(*zones):
    return [
        Endpoint(addresses=[f"10.244.0.{i}"], zone=zone, node_name=f"node-{zone}")
        for i, zone in enumerate(zones)
    ]


def service(distribution=None, **annotations):
    spec = {"trafficDistribution": distribution} if distribution else {}
    return Service.of({"metadata": {"name": "web", "annotations": annotations}, "spec": spec})


def given(made, found, nodes=()):
    for each in found:
        if each.conditions.ready is None:
            each.conditions.ready = True
    hints.give(made, found, hints.zone_ratios(nodes))
    return [[h.name for h in e.hints.for_zones] if e.hints else None for e in found]


AUTO = {"service.kubernetes.io/topology-mode": "Auto"}
OLD = {"service.kubernetes.io/topology-aware-hints": "auto"}


@pytest.mark.parametrize("how", ["PreferClose", "PreferSameZone", "PreferSameNode"])
def test_a_distribution_means_every_endpoint_for_its_own_place(how):
    found = endpoints("a", "b", "")
    assert given(service(how), found)[:2] == [["a"], ["b"]]
    nodes = [[n.name for n in e.hints.for_nodes] if e.hints else [] for e in found]
    own = [["node-a"], ["node-b"], ["node-"]] if how == "PreferSameNode" else [[], [], []]
    assert nodes == own


def test_without_a_wish_there_are_no_hints_and_unready_endpoints_never_have_one():
    assert given(service(), endpoints("a", "b")) == [None, None]
    found = endpoints("a", "b")
    found[1].conditions.ready = False
    assert given(service("PreferClose"), found) == [["a"], None]


@pytest.mark.parametrize("annotation", [AUTO, OLD])
def test_auto_shares_endpoints_out_by_the_zones_cpus(annotation):
    nodes = [node("1", "a"), node("2", "a"), node("3", "b")]
    found = given(service(**annotation), endpoints("a", "a", "a", "b", "b", "b"), nodes)
    assert collections.Counter(z for (z,) in found) == {"a": 4, "b": 2}
    assert found[:3] == [["a"]] * 3, "only as many move as must"


@pytest.mark.parametrize(
    ("zones", "nodes"),
    [
        ("ab", [node("1", "a")]),  # one zone
        ("a", [node("1", "a"), node("2", "b")]),  # fewer endpoints than zones
        ("ab", [node("1", "a"), node("2", "b"), node("3", "")]),  # a node without a zone
        ("ab", [node("1", "a"), node("2", "b", cpu="0")]),
        ("ab", [node("1", "a", "9"), node("2", "b", "1")]),  # one would be overloaded
        (["a", ""], [node("1", "a"), node("2", "b")]),  # an endpoint without a zone
    ],
)
def test_auto_gives_no_hints_where_they_would_do_harm(zones, nodes):
    assert given(service(**AUTO), endpoints(*zones), nodes) == [None] * len(zones)


def test_nodes_that_take_no_pods_do_not_count():
    control = node("4", "c", **{"node-role.kubernetes.io/control-plane": ""})
    nodes = [node("1", "a"), node("2", "b"), node("3", "c", ready="False"), control]
    assert given(service(**AUTO), endpoints("a", "b"), nodes) == [["a"], ["b"]]
