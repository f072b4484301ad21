"""Three nodes on one machine, with real containers: pods, Services and names across all of them.

The tests build on each other, in the order of the file; each pod `web-N` is on `node-N`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from motley.lib import clock
from motley.ops import config as configs
from motley.ops import members, processes, underlay
from motley.ops.testbed import Testbed, eventually

pytestmark = pytest.mark.root

NODES = ("node-1", "node-2", "node-3")
VIP, NODE_PORT = "10.96.0.80", 30081

# Answers with its own name and the client's address. Told to end, it goes on for a moment, as a
# server does that lets its last requests finish.
SERVER = """
import os, signal, socket, threading
signal.signal(signal.SIGTERM, lambda *_: threading.Timer(1.5, os._exit, (0,)).start())
listening = socket.create_server(("", 8080), backlog=512)
while True:
    client, (address, _) = listening.accept()
    body = f"hello from {os.environ['HOSTNAME']} {address}".encode()
    with client:
        if client.recv(4096):
            head = f"HTTP/1.0 200 OK\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
            client.sendall(head.encode() + body)
"""

# call.py COUNT HOST PORT …: [name, client address as seen there] of every answer, as JSON.
CALL = """
import json, socket, sys
def call(host, port):
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        data = b""
        while more := connection.recv(4096):
            data += more
    return data.decode().rpartition("hello from ")[2].split()
count, targets = int(sys.argv[1]), sys.argv[2:]
pairs = list(zip(targets[::2], targets[1::2]))
print(json.dumps([call(*pair) for pair in pairs for _ in range(count)]))
"""

# Calls without pause until its standard input closes: [seconds, name or error] of every call.
WATCH = """
import json, select, socket, sys, time
seen = []
while not select.select([sys.stdin], [], [], 0.003)[0]:
    begun = time.time()
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            name = connection.recv(4096).decode().rpartition("hello from ")[2].split()[0]
    except (OSError, IndexError) as error:
        name = f"failed: {error!r}"
    seen.append((begun, name))
print(json.dumps(seen))
"""


def pod(number, node):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number}", "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 4,
            "containers": [
                {
                    "name": "server",
                    "image": "localhost/motley/python:1",
                    "command": ["python3", "-c", SERVER],
                    "readinessProbe": {
                        "tcpSocket": {"port": 8080},
                        "periodSeconds": 1,
                        "failureThreshold": 30,
                    },
                }
            ],
        },
    }


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {
        "type": "NodePort",
        "clusterIP": VIP,
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
    },
}


def apply(cluster, *objects):
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document).decode())


def wait_ready(cluster, *names):
    pods = [f"pod/{name}" for name in names]
    cluster.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=60s")


@pytest.fixture(scope="module")
def cluster(cache):
    testbed = Testbed(cache)
    try:
        testbed.make_bare_namespace()
        testbed.up_nodes(len(NODES))
        apply(testbed, SERVICE, *(pod(n, node) for n, node in enumerate(NODES, 1)))
        wait_ready(testbed, "web-1", "web-2", "web-3")
        yield testbed
    finally:
        testbed.destroy()


def addresses(cluster):
    """Pod addresses by name."""
    found = cluster.get("pods", "-l", "app=web")["items"]
    return {one["metadata"]["name"]: one["status"]["podIP"] for one in found}


def call(cluster, where, *targets, count=1):
    """What a client in a pod, or on a node, is answered."""
    command = ("python3", "-c", CALL, count, *(word for pair in targets for word in pair))
    if where.startswith("web-"):
        return msgspec.json.decode(cluster.kubectl("exec", where, "--", *command))
    inside = cluster.inside if where == NODES[0] else cluster.node_inside(where)
    command = [*inside, sys.executable, *map(str, command[1:])]
    return msgspec.json.decode(subprocess.check_output(command, timeout=60))


@contextlib.contextmanager
def watching(cluster, address, port):
    """Calls from the first node for as long as the block runs; the list is full afterwards."""
    seen = []
    command = [*cluster.inside, sys.executable, "-c", WATCH, address, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield seen
    finally:
        out, _ = process.communicate(timeout=60)
    seen += msgspec.json.decode(out)


def test_every_node_is_ready_and_status_shows_all_their_components(cluster):
    assert {one["metadata"]["name"] for one in cluster.get("nodes")["items"]} == set(NODES)
    found = cluster.status()
    assert found["running"]
    assert found["cluster"]["nodesReady"] == 3
    names = {one["name"] for one in found["components"]}
    assert {f"{node}/{part}" for node in NODES[1:] for part in ("containerd", "node", "proxy")} < (
        names
    )
    assert {"apiserver", "controllers", "scheduler", "containerd", "node", "proxy"} < names


def test_pods_of_different_nodes_reach_each_other_with_their_own_addresses(cluster):
    where = addresses(cluster)
    targets = [(address, 8080) for address in where.values()]
    for client, own in where.items():
        assert call(cluster, client, *targets) == [[name, own] for name in where]
    # The nodes themselves reach every pod, too.
    for node in NODES:
        assert [name for name, _ in call(cluster, node, *targets)] == list(where)


def test_a_service_spreads_evenly_over_nodes_and_is_found_by_name(cluster):
    where = addresses(cluster)
    answers = call(cluster, "web-2", ("web.default.svc.cluster.local", 80), count=1000)
    for count in Counter(name for name, _ in answers).values():
        assert abs(count - 1000 / 3) <= 1000 / 3 * 0.1
    # Other nodes' pods see who calls; the caller itself is reached through its own Service.
    seen = {name: {address for who, address in answers if who == name} for name in where}
    assert seen["web-1"] == seen["web-3"] == {where["web-2"]}
    assert len(seen["web-2"]) == 1


@pytest.mark.parametrize("node", NODES)
def test_a_service_answers_each_node_and_on_each_nodes_port(cluster, node):
    ports = [(f"10.77.0.{number}", NODE_PORT) for number in (1, 2, 3)]
    answers = call(cluster, node, (VIP, 80), *ports, count=3)
    for start in range(0, len(answers), 3):
        assert {name for name, _ in answers[start : start + 3]} == set(addresses(cluster))


@contextlib.contextmanager
def outside(cluster):
    """A server on another machine's network, which knows no way to nodes or pods; its address."""
    name = f"{cluster.name}-out"
    subprocess.run(["ip", "netns", "add", name], check=True)
    server = None
    try:
        for words in (
            f"{name} ip link add up0 type veth peer name out0 netns {cluster.name}",
            f"{name} ip addr add 198.51.100.2/24 dev up0",
            f"{name} ip link set up0 up",
            f"{cluster.name} ip addr add 198.51.100.1/24 dev out0",
            f"{cluster.name} ip link set out0 up",
        ):
            where, *command = words.split()
            subprocess.run(["nsenter", f"--net=/run/netns/{where}", *command], check=True)
        server = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{name}", sys.executable, "-c", SERVER],
            env={**os.environ, "HOSTNAME": "outside"},
        )
        eventually(lambda: call(cluster, "node-1", ("198.51.100.2", 8080)))
        yield "198.51.100.2"
    finally:
        if server is not None:
            server.kill()
            server.wait(10)
        subprocess.run(["ip", "-n", name, "link", "del", "up0"], check=False)
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_what_leaves_the_cluster_carries_the_machines_address(cluster):
    with outside(cluster) as address:
        for client in ("web-1", "web-2"):
            assert call(cluster, client, (address, 8080)) == [["outside", "198.51.100.1"]]


