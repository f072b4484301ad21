"""Unlike nodes under one Service: equal shares of CPU against shares by speed (Hicev2).

Two nodes: one of this machine's architecture, one emulated, so really slower. A Deployment with a
replica on each stands behind a Service that spreads requests evenly; clients call it as fast as
they are answered, a connection each time. First both replicas get the same CPU, as Kubernetes gives
it: the slow one is full long before the fast one, and holds up half of the requests. Then Hicev2
gives each what it needs on its node.

What is measured comes from the replicas themselves (CPU time and requests of their processes) and
from the clients. Before that the cluster learns the nodes' speeds from replicas under load; the
truth it is compared with is the CPU time of one request on either node.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import figures
from motley.controllers.nodespeed import SPEED
from motley.ops import emulation, images
from motley.ops.testbed import Testbed, eventually

CACHE = Path(__file__).parents[1] / ".cache"
PORT = 8080
FAST, SLOW = "node-1", "node-2"
SLOW_LIMIT_M = 700  # of the replica on the slow node: one thread, so less than one core
LEARN_S = 300.0
SERVER = """
import http.server, time
served = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        if self.path == "/cpu":
            body = f"{time.process_time()} {served} {time.monotonic()}".encode()
        else:
            total = 0
            for number in range(WORK):
                total = (total * 31 + number) & 0xFFFFFFFF
            served += 1
            body = str(total).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 8080), Handler).serve_forever()
"""
CLIENTS = """
import http.client, json, sys, threading, time
address, port, count, seconds, pause = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])
ends, answered, failed, lock = time.monotonic() + seconds, [0], [0], threading.Lock()
def client():
    while time.monotonic() < ends:
        try:
            connection = http.client.HTTPConnection(address, port, timeout=30)
            connection.request("GET", "/")
            ok = connection.getresponse().read().isdigit()
            connection.close()
        except OSError:
            ok = False
        with lock:
            (answered if ok else failed)[0] += 1
        time.sleep(pause)
threads = [threading.Thread(target=client) for _ in range(int(count))]
begun = time.monotonic()
for one in threads: one.start()
for one in threads: one.join()
print(json.dumps([answered[0], failed[0], time.monotonic() - begun]))
"""
ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())"


def deployment(name: str, scheduler: str, cpu_m: int, speed: str) -> list[dict[str, Any]]:
    """Two replicas, one on each node, and their Service."""
    labels = {"app": name, **({"hice.kb": speed} if speed else {})}
    limits = {"cpu": f"{cpu_m}m"} if cpu_m else {}
    container = {
        "name": "main",
        "image": images.PYTHON.reference,
        "command": ["python3", "-c", SERVER.replace("WORK", "8000")],
        "resources": {"limits": limits, "requests": limits},
    }
    apart = {
        "labelSelector": {"matchLabels": {"app": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "affinity": {"podAntiAffinity": {required: [apart]}},
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": PORT}]},
        },
    ]


class Bench:
    """The cluster and what is asked of it."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed

    def deploy(self, *arguments: Any) -> dict[str, Any]:
        """The two pods, by node, once both serve; the Service's address under "service"."""
        objects = deployment(*arguments)
        document = {"apiVersion": "v1", "kind": "List", "items": objects}
        text = msgspec.json.encode(document).decode()
        self._testbed.kubectl("apply", "-f", "-", stdin=text)
        name = arguments[0]
        self._testbed.kubectl("rollout", "status", f"deployment/{name}", "--timeout=120s")
        pods = self._testbed.get("pods", "-l", f"app={name}")["items"]
        found: dict[str, Any] = {pod["spec"]["nodeName"]: pod for pod in pods}
        for pod in pods:
            eventually(lambda pod=pod: self.cpu(pod), 60)
        found["service"] = self._testbed.get("service", name)["spec"]["clusterIP"]
        return found

    def remove(self, name: str) -> None:
        """Make room for the next."""
        self._testbed.kubectl("delete", "deployment,service", name, "--wait=true")
        eventually(lambda: not self._testbed.get("pods", "-l", f"app={name}")["items"], 60)

    def cpu(self, pod: dict[str, Any]) -> tuple[float, int, float]:
        """CPU seconds and requests of a replica so far, and its clock."""
        url = f"http://{pod['status']['podIP']}:{PORT}/cpu"
        spent, served, now = self._testbed.run(sys.executable, "-c", ASK, url).split()
        return float(spent), int(served), float(now)

    def load(
        self, address: str, clients: int, seconds: float, pause_s: float = 0.0
    ) -> tuple[int, int, float]:
        """Clients in a closed loop: answers, failures, seconds."""
        words = (address, PORT, clients, seconds, pause_s)
        out = self._testbed.run(sys.executable, "-c", CLIENTS, *words, timeout_s=seconds + 90)
        answered, failed, took = msgspec.json.decode(out)
        return answered, failed, took

    def per_request(self, pod: dict[str, Any], seconds: float) -> float:
        """CPU seconds of one request on the pod's node, by requests to it alone."""
        before = self.cpu(pod)
        self.load(pod["status"]["podIP"], 1, seconds)
        after = self.cpu(pod)
        return (after[0] - before[0]) / (after[1] - before[1])

    def node(self, name: str) -> dict[str, Any]:
        """A Node object."""
        found: dict[str, Any] = self._testbed.get("node", name)
        return found

    def measure(self, pods: dict[str, Any], seconds: float) -> tuple[float, dict[str, float]]:
        """Requests per second of the Service, and each replica's use of its own limit."""
        self.load(pods["service"], 16, 3.0)  # everything is warm and the queues are full
        before = {node: self.cpu(pods[node]) for node in (FAST, SLOW)}
        answered, failed, took = self.load(pods["service"], 16, seconds)
        assert failed == 0, f"{failed} requests failed"
        used = {}
        for node in (FAST, SLOW):
            spent, _, now = self.cpu(pods[node])
            share = (spent - before[node][0]) / (now - before[node][2])
            used[node] = share / cores(pods[node])
        return answered / took, used


