"""Paths on a real cluster: the documents' manifests and an Ingress, from a pod and the host."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motley.network.paths import nginx
from motley.ops import config as configs
from motley.ops.testbed import eventually

pytestmark = pytest.mark.root

EXAMPLES = Path(__file__).parents[2] / "examples"
MINIK8S = EXAMPLES / "minik8s"
NAME = "hello.world.minik8s"
UP = ("--no-functions", "--no-slurm")

# Two pods that say who they are and what they were asked for, and one to call from.
PODS = "\n---\n".join(
    f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: localhost/motley/busybox:1
      command: ["sh", "-c", "{command}"]
"""
    for name, command in (
        (
            "world",
            "mkdir -p /www/a; echo world > /www/index.html; echo world-a > /www/a/index.html;"
            " httpd -f -p 80 -h /www",
        ),
        ("news", "mkdir /www; echo news > /www/index.html; httpd -f -p 80 -h /www"),
        ("client", "sleep 100000"),
    )
)
NEWS = """
apiVersion: v1
kind: Service
metadata: {name: dns-news}
spec:
  clusterIP: 10.6.1.2
  selector: {app: news}
  ports: [{port: 80}]
"""


@pytest.fixture(scope="module")
def paths(cluster):
    """The cluster, with the pods, and the ranges that Minik8s' addresses are of."""
    cluster.kubectl("apply", "-f", "-", stdin=PODS)
    cluster.kubectl("apply", "-f", MINIK8S / "service-cidr.yaml")
    return cluster


def inside(cluster, url):
    """What a pod gets, by the cluster's own names."""
    words = ("exec", "client", "--", "timeout", "5", "wget", "-q", "-O", "-", url)
    return cluster.kubectl(*words).strip()


def outside(cluster, url, address, *words):
    """What the host gets, whose resolver is told where the name is."""
    host = url.split("/")[2]
    resolve = [w for port in (80, 443) for w in ("--resolve", f"{host}:{port}:{address}")]
    told = ("-sS", "--fail", "--max-time", "5", *resolve, *words)
    return cluster.run("curl", *told, url).strip()


def test_the_documents_dns_works_when_it_comes_before_its_services(paths):
    words = ("--kubeconfig", paths.kubeconfig, "-f", MINIK8S / "dns.yaml", "--compat", "minik8s")
    paths.run(sys.executable, "-P", "-m", "motley.cli.main", "apply", *words)
    paths.kubectl("apply", "-f", MINIK8S / "dns-service.yaml")
    paths.kubectl("apply", "-f", "-", stdin=NEWS)
    paths.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    eventually(lambda: inside(paths, f"http://{NAME}:80/world") == "world")
    assert inside(paths, f"http://{NAME}/world/a/") == "world-a"
    assert inside(paths, f"http://{NAME}/new/world") == inside(paths, "http://10.6.1.2") == "news"
    assert outside(paths, f"http://{NAME}/world", "10.8.0.1") == "world"
    assert outside(paths, f"http://{NAME}/new/world/", "10.8.0.1") == "news"
    eventually(lambda: NAME in paths.kubectl("get", "routes"))
    assert "10.8.0.1" in paths.kubectl("get", "routes")


def test_paths_stay_while_the_gateway_and_the_api_server_are_killed(paths):
    components = paths.components()
    for name in ("gateway", "apiserver"):
        os.kill(components[name]["pid"], signal.SIGKILL)
    assert outside(paths, f"http://{NAME}/world", "10.8.0.1") == "world"
    eventually(paths.all_run)
    assert outside(paths, f"http://{NAME}/world", "10.8.0.1") == "world"


def test_an_ingress_with_tls_is_reached_by_name_from_a_pod_and_from_the_host(paths, tmp_path):
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    name = ("-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example")
    files = ("-keyout", tmp_path / "key", "-out", tmp_path / "crt")
    subprocess.run(["openssl", *words, *name, *files], check=True, capture_output=True)
    paths.kubectl("apply", "-f", EXAMPLES / "paths" / "ingress.yaml")
    pair = (f"--cert={tmp_path / 'crt'}", f"--key={tmp_path / 'key'}")
    paths.kubectl("create", "secret", "tls", "shop-tls", *pair)

    def address():
        entries = paths.get("ingress", "shop")["status"]["loadBalancer"]["ingress"]
        return entries[0]["ip"]

    where = eventually(address)
    secure = ("--cacert", tmp_path / "crt")
    eventually(lambda: outside(paths, "https://shop.example/", where, *secure) == "world")
    eventually(lambda: inside(paths, "http://shop.example/") == "world")
    assert "shop.example" in paths.kubectl("get", "ingress", "shop")


def test_what_is_deleted_is_gone_and_down_leaves_no_nginx(paths):
    paths.kubectl("delete", "route", "dns-test")
    paths.kubectl("delete", "ingress", "shop")
    program = paths.kubectl_program
    words = (program, "--kubeconfig", paths.kubeconfig, "exec", "client", "--", "nslookup")
    eventually(lambda: paths.answer(*words, f"{NAME}.")[0] != 0)
    listed = paths.kubectl("get", "services", "-n", "kube-system", "-o", "name").split()
    assert listed == ["service/motley-gateway"]
    directory = configs.load(paths.root).gateway
    eventually(lambda: nginx.running(directory) == [])
    paths.kubectl("apply", "-f", EXAMPLES / "paths" / "route.yaml")
    eventually(lambda: nginx.running(directory) != [])
    paths.motley("down", "--grace", 0)
    assert paths.leftovers() == {}
