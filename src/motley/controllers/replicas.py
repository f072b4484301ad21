"""How many pods to make or which to delete: the arithmetic of a ReplicaSet. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Any

from motley.api.views.pod import Pod
from motley.controllers.workload import Replicated, controller_reference
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


def to_delete(
    pods: Sequence[Pod], count: int, related: Iterable[Pod], now: float | None = None
) -> list[Pod]:
    """The `count` pods whose loss hurts least, in Kubernetes' order.

    `related` are the pods of all ReplicaSets of the same owner: a node that runs many of them can
    spare one more easily. With `now` ages are compared roughly, as ReplicaSets do; without it
    exactly, as Jobs do.
    """
    per_node = Counter(pod.spec.node_name for pod in related if is_active(pod))

    def rank(pod: Pod) -> tuple[Any, ...]:
        return (
            bool(pod.spec.node_name),
            _PHASE_RANK.get(pod.status.phase, 1),
            pod.is_ready,
            _cost(pod),
            -per_node[pod.spec.node_name],
        )

    def compare(one: Pod, other: Pod) -> int:
        """Below 0 when the first one should go first."""
        first, second = rank(one), rank(other)
        if first != second:
            return -1 if first < second else 1
        if one.is_ready and (younger := _younger(_ready_at(one), _ready_at(other), now)):
            return younger if younger != _SAME_AGE else _by_uid(one, other)
        if _restarts(one) != _restarts(other):
            return _restarts(other) - _restarts(one)
        made = (one.metadata.creation_timestamp or "", other.metadata.creation_timestamp or "")
        if younger := _younger(*made, now):
            return younger if younger != _SAME_AGE else _by_uid(one, other)
        return _by_uid(one, other)

    return sorted(pods, key=cmp_to_key(compare))[:count]


_SAME_AGE = 1000


def _younger(one: str, other: str, now: float | None) -> int:
    """Compare two times, later ones first and an unknown one before all: 0 when they are equal.

    With `now` ages count by their power of two, so that among old pods of about the same age chance
    decides (`_SAME_AGE`) and not the order in which zones were filled.
    """
    if one == other:
        return 0
    if not one or not other:
        return -1 if not one else 1
    if now is None:
        return -1 if one > other else 1
    return _magnitude(now, one) - _magnitude(now, other) or _SAME_AGE


def _magnitude(now: float, then: str) -> int:
    age_ns = int((now - clocks.parse_rfc3339(then)) * 1e9)
    return age_ns.bit_length() - 1 if age_ns > 0 else -1


def _ready_at(pod: Pod) -> str:
    ready = pod.status.condition("Ready")
    return (ready.last_transition_time or "") if ready else ""


def _restarts(pod: Pod) -> int:
    return max((s.restart_count for s in pod.status.container_statuses), default=0)


def _by_uid(one: Pod, other: Pod) -> int:
    first = (one.metadata.uid, one.metadata.name)
    second = (other.metadata.uid, other.metadata.name)
    return (first > second) - (first < second)


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


def pod_document(rs: Replicated) -> dict[str, Any]:
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
    rs: Replicated, pods: Sequence[Pod], now: float, failure: dict[str, str] | None
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
