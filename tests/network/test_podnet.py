"""The pod network in a real network namespace."""

import json

import pytest

pytestmark = pytest.mark.root


def state(node):
    return {
        "addresses": [
            f"{a['local']}/{a['prefixlen']}"
            for a in json.loads(node.run("ip", "-j", "-4", "addr", "show", "motley0").stdout)[0][
                "addr_info"
            ]
        ],
        "routes": node.run("ip", "route").stdout,
        "mac": json.loads(node.run("ip", "-j", "link", "show", "motley0").stdout)[0]["address"],
    }


def test_it_is_made_once_and_repaired_when_damaged(make_node):
    node = make_node()
    node.ensure()
    made = state(node)
    assert made["addresses"] == ["10.244.1.1/24", "10.96.0.10/32"]
    assert "10.96.0.0/16 dev motley0" in made["routes"]
    assert node.parameter("ipv4/ip_forward") == "1"
    node.ensure()
    assert state(node) == made
    node.run("ip", "addr", "flush", "dev", "motley0")
    node.run("ip", "addr", "add", "10.96.0.10/32", "dev", "motley0")
    node.run("ip", "link", "set", "motley0", "down")
    node.ensure()
    assert state(node) == made


def test_the_configuration_is_written_once_and_works_with_the_real_plugin(make_node):
    node = make_node()
    node.ensure()
    (path,) = node.directory.glob("cni/*.conflist")
    before = path.stat()
    node.ensure()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    pod = node.add_pod("a", server=False)
    assert pod.ip == "10.244.1.2"
    assert "default via 10.244.1.1" in pod.run("ip", "route").stdout
    mac = state(node)["mac"]
    node.add_pod("b", server=False)
    assert state(node)["mac"] == mac, "pods would lose their gateway"
    node.remove_pod("a")
    (left,) = node.directory.glob("cni/ipam/motley/10.244.1.*")
    assert left.name == "10.244.1.3"


def test_another_pod_cidr_is_refused_while_pods_run_and_taken_when_they_are_gone(make_node):
    node = make_node()
    node.ensure()
    node.add_pod("a", server=False)
    refused = node.ensure("10.244.2.0/24", check=False)
    assert "bridge motley0 has address 10.244.1.1/24 and 1 running pods" in refused.stderr
    assert state(node)["addresses"] == ["10.244.1.1/24", "10.96.0.10/32"]
    node.remove_pod("a")
    node.ensure("10.244.2.0/24")
    assert state(node)["addresses"] == ["10.244.2.1/24", "10.96.0.10/32"]


def test_an_interface_that_is_no_bridge_is_left_alone(make_node):
    node = make_node()
    node.run("ip", "link", "add", "motley0", "type", "veth", "peer", "name", "other")
    assert "exists and is no bridge" in node.ensure(check=False).stderr
    assert "motley0" in node.run("ip", "-o", "link").stdout


def test_removal_takes_the_pods_interfaces_along_and_may_be_repeated(make_node):
    node = make_node()
    node.ensure()
    node.add_pod("a", server=False)
    for _ in range(2):
        node.podnet("podnet.remove(bridge='motley0')")
        assert "veth" not in node.run("ip", "-o", "link").stdout
        assert node.run("ip", "route").stdout == ""
