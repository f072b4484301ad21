"""InterPodAffinity: pods that want, or do not want, to be near other pods.

Near means: on a node with the same value of a label, the topology key. Required terms filter,
preferred ones score, and both ways round: a placed pod keeps away those that its own
anti-affinity speaks of, and attracts or repels them by its preferences.

How many pods of a set are on a node is counted as pods come and go (`podsets`), so a pod costs a
sum over domains per term, however many pods there are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from motley.scheduler import contract, events, surroundings
from motley.scheduler.contract import (
    MAX_SCORE,
    SKIP,
    Columns,
    Mask,
    PodInfo,
    Reject,
    Scores,
    Verdict,
)
from motley.scheduler.feed import Feed
from motley.scheduler.interning import ABSENT
from motley.scheduler.plugins import topology
from motley.scheduler.podsets import Counts, PodSet, Term
from motley.scheduler.sparse import SparseColumn

_PLANS_KEPT = 1024

_Column = SparseColumn[np.float64]


class InterPodAffinityArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`hardPodAffinityWeight`: what the required affinity of a placed pod adds to the score."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.hard_pod_affinity_weight <= 100:
            raise ValueError(
                f"hardPodAffinityWeight is {self.hard_pod_affinity_weight}, not in range [0-100]"
            )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a template's terms come to, as long as namespaces and the placed terms are the same."""

    versions: tuple[int, int]
    near: PodSet | None  # pods that meet every required term at once
    near_keys: tuple[str, ...]
    is_near_itself: bool
    away: tuple[tuple[str, PodSet], ...]
    preferred: tuple[tuple[str, PodSet, int], ...]
    kept_away: tuple[tuple[str, _Column], ...]  # terms of placed pods that concern this one
    attracted: tuple[tuple[str, _Column, int], ...]

    @property
    def filters(self) -> bool:
        return bool(self.near or self.away or self.kept_away)


