"""Three nodes on one machine, with real containers: pods, Services and names across all of them.

The tests build on each other, in the order of the file; each pod `web-N` is on `node-N`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from motley.lib import clock
from motley.ops.testbed import eventually

from .threenodes import (
    NODE_PORT,
    NODES,
    SERVER,
    VIP,
    addresses,
    apply,
    call,
    pod,
    wait_ready,
    watching,
)

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share."""
    return three


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
        cluster.kubectl("wait", "--for=delete", "pod/web-4", "--timeout=60s")
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
            now = cluster.components()
            return cluster.all_run() and all(
                now[name]["restarts"] == before[name]["restarts"] + 1 for name in killed
            )

        eventually(back)
    assert {name for _, name in seen} == {"web-2"}
    assert len(seen) > 50
