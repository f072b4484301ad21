"""Coscheduling: the members of a PodGroup get their nodes together, or none does.

Pods name their group in the label `scheduling.x-k8s.io/pod-group`. They stand next to each other
in the queue; a member that found a place waits (Permit) until as many have one as the group
needs, then all are bound. If that cannot happen any more, or not in time, all places are given
back and the group rests. The rules are those of scheduler-plugins' plugin of this name.

Invariant: no member is bound unless `minMember` members are bound or about to be.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.scheduling import PodGroup
from motley.client.informer import Change
from motley.client.rest import Client
from motley.scheduler import contract, events
from motley.scheduler.contract import ALLOW, Columns, Mask, PodInfo, Reject, Verdict, Wait
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.gangs import Gang
from motley.scheduler.podinfo import CPU, PODS
from motley.scheduler.preemption import Trial


class CoschedulingArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """How long members wait for each other, and how long a group that failed rests at least; a
    group that lacks at most this share of its members keeps its places until the time is over."""

    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def __post_init__(self) -> None:
        if self.permit_waiting_time_seconds <= 0:
            raise ValueError("permitWaitingTimeSeconds is not positive")
        if self.pod_group_backoff_seconds < 0:
            raise ValueError("podGroupBackoffSeconds is negative")
        if not 0 <= self.pod_group_reject_percentage <= 100:
            raise ValueError("podGroupRejectPercentage is not between 0 and 100")


class Coscheduling:
    """All members of a group, or none."""

    name = "Coscheduling"
    Args = CoschedulingArgs
    # For groups that say what they need in all. Everything else about a group wakes its members
    # by name (`PodsActivated`).
    wakes_on = (
        events.NodeAdded,
        events.NodeAllocatableChanged,
        events.NodeTaintsChanged,
        events.PodDeleted,
        events.PodUpdated,
    )

    def __init__(self, args: CoschedulingArgs, handle: contract.Handle) -> None:
        self._args = args
        self._gangs = handle.gangs
        self._waiting = handle.waiting
        self._clock = handle.clock

    def follow(self, feed: Feed) -> None:
        """Groups, which the server may not know, all pods that name one, and what nodes offer."""
        if not feed.once("gangs"):
            return
        gangs = self._gangs
        gangs.activate = lambda uids: feed.happened(events.PodsActivated(uids))

        def group_changed(change: Change[PodGroup]) -> None:
            gangs.set_group(change.key, change.new)

        def pod_changed(change: Change[Pod]) -> None:
            gangs.set_pod(change.old, change.new)

        def node_changed(change: Change[Node]) -> None:
            old, new = change.old, change.new
            if new is not None and (old is None or _offer(old) != _offer(new)):
                gangs.room_grew(self._clock)

        feed.informer(PodGroup, optional=True).add_handler(group_changed)
        feed.informer(Node).add_handler(node_changed)
        feed.informer(Pod).add_handler(pod_changed)

    async def background(self, client: Client) -> None:
        """End the groups' rests."""
        await self._gangs.wake_rested(self._clock)

    # -- extension points -------------------------------------------------------------------

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[int, float, str]:
        """Priority, then age of the pod or of its group, then group: members stand together.

        Without groups this is PrioritySort. A group that failed goes behind those that have not.
        """
        gang = self._gangs.of(pod.pod)
        if gang is None or gang.group is None:
            return (-pod.priority, queued_at, "")
        return (-pod.priority, gang.failed_at or gang.created, str(gang.key))

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | None:
        """Refuse members of a group that cannot be placed as a whole anyway."""
        gang = self._gangs.of(pod.pod)
        if gang is None:
            return None
        gang.hopeless.discard(pod.uid)
        gang.lacks_resources = False
        if gang.is_complete:
            return None
        if gang.lack:
            return Reject(gang.lack)
        if self._clock.monotonic() < gang.rests_until:
            return Reject(gang.failure)
        if gang.min_resources and not gang.has_resources:
            short = _shortage(gang, nodes)
            gang.lacks_resources, gang.has_resources = bool(short), not short
            if short:
                return Reject(f"PodGroup {gang.key} needs more than the cluster has left: {short}")
        return None

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Room helps a group that waits for room."""
        gang = self._gangs.of(pod.pod)
        return gang is not None and gang.lacks_resources

    def post_filter(
        self, pod: PodInfo, nodes: Columns, rejected_by: Mapping[str, Mask], trial: Trial
    ) -> Reject | None:
        """A member fits nowhere: if the group cannot do without it, give its places back."""
        gang = self._gangs.of(pod.pod)
        if gang is None or gang.lack or gang.is_complete:
            return None
        if self._clock.monotonic() < gang.rests_until:
            return None
        gang.hopeless.add(pod.uid)
        if gang.can_complete or self._gangs.releasing:
            return None  # others may do, or there is room in a moment
        missing = gang.needed - gang.placed
        if gang.placed and missing * 100 <= gang.needed * self._args.pod_group_reject_percentage:
            return None
        self._release(gang)
        return Reject(f"{gang.failure}.")

    def reserve(self, pod: PodInfo, node: str) -> None:
        """Count the member."""
        gang = self._gangs.of(pod.pod)
        if gang is not None:
            self._gangs.reserve(gang, pod)

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Count it no longer; without it the others wait in vain."""
        gang = self._gangs.of(pod.pod)
        if gang is None:
            return
        is_awaited = pod.uid in self._gangs.releasing
        had_room = gang.placed
        self._gangs.unreserve(gang, pod)
        if not is_awaited and (self._held(gang) or not gang.bound):
            self._release(gang, had_room)

    def permit(self, pod: PodInfo, node: str) -> Verdict | Reject | Wait:
        """Wait for the others; the last one lets all go."""
        gang = self._gangs.of(pod.pod)
        if gang is None:
            return ALLOW
        if gang.group is None:
            return Reject(gang.lack)
        self._gangs.reserve(gang, pod)
        if gang.is_complete:
            for uid in gang.reserved:
                self._waiting.allow(uid)
            self._gangs.completed(gang)
            return ALLOW
        if len(gang.reserved) == 1:
            self._gangs.wake(gang)
        timeout_s = gang.group.spec.schedule_timeout_seconds
        return Wait(float(timeout_s or self._args.permit_waiting_time_seconds))

    # -- giving places back -----------------------------------------------------------------

    def _held(self, gang: Gang) -> list[str]:
        return [uid for uid in gang.reserved if self._waiting.holds(uid)]

    def _release(self, gang: Gang, placed: int | None = None) -> None:
        self._gangs.fail(gang, self._clock, self._args.pod_group_backoff_seconds, placed)
        for uid in self._held(gang):
            self._gangs.releasing.add(uid)
            self._waiting.reject(uid, gang.failure)