class InterPodAffinity:
    """Keep the nodes where all required terms hold, prefer those the preferred terms speak for."""

    name = "InterPodAffinity"
    reason = "node(s) didn't match pod affinity rules"
    away_reason = "node(s) didn't match pod anti-affinity rules"
    kept_away_reason = "node(s) didn't satisfy existing pods anti-affinity rules"
    wakes_on = (
        events.PodAdded,
        events.PodUpdated,
        events.PodDeleted,
        events.NodeAdded,
        events.NodeLabelsChanged,
    )
    Args = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs, handle: contract.Handle) -> None:
        self._args = args
        self._directory = handle.directory
        self._plans: dict[int, _Plan] = {}

    def follow(self, feed: Feed) -> None:
        """Terms choose namespaces by label."""
        surroundings.follow_namespaces(feed, self._directory)

    # -- filter -----------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Mask | Reject | Verdict | None:
        """Skip pods that require nothing and that nobody keeps away."""
        if pod.terms.wrong:
            return Reject(f"parsing pod: {pod.terms.wrong}")
        return None if self._plan(pod, nodes).filters else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the pod is near whom it must be and far from whom it must be."""
        near, away, kept_away = self._answers(pod, nodes)
        return near & ~away & ~kept_away

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """The pod's own affinity is asked first, then its anti-affinity, then that of others."""
        near, away, _ = self._answers(pod, nodes)
        counts = {
            self.reason: int(np.count_nonzero(rejected & ~near)),
            self.away_reason: int(np.count_nonzero(rejected & near & away)),
            self.kept_away_reason: int(np.count_nonzero(rejected & near & ~away)),
        }
        return {reason: count for reason, count in counts.items() if count}

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Rows that no pod's leaving can help: nobody comes to be near to."""
        return rejected & ~self._answers(pod, nodes)[0]

    def _answers(self, pod: PodInfo, nodes: Columns) -> tuple[Mask, Mask, Mask]:
        """Where the pod is near enough, where too near to others, and where others mind it."""
        plan, size = self._plan(pod, nodes), nodes.size
        return (
            _near(plan, nodes),
            _blocked(((key, nodes.tallies.of(pods, size)) for key, pods in plan.away), nodes),
            _blocked(((key, column.dense(size)) for key, column in plan.kept_away), nodes),
        )

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """A new pod must be one to be near to, a gone one must have been in the way."""
        match event:
            case events.PodAdded(pod=other):
                near = pod.terms.near
                return bool(near) and all(self._concerns(term, other) for term in near)
            case events.PodDeleted(pod=other):
                return any(self._concerns(term, other) for term in pod.terms.away) or any(
                    self._concerns(term, pod) for term in other.terms.away
                )
            case _:
                return True

    # -- score ------------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """Weigh everything that speaks for or against a domain; skip when nothing does."""
        plan = self._plan(pod, nodes)
        if self._args.ignore_preferred_terms_of_existing_pods and not plan.preferred:
            return SKIP
        by_key: dict[str, Scores] = {}
        for key, pods, weight in plan.preferred:
            _weigh(by_key, nodes, key, nodes.tallies.of(pods, nodes.size), weight)
        for key, column, weight in plan.attracted:
            _weigh(by_key, nodes, key, column.dense(nodes.size), weight)
        if not by_key:
            return SKIP
        total = np.zeros(nodes.size)
        for key, weights in by_key.items():
            total += topology.spread(nodes, key, weights)
        pod.state[self.name] = total
        return None

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The sum of the weights, over the pods in the node's domains."""
        total: Scores = pod.state[self.name]
        return total

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The lowest is 0, the highest 100; all equal: nobody gets anything."""
        lowest = np.where(feasible, scores, np.inf).min(initial=np.inf)
        difference = np.where(feasible, scores, -np.inf).max(initial=-np.inf) - lowest
        if not difference > 0:
            return np.zeros_like(scores)
        scaled: Scores = np.floor(MAX_SCORE * ((scores - lowest) / difference))
        return scaled

    # -- what the terms come to -------------------------------------------------------------

    def _concerns(self, term: Term, pod: PodInfo) -> bool:
        return term.concerns(pod.group, self._directory.namespace_labels(pod.group.namespace))

    def _plan(self, pod: PodInfo, nodes: Columns) -> _Plan:
        versions = (self._directory.version, nodes.standing.version)
        plan = self._plans.get(pod.template)
        if plan is None or plan.versions != versions:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            plan = self._plans[pod.template] = self._made(pod, nodes, versions)
        return plan

    def _made(self, pod: PodInfo, nodes: Columns, versions: tuple[int, int]) -> _Plan:
        namespaces, terms, standing = self._directory.namespaces, pod.terms, nodes.standing
        attracted = [
            (term.topology_key, column, weight)
            for (term, weight), column in standing.preferred.items()
            if self._concerns(term, pod)
        ]
        if self._args.hard_pod_affinity_weight:
            attracted += [
                (term.topology_key, column, self._args.hard_pod_affinity_weight)
                for term, column in standing.near.items()
                if self._concerns(term, pod)
            ]
        near = PodSet(tuple(term.condition(namespaces) for term in terms.near))
        return _Plan(
            versions,
            near=near if terms.near else None,
            near_keys=tuple(dict.fromkeys(term.topology_key for term in terms.near)),
            is_near_itself=near.holds(pod.group),
            away=tuple((t.topology_key, PodSet((t.condition(namespaces),))) for t in terms.away),
            preferred=tuple(
                (t.topology_key, PodSet((t.condition(namespaces),)), weight)
                for t, weight in terms.preferred
            ),
            kept_away=tuple(
                (term.topology_key, column)
                for term, column in standing.away.items()
                if self._concerns(term, pod)
            ),
            attracted=tuple(attracted),
        )


def _near(plan: _Plan, nodes: Columns) -> Mask:
    mask = np.ones(nodes.size, np.bool_)
    if plan.near is None:
        return mask
    counts = nodes.tallies.of(plan.near, nodes.size)
    labelled = np.ones(nodes.size, np.bool_)
    is_anybody_anywhere = False
    for key in plan.near_keys:
        found = topology.touched(nodes, key, counts)
        is_anybody_anywhere |= bool(found.any())
        labelled &= nodes.label(key) != ABSENT
        mask &= found
    # The first of a group whose pods want to be near each other has nobody to be near to.
    return labelled if plan.is_near_itself and not is_anybody_anywhere else mask


def _blocked(found: Iterable[tuple[str, Counts]], nodes: Columns) -> Mask:
    """Rows in a domain where any of these counts is above zero."""
    by_key: dict[str, Counts] = {}
    for key, counts in found:
        by_key[key] = by_key[key] + counts if key in by_key else counts
    mask = np.zeros(nodes.size, np.bool_)
    for key, counts in by_key.items():
        mask |= topology.touched(nodes, key, counts)
    return mask


def _weigh(
    by_key: dict[str, Scores], nodes: Columns, key: str, counts: Counts, weight: int
) -> None:
    if (counts * nodes.label(key)).any():  # ABSENT is 0
        weighted = counts * weight
        by_key[key] = by_key[key] + weighted if key in by_key else weighted


_f: contract.Made[contract.FilterPlugin] = InterPodAffinity
_s: contract.Made[contract.ScorePlugin] = InterPodAffinity