def cores(pod: dict[str, Any]) -> float:
    """The CPU limit of a pod."""
    text = pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def learn(report: figures.Report, bench: Bench) -> float:
    """How much slower the slow node is, in truth; and how soon the cluster knows."""
    pods = bench.deploy("learn", "default-scheduler", 0, "")
    costs = {node: bench.per_request(pods[node], 5.0) for node in (FAST, SLOW)}
    truth = costs[SLOW] / costs[FAST]
    report.add("heterogeneous.truth", truth, "×", "CPU of one request, slow node over fast node")
    begun = time.monotonic()
    estimate = off = 0.0
    while time.monotonic() - begun < LEARN_S:
        bench.load(pods["service"], 4, 10.0, 0.1)
        said = [bench.node(node)["metadata"].get("annotations", {}) for node in (FAST, SLOW)]
        if all(SPEED in one for one in said):
            fast, slow = (float(one[SPEED]) for one in said)
            estimate, off = fast / slow, abs(fast / slow / truth - 1)
            if off < 0.10:
                break
    took = time.monotonic() - begun
    report.add("heterogeneous.estimate", estimate, "×", f"learnt; {off:.1%} off, target 10 %")
    report.add("heterogeneous.estimate.after", took, "s", "of load, target 300")
    bench.remove("learn")
    return truth


def compare(report: figures.Report, bench: Bench, truth: float, seconds: float) -> None:
    """Equal CPU, then CPU by speed, by the speeds the cluster has on its nodes."""
    speeds = [bench.node(node)["metadata"]["labels"].get("hice.kj") for node in (FAST, SLOW)]
    labelled = float(speeds[0]) / float(speeds[1])
    report.add("heterogeneous.label", labelled, "×", "fast over slow, as nodes are labelled")
    base = max(10, round(SLOW_LIMIT_M / truth))
    rates = {}
    for way, scheduler, speed in (
        ("equal", "default-scheduler", ""),
        ("hicev2", "kubehice-scheduler", str(speeds[0])),
    ):
        pods = bench.deploy(way, scheduler, base, speed)
        limits = " and ".join(f"{cores(pods[node]) * 1000:.0f}m" for node in (FAST, SLOW))
        rounds = [bench.measure(pods, seconds) for _ in range(3)]
        rates[way] = statistics.median(rate for rate, _ in rounds)
        used = {node: statistics.median(one[node] for _, one in rounds) for node in (FAST, SLOW)}
        report.add(f"heterogeneous.{way}.requests", rates[way], "requests/s", f"limits {limits}")
        for node, name in ((FAST, "fast"), (SLOW, "slow")):
            text = "of its limit used by the replica on the node"
            report.add(f"heterogeneous.{way}.used.{name}", used[node] * 100, "%", text)
        apart = abs(used[FAST] - used[SLOW]) / max(used.values()) * 100
        target = ", target 10" if way == "hicev2" else ""
        report.add(f"heterogeneous.{way}.apart", apart, "%", f"between the two{target}")
        bench.remove(way)
    gain = (rates["hicev2"] / rates["equal"] - 1) * 100
    report.add("heterogeneous.gain", gain, "%", "requests/s by speed over equal, target 25")


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    images.ensure(CACHE / "images", say=lambda _: None)
    emulation.prefetch(CACHE / "images", "arm64", say=lambda _: None)
    testbed = Testbed(CACHE)
    try:
        testbed.make_bare_namespace()
        testbed.up_nodes(2, "--arch", "arm64")
        bench = Bench(testbed)
        truth = learn(report, bench)
        compare(report, bench, truth, 6.0 if report.quick else 20.0)
    finally:
        testbed.destroy()
    report.finish()


if __name__ == "__main__":
    main()
