"""Pods of two nodes talk: nodes are namespaces on one segment, or with a router between them."""

import json
import sys

import pytest

pytestmark = pytest.mark.root

NAMES = ("node-1", "node-2")


def wire(one, other, addresses):
    """A cable between two namespaces, with an address at each end."""
    ends = (f"u{other.prefix[-8:]}", f"u{one.prefix[-8:]}")
    line = f"ip link add {ends[0]} type veth peer name {ends[1]} netns {other.name}"
    one.run(*line.split())
    for node, end, address in zip((one, other), ends, addresses, strict=True):
        node.run("ip", "addr", "add", address, "dev", end)
        node.run("ip", "link", "set", end, "up")


class Pair:
    """Two nodes with a pod each, and what their Node objects would say."""

    def __init__(self, make_node, addresses):
        self.nodes = [make_node(number) for number in (1, 2)]
        self.facts = [
            (name, f"10.244.{number}.0/24", address)
            for number, (name, address) in enumerate(zip(NAMES, addresses, strict=True), 1)
        ]
        for node, (_, subnet, _) in zip(self.nodes, self.facts, strict=True):
            node.ensure(subnet)
        self.pods = [node.add_pod(f"p{n}") for n, node in enumerate(self.nodes, 1)]
        self.agents = [
            node.spawn(node.python("routes.py", name))
            for node, name in zip(self.nodes, NAMES, strict=True)
        ]

    def apply(self, mode, facts=None):
        asked = json.dumps({"mode": mode, "nodes": facts or self.facts})
        return [json.loads(agent.say(asked)) for agent in self.agents]

    def ours(self):
        return self.nodes[0].run("ip", "route", "show", "proto", "77").stdout.strip()

    def assert_pods_talk(self):
        first, second = self.pods
        assert first.http(second.ip, 8080) == [["p2", first.ip]]
        assert second.http(first.ip, 8080) == [["p1", second.ip]]
        # The nodes themselves reach far pods, too, with an address that finds the way back.
        assert self.nodes[0].http(second.ip, 8080)[0][0] == "p2"


@pytest.fixture
def near(make_node):
    pair = Pair(make_node, ("10.0.0.1", "10.0.0.2"))
    wire(*pair.nodes, ("10.0.0.1/24", "10.0.0.2/24"))
    return pair


@pytest.fixture
def far(make_node):
    pair = Pair(make_node, ("10.0.0.1", "10.9.0.2"))
    router = make_node()
    router.parameter("ipv4/ip_forward", "1")
    for node, mine, yours in (
        (pair.nodes[0], "10.0.0.1", "10.0.0.254"),
        (pair.nodes[1], "10.9.0.2", "10.9.0.254"),
    ):
        wire(node, router, (f"{mine}/24", f"{yours}/24"))
        node.run("ip", "route", "add", "default", "via", yours)
    return pair


def tunnel(node):
    (link,) = json.loads(node.run("ip", "-j", "-d", "link", "show", "vx-motley0").stdout)
    return link


def entries(node):
    """The far ends that a node knows: forwarding and neighbour entries."""
    forwarding = node.run("bridge", "fdb", "show", "dev", "vx-motley0").stdout
    neighbours = node.run("ip", "neigh", "show", "dev", "vx-motley0").stdout
    return sorted(line.split()[0] + " " + line.split()[2] for line in forwarding.splitlines()) + [
        line.split()[0] + " " + line.split()[2] for line in neighbours.splitlines()
    ]


