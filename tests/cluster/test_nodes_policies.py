"""NetworkPolicies across nodes: a table of policies, and for each who reaches whom.

The servers are the pods `web-N` of the three nodes, one of them also by its Service; the clients
are on the second and third node, in two namespaces. Every row is one policy; the whole table of
connections is tried, so that a row that lets too much through fails as one that lets too little.
"""

import subprocess

import msgspec
import pytest

from motley.ops.testbed import eventually

from .threenodes import addresses, apply, reach

pytestmark = pytest.mark.root

# Tries every [address, port] of a line at once and says who answers, line by line.
PROBER = """
import concurrent.futures, json, socket, sys
def call(pair):
    try:
        # Most of what is tried is to fail: a packet that is dropped is waited for in vain.
        with socket.create_connection(tuple(pair), timeout=0.4) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            return connection.recv(4096).decode().rpartition("hello from ")[2].split()[0]
    except OSError:
        return ""
pool = concurrent.futures.ThreadPoolExecutor(8)
for line in sys.stdin:
    print(json.dumps(list(pool.map(call, json.loads(line)))), flush=True)
"""

CLIENTS = ("web-1", "friend", "other/stranger")
SERVERS = ("web-1", "web-2", "web-3")
ITSELF = ("web-1", "web-1")


def client(name, namespace, node, labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "localhost/motley/python:1",
                    "command": ["sleep", "100000"],
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes, with a friend on the second and a stranger on the third."""
    namespace = {"metadata": {"name": "other", "labels": {"team": "other"}}}
    apply(
        three,
        {"apiVersion": "v1", "kind": "Namespace", **namespace},
        client("friend", "default", "node-2", {"role": "friend"}),
        client("stranger", "other", "node-3", {"role": "stranger"}),
    )
    three.kubectl("wait", "--for=condition=Ready", "pod/friend", "--timeout=60s")
    words = ("wait", "-n", "other", "--for=condition=Ready", "pod/stranger", "--timeout=60s")
    three.kubectl(*words)
    yield three
    three.kubectl("delete", "namespace/other", "pod/friend", "--wait=false")


@pytest.fixture(scope="module")
def allowed(cluster):
    """Asks who reaches whom, as pairs; by one program in each client."""
    where = addresses(cluster)
    targets = [(where[name], 8080) for name in SERVERS]
    kubectl = cluster.kubectl_program
    command = [*cluster.inside, kubectl, "--kubeconfig", str(cluster.kubeconfig), "exec", "-i"]
    probers = {}

    def ask():
        for prober in probers.values():  # all of them at once
            prober.stdin.write(msgspec.json.encode(targets) + b"\n")
            prober.stdin.flush()
        told = {who: msgspec.json.decode(one.stdout.readline()) for who, one in probers.items()}
        return {(who, name) for who, row in told.items() for name in row if name}

    try:
        for who in CLIENTS:
            namespace, _, name = who.rpartition("/")
            words = ("-n", namespace or "default", name, "--", "python3", "-c", PROBER)
            probers[who] = subprocess.Popen(
                [*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        yield ask
    finally:
        for prober in probers.values():
            prober.communicate(timeout=20)


def pairs(*names):
    return {(name, server) for name in names for server in SERVERS}


def ingress(*rules):
    return {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": list(rules)}


FRIENDS = {"podSelector": {"matchLabels": {"role": "friend"}}}
OTHERS = {"namespaceSelector": {"matchLabels": {"team": "other"}}}
OWN = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}
ROWS = {
    "nobody": (ingress(), {ITSELF}),
    "everybody": (ingress({}), pairs(*CLIENTS)),
    "pods of this namespace by label": (
        ingress({"from": [FRIENDS]}),
        pairs("friend") | {ITSELF},
    ),
    "pods of another namespace": (
        ingress({"from": [OTHERS]}),
        pairs("other/stranger") | {ITSELF},
    ),
    "both conditions of one peer": (
        ingress({"from": [{**OTHERS, **FRIENDS}]}),
        {ITSELF},
    ),
    "either of two peers": (
        ingress({"from": [OTHERS, {**OWN, **FRIENDS}]}),
        pairs("friend", "other/stranger") | {ITSELF},
    ),
    "another port": (
        ingress({"from": [FRIENDS], "ports": [{"port": 9090}]}),
        {ITSELF},
    ),
    "the right port": (
        ingress({"from": [FRIENDS], "ports": [{"port": 8080, "protocol": "TCP"}]}),
        pairs("friend") | {ITSELF},
    ),
    "a block with a hole": (
        ingress({"from": [{"ipBlock": {"cidr": "10.244.0.0/16", "except": ["STRANGER/32"]}}]}),
        pairs("web-1", "friend"),
    ),
    "going out to one pod only": (
        {
            "podSelector": {"matchLabels": {"role": "friend"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"place": "third"}}}]}],
        },
        pairs("web-1", "other/stranger") | {("friend", "web-3")},
    ),
}


@pytest.fixture
def third(cluster):
    cluster.kubectl("label", "pod", "web-3", "place=third")
    yield
    cluster.kubectl("label", "pod", "web-3", "place-")


def test_every_policy_lets_through_whom_it_names_on_all_nodes(cluster, allowed, third):
    assert allowed() == pairs(*CLIENTS)
    stranger = cluster.get("pod", "stranger", "-n", "other")["status"]["podIP"]
    for title, (spec, expected) in ROWS.items():
        if "hole" in title:
            spec["ingress"][0]["from"][0]["ipBlock"]["except"] = [f"{stranger}/32"]
        apply(
            cluster,
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": "one"},
                "spec": {"policyTypes": ["Ingress"], **spec},
            },
        )
        seen = []

        def as_it_says(expected=expected, seen=seen):
            seen[:] = [allowed()]
            assert seen[0] == expected
            return True

        try:
            eventually(as_it_says)
        except AssertionError:
            pytest.fail(f"{title}: {sorted(seen[0] ^ expected)} are not as the policy says")
    cluster.kubectl("delete", "networkpolicy", "one")
    eventually(lambda: allowed() == pairs(*CLIENTS))


def test_a_service_is_judged_by_the_pods_behind_it(cluster):
    apply(
        cluster,
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "two"},
            "spec": ingress({"from": [FRIENDS]}),
        },
    )
    targets = [("web.default", 80)] * 6
    eventually(lambda: reach(cluster, "other/stranger", *targets) == [""] * 6)
    assert set(reach(cluster, "friend", *targets)) == set(SERVERS)
    cluster.kubectl("delete", "networkpolicy", "two")
