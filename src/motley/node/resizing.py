"""Carrying out what was granted: running containers get other limits, most of them without notice.

Pure: what differs between what a container runs with and what it was granted, and whether its
`resizePolicy` wants it made anew for that. CPU can always be changed in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motley.api.views.container import ResourceRequirements
from motley.api.views.pod import Container, Pod
from motley.lib.clock import rfc3339
from motley.node.allocation import Pending
from motley.node.model import RuntimeContainer


@dataclass(frozen=True, slots=True)
class Change:
    """A running container and what it is to have."""

    container: RuntimeContainer
    spec: Container
    must_restart: bool


def changes(
    pod: Pod, running: list[RuntimeContainer], applied: Mapping[str, ResourceRequirements]
) -> list[Change]:
    """Containers that run with something else than they were granted; `applied` is by id."""
    specs = {c.name: c for c in (*pod.spec.init_containers, *pod.spec.containers)}
    found = []
    for container in running:
        spec = specs.get(container.name)
        has = applied.get(container.id)
        if spec is None or has is None or has == spec.resources:
            continue
        found.append(Change(container, spec, _must_restart(spec, has)))
    return found


def _must_restart(spec: Container, has: ResourceRequirements) -> bool:
    policy = {p.resource_name: p.restart_policy for p in spec.resize_policy}
    return any(
        policy.get(name) == "RestartContainer"
        for name in ("cpu", "memory")
        if (has.requests.get(name), has.limits.get(name))
        != (spec.resources.requests.get(name), spec.resources.limits.get(name))
    )


def conditions(
    pod: Pod, pending: Pending | None, *, is_in_progress: bool, error: str, now: float
) -> list[dict[str, Any]]:
    """`PodResizePending` and `PodResizeInProgress`, as far as they hold."""
    found = []
    if pending is not None:
        found.append(("PodResizePending", pending.reason, pending.message))
    if is_in_progress:
        found.append(("PodResizeInProgress", "Error" if error else "", error))
    return [_condition(pod, kind, reason, message, now) for kind, reason, message in found]


def _condition(pod: Pod, kind: str, reason: str, message: str, now: float) -> dict[str, Any]:
    known = pod.status.condition(kind)
    since = known.last_transition_time if known is not None else ""
    return {
        "type": kind,
        "status": "True",
        "reason": reason or None,
        "message": message or None,
        "lastProbeTime": None,
        "lastTransitionTime": since or rfc3339(now),
        "observedGeneration": pod.metadata.generation or None,
    }
