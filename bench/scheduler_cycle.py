"""The scheduling core alone: CPU microseconds per pod to decide and count, by cluster size.

No API, no queue, no binding: the workloads of Kubernetes' scheduler_perf on clusters of 500, 1,000
and 5,000 nodes (bench/scheduler_workloads.py has them), and some of our own:

  varied            pods of 400 templates in turn, so that none can share what another was told
  unschedulable     pods larger than any node
  preemption        each pod fits nowhere, ends four others and is placed: both its cycles
  preemption-zone   one that another of its zone keeps away from every node: nothing to be gained
  preemption-host   one that must end four others on its node, by anti-affinity
  heartbeat         a node update that changes nothing
  memory            5,000 nodes and 30,000 pods as read from the API

`column.add` is the raw limit beside them: adding two columns of 5,000 numbers. Every figure is the
median over groups of pods, in CPU time, so that a busy machine shows as little as possible.
"""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

import figures
import scheduler_workloads as workloads
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.images import ImageTable
from motley.scheduler.podinfo import PodInfo, PodInfos
from scheduler_workloads import WORKLOADS, Document, Workload

SIZES = (500, 1000, 5000)
GROUP = 50  # pods per timing
LEFT_OUT = ("churn", "gated", "unschedulable", "preemption")  # of no concern to the core, or below
TEMPLATES = 400
HIGH = 1000


class World:
    """A cluster with what a workload has first."""

    def __init__(
        self, nodes: int, zones: int = 0, placed: Iterator[Document] | None = None
    ) -> None:
        self.nodes = Columns()
        for number in range(nodes):
            self.nodes.set_node(Node.of(workloads.node(number, zones)))
        handle = Handle(self.nodes, SYSTEM, ImageTable())
        self.nominations = handle.nominations
        profile = profiles.default(handle)["default-scheduler"]
        self.cycle = Cycle(profile, self.nodes, nominations=self.nominations)
        self.infos = PodInfos()
        for document in placed or ():
            self.nodes.add_pod(self.info(document), document["spec"]["nodeName"])

    def info(self, document: Document) -> PodInfo:
        """A pod as the cycle is given it."""
        pod = Pod.of(document)
        pod.metadata.uid = pod.metadata.name
        pod.spec.priority = HIGH if pod.spec.priority_class_name else 0
        return self.infos.of(pod)

    def place(self, pod: PodInfo) -> None:
        """Decide and count; with room that has to be made first, decide twice."""
        decision = self.cycle.schedule(pod)
        if decision.nomination is not None:
            self.nominations.set(pod, decision.nomination.node)
            for victim in decision.nomination.victims:
                self.nodes.remove_pod(victim.uid)
            decision = self.cycle.schedule(pod)
            self.nominations.drop(pod.uid)
        if decision.node is not None:
            self.nodes.add_pod(pod, decision.node, assumed=True)


def cost(world: World, documents: Iterator[Document], most: int, group: int = GROUP) -> float:
    """Median CPU microseconds per pod."""
    samples = []
    pods = [world.info(document) for document in itertools.islice(documents, most)]
    for start in range(0, len(pods), group):
        part = pods[start : start + group]
        started = time.process_time()
        for pod in part:
            world.place(pod)
        samples.append((time.process_time() - started) / len(part) * 1e6)
    return statistics.median(samples)


def named(make: Callable[[str], Document]) -> Iterator[Document]:
    """Pods without end."""
    return (make(f"p-{number}") for number in itertools.count())


def varied() -> Iterator[Document]:
    """Pods of many templates."""
    for number in itertools.count():
        yield workloads.plain(f"p-{number}", cpu=f"{50 + number % TEMPLATES}m")


def greens(nodes: int) -> Iterator[Document]:
    """Four of one color on every node."""
    for number in range(4 * nodes):
        pod = workloads.plain(f"first-{number}", cpu="900m")
        pod["metadata"]["labels"] = {"color": "green"}
        pod["spec"]["nodeName"] = f"node-{number % nodes}"
        yield pod


