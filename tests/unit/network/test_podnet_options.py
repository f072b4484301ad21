from pathlib import Path

import pytest

from motley.network import podnet, sysctl

GOOD = {
    "pod_cidr": "10.244.3.0/24",
    "bridge": "motley0",
    "service_cidr": "10.96.0.0/16",
    "dns_address": "10.96.0.10",
    "cluster_cidr": "10.244.0.0/16",
}


def test_the_gateway_is_the_first_address_and_makes_the_bridges_mac():
    network = podnet.parse(**GOOD)
    assert str(network.gateway) == "10.244.3.1"
    assert network.mac == "0a:58:0a:f4:03:01"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pod_cidr": "10.244.3.1/24"}, "has host bits set"),
        ({"pod_cidr": "10.244.3.0/31"}, "no room"),
        ({"pod_cidr": "10.1.0.0/24"}, "not part of cluster CIDR"),
        ({"service_cidr": "10.244.9.0/24"}, "overlaps"),
        ({"dns_address": "10.97.0.10"}, "not in service CIDR"),
        ({"bridge": "a-name-that-is-too-long"}, "not an interface name"),
    ],
)
def test_options_that_contradict_each_other_are_refused_in_words(change, complaint):
    with pytest.raises(podnet.PodNetworkError, match=complaint):
        podnet.parse(**{**GOOD, **change})


def test_the_cni_configuration_leaves_masquerading_to_the_proxy():
    network = podnet.parse(**GOOD, mtu=1450)
    document = podnet.conflist(network, Path("/r/cni/ipam"), portmap=True)
    bridge, portmap = document["plugins"]
    assert (bridge["ipMasq"], bridge["hairpinMode"], bridge["isGateway"]) == (False, True, True)
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24", "gateway": "10.244.3.1"}]]
    assert bridge["mtu"] == 1450
    assert portmap["capabilities"] == {"portMappings": True}
    assert len(podnet.conflist(network, Path("/x"), portmap=False)["plugins"]) == 1


def test_an_interface_with_a_dot_keeps_it_in_a_parameters_path():
    name = f"net.ipv4.conf.{sysctl.escape('eth0.7')}.rp_filter"
    assert sysctl.path(name) == Path("/proc/sys/net/ipv4/conf/eth0.7/rp_filter")
    assert sysctl.read("net.no.such.thing") is None
    assert not sysctl.write("net.no.such.thing", "1", missing_ok=True)
