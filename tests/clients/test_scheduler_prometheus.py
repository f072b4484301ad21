"""Schedulers by measured use with a real Prometheus and real node_exporters.

The real-usage document is played as it is written, with pods of other profiles beside.

Three nodes. Two are said to use what the test chooses; of the third a node_exporter reports the
memory, as its machine would have it that runs a process nobody told the cluster of. That machine
is small, and made of a `meminfo` alone, so that the process need not be large; its memory is the
process' own. A fourth exporter reports this machine, which is no node.
"""

import contextlib
import copy
import http.server
import json
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import yaml

from motley.ops.freeports import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
TOTAL_KB = 400 << 10
HOSTNAME = "kubernetes.io/hostname"
NODES = {"n-0", "n-1", "n-2"}
IDLE = 13.4  # percent: what a machine uses that does nothing in particular
# Takes memory until the share of a small machine is taken, says so, and waits.
STRESS = """
import sys
kept = []
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
while resident() < int(sys.argv[1]):
    kept.append(b"x" * (256 << 10))
print(resident(), flush=True)
sys.stdin.read()
"""


def meminfo(used_percent):
    free = int(TOTAL_KB * (100 - used_percent) / 100)
    amounts = {"MemTotal": TOTAL_KB, "MemFree": free, "Buffers": 0, "Cached": 0}
    return "".join(f"{name}: {kb:>12} kB\n" for name, kb in amounts.items())


class Exporter(http.server.BaseHTTPRequestHandler):
    """What node_exporter would say of machines that use so much."""

    def do_GET(self):
        used = self.server.used[self.path.strip("/")]
        lines = ["chosen_cpu_percent 0.5\n"]
        if self.path == "/n-0":
            # Scraped every second: so many requests a second.
            self.server.requests += self.server.per_second
            lines.append(f"web_requests_total {self.server.requests}\n")
        if used is not None:
            free = 1e9 * (1 - used / 100)
            series = {"MemTotal": 1e9, "MemFree": free, "Buffers": 0, "Cached": 0}
            lines += [f"node_memory_{name}_bytes {value}\n" for name, value in series.items()]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(lines).encode())

    def log_message(self, *_):
        """Keep quiet."""


@pytest.fixture(scope="module")
def told():
    """The exporter of machines that only the test knows."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as running:
        running.requests, running.per_second = 0, 0
        running.used = {"n-0": IDLE, "n-1": None, "n-2": IDLE - 1, "stray": 99.0}
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join(10)


@contextlib.contextmanager
def process(*command, log):
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait(30)


class Prometheus:
    def __init__(self, address, machine):
        self.address, self.machine = address, machine

    def query(self, expression):
        """By the label `node`; empty while it is not up."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1/query?{query}", timeout=5) as got:
                found = json.load(got)["data"]["result"]
        except OSError:
            return {}
        return {s["metric"].get("node"): float(s["value"][1]) for s in found}

    def set_used(self, percent):
        fresh = self.machine / "meminfo.new"
        fresh.write_text(meminfo(percent))
        fresh.rename(self.machine / "meminfo")


