"""The arithmetic of a Deployment's rollout. Pure.

Given the Deployment and its ReplicaSets it says which sizes the ReplicaSets should have next. Each
step keeps two promises: at most `replicas + maxSurge` pods exist, at least
`replicas - maxUnavailable` are available.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from motley.controllers.workload import Deployment, ReplicaSet

REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


class Bounds(NamedTuple):
    """How many pods more, and how many available ones fewer, than asked for a rollout may have."""

    surge: int
    unavailable: int


class Resize(NamedTuple):
    """A ReplicaSet and the size it should get."""

    rs: ReplicaSet
    replicas: int


def bounds(deployment: Deployment) -> Bounds:
    """maxSurge rounds up, maxUnavailable rounds down; both zero would stand still for ever."""
    spec = deployment.spec
    if spec.strategy.type == "Recreate":
        return Bounds(0, 0)
    rolling = spec.strategy.rolling_update
    surge_raw = rolling.max_surge if rolling else "25%"
    unavailable_raw = rolling.max_unavailable if rolling else "25%"
    surge = share(surge_raw, spec.replicas, up=True)
    unavailable = share(unavailable_raw, spec.replicas, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Bounds(surge, min(unavailable, spec.replicas))


def share(value: int | str, whole: int, *, up: bool) -> int:
    """A number as it is, a percentage as its part of `whole`, rounded up or down."""
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        return int(value)
    exact = int(value[:-1]) * whole
    return -(-exact // 100) if up else exact // 100


def by_age(sets: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Oldest first; the name decides between equals."""
    return sorted(sets, key=lambda rs: (rs.metadata.creation_timestamp or "", rs.metadata.name))


def total(sets: Sequence[ReplicaSet]) -> int:
    """Pods these ReplicaSets are asked for."""
    return sum(rs.spec.replicas for rs in sets)


def present(sets: Sequence[ReplicaSet]) -> int:
    """Pods of these ReplicaSets that are there or will be.

    A ReplicaSet that was just made smaller still has the pods it is about to delete; a surge that
    did not count them would be exceeded for a moment.
    """
    return sum(max(rs.spec.replicas, rs.status.replicas) for rs in sets)


def available(sets: Sequence[ReplicaSet]) -> int:
    """Pods of these ReplicaSets that are available and stay.

    A ReplicaSet that was just made smaller still reports the pods it is about to delete.
    """
    return sum(min(rs.status.available_replicas, rs.spec.replicas) for rs in sets)


def revision(annotations: dict[str, str]) -> int:
    """The revision an object carries, 0 when none or nonsense."""
    text = annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def new_size(deployment: Deployment, current: int, all_pods: int) -> int:
    """What the new ReplicaSet, now of size `current`, may grow (or must shrink) to."""
    wanted = deployment.spec.replicas
    if deployment.spec.strategy.type == "Recreate" or current > wanted:
        return wanted
    room = wanted + bounds(deployment).surge - all_pods
    return current + max(0, min(room, wanted - current))


def shrink_old(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> list[Resize]:
    """Which old ReplicaSets may shrink now: what is broken anyway, then what can be spared."""
    minimum = deployment.spec.replicas - bounds(deployment).unavailable
    spare = total([*old, new]) - minimum - (new.spec.replicas - available([new]))
    if total(old) == 0 or spare <= 0:
        return []
    ordered = by_age(old)
    sizes = {rs.metadata.name: rs.spec.replicas for rs in ordered}
    for rs in ordered:
        count = min(spare, rs.spec.replicas - available([rs]))
        sizes[rs.metadata.name] -= count
        spare -= count
    # Removing broken pods cost no availability; working ones may go only above the minimum.
    spare = min(spare, available([*old, new]) - minimum)
    for rs in ordered:
        count = max(0, min(sizes[rs.metadata.name], spare))
        sizes[rs.metadata.name] -= count
        spare -= count
    return [
        Resize(rs, sizes[rs.metadata.name])
        for rs in ordered
        if sizes[rs.metadata.name] != rs.spec.replicas
    ]


def is_scaling(deployment: Deployment, sets: Sequence[ReplicaSet]) -> bool:
    """Did the wanted number change since the ReplicaSets were last sized?"""
    wanted = str(deployment.spec.replicas)
    return any(
        rs.spec.replicas > 0 and rs.metadata.annotations.get(DESIRED, wanted) != wanted
        for rs in sets
    )


def scale(
    deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]
) -> list[Resize]:
    """Sizes after a change of `spec.replicas`, also in the middle of a rollout or while paused."""
    wanted = deployment.spec.replicas
    everything = [*old, *([new] if new else [])]
    active = [rs for rs in everything if rs.spec.replicas > 0]
    if len(active) <= 1:
        only = active[0] if active else (new or (by_age(old)[-1] if old else None))
        return [Resize(only, wanted)] if only and only.spec.replicas != wanted else []
    if new is not None and _is_saturated(deployment, new):
        return [Resize(rs, 0) for rs in old if rs.spec.replicas > 0]
    if deployment.spec.strategy.type != "RollingUpdate":
        return []
    return _proportional(deployment, active)


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    wanted = deployment.spec.replicas
    return (
        new.spec.replicas == wanted
        and new.metadata.annotations.get(DESIRED) == str(wanted)
        and new.status.available_replicas == wanted
    )


def _proportional(deployment: Deployment, active: Sequence[ReplicaSet]) -> list[Resize]:
    """Spread the difference over the ReplicaSets by size; the biggest take what rounding left."""
    wanted = deployment.spec.replicas
    allowed = wanted + bounds(deployment).surge if wanted > 0 else 0
    difference = allowed - total(active)
    # Growing favours the newer of two equals, shrinking the older.
    ordered = sorted(by_age(active), key=lambda rs: -rs.spec.replicas)
    if difference > 0:
        ordered = sorted(by_age(active)[::-1], key=lambda rs: -rs.spec.replicas)
    sizes: list[int] = []
    added = 0
    for rs in ordered:
        share = _fraction(deployment, rs, allowed) if difference else 0
        left = difference - added
        share = min(share, left) if difference > 0 else max(share, left)
        sizes.append(rs.spec.replicas + share)
        added += share
    left = difference - added
    for i, size in enumerate(sizes):
        change = max(-size, left)
        sizes[i] += change
        left -= change
    return [
        Resize(rs, size)
        for rs, size in zip(ordered, sizes, strict=True)
        if size != rs.spec.replicas or rs.metadata.annotations.get(DESIRED) != str(wanted)
    ]


def _fraction(deployment: Deployment, rs: ReplicaSet, allowed: int) -> int:
    if deployment.spec.replicas == 0:
        return -rs.spec.replicas
    text = rs.metadata.annotations.get(MAXIMUM, "")
    before = int(text) if text.isdigit() and int(text) > 0 else deployment.status.replicas
    if before <= 0:
        return 0
    return math.floor(rs.spec.replicas * allowed / before + 0.5) - rs.spec.replicas


def to_clean(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Old, empty ReplicaSets beyond the history limit, lowest revision first."""
    limit = deployment.spec.revision_history_limit
    if limit is None:
        return []
    alive = [rs for rs in old if rs.metadata.deletion_timestamp is None]
    excess = len(alive) - limit
    ordered = sorted(alive, key=lambda rs: revision(rs.metadata.annotations))
    return [
        rs
        for rs in ordered[: max(0, excess)]
        if rs.spec.replicas == 0
        and rs.status.replicas == 0
        and rs.metadata.generation <= rs.status.observed_generation
    ]
