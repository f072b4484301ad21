"""What a Deployment's status says about its rollout. Pure.

`kubectl rollout status`, `wait` and dashboards read exactly these counts and conditions, so reasons
and messages are Kubernetes'.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from motley.api.views.apps import DeploymentStatus
from motley.api.views.base import Condition
from motley.controllers import rollout
from motley.controllers.workload import Deployment, ReplicaSet, condition
from motley.lib import clock as clocks

# No deadline: kubectl's and the API's way to write "never".
_NO_DEADLINE_S = 2**31 - 1
_COUNTS = (
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "conditions",
)


def make(type_: str, value: str, reason: str, message: str, now: float) -> Condition:
    """A condition that holds from now."""
    stamp = clocks.rfc3339(now)
    return Condition(
        type=type_,
        status=value,
        reason=reason,
        message=message,
        last_update_time=stamp,
        last_transition_time=stamp,
    )


def put(conditions: Sequence[Condition], fresh: Condition) -> list[Condition]:
    """`conditions` with `fresh` in place; unchanged when it says nothing new."""
    old = condition(list(conditions), fresh.type)
    if old is not None and (old.status, old.reason) == (fresh.status, fresh.reason):
        return list(conditions)
    if old is not None and old.status == fresh.status:
        fresh = msgspec.structs.replace(fresh, last_transition_time=old.last_transition_time)
    return [*(c for c in conditions if c.type != fresh.type), fresh]


def counts(
    deployment: Deployment, new: ReplicaSet | None, sets: Sequence[ReplicaSet], now: float
) -> DeploymentStatus:
    """The numbers and the Available condition; other conditions as they were."""
    total = sum(rs.status.replicas for rs in sets)
    available = sum(rs.status.available_replicas for rs in sets)
    minimum = deployment.spec.replicas - rollout.bounds(deployment).unavailable
    if available >= minimum:
        value, reason, verb = "True", "MinimumReplicasAvailable", "has"
    else:
        value, reason, verb = "False", "MinimumReplicasUnavailable", "does not have"
    message = f"Deployment {verb} minimum availability."
    return DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=total,
        updated_replicas=new.status.replicas if new else 0,
        ready_replicas=sum(rs.status.ready_replicas for rs in sets),
        available_replicas=available,
        unavailable_replicas=max(0, total - available),
        collision_count=deployment.status.collision_count,
        conditions=put(
            deployment.status.conditions, make("Available", value, reason, message, now)
        ),
    )


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Is the new template everywhere and available?"""
    wanted = deployment.spec.replicas
    return (
        status.updated_replicas == wanted
        and status.replicas == wanted
        and status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def is_progressing(before: DeploymentStatus, after: DeploymentStatus) -> bool:
    """Did the rollout come further since the last status?"""
    old_before = before.replicas - before.updated_replicas
    old_after = after.replicas - after.updated_replicas
    return (
        after.updated_replicas > before.updated_replicas
        or old_after < old_before
        or after.ready_replicas > before.ready_replicas
        or after.available_replicas > before.available_replicas
    )


def deadline_in_s(deployment: Deployment, conditions: list[Condition], now: float) -> float | None:
    """Seconds until the rollout counts as stuck, or None when it has no deadline or has ended."""
    limit = deployment.spec.progress_deadline_seconds
    progressing = condition(conditions, "Progressing")
    if limit is None or limit >= _NO_DEADLINE_S or progressing is None:
        return None
    if progressing.reason in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    if deployment.spec.paused or progressing.last_update_time is None:
        return None
    return clocks.parse_rfc3339(progressing.last_update_time) + limit - now


def judge(
    deployment: Deployment,
    new: ReplicaSet | None,
    sets: Sequence[ReplicaSet],
    now: float,
) -> DeploymentStatus:
    """The whole status: counts, Available, Progressing, ReplicaFailure."""
    status = counts(deployment, new, sets, now)
    limit = deployment.spec.progress_deadline_seconds
    if limit is not None and limit < _NO_DEADLINE_S:
        status.conditions = _progress(deployment, new, status, now)
    failure = next(
        (f for rs in sets if (f := condition(rs.status.conditions, "ReplicaFailure"))), None
    )
    if failure is None or is_complete(deployment, status):
        status.conditions = [c for c in status.conditions if c.type != "ReplicaFailure"]
    else:
        fresh = make("ReplicaFailure", failure.status, failure.reason, failure.message, now)
        status.conditions = put(status.conditions, fresh)
    return status


def _progress(
    deployment: Deployment, new: ReplicaSet | None, status: DeploymentStatus, now: float
) -> list[Condition]:
    conditions = status.conditions
    current = condition(conditions, "Progressing")
    settled = status.replicas == status.updated_replicas and (
        current is not None and current.reason == "NewReplicaSetAvailable"
    )
    if settled or deployment.spec.paused:
        return conditions
    subject = f'ReplicaSet "{new.metadata.name}"' if new else "Deployment"
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        return put(conditions, make("Progressing", "True", "NewReplicaSetAvailable", message, now))
    if is_progressing(deployment.status, status):
        fresh = make("Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.", now)
        if current is not None and current.status == "True":
            fresh.last_transition_time = current.last_transition_time
        # Replaced even when equal: its update time is what the deadline counts from.
        return [*(c for c in conditions if c.type != "Progressing"), fresh]
    left_s = deadline_in_s(deployment, conditions, now)
    if left_s is not None and left_s < 0:
        message = f"{subject} has timed out progressing."
        return put(
            conditions, make("Progressing", "False", "ProgressDeadlineExceeded", message, now)
        )
    return conditions


def document(status: DeploymentStatus) -> dict[str, Any]:
    """The status as a merge patch; a count that fell to zero is removed, as Kubernetes omits it."""
    absent = dict.fromkeys(_COUNTS)
    written: dict[str, Any] = msgspec.to_builtins(status)
    return {**absent, **written}
