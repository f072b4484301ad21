"""How many pods to make or which to delete: the arithmetic of a ReplicaSet. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from motley.api.views.pod import Pod
from motley.controllers.workload import ReplicaSet, controller_reference
from motley.lib import clock as clocks

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASE_RANK = {"Pending": 0, "Unknown": 1, "Running": 2}


def is_active(pod: Pod) -> bool:
    """Does the pod count towards the wanted number?"""
    return not pod.is_terminal and pod.metadata.deletion_timestamp is None


def available_in_s(pod: Pod, min_ready_s: int, now: float) -> float | None:
    """Seconds until the pod counts as available: 0 when it does, None while it is not ready."""
    ready = pod.status.condition("Ready")
    if ready is None or ready.status != "True":
        return None
    if min_ready_s == 0 or not ready.last_transition_time:
        return 0.0
    return max(0.0, clocks.parse_rfc3339(ready.last_transition_time) + min_ready_s - now)


def to_delete(pods: Sequence[Pod], count: int, related: Iterable[Pod]) -> list[Pod]:
    """The `count` pods whose loss hurts least, in Kubernetes' order.

    `related` are the pods of all ReplicaSets of the same owner: a node that runs many of them can
    spare one more easily.
    """
    per_node = Counter(pod.spec.node_name for pod in related if is_active(pod))

    def rank(pod: Pod) -> tuple[Any, ...]:
        ready = pod.status.condition("Ready")
        since = (ready.last_transition_time or "") if pod.is_ready and ready else ""
        restarts = max((s.restart_count for s in pod.status.container_statuses), default=0)
        return (
            bool(pod.spec.node_name),
            _PHASE_RANK.get(pod.status.phase, 1),
            pod.is_ready,
            _cost(pod),
            -per_node[pod.spec.node_name],
            _Newest(since),
            -restarts,
            _Newest(pod.metadata.creation_timestamp or ""),
            pod.metadata.name,
        )

    return sorted(pods, key=rank)[:count]


class _Newest(str):
    """A timestamp that sorts later ones first; an unknown one counts as newest."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        if not self or not other:
            return not self and bool(other)
        return str.__gt__(self, other)


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(_DELETION_COST, "0"))
    except ValueError:
        return 0


def slow_start(count: int) -> Iterable[int]:
    """Batch sizes 1, 2, 4, …: a quota or a webhook that refuses is met once, not 500 times."""
    size = 1
    while count > 0:
        step = min(size, count)
        yield step
        count -= step
        size *= 2


def pod_document(rs: ReplicaSet) -> dict[str, Any]:
    """A pod of this ReplicaSet, to be created."""
    template = rs.spec.template
    meta = template.get("metadata") or {}
    metadata = {k: meta[k] for k in ("labels", "annotations", "finalizers") if meta.get(k)}
    # A generated name may be 63 long and the server adds five characters.
    metadata["generateName"] = f"{rs.metadata.name[:57]}-"
    metadata["namespace"] = rs.metadata.namespace
    metadata["ownerReferences"] = [controller_reference(rs)]
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def status_document(
    rs: ReplicaSet, pods: Sequence[Pod], now: float, failure: dict[str, str] | None
) -> dict[str, Any]:
    """The ReplicaSet's status for these active pods."""
    wanted = (rs.spec.template.get("metadata") or {}).get("labels") or {}
    labelled = [p for p in pods if wanted.items() <= p.metadata.labels.items()]
    available = [p for p in pods if available_in_s(p, rs.spec.min_ready_seconds, now) == 0.0]
    # Zeros are left out as Kubernetes leaves them out; in a merge patch that is null.
    return {
        "replicas": len(pods),
        "fullyLabeledReplicas": len(labelled) or None,
        "readyReplicas": sum(1 for p in pods if p.is_ready) or None,
        "availableReplicas": len(available) or None,
        "observedGeneration": rs.metadata.generation,
        "conditions": [failure] if failure else None,
    }
