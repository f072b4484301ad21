"""Unlike nodes under one Service: equal shares of CPU against shares by speed (Hicev2).

Two nodes of really different speed, in two ways. First one of this machine's architecture and one
emulated. Then two alike, each with a core of its own, where a busy neighbour from outside the
cluster shares the core of one: it wakes thousands of times a second and leaves the core's caches
full of its own data, so that a second of CPU time gets less done there.

A Deployment with a replica on each node stands behind a Service that spreads requests evenly;
clients call it as fast as they are answered, a connection each time. First both replicas get the
same CPU, as Kubernetes gives it: the slow one is full long before the fast one, and holds up half
of the requests. Then Hicev2 gives each what it needs on its node.

What is measured comes from the replicas themselves (CPU time and requests of their processes) and
from the clients. Before that the cluster learns the nodes' speeds from replicas under load; the
truth it is compared with is the CPU time of one request on either node.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import figures
from motley.controllers.nodespeed import LABEL, SPEED
from motley.ops import emulation, images
from motley.ops.testbed import Testbed, eventually

CACHE = Path(__file__).parents[1] / ".cache"
PORT = 8080
FAST, SLOW = "node-1", "node-2"
LEARN_S = 300.0


class Way(NamedTuple):
    """One way in which the second node is slower."""

    name: str
    work: str  # what a request makes a replica do
    slow_limit_m: int  # of the replica on the slow node: one thread, so less than its core has


# Arithmetic: each instruction is translated on the emulated node.
EMULATED = Way(
    "emulated",
    """
def work():
    total = 0
    for number in range(8000):
        total = (total * 31 + number) & 0xFFFFFFFF
    return total
""",
    700,
)
# Look-ups in a table that fits into a core's own cache when nobody else uses that.
NEIGHBOUR = Way(
    "neighbour",
    """
import os, random
os.sched_setaffinity(0, {FAST_CORE if os.environ["NODE"] == "FAST" else SLOW_CORE})
keys = [f"key-{number:08d}" for number in range(10_000)]
table = {key: number for number, key in enumerate(keys)}
random.Random(1).shuffle(keys)
def work():
    return sum(sum(map(table.__getitem__, keys)) for _ in range(8))
""",
    300,
)
DISTURBER = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
ends = time.monotonic() + float(sys.argv[2])
data, into = os.urandom(1_500_000), bytearray(1_500_000)
while time.monotonic() < ends:
    into[:] = data
    time.sleep(0.0001)
"""
DISTURBER_S = 1_200.0  # at the most, should nobody stop it
SERVER = """
import http.server, time
served = 0
WORK
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global served
        if self.path == "/cpu":
            body = f"{time.process_time()} {served} {time.monotonic()}".encode()
        else:
            body = str(work()).encode()
            served += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer.request_queue_size = 128  # else a connection too many waits a second
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


def cores_of_nodes() -> tuple[int, int]:
    """The core for each node's pods."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise SystemExit("two cores are needed: each node has its own")
    return found[0], found[1]


def server(way: Way) -> str:
    """The replicas' program."""
    fast, slow = cores_of_nodes()
    work = way.work.replace("FAST_CORE", str(fast)).replace("SLOW_CORE", str(slow))
    return SERVER.replace("WORK", work.replace("FAST", FAST))


