"""CapacityScheduling: namespaces share a cluster by ElasticQuotas, and lend what they do not use.

A pod is refused where its namespace would get above its quota's max, or where all quotas together
would use more than they guarantee. A pod that its namespace is guaranteed room for takes it back
from namespaces that borrow, whatever their pods' priorities; any other pod makes room for itself
only by ending less important pods of its own namespace. Pods without a quota keep to themselves.
The rules are those of scheduler-plugins' plugin of this name.

It replaces DefaultPreemption, which must be disabled beside it, and refuses after all others have
looked at the pod: it is the last at PreFilter unless a file puts another behind it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from motley.api.views.pod import Pod
from motley.api.views.scheduling import ElasticQuota
from motley.client.informer import Change
from motley.scheduler import contract, elastic, events, reclaim
from motley.scheduler.columns import PlacedPod
from motley.scheduler.contract import Columns, Ineligible, Mask, Nomination, PodInfo, Reject
from motley.scheduler.elastic import Share
from motley.scheduler.feed import Feed
from motley.scheduler.nominations import is_stand_in
from motley.scheduler.plugins import default_preemption
from motley.scheduler.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from motley.scheduler.podinfo import Requests
from motley.scheduler.preemption import Trial

_NODES_WITHOUT_QUOTA = 128  # looked at for pods that have no quota and less priority
_ENDING_S = 60.0  # how long a victim may take to end before others are looked for
_NO_VICTIMS = "preemption: no pods that may end for this one make enough room."


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a pod asks of the quotas, and what came of it."""

    share: Share | None
    of_own: Requests  # with the pods that room is being made for in its namespace
    of_all: Requests  # and in others
    is_refused: bool = False
    takes_back: bool = False  # its namespace is guaranteed what it asks for


