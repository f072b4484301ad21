"""Services in the real kernel: namespaces, the CNI bridge plugin, nftables."""

import collections
import json
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.root

VIP = "10.96.0.50"


def names(answers):
    return dict(collections.Counter(a if isinstance(a, str) else a[0] for a in answers))


def test_requests_from_a_pod_are_spread_exactly_evenly_and_keep_their_source(shared):
    client = shared.pods["client"]
    answers = client.http(VIP, count=30)
    assert names(answers) == {"a": 10, "b": 10, "c": 10}
    assert {source for _, source in answers} == {client.ip}


def test_the_host_reaches_the_service(shared):
    assert names(shared.http(VIP, count=9)) == {"a": 3, "b": 3, "c": 3}


def test_a_pod_reaches_itself_through_its_service(shared):
    (pod,) = shared.serve(["a"], name="self", ip="10.96.0.51")
    assert names(pod.http("10.96.0.51", count=5)) == {"a": 5}
    assert names(pod.udp("10.96.0.51", count=3)) == {"a": 3}


def test_udp_works_from_host_and_pod(shared):
    for asker in (shared, shared.pods["client"]):
        (name,) = set(asker.udp(VIP, count=3))
        assert name in "abc"


def test_node_ports_answer_on_every_local_address(shared):
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}
    shared.serve(name="ported", ip="10.96.0.52", type="NodePort", ports=[port])
    for asker, address in (
        (shared, "10.244.1.1"),
        (shared, "127.0.0.1"),
        (shared.pods["client"], "10.244.1.1"),
    ):
        assert names(asker.http(address, 30080, 6)) == {"a": 2, "b": 2, "c": 2}


def test_pods_cannot_use_the_way_that_localhost_node_ports_open(node):
    client = node.add_pod("client", server=False)
    node.spawn(node.python("echo.py", "host"))
    assert node.http("127.0.0.1", 8080) == [["host", "127.0.0.1"]]
    client.run("ip", "link", "set", "lo", "down")
    client.run("ip", "route", "add", "127.0.0.5/32", "via", "10.244.1.1")
    client.parameter("ipv4/conf/all/route_localnet", "1")
    assert names(client.http("127.0.0.5", 8080)) == {"TimeoutError": 1}
    node.run("nft", "delete", "chain", "ip", "motley", "raw-prerouting")
    assert names(client.http("127.0.0.5", 8080)) == {"host": 1}, "the test's way in is no way"


def test_an_external_address_answers(shared):
    shared.serve(name="ext", ip="10.96.0.53", externalIPs=["203.0.113.7"])
    client = shared.pods["client"]
    assert names(client.http("203.0.113.7", count=3)) == {"a": 1, "b": 1, "c": 1}