def deployment(way: Way, name: str, scheduler: str, cpu_m: int, speed: str) -> list[dict[str, Any]]:
    """Two replicas, one on each node, and their Service."""
    labels = {"app": name, **({"hice.kb": speed} if speed else {})}
    limits = {"cpu": f"{cpu_m}m"} if cpu_m else {}
    container = {
        "name": "main",
        "image": images.PYTHON.reference,
        "command": ["python3", "-c", server(way)],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
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

    def __init__(self, testbed: Testbed, way: Way) -> None:
        self._testbed = testbed
        self.way = way

    def deploy(self, *arguments: Any) -> dict[str, Any]:
        """The two pods, by node, once both serve; the Service's address under "service"."""
        objects = deployment(self.way, *arguments)
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
    bench.load(pods["service"], 4, 3.0, 0.1)  # everything is warm
    before = {node: bench.cpu(pods[node]) for node in (FAST, SLOW)}
    begun = time.monotonic()
    estimate, off = 0.0, 1.0
    while time.monotonic() - begun < LEARN_S:
        bench.load(pods["service"], 4, 10.0, 0.1)
        costs = {node: per_request(before[node], bench.cpu(pods[node])) for node in before}
        truth = costs[SLOW] / costs[FAST]
        nodes = [bench.node(node)["metadata"] for node in (FAST, SLOW)]
        if all(SPEED in node.get("annotations", {}) for node in nodes):
            fast, slow = (float(node["annotations"][SPEED]) for node in nodes)
            estimate, off = fast / slow, abs(fast / slow / truth - 1)
            if off < 0.10 and abs(labelled(bench) / truth - 1) < 0.10:
                break
    took = time.monotonic() - begun
    name = f"heterogeneous.{bench.way.name}"
    report.add(f"{name}.truth", truth, "×", "CPU of one request, slow node over fast node")
    report.add(f"{name}.estimate", estimate, "×", f"learnt; {off:.1%} off, target 10 %")
    report.add(f"{name}.estimate.after", took, "s", "of load, target 300")
    report.add(f"{name}.label", labelled(bench), "×", "fast over slow, as nodes are labelled")
    bench.remove("learn")
    return truth


def per_request(before: tuple[float, int, float], after: tuple[float, int, float]) -> float:
    """CPU seconds of one request of a replica, from two looks at it."""
    return (after[0] - before[0]) / (after[1] - before[1])


def labelled(bench: Bench) -> float:
    """How much faster the fast node is by the labels that Hicev2 goes by."""
    labels = [bench.node(node)["metadata"]["labels"] for node in (FAST, SLOW)]
    fast, slow = (float(one.get(LABEL, 1)) for one in labels)
    return fast / slow


def compare(report: figures.Report, bench: Bench, truth: float, seconds: float) -> None:
    """Equal CPU, then CPU by speed, by the speeds the cluster has on its nodes."""
    name = f"heterogeneous.{bench.way.name}"
    base = max(10, round(bench.way.slow_limit_m / truth))
    speed = bench.node(FAST)["metadata"]["labels"].get(LABEL, "1")
    rates = {}
    for shares, scheduler, basis in (
        ("equal", "default-scheduler", ""),
        ("hicev2", "kubehice-scheduler", speed),
    ):
        pods = bench.deploy(shares, scheduler, base, basis)
        limits = " and ".join(f"{cores(pods[node]) * 1000:.0f}m" for node in (FAST, SLOW))
        rounds = [bench.measure(pods, seconds) for _ in range(3)]
        rates[shares] = statistics.median(rate for rate, _ in rounds)
        used = {node: statistics.median(one[node] for _, one in rounds) for node in (FAST, SLOW)}
        report.add(f"{name}.{shares}.requests", rates[shares], "requests/s", f"limits {limits}")
        for node, which in ((FAST, "fast"), (SLOW, "slow")):
            text = "of its limit used by the replica on the node"
            report.add(f"{name}.{shares}.used.{which}", used[node] * 100, "%", text)
        apart = abs(used[FAST] - used[SLOW]) / max(used.values()) * 100
        target = ", target 10" if shares == "hicev2" else ""
        report.add(f"{name}.{shares}.apart", apart, "%", f"between the two{target}")
        bench.remove(shares)
    gain = (rates["hicev2"] / rates["equal"] - 1) * 100
    report.add(f"{name}.gain", gain, "%", "requests/s by speed over equal, target 25")


@contextlib.contextmanager
def neighbour(report: figures.Report) -> Iterator[None]:
    """Somebody busy on the slow node's core whom the cluster does not know; measured too."""
    core = str(cores_of_nodes()[1])
    process = subprocess.Popen([sys.executable, "-c", DISTURBER, core, str(DISTURBER_S)])
    begun = time.monotonic()
    try:
        yield
        used = _cpu_seconds(process.pid) / (time.monotonic() - begun) * 100
        report.add("heterogeneous.neighbour.used", used, "%", "of the slow node's core, by it")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def run(report: figures.Report, way: Way, *arguments: str) -> None:
    """Both measurements on a cluster of its own."""
    testbed = Testbed(CACHE)
    try:
        testbed.make_bare_namespace()
        testbed.up_nodes(2, *arguments)
        bench = Bench(testbed, way)
        with neighbour(report) if way is NEIGHBOUR else contextlib.nullcontext():
            truth = learn(report, bench)
            compare(report, bench, truth, 6.0 if report.quick else 20.0)
    finally:
        testbed.destroy()


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    images.ensure(CACHE / "images", say=lambda _: None)
    emulation.prefetch(CACHE / "images", "arm64", say=lambda _: None)
    run(report, EMULATED, "--arch", "arm64")
    run(report, NEIGHBOUR)
    report.finish()


if __name__ == "__main__":
    main()