class CapacityScheduling:
    """Guarantees, limits, and loans between namespaces."""

    name = "CapacityScheduling"
    Args = contract.NoArgs
    wakes_on = (events.PodDeleted, events.PodUpdated, events.QuotaChanged)

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None:
        self._quotas = handle.quotas
        self._nominations = handle.nominations
        self._budgets = handle.budgets
        self._clock = handle.clock
        self._ordinary = DefaultPreemption(DefaultPreemptionArgs(), handle)

    def follow(self, feed: Feed) -> None:
        """Quotas, which the server may not know, and all pods that have a node."""
        self._ordinary.follow(feed)
        if not feed.once("elastic quotas"):
            return
        quotas = self._quotas

        def quota_changed(change: Change[ElasticQuota]) -> None:
            if quotas.set_quota(change.key, change.new):
                feed.happened(events.QuotaChanged())

        def pod_changed(change: Change[Pod]) -> None:
            quotas.set_pod(change.old, change.new)

        feed.informer(ElasticQuota, optional=True).add_handler(quota_changed)
        feed.informer(Pod).add_handler(pod_changed)

    # -- extension points -------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | None:
        """Refuse what is above the namespace's max, or more than all are guaranteed."""
        share = self._quotas.of(pod.key.namespace)
        if share is None:
            pod.state[self.name] = _Asked(None, {}, {})
            return None
        of_own, of_all = self._asks(pod)
        above = self._quotas.above_max(share, of_own)
        if above:
            refusal = f"ElasticQuota {share.key} would be above its max: {_shown(above)}"
        else:
            above = self._quotas.above_guaranteed(of_all)
            refusal = f"all ElasticQuotas would use more than their min: {_shown(above)}"
        is_within = self._quotas.is_within_min(share, of_own)
        pod.state[self.name] = _Asked(share, of_own, of_all, bool(above), is_within)
        return Reject(refusal) if above else None

    def post_filter(
        self, pod: PodInfo, nodes: Columns, rejected_by: Mapping[str, Mask], trial: Trial
    ) -> Nomination | Reject | None:
        """Take back what is lent, or make room in the pod's own namespace."""
        asked = pod.state.get(self.name)
        if asked is None:
            return None  # another refused it before
        if not len(self._quotas):
            return self._ordinary.post_filter(pod, nodes, rejected_by, trial)
        if pod.pod.spec.preemption_policy == "Never":
            return Ineligible(default_preemption.NEVER)
        if pod.uid in self._nominations.preempting:
            return Ineligible(default_preemption.UNDER_WAY)
        node = self._nominations.node_of(pod.uid)
        if any(default_preemption.ends_for_another(p.info) for p in nodes.pods_on(node).values()):
            return Ineligible(default_preemption.TERMINATING)
        potential = _potential(nodes, rejected_by, trial, asked)
        now = self._clock.monotonic()
        with self._quotas.without_ending(now) as ending:
            if ending and asked.is_refused and self._suffices(asked):
                return Ineligible(default_preemption.UNDER_WAY)
            found = reclaim.search(
                trial,
                potential,
                reclaim.by_node(self._victims(pod, nodes, potential, asked)),
                self._quotas,
                self._budgets,
                may_go=lambda placed: self._may_go(pod, placed, asked),
                suffices=lambda: self._suffices(asked),
            )
        best = found.best
        if best is None:
            return Reject(_NO_VICTIMS)
        self._quotas.will_end((victim.info.uid for victim in best.victims), by=now + _ENDING_S)
        said = f"found a potential placement for pod on node {best.node}"
        return Nomination(
            best.node,
            tuple(victim.info for victim in best.victims),
            f"preemption: {said}, preempting {len(best.victims)} victims",
            tuple(found.candidates),
        )

    def reserve(self, pod: PodInfo, node: str) -> None:
        """Count the pod."""
        self._quotas.reserve(pod)

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Count it no longer."""
        self._quotas.unreserve(pod)

    # -- whose room it is -------------------------------------------------------------------

    def _asks(self, pod: PodInfo) -> tuple[Requests, Requests]:
        own = every = elastic.with_pod(pod.requests)
        for other in self._nominations:
            namespace = other.key.namespace
            if other.uid == pod.uid or self._quotas.of(namespace) is None:
                continue
            wanted = elastic.with_pod(other.requests)
            if namespace != pod.key.namespace:
                # A namespace that borrows does not keep others from borrowing.
                if not self._quotas.is_borrowing(namespace):
                    every = elastic.total(every, wanted)
            elif other.priority >= pod.priority:
                own, every = elastic.total(own, wanted), elastic.total(every, wanted)
        return own, every

    def _suffices(self, asked: _Asked) -> bool:
        if asked.share is None:
            return True
        if self._quotas.above_max(asked.share, asked.of_own):
            return False
        return not self._quotas.above_guaranteed(asked.of_all)

    def _victims(
        self, pod: PodInfo, nodes: Columns, potential: Mask, asked: _Asked
    ) -> Iterable[PlacedPod]:
        """Pods that may have to go."""
        if asked.share is None:
            inhabited = nodes.ranks.pods_below(pod.priority, nodes.size) > 0
            rows = np.flatnonzero(potential & inhabited)[:_NODES_WITHOUT_QUOTA]
            there = [p for r in rows.tolist() for p in nodes.pods_on(nodes.names[r]).values()]
            return [p for p in there if self._may_go(pod, p, asked)]
        if asked.takes_back:
            uids = [
                uid
                for namespace in self._quotas.borrowers()
                if namespace != pod.key.namespace
                for uid in self._quotas.pods_in(namespace)
            ]
        else:
            uids = self._quotas.pods_in(pod.key.namespace)
        known = [nodes.placed[uid] for uid in uids if uid in nodes.placed]
        return [p for p in known if self._may_go(pod, p, asked)]

    def _may_go(self, pod: PodInfo, placed: PlacedPod, asked: _Asked) -> bool:
        namespace = placed.info.key.namespace
        if asked.share is None:
            return self._is_below(pod, placed) and self._quotas.of(namespace) is None
        if asked.takes_back:
            return namespace != pod.key.namespace and self._quotas.is_borrowing(namespace)
        return namespace == pod.key.namespace and self._is_below(pod, placed)

    def _is_below(self, pod: PodInfo, placed: PlacedPod) -> bool:
        return placed.info.priority < pod.priority and not is_stand_in(placed.info.uid)


def _potential(
    nodes: Columns, rejected_by: Mapping[str, Mask], trial: Trial, asked: _Asked
) -> Mask:
    """The rows where the end of pods can help."""
    if not asked.is_refused:
        potential = np.zeros(nodes.size, np.bool_)
        for mask in rejected_by.values():
            potential |= mask
        return potential & ~trial.hopeless(rejected_by)
    potential = nodes.live.copy()
    for mask in trial.unsuited(potential).values():
        potential &= ~mask
    return potential


def _shown(above: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({amount})" for name, amount in sorted(above.items()))


_: contract.Made[contract.PostFilterPlugin] = CapacityScheduling
__: contract.Made[contract.ReservePlugin] = CapacityScheduling