def test_neighbours_get_plain_routes_that_follow_the_nodes(near):
    first = near.nodes[0]
    first.run("ip", "route", "add", "10.244.7.0/24", "via", "10.0.0.2", "proto", "static")
    first.parameter("ipv4/conf/all/rp_filter", "1")
    assert near.apply("auto") == [[], []]
    assert near.ours().startswith("10.244.2.0/24 via 10.0.0.2 dev u")
    near.assert_pods_talk()
    assert "vx-motley0" not in first.run("ip", "-o", "link").stdout
    # The other node moves.
    device = f"u{first.prefix[-8:]}"
    near.nodes[1].run("ip", "addr", "del", "10.0.0.2/24", "dev", device)
    near.nodes[1].run("ip", "addr", "add", "10.0.0.9/24", "dev", device)
    near.apply("auto", [near.facts[0], ("node-2", "10.244.2.0/24", "10.0.0.9")])
    assert near.ours().startswith("10.244.2.0/24 via 10.0.0.9 dev u")
    near.assert_pods_talk()
    # The other node is deleted: its route goes, the administrator's stays.
    near.apply("auto", [near.facts[0], ("node-2", "", "")])
    assert near.ours() == ""
    assert "10.244.7.0/24" in first.run("ip", "route").stdout


def test_nodes_behind_a_router_get_a_tunnel_that_follows_the_nodes(far):
    assert far.apply("routes")[0] == [
        "node-2: 10.9.0.2 is not in 10.0.0.0/24, and mode routes has no tunnel"
    ]
    assert far.apply("auto") == [[], []]
    first = far.nodes[0]
    assert far.ours() == "10.244.2.0/24 via 10.244.2.0 dev vx-motley0 onlink"
    made = tunnel(first)
    assert made["mtu"] == 1450
    data = made["linkinfo"]["info_data"]
    assert (data["id"], data["port"], data["learning"]) == (77, 4789, False)
    far.assert_pods_talk()
    mac = "0e:58:0a:f4:02:00"
    assert entries(first) == [f"{mac} 10.9.0.2", f"10.244.2.0 {mac}"]
    # Once more: nothing is made anew.
    far.apply("auto")
    assert tunnel(first)["ifindex"] == made["ifindex"]
    # Somebody damages it; the next look repairs it.
    first.run("bridge", "fdb", "del", mac, "dev", "vx-motley0")
    first.run("ip", "route", "del", "10.244.2.0/24")
    far.apply("auto")
    far.assert_pods_talk()
    # The other node moves, then goes.
    far.apply("auto", [far.facts[0], ("node-2", "10.244.2.0/24", "10.9.0.7")])
    assert entries(first) == [f"{mac} 10.9.0.7", f"10.244.2.0 {mac}"]
    far.apply("auto", [far.facts[0], ("node-3", "10.244.3.0/24", "10.9.0.8")])
    assert entries(first) == ["0e:58:0a:f4:03:00 10.9.0.8", "10.244.3.0 0e:58:0a:f4:03:00"]
    assert far.ours().startswith("10.244.3.0/24")


def test_a_machine_without_a_network_is_left_alone(make_node):
    alone = make_node()
    alone.ensure()
    agent = alone.spawn(alone.python("routes.py", "node-1"))
    for own in ("10.244.1.1", "127.0.0.1"):
        nodes = [("node-1", "10.244.1.0/24", own), ("node-2", "10.244.2.0/24", "10.244.1.9")]
        said = json.loads(agent.say(json.dumps({"mode": "auto", "nodes": nodes})))
        assert said == [
            "node-2: this node's own address is on none of its devices that leads elsewhere"
        ]
    assert alone.run("ip", "route", "show", "proto", "77").stdout == ""


def test_a_tunnel_between_neighbours_gives_way_to_routes_and_is_removed_at_the_end(near):
    near.apply("vxlan")
    assert near.ours() == "10.244.2.0/24 via 10.244.2.0 dev vx-motley0 onlink"
    near.assert_pods_talk()
    near.apply("auto")
    assert near.ours().startswith("10.244.2.0/24 via 10.0.0.2")
    near.assert_pods_talk()
    near.apply("vxlan")
    code = (
        "import asyncio; from motley.network import cleanup; asyncio.run(cleanup.remove("
        "bridge='motley0', table='motley', service_cidr='10.96.0.0/16',"
        " cluster_cidr='10.244.0.0/16'))"
    )
    for _ in range(2):
        near.nodes[0].run(sys.executable, "-W", "error", "-c", code)
        assert near.ours() == ""
        left = near.nodes[0].run("ip", "-o", "link").stdout
        assert "vx-" not in left
        assert "motley0" not in left
