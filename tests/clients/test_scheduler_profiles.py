"""The documents' scheduler profiles as they are used: configuration files, kubectl, fake nodes."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEEDS = {"n-0": "1.0", "n-1": "0.8", "n-2": "0.5"}
ARCHITECTURES = {"n-0": "amd64", "n-1": "arm64", "n-2": "amd64"}
IMAGE = "local-registry:5000/test-nginx:latest"


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Says that the second node is busy."""

    def do_GET(self):
        used = {"n-0": "13", "n-1": "33", "n-2": "13"}
        result = [{"metric": {"node": n}, "value": [1, v]} for n, v in used.items()]
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
        self.server.asked.append(self.path)

    def log_message(self, *_):
        """Keep quiet."""


@pytest.fixture(scope="module")
def prometheus():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join(10)


@pytest.fixture(scope="module", autouse=True)
def components(server, prometheus, tmp_path_factory):
    """Nodes, and the two schedulers side by side; the image table is named in the file."""
    directory = tmp_path_factory.mktemp("profiles")
    speed = directory / "speed.yml"
    table = EXAMPLES / "kubehice/images.yaml"
    speed.write_text(
        (EXAMPLES / "kubehice/scheduler-configv2.yml").read_text()
        + f"    pluginConfig: [{{name: Hicev1, args: {{imagesFile: {table}}}}}]\n"
    )
    load = directory / "load.yaml"
    address = f"http://127.0.0.1:{prometheus.server_address[1]}"
    text = (EXAMPLES / "realusage/scheduler-config.yaml").read_text()
    text = text.replace("IntervalSeconds: 10", "IntervalSeconds: 1")
    load.write_text(text.replace("http://10.96.0.102:9090", address))
    commands = [
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "n-"],
        ["scheduler", "--health-port", "0", "--config", str(speed)],
        ["scheduler", "--health-port", "0", "--config", str(load)],
    ]
    with processes(server, commands):
        yield


@contextlib.contextmanager
def processes(server, commands, level="warning"):
    """Motley's commands beside a server; the file of what they say."""
    config = ["--kubeconfig", str(server.kubeconfig), "--log-level", level]
    with (server.directory / "components.log").open("wb") as log:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "motley.cli.main", name, *config, *rest],
                stdout=log,
                stderr=log,
            )
            for name, *rest in commands
        ]
        try:
            yield Path(log.name)
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)


def eventually(condition, what, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        threading.Event().wait(0.05)
    return found


@pytest.fixture
def nodes(kubectl):
    """The nodes with the documents' labels; the kubectl they were given with."""
    eventually(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    for name, speed in SPEEDS.items():
        arch = f"kubernetes.io/arch={ARCHITECTURES[name]}"
        kubectl("label", "--overwrite", "node", name, f"hice.kj={speed}", arch)
    return kubectl


def make(
    kubectl,
    name,
    *,
    kb="",
    node="",
    cpu="100m",
    memory="",
    scheduler="kubehice-scheduler",
    uses="",
):
    amounts = {"cpu": cpu, **({"memory": memory} if memory else {})}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"hice.kb": kb} if kb else {},
            "annotations": {"fake.motley.io/usage": uses} if uses else {},
        },
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [
                {
                    "name": "nginx",
                    "image": IMAGE,
                    "resources": {"requests": amounts, "limits": amounts},
                }
            ],
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def bound(kubectl, name):
    def look():
        pod = kubectl("get", "pod", name, "-o", "json").json
        return pod if pod["spec"].get("nodeName") else None

    return eventually(look, f"{name} is bound")


def cpu(pod):
    resources = pod["spec"]["containers"][0]["resources"]
    return resources["requests"]["cpu"], resources["limits"]["cpu"]


def test_a_pod_gets_the_cpu_and_the_image_of_its_node(nodes):
    make(nodes, "one", kb="0.8", node="n-0")
    make(nodes, "two", kb="0.8", node="n-1")
    make(nodes, "three", node="n-2", memory="128Mi")
    found = {name: bound(nodes, name) for name in ("one", "two", "three")}

    assert {name: cpu(pod) for name, pod in found.items()} == {
        "one": ("80m", "80m"),
        "two": ("100m", "100m"),
        "three": ("200m", "200m"),
    }
    variants = {n: p["spec"]["containers"][0]["image"].split("-")[-1] for n, p in found.items()}
    assert variants == {"one": "amd64", "two": "arm64", "three": "amd64"}
    assert found["three"]["status"]["qosClass"] == "Guaranteed"
    memory = found["three"]["spec"]["containers"][0]["resources"]["requests"]["memory"]
    assert memory == "128Mi"
    assert "80m" in nodes("describe", "pod", "one").out


def test_a_new_label_acts_at_once_and_a_wrong_one_is_told(nodes):
    make(nodes, "heavy", kb="1.0", node="n-2", cpu="800m")
    words = "1 node(s)'s performace is too low"
    eventually(lambda: words in nodes("describe", "pod", "heavy").out, "the reason")
    nodes("label", "--overwrite", "node", "n-2", "hice.kj=0.9")
    assert cpu(bound(nodes, "heavy")) == ("889m", "889m")
    nodes("label", "--overwrite", "node", "n-2", "hice.kj=quick")
    make(nodes, "plain", node="n-2")
    assert cpu(bound(nodes, "plain")) == ("100m", "100m")

    def told():
        events = nodes("get", "events", "-A", "--field-selector=reason=InvalidSpeed", "-o", "json")
        return [e for e in events.json["items"] if e["involvedObject"]["name"] == "n-2"]

    assert eventually(told, "the event")[0]["type"] == "Warning"


def test_pods_avoid_the_node_that_prometheus_says_is_busy(nodes, prometheus):
    already = len(prometheus.asked)
    eventually(lambda: len(prometheus.asked) > already + 1, "an answer that was taken")
    for i in range(6):
        make(nodes, f"p{i}", scheduler="mem-real-usage-scheduler", memory="100Mi")
    where = {bound(nodes, f"p{i}")["spec"]["nodeName"] for i in range(6)}
    assert where == {"n-0", "n-2"}
    assert "query=node_mem_usage_avg_5m" in prometheus.asked[0]


def test_without_a_prometheus_the_clusters_own_metrics_decide(make_server, kubectl_on, tmp_path):
    config = tmp_path / "cpu.yaml"
    text = (EXAMPLES / "realusage/scheduler-config.yaml").read_text()
    text = text.replace("MemRealUsage", "CpuRealUsage").replace("mem-real", "cpu-real")
    text = text.replace("IntervalSeconds: 10", "IntervalSeconds: 1")
    text = text.replace("prometheusApiAddr: http://10.96.0.102:9090", 'prometheusApiAddr: ""')
    config.write_text(text)
    server = make_server("memory", "--metrics-every-s", "0.5")
    kubectl = kubectl_on(server)
    commands = [
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "n-"],
        ["scheduler", "--health-port", "0", "--config", str(config)],
    ]
    with processes(server, commands, level="debug") as log:
        eventually(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
        ours = {"scheduler": "cpu-real-usage-scheduler"}
        make(kubectl, "busy", node="n-1", uses="cpu=3,memory=1Gi", **ours)
        bound(kubectl, "busy")

        def has_heard():
            said = [line for line in log.read_text().splitlines() if "measurements taken" in line]
            return [line for line in said if "'n-1': 3000.0" in line]

        eventually(has_heard, "the figures")
        for i in range(4):
            make(kubectl, f"p{i}", **ours)
        where = {bound(kubectl, f"p{i}")["spec"]["nodeName"] for i in range(4)}
    assert where == {"n-0", "n-2"}
