"""The scheduling core alone: CPU microseconds per pod to decide and assume, by cluster size.

No API, no queue: pods of one template, of many templates, with a node affinity, spread over zones
(hard and soft), near to and away from their like, and one that fits nowhere, on clusters of 500
and 5,000 nodes of 4 cpu, 32 GiB and 110 pods.
"""

import statistics
import time
from collections.abc import Callable

import figures
from motley.api.views.base import LabelSelector
from motley.api.views.core import Node
from motley.api.views.pod import (
    Affinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from motley.lib.clock import SYSTEM
from motley.scheduler import profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.images import ImageTable
from motley.scheduler.podinfo import PodInfo, PodInfos

BATCH = 100  # pods per timing


def node(number: int) -> Node:
    labels = {
        "kubernetes.io/hostname": f"node-{number}",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return Node.of(
        {"metadata": {"name": f"node-{number}", "labels": labels}, "status": {"allocatable": room}}
    )


def basic(number: int, cpu: str = "100m") -> Pod:
    """kube-scheduler's scheduler_perf pod."""
    requests = {"cpu": cpu, "memory": "500Mi"}
    container = {"name": "c", "image": "pause:1", "resources": {"requests": requests}}
    name = f"pod-{number}"
    return Pod.of(
        {
            "metadata": {"name": name, "namespace": "bench", "uid": name},
            "spec": {"containers": [container]},
        }
    )


def varied(number: int) -> Pod:
    return basic(number, cpu=f"{50 + number % 400}m")


def choosy(number: int) -> Pod:
    pod = basic(number)
    pod.spec.node_selector = {"topology.kubernetes.io/zone": "zone-1"}
    return pod


def hopeless(number: int) -> Pod:
    return basic(number, cpu="64")


def spread(number: int, action: str = "DoNotSchedule") -> Pod:
    """scheduler_perf's TopologySpreading, and PreferredTopologySpreading."""
    pod = basic(number)
    pod.metadata.labels = {"color": "blue"}
    pod.spec.topology_spread_constraints = [
        TopologySpreadConstraint(
            topology_key="topology.kubernetes.io/zone",
            when_unsatisfiable=action,
            max_skew=5,
            label_selector=LabelSelector(match_labels={"color": "blue"}),
        )
    ]
    return pod


def softly_spread(number: int) -> Pod:
    return spread(number, "ScheduleAnyway")


def _term(key: str) -> PodAffinityTerm:
    labels = LabelSelector(match_labels={"color": "green"})
    return PodAffinityTerm(topology_key=key, label_selector=labels)


def away(number: int) -> Pod:
    """scheduler_perf's SchedulingPodAntiAffinity: no two on a node."""
    pod = basic(number)
    pod.metadata.labels = {"color": "green"}
    pod.spec.affinity = Affinity(
        pod_anti_affinity=PodAffinity(required=[_term("kubernetes.io/hostname")])
    )
    return pod


def near(number: int) -> Pod:
    """scheduler_perf's SchedulingPodAffinity: all in one zone."""
    pod = basic(number)
    pod.metadata.labels = {"color": "green"}
    pod.spec.affinity = Affinity(
        pod_affinity=PodAffinity(required=[_term("topology.kubernetes.io/zone")])
    )
    return pod


class World:
    """A cluster and what one pod costs on it."""

    def __init__(self, nodes: int) -> None:
        self.nodes = Columns()
        for number in range(nodes):
            self.nodes.set_node(node(number))
        handle = Handle(self.nodes, SYSTEM, ImageTable())
        self.cycle = Cycle(profiles.default(handle)["default-scheduler"], self.nodes)
        self.infos = PodInfos()

    def place(self, pod: PodInfo) -> None:
        """Decide and assume."""
        decision = self.cycle.schedule(pod)
        if decision.node is not None:
            self.nodes.add_pod(pod, decision.node, assumed=True)

    def measure(self, make: Callable[[int], Pod], batches: int) -> float:
        """Median CPU microseconds per pod: what a neighbour on the machine does counts less."""
        samples = []
        for batch in range(batches):
            pods = [self.infos.of(make(batch * BATCH + i)) for i in range(BATCH)]
            started = time.process_time()
            for pod in pods:
                self.place(pod)
            samples.append((time.process_time() - started) / BATCH * 1e6)
            for pod in pods:
                self.nodes.remove_pod(pod.uid)
        return statistics.median(samples)


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    batches = 10 if report.quick else 50
    workloads = {
        "basic": basic,
        "varied": varied,
        "selector": choosy,
        "spread": spread,
        "soft-spread": softly_spread,
        "anti-affinity": away,
        "affinity": near,
        "unschedulable": hopeless,
    }
    for size in (500, 5000):
        world = World(size)
        for name, make in workloads.items():
            cost = world.measure(make, batches)
            report.add(
                f"scheduler.cycle.{name}.{size}", cost, "us/pod", f"{1e6 / cost:,.0f} pods/s"
            )
    updates = 2000
    started = time.process_time()
    for number in range(updates):
        world.nodes.set_node(node(number))
    spent = (time.process_time() - started) / updates * 1e6
    report.add("scheduler.heartbeat.5000", spent, "us", "a node update that changes nothing")
    report.finish()


if __name__ == "__main__":
    main()
