"""Functions on a real cluster: cold starts, warm calls, and a burst.

Everything runs in a network namespace of its own: a cluster of one node, `motley functions`, and
the callers. A warm call through the router stands beside the same call straight to the instance's
pod in the same run, so that what the router adds can be read off anywhere.
"""

import argparse
import ctypes
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import figures
from motley.ops import images, install
from motley.ops.testbed import NODE_IP, Testbed, eventually

PORT = 10290
CODE = "def run(arg):\n    return arg\n"
SLOW = "import time\ndef run(arg):\n    time.sleep(1.0)\n    return arg\n"
_CLONE_NEWNET = 0x40000000


class Bench:
    """A cluster with functions."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.process: subprocess.Popen[bytes] | None = None

        def enter() -> None:
            with open(f"/run/netns/{bed.name}") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")

        self.pool = ThreadPoolExecutor(64, initializer=enter)

    def start(self, pool_size: int) -> None:
        """Run the component."""
        with (self.bed.root / "logs/functions.log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    *self.bed.inside,
                    *(sys.executable, "-P", "-m", "motley.cli.main", "functions"),
                    *("--kubeconfig", str(self.bed.kubeconfig), "--listen", NODE_IP),
                    *("--url", f"http://{NODE_IP}:{PORT}", "--pool-size", str(pool_size)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(lambda: self.pool.submit(_healthy).result(), 60, 0.1)

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    def apply(self, name: str, code: str = CODE, **spec: Any) -> None:
        """Make a function."""
        body = {
            "apiVersion": "motley.io/v1",
            "kind": "Function",
            "metadata": {"name": name},
            "spec": {"code": code, "public": True, **spec},
        }
        self.bed.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def delete(self, name: str) -> None:
        """Remove a function and wait for its pods to go."""
        self.bed.kubectl("delete", "function", name)
        eventually(lambda: not self.pods(f"motley.io/function={name}"), 60, 0.2)

    def pods(self, selector: str) -> list[Any]:
        """What a selector finds."""
        found: list[Any] = self.bed.get("pods", "-l", selector)["items"]
        return found

    def call(self, name: str) -> float:
        """Milliseconds of one call."""
        return self.pool.submit(_call, name).result()


def _healthy() -> bool:
    connection = http.client.HTTPConnection(NODE_IP, PORT, timeout=5)
    connection.request("GET", "/healthz")
    return connection.getresponse().status == 200


def _call(name: str) -> float:
    """Milliseconds of one call over a connection of its own."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection(NODE_IP, PORT, timeout=60)
    connection.request("POST", f"/functions/default/{name}", "x", {"Prefer": "wait=60"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert (answer.status, body) == (200, b"x"), (answer.status, body)
    return (time.perf_counter() - begun) * 1000


def _calls(address: str, port: int, path: str, count: int) -> list[float]:
    """Milliseconds of calls one after the other, over one connection."""
    connection = http.client.HTTPConnection(address, port, timeout=60)
    spent = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.request("POST", path, "x", {})
        answer = connection.getresponse()
        assert answer.read() == b"x", answer.status
        spent.append((time.perf_counter() - begun) * 1000)
    connection.close()
    return spent


def cold(bench: Bench, count: int, *, warm_pods: bool) -> list[float]:
    """First calls of functions that nothing runs for."""
    spent = []
    for number in range(count):
        name = f"cold{number}"
        bench.apply(name)
        if warm_pods:
            eventually(lambda: any(_ready(pod) for pod in bench.pods("motley.io/pool")), 60, 0.2)
            time.sleep(0.5)  # noqa: TID251 (its server listens, and the machine is quiet again)
        spent.append(bench.call(name))
        bench.delete(name)
    return spent


def _ready(pod: Any) -> bool:
    is_ending = "deletionTimestamp" in pod["metadata"]
    return not is_ending and pod["status"].get("phase") == "Running"


def measure(report: figures.Report, bench: Bench) -> None:
    count = 5 if report.quick else 15
    bench.start(0)
    without = statistics.median(cold(bench, count, warm_pods=False))
    report.add("serverless.cold.p50", without, "ms", "first call from zero, no pool; at most 900")
    bench.stop()
    bench.start(2)
    bench.apply("other")  # where there is no function at all, no pods are kept warm
    pooled = statistics.median(cold(bench, count, warm_pods=True))
    report.add("serverless.cold.pool.p50", pooled, "ms", "with warm pods; at most 120")
    warm(report, bench, without)
    burst(report, bench)


def warm(report: figures.Report, bench: Bench, without: float) -> None:
    bench.apply("warm", concurrency=8)
    bench.call("warm")
    (pod,) = bench.pods("motley.io/function=warm")
    address = pod["status"]["podIP"]
    count = 200 if report.quick else 1000
    routed: list[float] = []
    direct: list[float] = []
    for _ in range(4):  # in turns: the machine's other work hits both
        path = "/functions/default/warm"
        routed += bench.pool.submit(_calls, NODE_IP, PORT, path, count // 4).result()
        direct += bench.pool.submit(_calls, address, 8080, "/", count // 4).result()
    for name, spent in (("router", routed), ("direct", direct)):
        report.add(f"serverless.warm.{name}.p50", statistics.median(spent), "ms")
        report.add(f"serverless.warm.{name}.p99", sorted(spent)[int(len(spent) * 0.99)], "ms")
    added = statistics.median(routed) - statistics.median(direct)
    report.add("serverless.warm.added.p50", added, "ms", "by the router; at most 1.5")
    ratio = without / statistics.median(routed)
    report.add("serverless.warm.faster", ratio, "times", "than a cold call; at least 10")
    begun = time.perf_counter()
    path = "/functions/default/warm"
    each = count // 2
    futures = [bench.pool.submit(_calls, NODE_IP, PORT, path, each) for _ in range(8)]
    for future in futures:
        future.result()
    rate = 8 * each / (time.perf_counter() - begun)
    report.add("serverless.calls", rate, "calls/s", "8 callers, one warm instance")


def burst(report: figures.Report, bench: Bench) -> None:
    """50 callers at once on nothing, until there are the instances that they need."""
    bench.apply("burst", SLOW, concurrency=10, maxInstances=5)
    begun = time.perf_counter()
    answered: list[float] = []  # when each caller had its first answer
    is_enough = threading.Event()

    def caller() -> None:
        _call("burst")
        answered.append(time.perf_counter() - begun)
        while not is_enough.is_set():
            _call("burst")

    futures = [bench.pool.submit(caller) for _ in range(50)]

    def enough() -> float:
        count = bench.bed.get("fn", "burst").get("status", {}).get("instances", 0)
        return time.perf_counter() - begun if count >= 5 else 0.0

    try:
        took_s = eventually(enough, 60, 0.1)
    finally:
        is_enough.set()
    for future in futures:
        future.result()
    report.add("serverless.burst.instances", took_s, "s", "from 50 calls on nothing to 5 instances")
    report.add("serverless.burst.last", max(answered), "s", "until all 50 had an answer")


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cache", type=Path, default=Path(__file__).parents[1] / ".cache")
    options, rest = parser.parse_known_args()
    report = figures.Report.from_arguments(__doc__ or "", rest)
    images.ensure(options.cache / "images", say=lambda _: None)
    install.kubectl(options.cache, say=lambda _: None)
    bed = Testbed(options.cache)
    bench = Bench(bed)
    try:
        bed.make_namespace()
        bed.up("--no-functions", "--no-slurm")  # the component is started here, with its options
        measure(report, bench)
    finally:
        bench.stop()
        bed.destroy()
    report.finish()


if __name__ == "__main__":
    main()
