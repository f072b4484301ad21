"""What a disruption budget allows, worked out from its pods and the sizes of their owners.

A share of pods is a share of what the owners ask for, not of what happens to run: a Deployment
of ten of which two run may not lose another one because "half of two" would allow it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.lib.clock import parse_rfc3339, rfc3339

# Two minutes: an eviction whose pod is still there after that did not happen.
DELETION_TIMEOUT_S = 120.0
DISRUPTION_ALLOWED = "DisruptionAllowed"


@dataclass(frozen=True)
class Count:
    """How many pods there should be, and how many of them must be healthy."""

    expected: int
    desired_healthy: int


@dataclass(frozen=True)
class Disrupted:
    """Evictions that were granted and are not seen in the pods yet."""

    pods: Mapping[str, str]
    expired: tuple[str, ...]  # granted long ago, and the pod is still there
    check_in_s: float | None  # when the next one expires


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Whether the sizes of the pods' owners matter: for a number that must stay they do not."""
    spec = budget.spec
    return spec.max_unavailable is not None or isinstance(spec.min_available, str)


def count(budget: PodDisruptionBudget, pods: int, scale: int) -> Count:
    """The numbers a budget stands for; `scale` is what the owners of its pods ask for."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return Count(scale, max(0, scale - share(spec.max_unavailable, scale)))
    if isinstance(spec.min_available, int):
        return Count(pods, spec.min_available)
    if spec.min_available is not None:
        return Count(scale, share(spec.min_available, scale))
    return Count(0, 0)


def share(amount: int | str, whole: int) -> int:
    """A number, or so many percent of the whole, rounded up. ValueError when it is neither."""
    if isinstance(amount, int):
        return amount
    if not amount.endswith("%"):
        raise ValueError(f"invalid value {amount!r}: neither a number nor a percentage")
    return math.ceil(int(amount[:-1]) * whole / 100)


def disrupted(budget: PodDisruptionBudget, pods: Sequence[Pod], now: float) -> Disrupted:
    """Which granted evictions still count."""
    granted = budget.status.disrupted_pods
    kept: dict[str, str] = {}
    expired: list[str] = []
    waits: list[float] = []
    for pod in pods:
        at = granted.get(pod.metadata.name)
        if at is None or pod.metadata.deletion_timestamp is not None:
            continue  # never granted, or it goes: it is not healthy any more anyway
        left_s = parse_rfc3339(at) + DELETION_TIMEOUT_S - now
        if left_s <= 0:
            expired.append(pod.metadata.name)
            continue
        kept[pod.metadata.name] = at
        waits.append(left_s)
    return Disrupted(kept, tuple(expired), min(waits, default=None))


def healthy(pods: Sequence[Pod], going: Mapping[str, str]) -> int:
    """How many are ready and stay."""
    return sum(
        1
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.metadata.name not in going
        and pod.is_ready
    )


def status_document(
    budget: PodDisruptionBudget,
    counted: Count,
    now_healthy: int,
    going: Mapping[str, str],
    now: float,
) -> dict[str, Any]:
    """The status to be; disrupted pods that no longer count are null, so that a patch removes
    them."""
    allowed = max(0, now_healthy - counted.desired_healthy) if counted.expected > 0 else 0
    removed = {name: None for name in budget.status.disrupted_pods if name not in going}
    reason = "SufficientPods" if allowed else "InsufficientPods"
    return {
        "observedGeneration": budget.metadata.generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": now_healthy,
        "desiredHealthy": counted.desired_healthy,
        "expectedPods": counted.expected,
        "disruptedPods": {**going, **removed} or None,
        "conditions": conditions(budget, bool(allowed), reason, "", now),
    }


def conditions(
    budget: PodDisruptionBudget, allowed: bool, reason: str, message: str, now: float
) -> list[dict[str, Any]]:
    """The budget's one condition, dated by its last change."""
    state = "True" if allowed else "False"
    before = next((c for c in budget.status.conditions if c.type == DISRUPTION_ALLOWED), None)
    same = before is not None and before.status == state
    since = before.last_transition_time if same and before else None
    return [
        {
            "type": DISRUPTION_ALLOWED,
            "status": state,
            "observedGeneration": budget.metadata.generation,
            "lastTransitionTime": since or rfc3339(now),
            "reason": reason,
            "message": message,
        }
    ]


def is_current(budget: PodDisruptionBudget, wanted: Mapping[str, Any]) -> bool:
    """Whether the status says all that already."""
    have = budget.status
    known = [(c.type, c.status, c.reason, c.message) for c in have.conditions]
    asked = [(c["type"], c["status"], c["reason"], c["message"]) for c in wanted["conditions"]]
    numbers = (
        ("observedGeneration", have.observed_generation),
        ("disruptionsAllowed", have.disruptions_allowed),
        ("currentHealthy", have.current_healthy),
        ("desiredHealthy", have.desired_healthy),
        ("expectedPods", have.expected_pods),
        ("disruptedPods", have.disrupted_pods or None),
    )
    return known == asked and all(wanted[name] == value for name, value in numbers)
