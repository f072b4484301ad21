"""Routes and Ingresses by a real nginx, with Motley's API server, proxy and DNS, and kubectl.

One namespace is the machine; others are pods, two of which serve. The tests share them, and each
makes objects of its own.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from motley.network.paths import nginx

pytestmark = pytest.mark.root
MOTLEY = (sys.executable, "-m", "motley.cli.main")
ADDRESS = "10.77.0.1"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
EXAMPLES = Path(__file__).parents[2] / "examples" / "minik8s"


class Bed:
    """The machine with everything on it, and its user."""

    def __init__(self, node):
        self.node = node
        self.directory = node.directory / "gateway"
        self.kubeconfig = node.directory / "api" / "admin.kubeconfig"
        self.hosts_file = node.directory / "hosts"
        self.hosts_file.write_text("127.0.0.1\tlocalhost\n")
        self.gateway = None

    def start(self):
        node = self.node
        node.run("ip", "link", "add", "under0", "type", "bridge")
        node.run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "under0")
        node.run("ip", "link", "set", "under0", "up")
        node.ensure()
        words = ("--data-dir", node.directory / "api", "--bind", "0.0.0.0", "--port", "6443")
        api = node.command(*MOTLEY, "apiserver", "--compat", "minik8s", *words)
        node.spawn(api, ready=False)
        ready = ("get", "--raw", "/readyz")
        node.eventually(lambda: self.kubectl(*ready, check=False).stdout == "ok")
        node.start_proxy("--kubeconfig", self.kubeconfig)
        self.start_gateway("--no-leader-elect")
        for name in ("world", "news"):
            pod = node.add_pod(name, server=False)
            node.spawn(pod.python("mirror.py", name, 8080))
        node.add_pod("client", server=False)
        self.kubectl("apply", "-f", EXAMPLES / "service-cidr.yaml")
        for name in ("minik8s", "minik8s-names"):  # as the controllers, which do not run here, do
            words = ("patch", "servicecidr", name, "--subresource=status", "--type=merge", "-p")
            self.kubectl(*words, json.dumps({"status": {"conditions": [READY]}}))

    def start_gateway(self, *words):
        words += ("--kubeconfig", self.kubeconfig, "--directory", self.directory)
        words += ("--address", ADDRESS, "--node-name", "node-1", "--hosts-file", self.hosts_file)
        command = self.node.command(*MOTLEY, "gateway", *words)
        self.gateway = self.node.spawn(command, ready=False)

    def kubectl(self, *words, **options):
        return self.node.run("kubectl", "--kubeconfig", self.kubeconfig, *words, **options)

    def put(self, version, kind, name, rest, **metadata):
        metadata = {"name": name, "namespace": "default", **metadata}
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
        self.kubectl("apply", "-f", "-", input=json.dumps(body))

    def serve(self, name, pod, **spec):
        """A Service with the pod behind it."""
        spec = {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
        self.put("v1", "Service", name, {"spec": spec})
        labels = {"kubernetes.io/service-name": name}
        if spec.get("clusterIP") == "None":
            labels["service.kubernetes.io/headless"] = ""
        rest = {
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [pod.ip], "conditions": {"ready": True}}],
        }
        self.put("discovery.k8s.io/v1", "EndpointSlice", name, rest, labels=labels)

    def route(self, name, host, *paths):
        fields = [dict(zip(("path", "service", "port"), path, strict=True)) for path in paths]
        self.put("motley.io/v1", "Route", name, {"spec": {"host": host, "paths": fields}})

    def ingress(self, name, spec, **annotations):
        marks = {f"motley.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
        self.put("networking.k8s.io/v1", "Ingress", name, {"spec": spec}, annotations=marks)

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def address(self):
        return self.get("service", "motley-gateway", "-n", "kube-system")["spec"]["clusterIP"]

    def curl(self, url, *words, frm=None, check=True):
        """(status, body) of a request, from a pod or from the machine, to the gateway."""
        host = url.split("/")[2].split(":")[0]
        resolve = [w for p in (80, 443) for w in ("--resolve", f"{host}:{p}:{self.address()}")]
        command = ("curl", "-sS", "--max-time", "5", *resolve, *words, "-w", "\n%{http_code}", url)
        done = (frm or self.node).run(*command, check=check)
        body, _, code = done.stdout.rpartition("\n")
        return int(code or 0), body

    def told(self, url, *words, **options):
        code, body = self.curl(url, *words, **options)
        assert code == 200, (code, body)
        return json.loads(body)

    def ask(self, name):
        pod = self.node.pods["client"]
        done = subprocess.run(
            pod.python("ask.py", "10.96.0.10", "udp", name, "A"), capture_output=True, check=True
        )
        return json.loads(done.stdout)[0]

    def reasons(self, kind, name):
        found = self.get("events", f"--field-selector=involvedObject.name={name}")["items"]
        return {e["reason"] for e in found if e["involvedObject"]["kind"] == kind}

    def close(self):
        if self.gateway is not None:
            self.gateway.kill()  # first: it would start nginx again
        for pid in nginx.running(self.directory):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def bed(make_shared_node):
    bed = Bed(make_shared_node())
    try:
        bed.start()
        yield bed
    finally:
        bed.close()


@pytest.fixture
def client(bed):
    return bed.node.pods["client"]


def test_the_documents_manifests_forward_by_longest_path_whichever_comes_first(bed, client):
    eventually = bed.node.eventually
    manifest = EXAMPLES / "dns.yaml"
    bed.node.run(
        *MOTLEY, *("apply", "--compat", "minik8s", "-f", manifest, "--kubeconfig", bed.kubeconfig)
    )
    url = "http://hello.world.minik8s"
    eventually(lambda: bed.curl(f"{url}/world")[0] == 503)
    assert "ServiceNotFound" in eventually(lambda: bed.reasons("Route", "dns-test"))
    world, news = (bed.node.pods[name] for name in ("world", "news"))
    bed.serve("dns-world", world, clusterIP="10.6.1.1")
    bed.serve("dns-new-world", news, clusterIP="10.6.1.2")
    for frm in (None, client):
        eventually(lambda frm=frm: bed.told(f"{url}/world", frm=frm)["name"] == "world")
        eventually(lambda frm=frm: bed.told(f"{url}/new/world/a?b=c", frm=frm)["name"] == "news")
        told = bed.told(f"{url}:80/new/world/a%2Fb/?c=d%20e", frm=frm)
        assert (told["name"], told["path"]) == ("news", "/a%2Fb/?c=d%20e")
        assert told["headers"]["x-forwarded-prefix"] == "/new/world"
        assert told["headers"]["host"].startswith("hello.world.minik8s")
        assert bed.told(f"{url}/world?x", frm=frm)["path"] == "/?x"
        assert bed.told(f"{url}/w%6Frld/a%20b?x", frm=frm)["path"] == "/a%20b?x"
        assert bed.curl(f"{url}/worldly", frm=frm)[0] == 404
        assert bed.curl(f"{url}/new", frm=frm)[0] == 404
    route = eventually(lambda: bed.get("route", "dns-test").get("status"))
    assert route["address"] == "10.8.0.1"
    assert bed.ask("hello.world.minik8s") == ["NOERROR", ["hello.world.minik8s. 10.8.0.1"]]
    # As the documents say: by the name's own address, from users and inside pods.
    for frm in (bed.node, client):
        resolve = ("--resolve", "hello.world.minik8s:80:10.8.0.1")
        body = frm.run("curl", "-sS", "--max-time", "5", *resolve, f"{url}/world/x").stdout
        assert json.loads(body)["path"] == "/x"
    assert "10.8.0.1\thello.world.minik8s" in bed.hosts_file.read_text()


def test_a_deleted_route_leaves_neither_name_nor_address_nor_path(bed, client):
    bed.kubectl("delete", "route", "dns-test")
    eventually = bed.node.eventually
    eventually(lambda: bed.ask("hello.world.minik8s")[1] == [])
    services = [s["metadata"]["name"] for s in bed.get("services", "-n", "kube-system")["items"]]
    assert services == ["motley-gateway"]
    slices = bed.get("endpointslices", "-n", "kube-system")["items"]
    assert all(not piece["endpoints"] for piece in slices)
    assert bed.hosts_file.read_text() == "127.0.0.1\tlocalhost\n"
    eventually(lambda: nginx.running(bed.directory) == [])
    assert "10.8.0.1" not in bed.node.run("ip", "route").stdout


HTTP = {"name": "http"}


def backend(name, port=HTTP):
    return {"service": {"name": name, "port": port}}


def rule(host, *paths):
    fields = [{"path": p, "pathType": t, "backend": b} for p, t, b in paths]
    return {**({"host": host} if host else {}), "http": {"paths": fields}}


@pytest.fixture(scope="module")
def services(bed):
    """Two services for the tests that follow, one of them headless."""
    bed.serve("world", bed.node.pods["world"])
    bed.serve("news", bed.node.pods["news"], clusterIP="None")


@pytest.fixture
def certificate(bed, tmp_path):
    """Makes Secrets with a certificate of a name, and tells their fingerprints."""

    def make(name, host):
        files = ("-keyout", tmp_path / "key", "-out", tmp_path / "crt")
        subject = ("-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}")
        words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        subprocess.run(["openssl", *words, *files, *subject], check=True, capture_output=True)
        bed.kubectl("delete", "secret", name, "--ignore-not-found")
        pair = (f"--cert={tmp_path / 'crt'}", f"--key={tmp_path / 'key'}")
        bed.kubectl("create", "secret", "tls", name, *pair)
        return (tmp_path / "crt").read_text()

    return make


def served_certificate(bed, host):
    words = ("openssl", "s_client", "-connect", f"{bed.address()}:443", "-servername", host)
    done = bed.node.run(*words, input="", check=False)
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"
    if begin not in done.stdout:
        return ""
    return begin + done.stdout.partition(begin)[2].partition(end)[0] + end


def test_an_ingress_is_served_by_host_path_and_type_with_the_prefix_left_in(bed, services, client):
    paths = [("/", "Prefix", backend("world")), ("/news", "Prefix", backend("news"))]
    paths += [("/news/today", "Exact", backend("world", {"number": 80}))]
    rules = [rule("shop.example", *paths), rule("*.wild.example", paths[0])]
    bed.ingress("shop", {"rules": rules})
    bed.node.eventually(
        lambda: bed.told("http://shop.example/a//b?c", frm=client)["path"] == "/a//b?c"
    )
    assert bed.told("http://shop.example/news/x")["name"] == "news"
    assert bed.told("http://shop.example/news/x")["path"] == "/news/x"
    assert bed.told("http://shop.example/news/today")["name"] == "world"
    assert bed.told("http://shop.example/newsy")["name"] == "world"
    assert bed.told("http://one.wild.example/")["name"] == "world"
    assert bed.curl("http://one.two.wild.example/")[0] == 404
    assert bed.curl("http://elsewhere.example/")[0] == 404
    status = bed.node.eventually(lambda: bed.get("ingress", "shop")["status"]["loadBalancer"])
    assert status == {"ingress": [{"ip": bed.address()}]}
    bed.node.eventually(
        lambda: bed.ask("any.wild.example")[1] == [f"any.wild.example. {bed.address()}"]
    )
    assert bed.get("ingress", "shop")["spec"]["ingressClassName"] == "motley"


def test_tls_is_chosen_by_name_and_follows_its_secret(bed, services, certificate):
    tls = [{"hosts": ["safe.example"], "secretName": "safe"}]
    bed.ingress(
        "safe", {"tls": tls, "rules": [rule("safe.example", ("/", "Prefix", backend("world")))]}
    )
    bed.node.eventually(lambda: "SecretNotFound" in bed.reasons("Ingress", "safe"))
    for _ in range(2):
        made = certificate("safe", "safe.example")
        bed.node.eventually(lambda made=made: served_certificate(bed, "safe.example") == made)
        told = bed.told("https://safe.example/x", "--insecure")
        assert (told["name"], told["headers"]["x-forwarded-proto"]) == ("world", "https")
    assert served_certificate(bed, "elsewhere.example") == ""
    bed.ingress(
        "safe",
        {"tls": tls, "rules": [rule("safe.example", ("/", "Prefix", backend("world")))]},
        ssl_redirect="true",
    )
    bed.node.eventually(lambda: bed.curl("http://safe.example/x")[0] == 308)


def test_what_cannot_be_served_is_said_on_the_object_and_nothing_else_suffers(
    bed, services, client
):
    resource = {"resource": {"apiGroup": "x.example", "kind": "Bucket", "name": "b"}}
    spec = {
        "rules": [
            rule("odd.example", ("/r", "Prefix", resource), ("/", "Prefix", backend("world")))
        ]
    }
    bed.ingress("odd", spec)
    bed.route(
        "rude", "rude.example", ('/a"; return 200; #', "world", 80), ("/loop", "127.0.0.1", 22)
    )
    bed.route("overlate", "odd.example", ("/", "news", 80))
    bed.put(
        "networking.k8s.io/v1",
        "Ingress",
        "other",
        {
            "spec": {
                "ingressClassName": "nginx",
                "rules": [rule("other.example", ("/", "Prefix", backend("world")))],
            }
        },
    )
    bed.node.eventually(lambda: bed.told("http://odd.example/")["name"] == "world")
    assert bed.node.eventually(lambda: bed.reasons("Ingress", "odd")) == {"NotSupported"}
    assert bed.node.eventually(lambda: bed.reasons("Route", "overlate")) == {"PathTaken"}
    reasons = {"InvalidPath", "ServiceNotFound"}
    bed.node.eventually(lambda: bed.reasons("Route", "rude") == reasons)
    assert bed.curl("http://rude.example/loop")[0] == 503
    assert bed.curl("http://other.example/")[0] == 404
    assert bed.reasons("Ingress", "other") == set()
    condition = bed.get("route", "overlate")["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Ready",
        "False",
        "PathTaken",
    )


def test_an_upgraded_connection_and_a_large_body_pass(bed, services):
    bed.route("plain", "plain.example", ("/", "world", 80))
    bed.node.eventually(lambda: bed.told("http://plain.example/")["name"] == "world")
    head = (b"GET / HTTP/1.1", b"Host: plain.example", b"Upgrade: mirror", b"Connection: Upgrade")
    ask = b"\r\n".join((*head, b"", b"ping\n"))
    script = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], 80), 5);"
        f"s.sendall({ask!r}); print(b''.join(iter(lambda: s.recv(99), b'')))"
    )
    told = bed.node.run(sys.executable, "-c", script, bed.address()).stdout
    assert "101 Switching Protocols" in told
    assert "ping" in told
    big = bed.node.directory / "big"
    big.write_bytes(bytes(3 << 20))
    assert bed.told("http://plain.example/", "--data-binary", f"@{big}")["size"] == 3 << 20
    words = ("curl", "-sSi", "-H", "Host: plain.example", f"http://{bed.address()}/")
    assert "Server: nginx" in bed.node.run(*words).stdout.splitlines()  # and no version


def test_no_request_fails_while_configurations_change_and_the_gateway_is_killed(bed, services):
    bed.route("steady", "steady.example", ("/s", "world", 80))
    bed.node.eventually(lambda: bed.told("http://steady.example/s")["name"] == "world")
    words = ("paths_load.py", bed.address(), "steady.example", "/s/x")
    load = bed.node.spawn(bed.node.python(*words))
    for number in range(4):
        bed.route(f"more-{number}", f"more-{number}.example", ("/", "world", 80))
        url = f"http://more-{number}.example/"
        bed.node.eventually(lambda url=url: bed.curl(url)[0] == 200)
    before = nginx.master(bed.directory)
    bed.gateway.kill()
    bed.start_gateway()
    bed.kubectl("delete", "route", "more-0")
    bed.node.eventually(lambda: bed.curl("http://more-0.example/")[0] == 404)
    assert nginx.master(bed.directory) == before  # taken over, not replaced
    seen = json.loads(load.say(""))
    assert set(seen) == {"200"}
    assert seen["200"] > 50


def test_an_nginx_that_was_killed_is_replaced_also_when_its_workers_hold_the_ports(bed, services):
    bed.route("again", "again.example", ("/", "world", 80))
    bed.node.eventually(lambda: bed.curl("http://again.example/")[0] == 200)
    before = nginx.master(bed.directory)
    os.kill(before, signal.SIGKILL)
    bed.node.eventually(lambda: nginx.master(bed.directory) not in (before, None))
    bed.node.eventually(lambda: bed.curl("http://again.example/", check=False)[0] == 200)
    bed.node.run(*MOTLEY, "gateway", "--stop", "--directory", bed.directory)
    bed.node.eventually(lambda: nginx.master(bed.directory) is not None)  # ours comes back
