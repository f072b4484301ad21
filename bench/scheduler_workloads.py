"""The workloads of Kubernetes' own scheduler benchmark (scheduler_perf), as plain objects.

Nodes have 4 cpu, 32Gi and 110 pods; pods ask for 100m and 500Mi unless the workload says otherwise.
Counts are for 5,000 nodes (1,000 for preemption) and shrink with the cluster. What a workload has
*first* is placed already when the scheduler starts, evenly over the nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]

NAMESPACE = "bench"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(number: int, zones: int = 0, pods: int = 110) -> Document:
    """A node that is ready."""
    labels = {HOSTNAME: f"node-{number}"}
    if zones:
        labels[ZONE] = f"zone{number % zones + 1}"
    room = {"cpu": "4", "memory": "32Gi", "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def lease(number: int) -> Document:
    """The sign of life of a node."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"node-{number}", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": f"node-{number}", "leaseDurationSeconds": 40},
    }


def plain(name: str, cpu: str = "100m", memory: str = "500Mi") -> Document:
    """One container with requests, empty: without."""
    container: Document = {"name": "pause", "image": "registry.k8s.io/pause:3.10"}
    container["ports"] = [{"containerPort": 80}]
    if cpu:
        room = {"cpu": cpu, "memory": memory}
        container["resources"] = {"requests": room, "limits": dict(room)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def _term(color: str, key: str) -> Document:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"color": color}}}


def _colored(name: str, color: str, field_name: str, value: Any) -> Document:
    pod = plain(name)
    pod["metadata"]["labels"] = {"color": color}
    pod["spec"][field_name] = value
    return pod


def _affinity(kind: str, color: str, key: str, weight: int = 0) -> Callable[[str], Document]:
    term = _term(color, key)
    if weight:
        terms = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": weight, "podAffinityTerm": term}
            ]
        }
    else:
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return lambda name: _colored(name, color, "affinity", {kind: terms})


def _spread(action: str) -> Callable[[str], Document]:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }
    return lambda name: _colored(name, "blue", "topologySpreadConstraints", [constraint])


def in_zones(name: str) -> Document:
    """Required to run in one of two zones."""
    pod = plain(name)
    expression = {"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return pod


def gated(name: str) -> Document:
    """Not to be scheduled yet."""
    pod = plain(name, cpu="")
    pod["spec"]["schedulingGates"] = [{"name": "bench.example/wait"}]
    return pod


def hopeless(name: str) -> Document:
    """Larger than any node."""
    return plain(name, cpu="9")


def unimportant(name: str) -> Document:
    """A victim: four of them fill a node."""
    return plain(name, cpu="900m")


def important(name: str) -> Document:
    """Needs a whole node."""
    pod = plain(name, cpu="3970m")
    pod["spec"]["priorityClassName"] = "bench-high"
    return pod


Make = Callable[[str], Document]

away = _affinity("podAntiAffinity", "green", HOSTNAME)
near = _affinity("podAffinity", "blue", ZONE)
rather_near = _affinity("podAffinity", "red", HOSTNAME, 1)
rather_away = _affinity("podAntiAffinity", "yellow", HOSTNAME, 1)


@dataclass(frozen=True)
class Workload:
    """One row of the table; counts per 5,000 nodes unless `base` says otherwise."""

    name: str
    pod: Make
    measured: int
    first: tuple[tuple[Make, int], ...] = ()
    waiting: tuple[Make, int] | None = None  # stay pending all the time
    zones: int = 0
    base: int = 5000
    only_nodes: int = 0  # whatever the size of the cluster
    node_pods: int = 110
    beside: str = ""  # what else goes on: "unschedulable" or "churn"
    from_start: bool = False  # much is done before the first is bound: its time counts, too
    sizes: tuple[int, ...] = field(default=(500, 1000, 5000))

    def scaled(self, count: int, nodes: int) -> int:
        """A count for a cluster of this size."""
        return count if self.only_nodes else max(1, count * nodes // self.base)

    def placed(self, nodes: int) -> Iterator[Document]:
        """The pods that are there first, with their nodes."""
        number = 0
        for kind, (make, count) in enumerate(self.first):
            for i in range(self.scaled(count, nodes)):
                pod = make(f"first{kind}-{i}")
                pod["spec"]["nodeName"] = f"node-{number % nodes}"
                number += 1
                yield pod

    def pending(self, nodes: int) -> Iterator[Document]:
        """The pods whose placement is measured."""
        for i in range(self.scaled(self.measured, nodes)):
            yield self.pod(f"p-{i:06d}")

    def idle(self, nodes: int) -> Iterator[Document]:
        """Pods that are never placed."""
        if self.waiting is not None:
            make, count = self.waiting
            for i in range(self.scaled(count, nodes)):
                yield make(f"idle-{i}")


WORKLOADS = (
    Workload("basic", plain, 10_000, ((plain, 1000),)),
    Workload("anti-affinity", away, 2000, ((away, 1000),)),
    Workload("affinity", near, 5000, ((near, 5000),), zones=1),
    Workload("preferred-affinity", rather_near, 5000, ((rather_near, 5000),)),
    Workload("preferred-anti-affinity", rather_away, 5000, ((rather_away, 5000),)),
    Workload("node-affinity", in_zones, 10_000, ((in_zones, 5000),), zones=1),
    Workload("spread", _spread("DoNotSchedule"), 5000, ((plain, 5000),), zones=3),
    Workload("preferred-spread", _spread("ScheduleAnyway"), 5000, ((plain, 5000),), zones=3),
    Workload(
        "mixed",
        plain,
        5000,
        (
            (plain, 2000),
            (near, 2000),
            (away, 2000),
            (rather_near, 2000),
            (rather_away, 2000),
        ),
        zones=1,
    ),
    Workload("unschedulable", plain, 10_000, waiting=(hopeless, 100), beside="unschedulable"),
    Workload(
        "preemption",
        important,
        1000,
        ((unimportant, 4000),),
        base=1000,
        sizes=(500, 1000),
        from_start=True,
    ),
    Workload("churn", plain, 10_000, beside="churn"),
    Workload(
        "gated",
        lambda name: plain(name, cpu=""),
        20_000,
        waiting=(gated, 10_000),
        only_nodes=1,
        node_pods=40_000,
        sizes=(5000,),
    ),
)
