"""Paths from everywhere: the documents' names and Services, called on nodes without a gateway.

nginx runs beside the control plane; the other nodes' pods, and programs of these machines
themselves, must find the way. The Services come first here, and the name last; tests of one
node (test_paths.py) try it the other way round.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from motley.ops.testbed import eventually

from .threenodes import NODES, apply

pytestmark = pytest.mark.root

EXAMPLES = Path(__file__).parents[2] / "examples"
MINIK8S = EXAMPLES / "minik8s"
NAME = "hello.world.minik8s"
FETCH = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=3).read().decode())"


def page(name, node):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "localhost/motley/busybox:1",
                    "command": [
                        *("sh", "-c"),
                        f"mkdir /www; echo {name} > /www/index.html; httpd -f -p 80 -h /www",
                    ],
                }
            ],
        },
    }


NEWS = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "dns-news"},
    "spec": {"clusterIP": "10.6.1.2", "selector": {"app": "news"}, "ports": [{"port": 80}]},
}


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes, with two pages on nodes that have no gateway."""
    three.kubectl("apply", "-f", MINIK8S / "service-cidr.yaml")
    eventually(lambda: "True" in three.kubectl("get", "servicecidr", "minik8s", "-o", "yaml"))
    three.kubectl("apply", "-f", MINIK8S / "dns-service.yaml", "-f", MINIK8S / "service.yaml")
    apply(three, NEWS, page("world", "node-2"), page("news", "node-3"), page("notice", "node-2"))
    words = ("pod/world", "pod/news", "pod/notice", "--timeout=60s")
    three.kubectl("wait", "--for=condition=Ready", *words)
    yield three
    three.kubectl("delete", "pod", "world", "news", "notice", "--wait=false")


def from_pod(cluster, number, url):
    words = ("exec", f"web-{number}", "--", "python3", "-c", FETCH, url)
    return cluster.kubectl(*words).strip()


def from_node(cluster, node, url, address):
    """What a program of the machine gets, whose resolver is told where the name is."""
    inside = cluster.inside if node == NODES[0] else cluster.node_inside(node)
    host, _, port = url.split("/")[2].partition(":")
    resolve = ("--resolve", f"{host}:{port or 80}:{address}")
    command = [*inside, "curl", "-sS", "--fail", "--max-time", "3", *resolve, url]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def test_the_documents_service_is_reached_at_its_own_address_from_everywhere(cluster):
    for number, node in enumerate(NODES, 1):
        eventually(lambda n=number: from_pod(cluster, n, "http://10.6.0.1") == "notice")
        url = "http://10.6.0.1/"
        eventually(lambda n=node, u=url: from_node(cluster, n, u, "10.6.0.1") == "notice")


def test_the_other_documents_service_forwards_its_port_to_another(cluster):
    documents = yaml.safe_load_all((EXAMPLES / "kubehice" / "deployment-kb.yaml").read_text())
    (service,) = (one for one in documents if one["kind"] == "Service")
    # Its pods after it, and with a server at hand in place of its Deployment's image.
    apply(cluster, service)
    apply(cluster, page("nginx", "node-3"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/nginx", "--timeout=60s")
    name = service["metadata"]["name"]
    address = cluster.get("service", name)["spec"]["clusterIP"]
    for number, node in enumerate(NODES, 1):
        url = f"http://{name}:12345/"
        eventually(lambda n=number, u=url: from_pod(cluster, n, u) == "nginx")
        assert from_node(cluster, node, f"http://{address}:12345/", address) == "nginx"
    cluster.kubectl("delete", "pod/nginx", f"service/{name}", "--wait=false")


def test_the_documents_name_leads_to_its_services_from_every_node(cluster):
    words = ("--kubeconfig", cluster.kubeconfig, "-f", MINIK8S / "dns.yaml", "--compat", "minik8s")
    cluster.run(sys.executable, "-P", "-m", "motley.cli.main", "apply", *words)
    for number, node in enumerate(NODES, 1):
        url = f"http://{NAME}:80/world"
        eventually(lambda n=number, u=url: from_pod(cluster, n, u) == "world")
        assert from_pod(cluster, number, f"http://{NAME}/new/world") == "news"
        assert from_node(cluster, node, f"http://{NAME}/world", "10.8.0.1") == "world"
        assert from_node(cluster, node, f"http://{NAME}/new/world", "10.8.0.1") == "news"


def test_an_ingress_is_reached_from_every_node_until_it_is_deleted(cluster):
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "shop"},
        "spec": {
            "rules": [
                {
                    "host": "shop.example",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {
                                    "service": {"name": "dns-news", "port": {"number": 80}}
                                },
                            }
                        ]
                    },
                }
            ]
        },
    }
    apply(cluster, ingress)

    def address():
        entries = cluster.get("ingress", "shop")["status"]["loadBalancer"]["ingress"]
        return entries[0]["ip"]

    where = eventually(address)
    for number, node in enumerate(NODES, 1):
        eventually(lambda n=number: from_pod(cluster, n, "http://shop.example/") == "news")
        assert from_node(cluster, node, "http://shop.example/", where) == "news"
    cluster.kubectl("delete", "ingress/shop", "route/dns-test")

    def is_unknown(name):
        code = "import socket, sys; socket.getaddrinfo(sys.argv[1], 80)"
        words = ("exec", "web-3", "--", "python3", "-c", code, name)
        try:
            cluster.kubectl(*words)
        except AssertionError as error:
            return "gaierror" in str(error)
        return False

    eventually(lambda: is_unknown("shop.example") and is_unknown(NAME))
    cluster.kubectl("delete", "service", "dns-world", "dns-news", "notices", "--wait=false")
