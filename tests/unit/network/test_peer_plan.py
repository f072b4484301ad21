"""Which way packets take to other nodes' pods, from values alone."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from motley.api.views.core import Node
from motley.network import peers
from motley.network.peers import Facts, Mode, Remote, Route, Underlay

CLUSTER = IPv4Network("10.244.0.0/16")
UNDERLAY = Underlay(IPv4Interface("10.0.0.1/24"), 2, "eth0", 1500)
OWN = Facts("node-1", "10.244.0.0/24", "10.0.0.1")
NEAR = Facts("node-2", "10.244.1.0/24", "10.0.0.2")
FAR = Facts("node-3", "10.244.2.0/24", "10.9.0.3")
NEAR_ROUTE = Route(IPv4Network("10.244.1.0/24"), IPv4Address("10.0.0.2"))
FAR_ROUTE = Route(IPv4Network("10.244.2.0/24"), IPv4Address("10.244.2.0"), tunnelled=True)
FAR_REMOTE = Remote(IPv4Address("10.244.2.0"), "0e:58:0a:f4:02:00", IPv4Address("10.9.0.3"))


def plan(*known, mode=Mode.AUTO, underlay=UNDERLAY):
    return peers.plan(known, name="node-1", cluster=CLUSTER, mode=mode, underlay=underlay)


def test_a_node_of_our_subnet_gets_a_route_and_a_far_one_the_tunnel():
    found = plan(OWN, NEAR, FAR)
    assert found.routes == {NEAR_ROUTE, FAR_ROUTE}
    assert found.remotes == {FAR_REMOTE}
    assert found.skipped == ()


def test_routes_alone_leave_a_far_node_out_and_say_so():
    found = plan(OWN, NEAR, FAR, mode=Mode.ROUTES)
    assert found.routes == {NEAR_ROUTE}
    assert found.remotes == frozenset()
    assert "node-3: 10.9.0.3 is not in 10.0.0.0/24" in found.skipped[0]


def test_the_tunnel_alone_takes_everybody():
    found = plan(OWN, NEAR, FAR, mode=Mode.VXLAN)
    assert all(route.tunnelled for route in found.routes)
    assert {remote.node for remote in found.remotes} == {
        IPv4Address("10.0.0.2"),
        IPv4Address("10.9.0.3"),
    }


def test_without_a_range_of_our_own_nothing_is_decided():
    assert plan(NEAR, FAR) is None
    assert plan(OWN._replace(subnet=""), NEAR) is None
    assert plan(OWN._replace(address=""), NEAR) is None


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (NEAR._replace(subnet="192.168.0.0/24"), "is not part of 10.244.0.0/16"),
        (NEAR._replace(subnet="fd00::/64"), "is not part of"),
        (NEAR._replace(subnet="10.244.0.0/25"), "another node's, too"),
        (NEAR._replace(address="fd00::1"), "no IPv4 address"),
        (NEAR._replace(address="10.0.0.1"), "has this node's address"),
    ],
)
def test_a_node_object_that_makes_no_sense_draws_no_traffic(other, reason):
    found = plan(OWN, other, FAR)
    assert found.routes == {FAR_ROUTE}
    assert reason in found.skipped[0]


def test_of_two_nodes_with_one_range_the_first_by_name_has_it():
    found = plan(OWN, NEAR, NEAR._replace(name="node-9", address="10.0.0.9"))
    assert found.routes == {NEAR_ROUTE}
    assert found.skipped == ("node-9: podCIDR 10.244.1.0/24 is another node's, too",)


@pytest.mark.parametrize("missing", ["subnet", "address"])
def test_a_node_that_is_about_to_come_is_no_fault(missing):
    found = plan(OWN, NEAR._replace(**{missing: ""}))
    assert (found.routes, found.skipped) == (frozenset(), ())


def test_a_node_without_a_machine_has_no_pods_to_reach():
    """It has the address of whoever answers for it, which may be our own."""
    node = {
        "metadata": {"name": "slurm-a", "labels": {"type": "virtual-kubelet"}},
        "spec": {"podCIDR": "10.244.9.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }
    found = plan(OWN, peers.facts(Node.of(node)))
    assert (found.routes, found.skipped) == (frozenset(), ())


def test_two_nodes_choose_the_same_way_for_each_other():
    """Also where one has a second device in the other's subnet: only named addresses count."""
    there = peers.plan(
        (OWN, FAR),
        name="node-3",
        cluster=CLUSTER,
        mode=Mode.AUTO,
        underlay=Underlay(IPv4Interface("10.9.0.3/16"), 2, "eth0", 1500),
    )
    assert [route.tunnelled for route in there.routes] == [True]
    assert [route.tunnelled for route in plan(OWN, FAR).routes] == [True]


@pytest.mark.parametrize(
    ("mode", "mtu"), [(Mode.AUTO, 1450), (Mode.VXLAN, 1450), (Mode.ROUTES, 1500), (Mode.NONE, None)]
)
def test_pods_leave_room_for_the_tunnels_headers_where_one_may_come(mode, mtu):
    assert peers.pod_mtu(mode, UNDERLAY) == mtu
    assert peers.pod_mtu(mode, None) is None