def test_local_traffic_policies_keep_to_this_nodes_endpoints(shared):
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30081}
    policies = {"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}
    shared.put_service(name="near", ip="10.96.0.54", type="NodePort", ports=[port], **policies)
    shared.put_endpoints([shared.pods["a"]], name="near", node_name="node-2")
    shared.eventually(lambda: "10.96.0.54" in shared.rules())
    client = shared.pods["client"]
    assert names(client.http("10.96.0.54")) == {"TimeoutError": 1}, "dropped, not sent elsewhere"
    assert names(client.http("10.244.1.1", 30081)) == {"a": 1}, "the cluster's own traffic"
    shared.put_endpoints([shared.pods["b"]], "MODIFIED", name="near")
    shared.eventually(lambda: "loc-" in shared.rules())
    assert names(client.http("10.96.0.54", count=2)) == {"b": 2}


def test_a_removed_endpoint_gets_no_more_traffic(shared):
    pods = shared.serve(name="shrinks", ip="10.96.0.55")
    shared.put_endpoints(pods[:2], "MODIFIED", name="shrinks")
    shared.eventually(lambda: names(shared.http("10.96.0.55", count=6)) == {"a": 3, "b": 3})
    assert names(shared.http("10.96.0.55", count=20)) == {"a": 10, "b": 10}


def test_a_udp_flow_is_forgotten_when_its_endpoint_goes(shared):
    pods = shared.serve(["a", "b"], name="flows", ip="10.96.0.56")
    (first,) = shared.udp("10.96.0.56")
    gone, stays = pods if first == "a" else reversed(pods)

    def flows():
        return shared.run("conntrack", "-L", "-p", "udp", "--orig-dst", "10.96.0.56").stdout

    assert f"src={gone.ip}" in flows()
    shared.put_endpoints([stays], "MODIFIED", name="flows")
    shared.eventually(lambda: f"src={gone.ip}" not in flows(), within_s=2)
    assert f"src={shared.pods['client'].ip}" not in flows()


CONNECT = """
import socket, sys
client = socket.create_connection((sys.argv[1], 80), timeout=15)
client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(client.recv(100)[:12].decode())
"""


@pytest.fixture
def void(shared):
    """Addresses where packets vanish, as those of a machine that was cut off."""
    for line in (
        "link add void0 type bridge",  # without a port
        "link set void0 up",
        "route add 10.250.0.0/24 dev void0",
        "neigh add 10.250.0.1 lladdr 02:00:00:00:00:01 dev void0 nud permanent",
    ):
        shared.run("ip", *line.split())
    yield
    shared.run("ip", "link", "del", "void0")


@pytest.mark.parametrize("asker", ["host", "pod"])
def test_who_waits_for_an_endpoint_that_is_gone_gets_another(shared, void, asker):
    """An attempt that nobody answers is remembered by the kernel for two minutes."""
    name, ip = f"waits-{asker}", f"10.96.0.{70 if asker == 'host' else 71}"
    (alive,) = shared.serve(["a"], name=name, ip=ip)
    dead = SimpleNamespace(ip="10.250.0.1")
    shared.put_endpoints([dead], "MODIFIED", name=name)
    shared.eventually(lambda: dead.ip in shared.rules())
    client = shared if asker == "host" else shared.pods["client"]
    waiting = subprocess.Popen(
        client.command(sys.executable, "-c", CONNECT, ip), stdout=subprocess.PIPE, text=True
    )

    def attempts():
        return shared.run("conntrack", "-L", "-p", "tcp", "--orig-dst", ip).stdout

    shared.eventually(lambda: "UNREPLIED" in attempts())
    shared.put_endpoints([alive], "MODIFIED", name=name)
    out, _ = waiting.communicate(timeout=20)
    assert out.strip() == "HTTP/1.1 200"


@pytest.mark.parametrize("asker", ["host", "pod"])
def test_a_service_without_endpoints_refuses_at_once(shared, asker):
    shared.put_service(name="empty", ip="10.96.0.57")
    client = shared if asker == "host" else shared.pods["client"]
    started = time.monotonic()
    assert names(client.http("10.96.0.57", count=20)) == {"ConnectionRefusedError": 20}
    assert names(client.http("10.96.77.77")) == {"ConnectionRefusedError": 1}
    # The kernel tells a local UDP sender before the ICMP message does.
    (refusal,) = names(client.udp("10.96.0.57"))
    assert refusal == ("PermissionError" if asker == "host" else "ConnectionRefusedError")
    assert time.monotonic() - started < 10  # twenty that wait would take a minute


def test_session_affinity_keeps_a_client_with_its_endpoint(shared):
    shared.serve(name="sticky", ip="10.96.0.58", sessionAffinity="ClientIP")
    askers = [shared, shared.pods["client"], shared.pods["a"]]
    chosen = [names(asker.http("10.96.0.58", count=6)) for asker in askers]
    assert [list(c.values()) for c in chosen] == [[6], [6], [6]]
    assert len({next(iter(c)) for c in chosen}) == 3


def test_terminating_endpoints_serve_when_no_other_does(shared):
    pods = shared.serve(["a", "b"], name="drains", ip="10.96.0.59")
    state = {"ready": False, "serving": True, "terminating": True}
    shared.put_endpoints(pods[:1], "MODIFIED", name="drains", **state)
    shared.eventually(lambda: names(shared.http("10.96.0.59", count=4)) == {"a": 4})


def test_rules_survive_the_proxy_and_a_restart_interrupts_nothing(node):
    pods = node.serve()
    client = node.add_pod("client", server=False)
    loop = node.spawn(client.python("call.py", "loop", VIP, 80))
    node.proxy.kill(signal.SIGKILL)
    assert "default/web" in node.rules()
    before = node.run("nft", "-a", "list", "table", "ip", "motley").stdout
    node.start_proxy()
    node.wait_ready()
    after = node.run("nft", "-a", "list", "table", "ip", "motley").stdout
    assert before == after, "handles change when rules are rebuilt"
    node.put_endpoints(pods[1:], "MODIFIED")
    node.eventually(lambda: pods[0].ip not in node.rules())
    result = json.loads(loop.say("stop"))
    loop.close()
    assert result["errors"] == {}
    assert sum(result["answers"].values()) > 20


def test_a_restarted_proxy_takes_away_what_went_while_it_was_dead(node):
    node.serve()
    node.proxy.kill(signal.SIGKILL)
    node.put("services", {"metadata": {"name": "web", "namespace": "default"}}, "DELETED")
    node.start_proxy()
    node.wait_ready()
    assert "default/web" not in node.rules()
    assert names(node.http(VIP)) == {"ConnectionRefusedError": 1}


def test_a_damaged_or_removed_table_is_repaired_at_start(node):
    node.serve()
    node.proxy.kill(signal.SIGKILL)
    node.run("nft", "flush", "chain", "ip", "motley", "services")
    node.start_proxy()
    node.wait_ready()
    assert names(node.http(VIP, count=3)) == {"a": 1, "b": 1, "c": 1}
    node.run("nft", "delete", "table", "ip", "motley")
    node.proxy.kill(signal.SIGTERM)
    node.start_proxy()
    node.wait_ready()
    assert names(node.http(VIP, count=3)) == {"a": 1, "b": 1, "c": 1}


def test_a_table_that_somebody_removed_comes_back_while_the_proxy_runs(make_node):
    node = make_node()
    syncing = node.spawn(node.python("drift.py"))
    assert "nat-output" in node.rules()
    node.run("nft", "delete", "table", "ip", "motley")
    node.eventually(lambda: "nat-output" in node.rules())
    node.run("nft", "flush", "chain", "ip", "motley", "refuse")
    node.eventually(lambda: "reject" in node.rules())
    syncing.kill()


def test_services_answer_while_the_api_server_is_away(node):
    pods = node.serve()
    node.api.kill()
    assert names(node.http(VIP, count=3)) == {"a": 1, "b": 1, "c": 1}
    node.start_api()
    node.put_service()
    node.put_endpoints(pods[:1])
    node.eventually(lambda: pods[1].ip not in node.rules())
    assert names(node.http(VIP, count=3)) == {"a": 3}


def test_the_proxy_ends_promptly_and_cleanly_on_sigterm(node):
    started = time.monotonic()
    assert node.proxy.kill(signal.SIGTERM) == 0
    assert time.monotonic() - started < 20
    assert "Traceback" not in node.proxy.log.read_text()


def test_pod_traffic_that_leaves_the_cluster_is_masqueraded(node, make_node):
    outside = make_node(2)
    node.run(
        "ip", "link", "add", "up0", "type", "veth", "peer", "name", "e0", "netns", outside.name
    )
    node.run("ip", "addr", "add", "198.51.100.1/24", "dev", "up0")
    node.run("ip", "link", "set", "up0", "up")
    outside.run("ip", "addr", "add", "198.51.100.2/24", "dev", "e0")
    outside.run("ip", "link", "set", "e0", "up")
    outside.spawn(outside.python("echo.py", "world"))
    client = node.add_pod("client", server=False)
    assert client.http("198.51.100.2", 8080) == [["world", "198.51.100.1"]]


def test_cleanup_removes_everything_and_may_be_repeated(node):
    node.serve()
    code = (
        "import asyncio; from motley.network import cleanup;"
        "asyncio.run(cleanup.remove(bridge='motley0', table='motley', service_cidr='10.96.0.0/16',"
        "cluster_cidr='10.244.0.0/16'))"
    )
    node.proxy.kill(signal.SIGTERM)
    for _ in range(2):
        node.run(sys.executable, "-W", "error", "-c", code)
        assert node.run("nft", "list", "tables").stdout == ""
        assert "motley0" not in node.run("ip", "-o", "link").stdout
        assert "veth" not in node.run("ip", "-o", "link").stdout
        assert node.run("ip", "route").stdout == ""


def node_document(name, **labels):
    return {"metadata": {"name": name, "uid": name, "labels": labels}}


def spread_endpoints(shared, name, nodes, **fields):
    """An endpoint on each of these nodes, all of them really here."""
    pods = [shared.pods[pod] for pod in "abc"]
    piece = {
        "metadata": {
            "name": f"{name}-abcde",
            "namespace": "default",
            "uid": f"{name}-slice",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [pod.ip],
                "conditions": {"ready": True},
                "nodeName": node,
                **{field: values[i] for field, values in fields.items()},
            }
            for i, (pod, node) in enumerate(zip(pods, nodes, strict=True))
        ],
    }
    shared.put("endpointslices", piece)