@pytest.fixture(scope="module")
def prometheus(told, tmp_path_factory):
    """A Prometheus with the rules that `motley prometheus-rules` writes."""
    directory = tmp_path_factory.mktemp("prometheus")
    rules, machine = directory / "rules.yml", directory / "proc"
    machine.mkdir()
    options = ["--output", str(rules), "--window", "2s", "--step", "1s", "--rate", "5s",
               "--http-requests-metric", "web_requests_total",
               "--http-requests-per-node-max", "100"]  # fmt: skip
    motley = [sys.executable, "-m", "motley.cli.main", "prometheus-rules", *options]
    subprocess.run(motley, check=True, timeout=30)
    port, small, real = (free_port() for _ in range(3))
    fake = f"127.0.0.1:{told.server_address[1]}"
    targets = [
        *((fake, {"node": name, "__metrics_path__": f"/{name}"}) for name in sorted(NODES)),
        (fake, {"__metrics_path__": "/stray"}),
        (f"127.0.0.1:{small}", {"node": "n-1"}),
        (f"127.0.0.1:{real}", {"node": "not-in-the-cluster"}),
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": "node",
                "static_configs": [{"targets": [t], "labels": labels} for t, labels in targets],
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    exporter = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.meminfo"]
    with contextlib.ExitStack() as stack:
        running = Prometheus(f"http://127.0.0.1:{port}", machine)
        running.set_used(IDLE)
        for name, command in {
            "small": [*exporter, f"--web.listen-address=127.0.0.1:{small}",
                      f"--path.procfs={machine}"],
            "real": [*exporter, "--collector.cpu", f"--web.listen-address=127.0.0.1:{real}"],
            "prometheus": ["prometheus", f"--config.file={directory / 'prometheus.yml'}",
                           f"--storage.tsdb.path={directory / 'data'}", "--log.level=warn",
                           f"--web.listen-address=127.0.0.1:{port}"],
        }.items():  # fmt: skip
            stack.enter_context(process(*command, log=directory / f"{name}.log"))
        yield running


def configuration(address):
    """The document's file, and the other examples' profiles beside its own."""
    document = yaml.safe_load((EXAMPLES / "realusage/scheduler-config.yaml").read_text())
    source = {"prometheusApiAddr": address, "queryMetricIntervalSeconds": 1}
    document["profiles"][0]["pluginConfig"][0]["args"] |= source
    changes = {
        "realusage/load-aware-config.yaml": {
            "usageThresholds": {"memory": 30, "httpRequests": 60},
            "aggregated": None,
            "metrics": {"httpRequests": "node_http_requests_percent"},
        },
        "realusage/overcommit-config.yaml": {"metrics": {"cpu": "chosen_cpu_percent"}},
        "networkaware/scheduler-config.yaml": None,
        "minik8s/scheduler-config.yaml": None,
    }
    for name, arguments in changes.items():
        [profile] = yaml.safe_load((EXAMPLES / name).read_text())["profiles"]
        if arguments is not None:
            profile["pluginConfig"][0]["args"] |= {**source, **arguments}
        document["profiles"].append(profile)
    blind = copy.deepcopy(document["profiles"][0]) | {"schedulerName": "blind-scheduler"}
    nobody = {"prometheusApiAddr": "http://127.0.0.1:9", "queryMetricTimeSeconds": 1}
    blind["pluginConfig"][0]["args"] |= nobody
    document["profiles"].append(blind)
    return yaml.safe_dump(document)


@pytest.fixture(scope="module")
def log(prometheus, server, components, tmp_path_factory):
    """A cluster of three nodes; what its scheduler says."""
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(configuration(prometheus.address))
    commands = [
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "n-"],
        ["scheduler", "--health-port", "0", "--config", str(config)],
    ]
    with components(server, *commands, level="debug") as log:
        yield log


@pytest.fixture
def ready(log, prometheus, until, kubectl):
    """Everybody is there, and everything was measured."""
    until(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    until(lambda: prometheus.query("node_mem_usage_avg_5m").keys() >= NODES, "figures")
    until(lambda: "'n-1': 13." in log.read_text(), "the scheduler has heard of them")


def make(kubectl, name, scheduler, *, app="", node="", cpu="", away=""):
    """A pod for one of the profiles."""
    affinity = {}
    if away:
        term = {"labelSelector": {"matchLabels": {"app": away}}, "topologyKey": HOSTNAME}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    container = {"name": "c", "image": "nginx"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app} if app else {}},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {HOSTNAME: node} if node else {},
            "affinity": affinity,
            "containers": [container],
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def node_of(kubectl, name):
    return kubectl("get", "pod", name, "-o", "json").json["spec"].get("nodeName")


