"""What a StatefulSet does next. Pure.

OrderedReady takes one step at a time: pod n is made when all before it are available, the highest
goes first when the set shrinks, and neither happens beside an update. Parallel makes and deletes
at once. An update deletes pods from the highest ordinal down, never below the partition, and
never so that more than `maxUnavailable` of the wanted pods are down; making them anew is left to
the next pass, which finds them missing.
Invariant: a plan for OrderedReady holds at most one creation or scale-down, and never deletes a
pod for an update while a wanted pod is missing or not available (unless maxUnavailable allows).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motley.api.views.base import Object
from motley.api.views.pod import Pod
from motley.api.views.workloads import ControllerRevision, StatefulSet, StatefulSetStatus
from motley.controllers import identity, replicas, retention, rollout


@dataclass(frozen=True)
class View:
    """What is known of a set at one moment; `claims` by name."""

    sts: StatefulSet
    pods: Sequence[Pod]
    claims: Mapping[str, Object]
    current: ControllerRevision
    update: ControllerRevision
    now: float

    @property
    def is_ordered(self) -> bool:
        """One step at a time?"""
        return self.sts.spec.pod_management_policy != "Parallel"

    def is_available(self, pod: Pod) -> bool:
        """Running, ready long enough, and not on its way out."""
        wait_s = replicas.available_in_s(pod, self.sts.spec.min_ready_seconds, self.now)
        is_staying = pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        return is_staying and wait_s == 0.0

    def revision_for(self, ordinal: int) -> ControllerRevision:
        """Which revision a pod that is missing is made of: below the partition the current."""
        strategy = self.sts.spec.update_strategy
        start = self.sts.spec.ordinals.start
        if strategy.rolling_update is not None:
            old = ordinal < start + strategy.rolling_update.partition
        else:
            kept = start + self.sts.status.current_replicas
            old = strategy.type == "RollingUpdate" and ordinal < kept
        return self.current if old else self.update


@dataclass
class Plan:
    """What to do, in this order: claims, pods to make, pods to correct, pods to delete."""

    ensure_claims: list[int] = field(default_factory=list)
    retain: list[tuple[Pod, int]] = field(default_factory=list)
    create: list[int] = field(default_factory=list)
    identify: list[tuple[Pod, int]] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    waits_for_claims: list[str] = field(default_factory=list)


def plan(view: View) -> Plan:
    """The next steps."""
    result = Plan()
    if view.sts.metadata.deletion_timestamp is not None:
        return result
    wanted = identity.ordinals(view.sts)
    placed: dict[int, Pod] = {}
    condemned: list[tuple[int, Pod]] = []
    for pod in view.pods:
        ordinal = identity.ordinal_of(view.sts, pod)
        if ordinal is None:
            continue
        if ordinal in wanted:
            placed[ordinal] = pod
        else:
            condemned.append((ordinal, pod))
    condemned.sort(key=lambda item: -item[0])
    goes_on = _keep(view, placed, result)
    if not goes_on:
        return result
    _retain(view, condemned, result)
    if not _shrink(view, placed, condemned, result):
        return result
    if view.sts.spec.update_strategy.type == "RollingUpdate":
        _update(view, placed, result)
    return result


def _keep(view: View, placed: Mapping[int, Pod], result: Plan) -> bool:
    """Make what is missing and put right what is there; False: go no further in this pass."""
    for ordinal in identity.ordinals(view.sts):
        pod = placed.get(ordinal)
        if pod is None:
            _create(view, ordinal, result)
            if view.is_ordered:
                return False
        elif pod.is_terminal:
            if not pod.metadata.deletion_timestamp:
                result.delete.append(pod)
            if view.is_ordered:
                return False
        else:
            if pod.status.phase == "Pending" and _missing(view, ordinal):
                result.ensure_claims.append(ordinal)
            if view.is_ordered and not view.is_available(pod):
                return False
            if not identity.is_right(view.sts, pod, ordinal):
                result.identify.append((pod, ordinal))
            if _misowned(view, pod, ordinal):
                result.retain.append((pod, ordinal))
    return True


def _create(view: View, ordinal: int, result: Plan) -> None:
    name = identity.pod_name(view.sts, ordinal)
    names = identity.claim_names(view.sts, ordinal)
    present = [view.claims[c] for c in names if c in view.claims]
    going = [
        claim.metadata.name
        for claim in present
        if claim.metadata.deletion_timestamp or retention.is_stale(claim, view.sts, name)
    ]
    if going:
        result.waits_for_claims += going
        return
    if names:
        result.ensure_claims.append(ordinal)
    result.create.append(ordinal)


def _missing(view: View, ordinal: int) -> bool:
    return any(name not in view.claims for name in identity.claim_names(view.sts, ordinal))


def _misowned(view: View, pod: Pod, ordinal: int) -> bool:
    is_wanted = ordinal in identity.ordinals(view.sts)
    return any(
        retention.references(view.claims[name], view.sts, pod, is_wanted=is_wanted) is not None
        for name in identity.claim_names(view.sts, ordinal)
        if name in view.claims
    )


def _retain(view: View, condemned: Sequence[tuple[int, Pod]], result: Plan) -> None:
    for ordinal, pod in condemned:
        if _misowned(view, pod, ordinal):
            result.retain.append((pod, ordinal))


def _shrink(
    view: View,
    placed: Mapping[int, Pod],
    condemned: Sequence[tuple[int, Pod]],
    result: Plan,
) -> bool:
    if not view.is_ordered:
        result.delete += [pod for _, pod in condemned if not pod.metadata.deletion_timestamp]
        return True
    if not condemned:
        return True
    _, highest = condemned[0]
    in_order = [*(placed[o] for o in sorted(placed)), *(pod for _, pod in condemned[::-1])]
    down = (pod for pod in in_order if not view.is_available(pod) and not pod.is_terminal)
    # A pod that is down goes only when no lower one is: the set shrinks past one failure at a
    # time, and the user may see which. One that has ended never comes up again: two of them
    # would wait for each other for ever (as Kubernetes' do).
    may_go = view.is_available(highest) or highest.is_terminal or next(down, None) is highest
    if not highest.metadata.deletion_timestamp and may_go:
        result.delete.append(highest)
    return False


def max_unavailable(sts: StatefulSet) -> int:
    """How many wanted pods an update may have down; a share rounds down, but one always may."""
    rolling = sts.spec.update_strategy.rolling_update
    if rolling is None:
        return 1
    return max(1, rollout.share(rolling.max_unavailable, sts.spec.replicas, up=False))


def _update(view: View, placed: Mapping[int, Pod], result: Plan) -> None:
    wanted = identity.ordinals(view.sts)
    rolling = view.sts.spec.update_strategy.rolling_update
    lowest = wanted.start + (rolling.partition if rolling else 0)
    going = {pod.metadata.uid for pod in result.delete}
    down = [o for o in wanted if o not in placed or not view.is_available(placed[o])]
    old = [
        (ordinal, placed[ordinal])
        for ordinal in reversed(wanted)
        if ordinal >= lowest
        and ordinal in placed
        and not placed[ordinal].metadata.deletion_timestamp
        and placed[ordinal].metadata.uid not in going
        and identity.revision_of(placed[ordinal]) != view.update.metadata.name
    ]
    if not view.is_ordered:
        # What is down anyway costs nothing; spent first, it leaves the rest of the budget to
        # pods that work.
        result.delete += [pod for _, pod in old if not view.is_available(pod)]
        old = [(ordinal, pod) for ordinal, pod in old if view.is_available(pod)]
    budget = max(0, max_unavailable(view.sts) - len(down))
    result.delete += [pod for _, pod in old[:budget]]


def status(view: View, collisions: int) -> StatefulSetStatus:
    """The set's status for these pods."""
    sts = view.sts
    living = [p for p in view.pods if not p.metadata.deletion_timestamp]
    made_of = [identity.revision_of(p) for p in living]
    ready = [p for p in view.pods if p.status.phase == "Running" and p.is_ready]
    min_ready_s = sts.spec.min_ready_seconds
    result = StatefulSetStatus(
        observed_generation=sts.metadata.generation,
        replicas=len(view.pods),
        ready_replicas=len(ready),
        available_replicas=sum(
            1 for p in ready if replicas.available_in_s(p, min_ready_s, view.now) == 0.0
        ),
        current_replicas=made_of.count(view.current.metadata.name),
        updated_replicas=made_of.count(view.update.metadata.name),
        current_revision=view.current.metadata.name,
        update_revision=view.update.metadata.name,
        collision_count=collisions,
        conditions=sts.status.conditions,
    )
    wanted = sts.spec.replicas
    if result.updated_replicas == result.ready_replicas == result.replicas == wanted:
        result.current_replicas = result.updated_replicas
        result.current_revision = result.update_revision
    return result


def status_document(status: StatefulSetStatus) -> dict[str, Any]:
    """The status as a merge patch; zeros are left out where Kubernetes leaves them out."""
    return {
        "observedGeneration": status.observed_generation,
        "replicas": status.replicas,
        "readyReplicas": status.ready_replicas or None,
        "availableReplicas": status.available_replicas,
        "currentReplicas": status.current_replicas or None,
        "updatedReplicas": status.updated_replicas or None,
        "currentRevision": status.current_revision,
        "updateRevision": status.update_revision,
        "collisionCount": status.collision_count,
    }
