"""Is a node alive, which taints follow, and when must its pods go? Pure.

A node proves life by renewing its lease or by posting its status. How long it was silent is
measured on our own clock from the last change *we saw*, so a node whose clock is wrong is not
condemned.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from motley.api.tolerations import tolerates
from motley.api.views.core import Lease, Node, Taint
from motley.api.views.pod import Toleration
from motley.lib import clock as clocks

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# Conditions that keep new pods away while they are True.
_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_SCHEDULING_KEYS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURE.values()})
_EXECUTION_KEYS = frozenset({NOT_READY, UNREACHABLE})
# Kubernetes' admission gives every pod these tolerations; a pod without them is treated the same.
DEFAULT_TOLERATION_S = 300


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life seen, and when (monotonic)."""

    renewed: str | None
    posted: str | None
    seen_at: float


def observe(before: Heartbeat | None, node: Node, lease: Lease | None, now: float) -> Heartbeat:
    """Note a sign of life, if there is a new one."""
    ready = node.status.condition("Ready")
    renewed = lease.spec.renew_time if lease else None
    posted = ready.last_heartbeat_time if ready else None
    if before is not None and (before.renewed, before.posted) == (renewed, posted):
        return before
    return Heartbeat(renewed, posted, now)


def lost_s(node: Node, now: float) -> float:
    """For how long the node has been called silent; 0 for one that is not."""
    ready = node.status.condition("Ready")
    if ready is None or ready.status != "Unknown" or not ready.last_transition_time:
        return 0.0
    return max(0.0, now - clocks.parse_rfc3339(ready.last_transition_time))


def unknown_conditions(node: Node, now: float) -> list[dict[str, Any]]:
    """What the status of a silent node must be changed to; empty when it already says so."""
    stamp = clocks.rfc3339(now)
    changes = []
    for type_ in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        current = node.status.condition(type_)
        if current is not None and current.status == "Unknown":
            continue
        never = current is None
        changes.append(
            {
                "type": type_,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                "message": "Kubelet never posted node status."
                if never
                else "Kubelet stopped posting node status.",
                "lastHeartbeatTime": (current.last_heartbeat_time if current else None)
                or node.metadata.creation_timestamp,
                "lastTransitionTime": stamp,
            }
        )
    return changes


def taints(node: Node, now: float, *, execute: bool = True) -> list[Taint] | None:
    """The taints the node should have, or None when it has them. Others' taints are kept.

    Without `execute` it gets none that evicts.
    """
    wanted = {(key, "NoSchedule") for key in _scheduling(node)}
    if execute:
        wanted |= {(key, "NoExecute") for key in _execution(node)}
    kept = []
    for taint in node.spec.taints:
        identity = (taint.key, taint.effect)
        if identity in wanted:
            wanted.discard(identity)
            kept.append(taint)
        elif not _is_ours(taint):
            kept.append(taint)
    if not wanted and len(kept) == len(node.spec.taints):
        return None
    stamp = clocks.rfc3339(now)
    added = [Taint(key=key, effect=effect, time_added=stamp) for key, effect in sorted(wanted)]
    return kept + added


def is_evicted(node: Node) -> bool:
    """Does the node have a taint of ours that evicts?"""
    return any(t.effect == "NoExecute" and t.key in _EXECUTION_KEYS for t in node.spec.taints)


def _is_ours(taint: Taint) -> bool:
    keys = {"NoSchedule": _SCHEDULING_KEYS, "NoExecute": _EXECUTION_KEYS}.get(taint.effect, ())
    return taint.key in keys


def _scheduling(node: Node) -> Iterable[str]:
    ready = node.status.condition("Ready")
    if ready is None or ready.status == "False":
        yield NOT_READY
    elif ready.status != "True":
        yield UNREACHABLE
    for type_, key in _PRESSURE.items():
        found = node.status.condition(type_)
        if found is not None and found.status == "True":
            yield key
    if node.spec.unschedulable:
        yield UNSCHEDULABLE


def _execution(node: Node) -> Iterable[str]:
    ready = node.status.condition("Ready")
    if ready is not None and ready.status == "False":
        yield NOT_READY
    elif ready is not None and ready.status != "True":
        yield UNREACHABLE


def evict_at(
    tolerations: Sequence[Toleration], taints_: Sequence[Taint], now: float
) -> float | None:
    """When a pod with these tolerations must leave a node with these taints; None: never."""
    deadline: float | None = None
    for taint in taints_:
        if taint.effect != "NoExecute":
            continue
        stays_s = _stays_s(tolerations, taint)
        if stays_s is None:
            continue
        since = clocks.parse_rfc3339(taint.time_added) if taint.time_added else now
        due = since + max(0, stays_s)
        deadline = due if deadline is None else min(deadline, due)
    return deadline


def _stays_s(tolerations: Sequence[Toleration], taint: Taint) -> int | None:
    """Seconds a taint is tolerated, None for ever."""
    matching = [t for t in tolerations if tolerates(t, taint)]
    if not matching:
        return DEFAULT_TOLERATION_S if taint.key in _EXECUTION_KEYS else 0
    limits = [t.toleration_seconds for t in matching if t.toleration_seconds is not None]
    return min(limits) if limits else None
