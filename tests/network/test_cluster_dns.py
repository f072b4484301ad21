"""Cluster DNS from inside a pod's namespace, by UDP and TCP."""

import json
import subprocess

import pytest

pytestmark = pytest.mark.root


def ask(namespace, transport, *questions):
    words = ("ask.py", "10.96.0.10", transport, *questions)
    return json.loads(subprocess.check_output(namespace.python(*words), timeout=30))


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_names_resolve_from_a_pod_and_from_the_host(shared, transport):
    client = shared.pods["client"]
    name = "web.default.svc.cluster.local."
    for asker in (client, shared):
        assert ask(
            asker,
            transport,
            *(name, "A"),
            *("WEB.default.SVC.cluster.local.", "A"),
            *(name, "AAAA"),
            *("_http._tcp." + name, "SRV"),
            *("50.0.96.10.in-addr.arpa.", "PTR"),
            *("gone.default.svc.cluster.local.", "A"),
            *("outside.example.", "A"),
        ) == [
            ["NOERROR", [f"{name} 10.96.0.50"]],
            ["NOERROR", ["WEB.default.SVC.cluster.local. 10.96.0.50"]],
            ["NOERROR", []],
            ["NOERROR", [f"_http._tcp.{name} 0 100 80 {name}"]],
            ["NOERROR", [f"50.0.96.10.in-addr.arpa. {name}"]],
            ["NXDOMAIN", []],
            ["SERVFAIL", []],
        ]


def test_a_headless_service_answers_with_its_ready_endpoints(shared):
    pods = [shared.pods[name] for name in "ab"]
    shared.put_service(name="db", ip="None")
    shared.put_endpoints(pods, name="db")
    name = "db.default.svc.cluster.local."
    expected = sorted(f"{name} {pod.ip}" for pod in pods)
    client = shared.pods["client"]
    shared.eventually(lambda: ask(client, "udp", name, "A") == [["NOERROR", expected]])
    first = f"{pods[0].ip.replace('.', '-')}.{name}"
    assert ask(client, "tcp", first, "A") == [["NOERROR", [f"{first} {pods[0].ip}"]]]
    shared.put_endpoints(pods, "MODIFIED", name="db", ready=False)
    shared.eventually(lambda: ask(client, "udp", name, "A") == [["NXDOMAIN", []]])


def test_the_dns_address_comes_back_when_it_is_taken_away(node):
    client = node.add_pod("client", server=False)
    question = ("kubernetes.default.svc.cluster.local.", "A")
    assert ask(client, "udp", *question) == [["NXDOMAIN", []]]
    node.run("ip", "addr", "del", "10.96.0.10/32", "dev", "motley0")
    shown = ("ip", "-o", "addr", "show", "dev", "motley0")
    node.eventually(lambda: "10.96.0.10/32" in node.run(*shown).stdout)
    assert ask(client, "udp", *question) == [["NXDOMAIN", []]]