def until_refused(kubectl, until, name, node, words):
    """Until a pod is not placed there, and is told so: those that were made before the scheduler
    has heard of the load itself are placed, and made again."""
    make(kubectl, name, "load-aware-scheduler", node=node)

    def refused():
        if node_of(kubectl, name):
            kubectl("delete", "pod", name, "--force", "--grace-period=0")
            make(kubectl, name, "load-aware-scheduler", node=node)
        return words in kubectl("describe", "pod", name).out

    until(refused, words)


def where(kubectl):
    pods = kubectl("get", "pods", "-l", "app=nginx", "-o", "json").json["items"]
    staying = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
    return Counter(p["spec"].get("nodeName") for p in staying)


def test_thirty_pods_avoid_the_node_whose_memory_a_process_takes(
    ready, prometheus, told, log, server, kubectl_on, until
):
    kubectl = kubectl_on(server)
    # A burst, while one node is emptier than the others by a hair.
    kubectl("apply", "-f", str(EXAMPLES / "realusage/deployment.yaml"))
    until(lambda: where(kubectl).total() == 30 and None not in where(kubectl), "all are placed")
    spread = where(kubectl)
    assert set(spread) == NODES
    assert max(spread.values()) <= 14, spread

    told.used["n-2"] = IDLE
    with stress() as resident_kb:
        prometheus.set_used(IDLE + 100 * resident_kb / TOTAL_KB)
        until(lambda: "'n-1': 33." in log.read_text(), "the scheduler has heard of it")
        until(lambda: "'n-2': 13." in log.read_text(), "and of the other")
        began = len(log.read_text())
        kubectl("rollout", "restart", "deployment/nginx-mem-scheduler")
        kubectl("rollout", "status", "deployment/nginx-mem-scheduler", "--timeout=20s")
        until(lambda: where(kubectl).total() == 30, "the old pods are gone")
        after = where(kubectl)
        assert "n-1" not in after
        assert min(after["n-0"], after["n-2"]) >= 10, after
        assert "n-0:13→100,n-1:33→0,n-2:13→100" in log.read_text()[began:]

        # LoadAware lets nobody onto a node above its threshold, and says so.
        words = "1 node(s) use more than 30% of memory"
        until_refused(kubectl, until, "load", "n-1", words)
        prometheus.set_used(IDLE)
    until(lambda: node_of(kubectl, "load") == "n-1", "it is placed when the memory is free")


def test_without_a_prometheus_pods_are_placed_and_an_event_says_by_what(ready, kubectl, until):
    make(kubectl, "unseeing", "blind-scheduler")
    until(lambda: node_of(kubectl, "unseeing"), "its node")
    missing = ("events", "-n", "kube-system", "--field-selector", "reason=MeasurementsMissing")

    def told():
        return kubectl("get", *missing, "-o", "json").json["items"]

    until(told, "the event")
    [event] = told()
    assert event["type"] == "Warning"
    assert event["involvedObject"]["kind"] == "Lease"
    assert event["message"].startswith("MemRealUsage: no measurements of memory for ")
    assert "Cannot connect to host 127.0.0.1:9" in event["message"]


def test_a_node_that_serves_many_requests_takes_no_more_pods(
    ready, prometheus, told, kubectl, until
):
    def share():
        return prometheus.query("node_http_requests_percent")

    told.per_second = 100
    until(lambda: share().get("n-0", 0) > 75, "requests are counted")
    assert share()["not-in-the-cluster"] == 0, "nobody serves any there"
    words = "1 node(s) use more than 60% of httpRequests"
    until_refused(kubectl, until, "web", "n-0", words)
    make(kubectl, "elsewhere", "load-aware-scheduler", node="n-2")
    until(lambda: node_of(kubectl, "elsewhere") == "n-2", "nothing is known of its requests")
    told.per_second = 0
    until(lambda: node_of(kubectl, "web") == "n-0", "the rush is over")


