"""DefaultPreemption: a pod that fits nowhere makes room by ending less important ones.

The plugin decides whether the pod may do so at all and which nodes come into question, and words
the outcome; which pods must go is found by `motley.scheduler.preemption`. Nothing is ended here:
the decision is carried out by the scheduler's shell.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from motley.api.views.policy import PodDisruptionBudget
from motley.scheduler import contract, preemption
from motley.scheduler.candidates import KnownByTemplate
from motley.scheduler.contract import Columns, Ineligible, Mask, Nomination, PodInfo, Reject
from motley.scheduler.decisions import fit_error
from motley.scheduler.feed import Feed
from motley.scheduler.preemption import Trial

REASON = "PreemptionByScheduler"

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
TERMINATING = "preemption: not eligible due to a terminating pod on the nominated node."
UNDER_WAY = "preemption: waiting for the preemption for this pod to be finished"


class DefaultPreemptionArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """How many nodes are looked at closely. All are looked at in columns, so the share counts
    only where no number is given."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            raise ValueError("minCandidateNodesPercentage is not between 0 and 100")
        if self.min_candidate_nodes_absolute < 0:
            raise ValueError("minCandidateNodesAbsolute is negative")
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("one of minCandidateNodesPercentage and …Absolute must be positive")


class DefaultPreemption:
    """Nominate the pod to the node whose least important pods are missed least."""

    name = "DefaultPreemption"
    Args = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: contract.Handle) -> None:
        self._args = args
        self._budgets = handle.budgets
        self._nominations = handle.nominations
        self._known = KnownByTemplate(handle.nodes)

    def follow(self, feed: Feed) -> None:
        """Budgets say whose end to avoid."""
        if feed.once("budgets"):
            feed.informer(PodDisruptionBudget).add_handler(
                lambda change: self._budgets.set(change.key, change.new)
            )

    def post_filter(
        self, pod: PodInfo, nodes: Columns, rejected_by: Mapping[str, Mask], trial: Trial
    ) -> Nomination | Reject:
        """The node and the pods that must leave it, or why that helps nowhere."""
        potential = np.zeros(nodes.size, np.bool_)
        for mask in rejected_by.values():
            potential |= mask
        potential &= ~trial.hopeless(rejected_by)
        refusal = self._ineligible(pod, nodes, potential)
        if refusal is not None:
            return refusal
        enough = self._args.min_candidate_nodes_absolute
        if not enough:
            share = self._args.min_candidate_nodes_percentage
            enough = int(np.count_nonzero(potential)) * share // 100
        known = self._known.of(pod)
        found = preemption.search(trial, potential, self._budgets, enough=enough, known=known)
        best = found.best
        if best is None:
            unhelped = nodes.count - int(np.count_nonzero(potential))
            if unhelped:
                found.reasons[preemption.NOT_HELPFUL] += unhelped
            return Reject(f"preemption: {fit_error(nodes.count, found.reasons)}")
        said = f"found a potential placement for pod on node {best.node}"
        return Nomination(
            best.node,
            tuple(victim.info for victim in best.victims),
            f"preemption: {said}, preempting {len(best.victims)} victims",
            tuple(found.candidates),
        )

    def _ineligible(self, pod: PodInfo, nodes: Columns, potential: Mask) -> Ineligible | None:
        if pod.pod.spec.preemption_policy == "Never":
            return Ineligible(NEVER)
        if pod.uid in self._nominations.preempting:
            return Ineligible(UNDER_WAY)
        node = self._nominations.node_of(pod.uid)
        row = nodes.rows.get(node)
        if row is None or not potential[row]:
            return None  # nothing ends there any more that would help
        for placed in nodes.pods_on(node).values():
            if placed.info.priority < pod.priority and ends_for_another(placed.info):
                return Ineligible(TERMINATING)
        return None


def ends_for_another(info: PodInfo) -> bool:
    """Is the pod a victim that has not ended yet?"""
    if not info.pod.metadata.deletion_timestamp:
        return False
    condition = info.pod.status.condition("DisruptionTarget")
    return condition is not None and condition.status == "True" and condition.reason == REASON


_: contract.Made[contract.PostFilterPlugin] = DefaultPreemption