def test_an_endpoint_comes_and_goes_within_a_second_and_no_request_fails(cluster):
    with watching(cluster, VIP, 80) as seen:
        apply(cluster, pod(4, "node-2"))
        wait_ready(cluster, "web-4")
        ready_at = clock.SYSTEM.now()
        # More than a second of calls, for those that must not be there as well.
        eventually(lambda: clock.SYSTEM.now() > ready_at + 1.2)
        cluster.kubectl("delete", "pod", "web-4", "--wait=false")
        deleted_at = clock.SYSTEM.now()
        cluster.kubectl("wait", "--for=delete", "pod/web-4", "--timeout=30s")
    assert [one for one in seen if one[1].startswith("failed")] == []
    calls = [at for at, name in seen if name == "web-4"]
    assert calls[0] < ready_at + 1.0
    assert calls[-1] < deleted_at + 1.0
    assert seen[-1][0] > deleted_at + 1.0


def test_a_nodes_pods_go_on_answering_without_its_agent_and_its_proxy(cluster):
    before = cluster.components()
    killed = ("node-2/node", "node-2/proxy")
    with watching(cluster, addresses(cluster)["web-2"], 8080) as seen:
        for name in killed:
            os.kill(before[name]["pid"], signal.SIGKILL)

        def back():
            found = cluster.status()
            restarts = {one["name"]: one["restarts"] for one in found["components"]}
            return found["running"] and all(
                restarts[name] == before[name]["restarts"] + 1 for name in killed
            )

        eventually(back)
    assert {name for _, name in seen} == {"web-2"}
    assert len(seen) > 50


def test_a_node_too_many_is_removed_with_its_routes_and_its_object(cluster):
    routes = ("ip", "route", "show", "proto", "77")
    assert len(cluster.run(*routes).splitlines()) == 2
    cluster.up_nodes(2)
    assert {one["metadata"]["name"] for one in cluster.get("nodes")["items"]} == set(NODES[:2])
    eventually(lambda: len(cluster.run(*routes).splitlines()) == 1)
    assert call(cluster, "web-1", (addresses(cluster)["web-2"], 8080))[0][0] == "web-2"


def test_down_leaves_nothing_even_after_everything_of_a_node_was_killed(cluster):
    config = configs.load(cluster.root)
    (other,) = members.present(config)
    for process in processes.of_cluster(other.root):
        processes.send(process, signal.SIGKILL)
    assert cluster.status()["unsupervised"] == ["node-2"]
    cluster.motley("down", "--grace", 0)
    assert cluster.leftovers() == {}
    assert not os.path.exists(f"/run/netns/{other.namespace}")
    underlay.remove_namespace(other)  # once more: nothing to do is no failure
    cluster.motley("down", "--delete-data", "--yes")
    assert not cluster.root.exists()