def test_a_node_twice_as_fast_gets_twice_the_connections(shared):
    shared.put("nodes", node_document("node-1"))
    shared.put("nodes", node_document("fast", **{"hice.kj": "2"}))
    shared.put("nodes", node_document("slow", **{"hice.kj": "1"}))
    annotated = {"motley.io/endpoint-weights": "speed"}
    port = [{"name": "http", "port": 80, "protocol": "TCP"}]
    shared.put_service(name="weighted", ip="10.96.0.61", ports=port, annotations=annotated)
    spread_endpoints(shared, "weighted", ["fast", "slow", "slow"])
    shared.eventually(lambda: "mod 4 map" in shared.rules())
    assert names(shared.http("10.96.0.61", count=1000)) == {"a": 500, "b": 250, "c": 250}
    shared.put("nodes", node_document("fast", **{"hice.kj": "1"}), "MODIFIED")
    shared.eventually(lambda: names(shared.http("10.96.0.61", count=9)) == dict.fromkeys("abc", 3))


def test_hints_keep_traffic_in_the_zone_and_on_the_node_that_they_name(shared):
    zone = {"topology.kubernetes.io/zone": "east"}
    shared.put("nodes", node_document("node-1", **zone), "MODIFIED")
    port = [{"name": "http", "port": 80, "protocol": "TCP"}]
    shared.put_service(name="hinted", ip="10.96.0.62", ports=port)

    def hinted(kind, *places):
        hints = [{kind: [{"name": place}]} if place else {} for place in places]
        spread_endpoints(shared, "hinted", ["node-1", "node-2", "node-3"], hints=hints)

    def goes_to(*expected):
        shared.eventually(lambda: set(names(shared.http("10.96.0.62", count=6))) == set(expected))

    hinted("forZones", "east", "west", "east")
    goes_to("a", "c")
    hinted("forZones", "east", "west", "")
    goes_to("a", "b", "c")
    hinted("forNodes", "node-2", "node-1", "node-3")
    goes_to("b")
    hinted("forZones", "west", "west", "south")
    goes_to("a", "b", "c")


