"""Who has to go first when a node is short of something.

Whoever uses more than it asked for, then the less important, then the weaker QoS class, then
whoever uses the largest share of its own request. Kubernetes ranks by the first two and by
the absolute excess; the class and the share are the documents' finer order among equals, and the
absolute excess decides what is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from motley.api import quantity
from motley.api.views.pod import Pod
from motley.node import resources
from motley.node.eviction.pressure import Shortage

REASON = "Evicted"
SYSTEM_CRITICAL = 2_000_000_000  # priority from which a pod is not evicted
STATIC_POD = "kubernetes.io/config.source"

_CLASSES = ("BestEffort", "Burstable", "Guaranteed")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod uses, by resource; of some resources also by container."""

    of_pod: Mapping[str, int] = field(default_factory=dict)
    of_containers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that could go."""

    pod: Pod
    usage: Usage


def is_critical(pod: Pod) -> bool:
    """Pods the node cannot do without: system-critical ones, and those it runs of its own."""
    source = pod.metadata.annotations.get(STATIC_POD, "api")
    return source != "api" or (pod.spec.priority or 0) >= SYSTEM_CRITICAL


def rank(candidates: Iterable[Candidate], resource: str) -> list[Candidate]:
    """Those that may be evicted to get this resource back, first to go first."""

    def key(candidate: Candidate) -> tuple[bool, int, int, float, int, str]:
        pod = candidate.pod
        used = candidate.usage.of_pod.get(resource, 0)
        asked = resources.pod_requests(pod).get(resource, 0)
        # Nobody asks for processes or inodes: there only the amount counts.
        exceeds = resource in ("pids", "inodes") or used > asked
        share = used / asked if asked else float("inf")
        return (
            not exceeds,
            pod.spec.priority or 0,
            _CLASSES.index(pod.status.qos_class or resources.qos_class(pod)),
            -share,
            asked - used,
            pod.metadata.uid,
        )

    return sorted((c for c in candidates if not is_critical(c.pod)), key=key)


def message(candidate: Candidate, shortages: Sequence[Shortage], resource: str) -> str:
    """What the evicted pod's status says, in Kubernetes' words."""
    said = f"The node was low on resource: {resource}. "
    for shortage in shortages:
        if shortage.threshold.resource == resource:
            wanted = shortage.threshold.value.of(shortage.observed.capacity)
            said += (
                f"Threshold quantity: {_text(resource, wanted)}, "
                f"available: {_text(resource, shortage.observed.available)}. "
            )
            break
    spec = candidate.pod.spec
    for container in (*spec.containers, *spec.init_containers):
        used = candidate.usage.of_containers.get(container.name, {}).get(resource)
        written = container.resources.requests.get(resource)
        asked = quantity.to_int(written) if written is not None else 0
        if used is not None and used > asked:
            said += (
                f"Container {container.name} was using {_text(resource, used)}, "
                f"request is {_text(resource, asked)}, has larger consumption of {resource}. "
            )
    return said


def _text(resource: str, units: int) -> str:
    if resource in ("pids", "inodes"):
        return quantity.format_decimal(units)
    return quantity.format_binary(units // 1024 * 1024)


def grace_s(pod: Pod, *, is_hard: bool, max_pod_grace_s: float) -> float:
    """How long the pod has to end: nothing where the threshold is hard."""
    if is_hard:
        return 0.0
    return min(max_pod_grace_s, float(pod.spec.termination_grace_period_seconds))
