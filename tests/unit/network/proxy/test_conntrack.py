from ipaddress import IPv4Network

from motley.network.proxy.conntrack import Flow, stale
from motley.network.proxy.endpoints import Target
from motley.network.proxy.fragments import Route

SERVICES = IPv4Network("10.96.0.0/16")
POD, GONE = Target("10.244.1.2", 53), Target("10.244.1.3", 53)


def flow(destination, answering):
    return Flow(Target("10.244.1.9", 40000), destination, answering)


def test_only_translated_flows_without_a_current_route_are_stale():
    vip, node = Target("10.96.0.10", 53), Target("192.0.2.1", 30053)
    current = {Route("10.96.0.10", 53, POD), Route("", 30053, POD)}
    retired = {Route("", 30053, GONE)}
    kept = [
        flow(vip, vip),
        flow(vip, POD),
        flow(node, POD),
        flow(Target("192.0.2.1", 30054), GONE),
    ]
    assert stale([*kept, flow(vip, GONE), flow(node, GONE)], current, retired, SERVICES) == [
        flow(vip, GONE),
        flow(node, GONE),
    ]


def test_a_service_address_whose_service_is_gone_is_stale_even_unannounced():
    lost = flow(Target("10.96.7.7", 53), POD)
    assert stale([lost], set(), set(), SERVICES) == [lost]