def _offer(node: Node) -> tuple[object, ...]:
    """What of a node decides how many pods it takes; heartbeats change nothing of it."""
    return node.status.allocatable, node.spec.unschedulable, node.spec.taints


def _shortage(gang: Gang, nodes: Columns) -> str:
    """What is free of too little for the group as a whole; members that have a place count as
    if they had none."""
    rows = nodes.live & ~nodes.unschedulable
    mine: dict[str, int] = {}
    for uid in gang.bound | gang.reserved:
        placed = nodes.placed.get(uid)
        if placed is not None:
            mine[PODS] = mine.get(PODS, 0) + 1
            for name, value in placed.info.requests.items():
                mine[name] = mine.get(name, 0) + value
    short = []
    for name, wanted in {**gang.min_resources, PODS: gang.needed}.items():
        resource = nodes.resource(name)
        free = mine.get(name, 0)
        if resource is not None:
            left = nodes.allocatable[resource] - nodes.requested[resource]
            free += int(np.maximum(left[rows], 0).sum())
        if free < wanted:
            short.append(f"{name} ({_shown(name, free)} of {_shown(name, wanted)})")
    return ", ".join(short)


def _shown(name: str, value: int) -> str:
    return f"{value}m" if name == CPU else str(value)


_: contract.Made[contract.QueueSortPlugin] = Coscheduling
__: contract.Made[contract.PermitPlugin] = Coscheduling
