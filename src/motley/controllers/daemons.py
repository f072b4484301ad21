"""On which nodes a DaemonSet's pods should start and end. Pure.

`manage` gives every node that fits its pod and takes it from the others; `roll` replaces pods of
old revisions. They are asked one after the other: an update goes on only when nothing is missing.
Invariants: without surge a node never gets a second pod while it has one (also a terminating
one); `roll` never makes more pods unavailable than `maxUnavailable` allows, and with surge ends an
old pod only when the new one on its node is available, or it was not itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.workloads import DaemonSet, DaemonSetStatus
from motley.controllers import daemonpod, replicas, rollout
from motley.controllers.history import REVISION_LABEL
from motley.controllers.nodefit import Fit


@dataclass(frozen=True)
class View:
    """What is known of a DaemonSet at one moment.

    `hashes` are the hashes of the revisions that keep the wanted template."""

    ds: DaemonSet
    fits: Mapping[str, Fit]
    pods: Mapping[str, Sequence[Pod]]
    hashes: frozenset[str]
    now: float

    def is_updated(self, pod: Pod) -> bool:
        """Was it made of the wanted template?"""
        return pod.metadata.labels.get(REVISION_LABEL) in self.hashes

    def is_available(self, pod: Pod) -> bool:
        """Ready, and long enough."""
        return replicas.available_in_s(pod, self.ds.spec.min_ready_seconds, self.now) == 0.0

    def living(self, node: str) -> list[Pod]:
        """The node's pods that are not being deleted."""
        return [p for p in self.pods.get(node, ()) if not p.metadata.deletion_timestamp]

    @property
    def desired(self) -> int:
        """On how many nodes the pod should run."""
        return sum(1 for fit in self.fits.values() if fit.run)


@dataclass
class Plan:
    """Pods to start (by node) and to delete; ended ones among these are told to the user."""

    create: list[str] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    failed: list[Pod] = field(default_factory=list)
    succeeded: list[Pod] = field(default_factory=list)


class Bounds(NamedTuple):
    """On how many nodes the pod may be doubled, and missing."""

    surge: int
    unavailable: int


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Pods by the node they are on or meant for; those that have ended and are being deleted
    concern nobody any more."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        node = daemonpod.node_of(pod)
        if node and not (pod.is_terminal and pod.metadata.deletion_timestamp):
            found.setdefault(node, []).append(pod)
    return found


def bounds(view: View) -> Bounds:
    """Shares of the nodes wanted, rounded up; both zero would stand still for ever."""
    rolling = view.ds.spec.update_strategy.rolling_update
    if view.ds.spec.update_strategy.type != "RollingUpdate" or rolling is None:
        return Bounds(0, 0)
    surge = rollout.share(rolling.max_surge, view.desired, up=True)
    unavailable = rollout.share(rolling.max_unavailable, view.desired, up=True)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Bounds(surge, unavailable)


def _surges(ds: DaemonSet) -> bool:
    rolling = ds.spec.update_strategy.rolling_update
    if ds.spec.update_strategy.type != "RollingUpdate" or rolling is None:
        return False
    return rollout.share(rolling.max_surge, 1, up=True) > 0


def manage(view: View, may_retry: Callable[[str], bool]) -> Plan:
    """Start what is missing, end what should not be; `may_retry(node)` holds back a pod that
    failed there a moment ago."""
    plan = Plan()
    for node, fit in view.fits.items():
        if fit.run and not view.pods.get(node):
            plan.create.append(node)
        elif fit.keep:
            running = _without_ended(view, node, plan, may_retry)
            if _surges(view.ds):
                ended = {id(pod) for pod in (*plan.failed, *plan.succeeded)}
                present = [p for p in view.living(node) if id(p) not in ended]
                if not present and fit.run:
                    plan.create.append(node)
                plan.delete += _superfluous(view, running)
            else:
                plan.delete += oldest_first(running)[1:]
        else:
            plan.delete += view.living(node)
    for node, pods in view.pods.items():
        if node not in view.fits:  # bound ones are collected with their node; these never start
            plan.delete += [
                p for p in pods if not p.spec.node_name and not p.metadata.deletion_timestamp
            ]
    return plan


def _without_ended(
    view: View, node: str, plan: Plan, may_retry: Callable[[str], bool]
) -> list[Pod]:
    running = []
    for pod in view.living(node):
        if pod.status.phase == "Failed":
            if may_retry(node):
                plan.failed.append(pod)
                plan.delete.append(pod)
        elif pod.status.phase == "Succeeded":
            plan.succeeded.append(pod)
            plan.delete.append(pod)
        else:
            running.append(pod)
    return running


