"""From what every container uses now to one sample per series. Pure.

A pod belongs to the workload that a person made: its controller, or that controller's own where
there is one (ReplicaSet → Deployment, Job → CronJob). A pod that nobody controls is only itself.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from motley.api import speeds as nodespeeds
from motley.metrics.history import NODE, POD, WORKLOAD, Sample, Series
from motley.metrics.usage import PodUse, Use

speed = nodespeeds.of_node


class Owner(NamedTuple):
    """The kind and the name of a workload."""

    kind: str
    name: str


class Fact(NamedTuple):
    """Where a pod runs, and for whom."""

    node: str
    owner: Owner | None


Pods = Mapping[tuple[str, str], PodUse]
Facts = Mapping[tuple[str, str], Fact]


def samples(
    nodes: Mapping[str, Use], pods: Pods, facts: Facts, speeds: Mapping[str, float]
) -> dict[Series, Sample]:
    """Everything that is known of this moment; pods that are no longer there are left out."""
    found: dict[Series, Sample] = {}
    by_owner: dict[Series, list[Sample]] = {}
    by_node: dict[str, list[Sample]] = {}
    for key, use in pods.items():
        fact = facts.get(key)
        if fact is None:
            continue
        factor = speeds.get(fact.node, 1.0)
        parts = {name: _one(part, factor) for name, part in use.containers.items()}
        by_node.setdefault(fact.node, []).append(_whole(parts.values()))
        for container, sample in parts.items():
            found[Series(POD, *key, container=container)] = sample
            if fact.owner is not None:
                series = Series(WORKLOAD, key[0], fact.owner.name, fact.owner.kind, container)
                by_owner.setdefault(series, []).append(sample)
    for series, listed in by_owner.items():
        found[series] = together(listed)
    for name, used in nodes.items():
        theirs = together(by_node.get(name, ()))
        cpu = used.cpu_nano / 1e9
        found[Series(NODE, "", name)] = theirs._replace(
            cpu=cpu, cpu_normalized=cpu * speeds.get(name, 1.0), memory=float(used.memory_bytes)
        )
    return found


def _one(use: Use, factor: float) -> Sample:
    cpu, memory = use.cpu_nano / 1e9, float(use.memory_bytes)
    return Sample(cpu, cpu * factor, memory, cpu * factor, memory, 1.0)


def _whole(parts: Iterable[Sample]) -> Sample:
    """A pod, of its containers."""
    listed = list(parts)
    cpu, normalized, memory = (sum(s[i] for s in listed) for i in range(3))
    return Sample(cpu, normalized, memory, normalized, memory, 1.0)


def together(listed: Iterable[Sample]) -> Sample:
    """Several pods: what they use, and the largest of them."""
    known = list(listed)
    if not known:
        return Sample(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    cpu, normalized, memory = (sum(s[i] for s in known) for i in range(3))
    largest, widest = max(s.cpu_pod_max for s in known), max(s.memory_pod_max for s in known)
    return Sample(cpu, normalized, memory, largest, widest, float(len(known)))