def test_requests_that_nobody_uses_leave_room_on_nodes_that_agree(ready, kubectl, until):
    make(kubectl, "idle", "overcommit-scheduler", node="n-1", cpu="2")
    until(lambda: node_of(kubectl, "idle") == "n-1", "there is room")
    make(kubectl, "more", "overcommit-scheduler", node="n-1", cpu="2010m")
    until(lambda: "1 Insufficient cpu" in kubectl("describe", "pod", "more").out, "requests count")
    kubectl("label", "node", "n-1", "motley.io/overcommit-cpu=2")
    # What the first asks for counts in full until it is measured, which takes a few seconds.
    until(lambda: node_of(kubectl, "more") == "n-1", "use counts")


def test_pods_go_near_the_pods_they_call(ready, kubectl, until):
    for name, zone in {"n-0": "east", "n-1": "edge", "n-2": "west"}.items():
        kubectl("label", "node", name, f"topology.kubernetes.io/zone={zone}")
    for name in ("topology", "callgraph"):
        kubectl("apply", "-f", str(EXAMPLES / f"networkaware/{name}.yaml"))
    make(kubectl, "cart", "network-aware-scheduler", app="cart", node="n-1")
    until(lambda: node_of(kubectl, "cart") == "n-1", "a place for the cart")
    # 60 ms to the cart are too far, 35 are not: n-0 is in the east, n-2 in the west.
    make(kubectl, "far", "network-aware-scheduler", app="frontend", node="n-0")
    words = "1 node(s) were too far from the pods it calls or is called by"
    until(lambda: words in kubectl("describe", "pod", "far").out, words)
    for i in range(3):
        make(kubectl, f"front-{i}", "network-aware-scheduler", app="frontend")
    until(lambda: all(node_of(kubectl, f"front-{i}") == "n-1" for i in range(3)), "nearest")
    kubectl("patch", "networktopology", "zones", "--type=merge",
            '--patch={"spec": {"otherwise": {"latencyMs": 20}}}')  # fmt: skip
    until(lambda: node_of(kubectl, "far") == "n-0", "a nearer world lets it in")


def test_minik8s_nodes_take_turns_and_anti_affinity_is_a_wish(ready, kubectl, until):
    def placed(name, **more):
        make(kubectl, name, "minik8s-scheduler", **more)
        return until(lambda: node_of(kubectl, name), f"{name} is placed")

    first = [placed(f"p{i}", app="tiny") for i in range(2)]
    assert len(set(first)) == 2
    [third] = NODES - set(first)
    assert placed("large", app="large", away="tiny") == third
    assert placed("next") == first[0]
    assert placed("again", away="tiny") == third, "it is the turn of a node with a tiny one"
    assert placed("last", app="tiny", node=third) == third
    assert placed("wish", away="tiny") == first[1], "no node is without: turns go on"


@contextlib.contextmanager
def stress():
    """A process of a fifth of the small machine; how much it holds, in kB."""
    wanted = TOTAL_KB // 5
    with subprocess.Popen(
        [sys.executable, "-c", STRESS, str(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        try:
            resident = int(running.stdout.readline())
            assert wanted <= resident < wanted * 1.05
            yield resident
        finally:
            running.kill()


def test_the_rules_say_of_a_machine_what_it_says_of_itself(prometheus, until):
    name = "not-in-the-cluster"
    until(lambda: name in prometheus.query("node_cpu_usage_avg_5m"), "figures of this machine")

    def is_right():
        with Path("/proc/meminfo").open() as lines:
            kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        used = 100 * (1 - (kb["Buffers"] + kb["Cached"] + kb["MemFree"]) / kb["MemTotal"])
        return abs(prometheus.query("node_mem_usage")[name] - used) < 3

    until(is_right, "its memory")
    assert 0 <= prometheus.query("node_cpu_usage")[name] <= 100
    assert prometheus.query("node_mem_usage")[None] == pytest.approx(99), "of no node"