def _superfluous(view: View, running: Sequence[Pod]) -> list[Pod]:
    """With surge a node has at most one old and one new pod, and both only while the old one
    works and the new one is not available."""
    ordered = oldest_first(running)
    new = [p for p in ordered if view.is_updated(p)]
    old = [p for p in ordered if not view.is_updated(p)]
    extra = [*new[1:], *old[1:]]
    if new and old and (not old[0].is_ready or view.is_available(new[0])):
        extra.append(old[0])
    return extra


def oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    """Bound ones before others, then by age."""
    return sorted(
        pods,
        key=lambda p: (
            not p.spec.node_name,
            p.metadata.creation_timestamp or "",
            p.metadata.name,
        ),
    )


def roll(view: View) -> Plan:
    """The next step of a rolling update."""
    nodes = {*view.pods, *(node for node, fit in view.fits.items() if fit.run)}
    if bounds(view).surge:
        return _roll_with_surge(view, sorted(nodes))
    return _roll_in_place(view, sorted(nodes))


def _pair(view: View, node: str) -> tuple[Pod | None, Pod | None] | None:
    """The node's new and old pod; None when it has too many and `manage` must act first."""
    living = view.living(node)
    new = [p for p in living if view.is_updated(p)]
    old = [p for p in living if not view.is_updated(p)]
    if len(new) > 1 or len(old) > 1:
        return None
    return (new[0] if new else None), (old[0] if old else None)


def _roll_in_place(view: View, nodes: Iterable[str]) -> Plan:
    plan = Plan()
    candidates = []
    unavailable = 0
    for node in nodes:
        pair = _pair(view, node)
        if pair is None or (pair[0] is None) == (pair[1] is None):
            unavailable += 1
            continue
        new, old = pair
        if new is not None:
            unavailable += not view.is_available(new)
        elif old is not None and not view.is_available(old):
            plan.delete.append(old)  # down already: replacing it costs nothing
            unavailable += 1
        elif old is not None:
            candidates.append(old)
    plan.delete += candidates[: max(0, bounds(view).unavailable - unavailable)]
    return plan


def _roll_with_surge(view: View, nodes: Iterable[str]) -> Plan:
    plan = Plan()
    candidates: list[str] = []
    misplaced: list[Pod] = []
    surging = available = 0
    for node in nodes:
        pair = _pair(view, node)
        if pair is None:
            surging += 1
            continue
        new, old = pair
        shown = old or new
        available += shown is not None and view.is_available(shown)
        if old is None:
            continue
        fit = view.fits.get(node, Fit(run=False, keep=False))
        if new is not None:
            if view.is_available(new):
                plan.delete.append(old)
            else:
                surging += 1
        elif not fit.run:
            (misplaced if view.is_available(old) else plan.delete).append(old)
        elif view.is_available(old):
            candidates.append(node)
        else:
            plan.create.append(node)
    # Pods on nodes that are no longer wanted go when as many as wanted are available elsewhere.
    plan.delete += misplaced[: max(0, available - view.desired)]
    plan.create += candidates[: max(0, bounds(view).surge - surging)]
    return plan


def status(view: View, collisions: int | None) -> DaemonSetStatus:
    """The DaemonSet's status for these nodes and pods; a node counts by its oldest pod."""
    result = DaemonSetStatus(
        observed_generation=view.ds.metadata.generation,
        desired_number_scheduled=view.desired,
        collision_count=collisions,
        conditions=view.ds.status.conditions,
    )
    for node, fit in view.fits.items():
        pods = oldest_first(view.pods.get(node, ()))
        if not pods:
            continue
        if not fit.run:
            result.number_misscheduled += 1
            continue
        result.current_number_scheduled += 1
        result.number_ready += pods[0].is_ready
        result.number_available += view.is_available(pods[0])
        result.updated_number_scheduled += view.is_updated(pods[0])
    result.number_unavailable = view.desired - result.number_available
    return result


def status_document(status: DaemonSetStatus) -> dict[str, Any]:
    """The status as a merge patch; zeros are left out where Kubernetes leaves them out."""
    return {
        "observedGeneration": status.observed_generation,
        "currentNumberScheduled": status.current_number_scheduled,
        "numberMisscheduled": status.number_misscheduled,
        "desiredNumberScheduled": status.desired_number_scheduled,
        "numberReady": status.number_ready,
        "updatedNumberScheduled": status.updated_number_scheduled or None,
        "numberAvailable": status.number_available or None,
        "numberUnavailable": status.number_unavailable or None,
        "collisionCount": status.collision_count,
    }


def wakes(before: Node | None, after: Node | None, fit: Callable[[Node], Fit]) -> bool:
    """Does a node's change concern a DaemonSet? Heartbeats and new images never do."""
    if before is not None and after is not None:
        same = (before.metadata.labels, before.spec.taints) == (
            after.metadata.labels,
            after.spec.taints,
        )
        return not same and fit(before) != fit(after)
    node = after if after is not None else before
    return node is not None and fit(node) != Fit(run=False, keep=False)