def away_from_greens(key: str) -> Callable[[str], Document]:
    """An important pod that keeps away from them."""

    def make(name: str) -> Document:
        pod = workloads.away(name)
        pod["spec"]["priorityClassName"] = "bench-high"
        terms = pod["spec"]["affinity"]["podAntiAffinity"]
        for term in terms["requiredDuringSchedulingIgnoredDuringExecution"]:
            term["topologyKey"] = key
        return pod

    return make


# -- figures --------------------------------------------------------------------------------


def report_workloads(report: figures.Report, most: int) -> None:
    """Every workload at every size, and how much more it takes at the largest."""
    measured: dict[str, Callable[[int], float]] = {
        workload.name: partial(_of, workload, most)
        for workload in WORKLOADS
        if workload.name not in LEFT_OUT
    }
    measured["varied"] = lambda size: cost(World(size), varied(), most)
    measured["unschedulable"] = lambda size: cost(World(size), named(workloads.hopeless), most)
    for name, measure in measured.items():
        first = 0.0
        for size in SIZES:
            spent = measure(size)
            first = first or spent
            note = f"{1e6 / spent:,.0f} pods/s, {spent / first:.2f} times that of {SIZES[0]} nodes"
            report.add(f"scheduler.cycle.{name}.{size}", spent, "us/pod", note)


def _of(workload: Workload, most: int, size: int) -> float:
    world = World(size, workload.zones, workload.placed(size))
    return cost(world, workload.pending(size), most)


def report_preemption(report: figures.Report, most: int) -> None:
    """Making room: the ordinary case, and two that go by affinity."""
    workload = next(w for w in WORKLOADS if w.name == "preemption")
    for size in (500, 1000):
        world = World(size, placed=workload.placed(size))
        spent = cost(world, workload.pending(size), most // 4, group=10)
        note = f"{1e6 / spent:,.0f} pods/s, four victims each"
        report.add(f"scheduler.cycle.preemption.{size}", spent, "us/pod", note)
    for name, key in (("zone", workloads.ZONE), ("host", workloads.HOSTNAME)):
        world = World(1000, zones=3, placed=greens(1000))
        spent = cost(world, named(away_from_greens(key)), 20, group=1)
        report.add(f"scheduler.cycle.preemption-{name}.1000", spent, "us/pod", "4,000 pods there")


def report_heartbeat(report: figures.Report) -> None:
    """A node update that changes nothing."""
    world = World(5000, zones=3)
    updates = [Node.of(workloads.node(number, 3)) for number in range(2000)]
    started = time.process_time()
    for update in updates:
        world.nodes.set_node(update)
    spent = (time.process_time() - started) / len(updates) * 1e6
    report.add("scheduler.heartbeat.5000", spent, "us", "a node update that changes nothing")


def report_memory(report: figures.Report) -> None:
    """What the columns and the pods in them take, beside what the program takes anyway."""
    nodes, pods = 5000, 30_000
    makes = (workloads.plain, workloads.away, workloads.near, workloads.rather_away)
    encode, decode = msgspec.json.encode, msgspec.json.Decoder(Pod).decode
    gc.collect()
    before = _resident_mib()
    world = World(nodes, zones=3)
    for number in range(pods):
        document = makes[number % len(makes)](f"p-{number}")
        document["metadata"] |= {
            "uid": f"uid-{number}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        pod = decode(encode(document))
        world.nodes.add_pod(world.infos.of(pod), f"node-{number % nodes}")
    for make in makes:
        world.place(world.info(make("last")))
    gc.collect()
    grown = _resident_mib() - before
    report.add(
        "scheduler.memory.5000", grown, "MiB", f"{nodes:,} nodes, {pods:,} pods, 4 templates"
    )


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    most = 500 if report.quick else 2000
    report_memory(report)
    left, right = np.ones(5000), np.ones(5000)
    started = time.process_time()
    for _ in range(10_000):
        np.add(left, right)
    report.add("column.add.5000", (time.process_time() - started) * 100, "us", "the raw limit")
    report_workloads(report, most)
    report_preemption(report, most)
    report_heartbeat(report)
    report.finish()


if __name__ == "__main__":
    main()