def test_a_load_balancers_address_is_for_its_source_ranges(shared):
    port = {"name": "http", "port": 80, "protocol": "TCP"}
    client = shared.pods["client"]

    def balanced(*ranges):
        shared.put_service(
            name="lb",
            ip="10.96.0.63",
            type="LoadBalancer",
            ports=[port],
            loadBalancerSourceRanges=list(ranges),
            status={"loadBalancer": {"ingress": [{"ip": "203.0.113.9", "ipMode": "VIP"}]}},
        )

    balanced("192.0.2.0/24")
    shared.put_endpoints([shared.pods["a"]], name="lb")
    shared.eventually(lambda: "203.0.113.9" in shared.rules() and "fw-" in shared.rules())
    assert names(client.http("203.0.113.9")) == {"TimeoutError": 1}
    assert names(client.http("10.96.0.63")) == {"a": 1}, "not by the cluster's own address"
    balanced("192.0.2.0/24", f"{client.ip}/32")
    shared.eventually(lambda: names(client.http("203.0.113.9")) == {"a": 1})


def test_a_health_check_port_tells_whether_this_node_has_endpoints(shared):
    port = {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30090}
    policy = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 30091}
    shared.put_service(name="hc", ip="10.96.0.64", type="LoadBalancer", ports=[port], **policy)
    shared.put_endpoints([shared.pods["a"], shared.pods["b"]], name="hc")

    def asked():
        address = ("127.0.0.1", 30091)
        code = (
            "import http.client,sys;c=http.client.HTTPConnection(*"
            f"{address!r},timeout=2);c.request('GET','/');r=c.getresponse();"
            "print(r.status,r.read().decode())"
        )
        return shared.run(sys.executable, "-c", code).stdout.partition(" ")

    shared.eventually(lambda: asked()[0] == "200")
    assert json.loads(asked()[2]) == {
        "service": {"namespace": "default", "name": "hc"},
        "localEndpoints": 2,
        "serviceProxyHealthy": True,
    }
    shared.put_endpoints([shared.pods["a"]], "MODIFIED", name="hc", node_name="node-2")
    shared.eventually(lambda: asked()[0] == "503")
    shared.put_service(name="hc", ip="10.96.0.64", ports=[port], type_="DELETED")
    shared.eventually(lambda: ":30091" not in shared.run("ss", "-ltnH").stdout)
