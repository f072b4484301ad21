"""Services and names of three nodes: who may be reached from where, and what a pod is told to ask.

What the rules do on one node is in tests/network; here the nodes differ from each other.
"""

import concurrent.futures
import re

import msgspec
import pytest

from motley.ops import config as configs
from motley.ops import members
from motley.ops.testbed import eventually

from .threenodes import NODES, addresses, apply, call, pod, reach, wait_ready

pytestmark = pytest.mark.root

BUSYBOX = "localhost/motley/busybox:1"
LOCAL_PORT = 30082
OF_NODES = {node: f"10.77.0.{number}" for number, node in enumerate(NODES, 1)}


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share."""
    return three


def service(name, selector, address, **spec):
    plain = {"ports": [{"port": 80, "targetPort": 8080}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": address, "selector": selector, **plain, **spec},
    }


@pytest.fixture
def local(cluster):
    """A Service whose only endpoint is on the second node; its cluster address."""
    address = "10.96.0.82"
    cluster.kubectl("label", "pod", "web-2", "place=second")
    one = service("local", {"place": "second"}, address, type="NodePort")
    one["spec"]["ports"][0]["nodePort"] = LOCAL_PORT
    apply(cluster, one)
    yield address
    cluster.kubectl("delete", "service", "local")
    cluster.kubectl("label", "pod", "web-2", "place-")


def policy(cluster, **fields):
    change = msgspec.json.encode({"spec": fields}).decode()
    cluster.kubectl("patch", "service", "local", "-p", change)


def test_external_traffic_may_be_kept_to_nodes_that_have_an_endpoint(cluster, local):
    ports = [(address, LOCAL_PORT) for address in OF_NODES.values()]
    # From the first node to the others: a caller from outside, as far as these are concerned.
    eventually(lambda: reach(cluster, "node-1", *ports) == ["web-2"] * 3)
    ((_, source),) = call(cluster, "node-1", ports[2])
    assert source == OF_NODES["node-3"]  # the third node forwarded it, in its own name
    policy(cluster, externalTrafficPolicy="Local")
    eventually(lambda: reach(cluster, "node-1", *ports[1:]) == ["web-2", ""])
    ((_, source),) = call(cluster, "node-1", ports[1])
    assert source == OF_NODES["node-1"]  # … and now who calls is seen
    # Inside the cluster nothing changes.
    assert reach(cluster, "web-3", (local, 80)) == ["web-2"]


def test_internal_traffic_may_be_kept_to_its_node(cluster, local):
    def reached():
        with concurrent.futures.ThreadPoolExecutor() as pool:
            clients = ("web-1", "web-2", "node-1", "node-2")
            return [*pool.map(lambda one: reach(cluster, one, (local, 80))[0], clients)]

    eventually(lambda: reached() == ["web-2"] * 4)
    policy(cluster, internalTrafficPolicy="Local")
    eventually(lambda: reached() == ["", "web-2", "", "web-2"])


def test_a_client_stays_with_its_endpoint_also_on_another_node(cluster):
    address = "10.96.0.83"
    given = {"sessionAffinity": "ClientIP"}
    apply(cluster, service("sticky", {"app": "web"}, address, **given))
    eventually(lambda: reach(cluster, "web-1", (address, 80))[0])
    for client in ("web-1", "web-2", "web-3", "node-3"):
        answers = call(cluster, client, (address, 80), count=30)
        assert len({name for name, _ in answers}) == 1
    cluster.kubectl("delete", "service", "sticky")


def test_every_pod_reaches_itself_through_its_service(cluster):
    where = addresses(cluster)
    for name, node in zip(where, NODES, strict=True):
        answers = call(cluster, name, ("web", 80), count=6)
        assert {who for who, _ in answers} == set(where)
        # Seen from itself, its node's bridge called: its own address would answer past the node.
        (own,) = {source for who, source in answers if who == name}
        assert own != where[name], node


def test_a_service_may_come_before_its_pods_or_after_them(cluster):
    before, after = "10.96.0.84", "10.96.0.85"
    apply(cluster, service("before", {"app": "later"}, before))
    assert reach(cluster, "web-1", (before, 80)) == [""]
    late = pod(5, "node-3")
    late["metadata"] = {"name": "later", "labels": {"app": "later"}}
    apply(cluster, late)
    wait_ready(cluster, "later")
    ports = [
        {"name": "http", "port": 80, "targetPort": "web"},  # by the container's own name for it
        {"name": "more", "port": 8081, "targetPort": 8080},
    ]
    apply(cluster, service("after", {"app": "later"}, after, ports=ports))
    targets = ((before, 80), (after, 80), (after, 8081))
    eventually(lambda: reach(cluster, "web-1", *targets) == ["later"] * 3)
    code, _, refused = cluster.answer(
        *(cluster.kubectl_program, "--kubeconfig", cluster.kubeconfig),
        *("apply", "-f", "-"),
        stdin=msgspec.json.encode(service("thief", {"app": "web"}, after)).decode(),
    )
    assert code != 0
    assert "provided IP is already allocated" in refused
    cluster.kubectl("delete", "pod/later", "service/before", "service/after", "--wait=false")


NAMES = """
import json, socket, sys
def ask(name):
    try:
        return sorted({item[4][0] for item in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except OSError as error:
        return [f"failed: {error}"]
print(json.dumps([ask(name) for name in sys.argv[1:]]))
"""

STATEFUL = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "peers"},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": "peers"},
            "ports": [{"name": "talk", "port": 7000}],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "elsewhere"},
        "spec": {"type": "ExternalName", "externalName": "web.default.svc.cluster.local"},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "peers"},
        "spec": {
            "replicas": 2,
            "serviceName": "peers",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "peers"}},
            "template": {
                "metadata": {"labels": {"app": "peers"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {"name": "main", "image": BUSYBOX, "command": ["sleep", "100000"]}
                    ],
                },
            },
        },
    },
)


def test_pods_of_every_node_find_each_other_by_name(cluster):
    apply(cluster, *STATEFUL)
    cluster.kubectl("rollout", "status", "statefulset/peers", "--timeout=60s")
    found = cluster.get("pods", "-l", "app=peers")["items"]
    at = {one["metadata"]["name"]: one["status"]["podIP"] for one in found}
    assert at.keys() == {"peers-0", "peers-1"}
    both = sorted(at.values())
    names = ("peers", "peers-0.peers", "peers-1.peers.default.svc.cluster.local", "elsewhere")
    expected = [both, [at["peers-0"]], [at["peers-1"]], ["10.96.0.80"]]

    def ask(client):
        told = cluster.kubectl("exec", client, "--", "python3", "-c", NAMES, *names)
        return msgspec.json.decode(told)

    for client in ("web-1", "web-2", "web-3"):
        eventually(lambda client=client: ask(client) == expected)
    inside = ("exec", "peers-1", "--", "nslookup")
    told = cluster.kubectl(*inside, "-type=srv", "_talk._tcp.peers.default.svc.cluster.local")
    assert set(re.findall(r"7000 (peers-\d)\.peers\.", told)) == {"peers-0", "peers-1"}
    told = cluster.kubectl(*inside, at["peers-0"])
    assert "peers-0.peers.default.svc.cluster.local" in told
    words = ("statefulset/peers", "service/peers", "service/elsewhere", "--wait=false")
    cluster.kubectl("delete", *words)


POLICIES = {
    "first": {},
    "default": {"dnsPolicy": "Default"},
    "none": {
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["192.0.2.53"],
            "searches": ["lab.example"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
    },
    "added": {"dnsConfig": {"searches": ["lab.example"], "options": [{"name": "edns0"}]}},
    "host": {"hostNetwork": True},
    "hostcluster": {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
}


def test_what_a_pod_asks_for_names_follows_its_policy(cluster):
    apply(
        cluster,
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"dns-{name}", "labels": {"app": "dns"}},
                "spec": {
                    "nodeName": NODES[number % 2 + 1],
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": BUSYBOX, "command": ["cat", "/etc/resolv.conf"]}
                    ],
                    **spec,
                },
            }
            for number, (name, spec) in enumerate(POLICIES.items())
        ),
    )

    def ended():
        found = cluster.get("pods", "-l", "app=dns")["items"]
        return all(one["status"].get("phase") == "Succeeded" for one in found)

    eventually(ended)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        shown = pool.map(lambda name: cluster.kubectl("logs", f"dns-{name}"), POLICIES)
    told = {
        name: {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
        for name, text in zip(POLICIES, shown, strict=True)
    }
    of_cluster = {
        "nameserver": ["10.96.0.10"],
        "search": ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"],
        "options": ["ndots:5"],
    }
    # The host's own search domains follow the cluster's.
    for name in ("first", "hostcluster"):
        assert told[name]["search"][:3] == of_cluster["search"]
        assert {**told[name], "search": told[name]["search"][:3]} == of_cluster
    with open("/etc/resolv.conf") as file:
        own = [line.split()[1] for line in file if line.startswith("nameserver")]
    for name in ("default", "host"):
        assert told[name]["nameserver"] == own[-1:]
        assert "svc.cluster.local" not in told[name].get("search", ())
    assert told["none"] == {
        "nameserver": ["192.0.2.53"],
        "search": ["lab.example"],
        "options": ["ndots:2", "edns0"],
    }
    assert told["added"]["search"][-1] == "lab.example"
    assert "edns0" in told["added"]["options"]
    cluster.kubectl("delete", "pod", "-l", "app=dns", "--wait=false")


def test_another_network_plugin_may_take_over_a_node(cluster):
    """Debian's ptp plugin: no bridge, a pair of interfaces and a route per pod."""
    node = cluster.get("node", "node-3")
    third = members.member(configs.load(cluster.root), "node-3")
    range_start = node["spec"]["podCIDR"].replace(".0/24", ".200")
    ipam = {
        "type": "host-local",
        "dataDir": str(third.root / "ptp"),
        "ranges": [[{"subnet": node["spec"]["podCIDR"], "rangeStart": range_start}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    conflist = {
        "cniVersion": "1.0.0",
        "name": "other",
        "plugins": [{"type": "ptp", "ipam": ipam, "mtu": 1400}],
    }
    # Configurations count in the order of their names; ours is 10-motley.conflist.
    path = third.root / "cni" / "05-other.conflist"
    path.write_bytes(msgspec.json.encode(conflist))
    try:

        def served():
            apply(cluster, pod(6, "node-3"))
            wait_ready(cluster, "web-6")
            address = addresses(cluster)["web-6"]
            if int(address.rpartition(".")[2]) >= 200:
                return address
            cluster.kubectl("delete", "pod", "web-6", "--grace-period=0", "--force")
            return None

        address = eventually(served)
        # As any pod: from other nodes' pods, from nodes, through the Service, and back. Not from
        # web-3: it was made by the plugin before, and looks for its neighbours on the bridge.
        for client in ("web-1", "web-2", "node-1", "node-3"):
            assert reach(cluster, client, (address, 8080)) == ["web-6"]
        answers = call(cluster, "web-1", ("web", 80), count=8)
        assert {name for name, _ in answers} == {"web-1", "web-2", "web-3", "web-6"}
        where = addresses(cluster)
        back = ((where["web-1"], 8080), (where["web-2"], 8080))
        assert call(cluster, "web-6", *back) == [["web-1", address], ["web-2", address]]
        assert cluster.kubectl("exec", "web-6", "--", "nslookup", "web.default.svc.cluster.local")
        links = cluster.kubectl("exec", "web-6", "--", "ip", "link", "show", "eth0")
        assert "mtu 1400" in links
    finally:
        cluster.kubectl("delete", "pod", "web-6", "--ignore-not-found", "--timeout=60s")
        path.unlink()
