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
from motley.scheduler.domains import Domains
from motley.scheduler.feed import Feed
from motley.scheduler.lineup import Gone
from motley.scheduler.podsets import Counts, PodSet, Tally, Term
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
    kept_away: tuple[tuple[Term, _Column], ...]  # terms of placed pods that concern this one
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
        return _all_well(*self._answers(pod, nodes))

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """The pod's own affinity is asked first, then its anti-affinity, then that of others."""
        return self._explained(rejected, *self._answers(pod, nodes))

    def filter_vacated(self, pod: PodInfo, nodes: Columns, gone: Gone) -> Mask:
        """The same, with pods thought away."""
        return _all_well(*self._answers(pod, nodes, gone))

    def explain_vacated(
        self, pod: PodInfo, nodes: Columns, rejected: Mask, gone: Gone
    ) -> dict[str, int]:
        """Why `filter_vacated` says no."""
        return self._explained(rejected, *self._answers(pod, nodes, gone))

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Rows that no pod's leaving can help: nobody comes to be near to."""
        return rejected & ~_near(self._plan(pod, nodes), nodes, None)

    def _explained(
        self, rejected: Mask, near: Mask, away: Mask | None, kept_away: Mask | None
    ) -> dict[str, int]:
        unwelcome = rejected & near
        too_near = np.zeros_like(near) if away is None else unwelcome & away
        counts = {
            self.reason: int(np.count_nonzero(rejected & ~near)),
            self.away_reason: int(np.count_nonzero(too_near)),
            self.kept_away_reason: int(np.count_nonzero(unwelcome & ~too_near)),
        }
        return {reason: count for reason, count in counts.items() if count}

    def _answers(
        self, pod: PodInfo, nodes: Columns, gone: Gone | None = None
    ) -> tuple[Mask, Mask | None, Mask | None]:
        """Where the pod is near enough, where too near to others, and where others mind it."""
        plan, size, tallies = self._plan(pod, nodes), nodes.size, nodes.tallies
        away = (
            (key, tallies.tally(pods, size), gone.of(pods) if gone else None)
            for key, pods in plan.away
        )
        kept_away = (
            (term.topology_key, column, gone.away(term) if gone else None)
            for term, column in plan.kept_away
        )
        return _near(plan, nodes, gone), _blocked(away, nodes), _blocked(kept_away, nodes)

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
        size = nodes.size
        found: list[tuple[str, Tally | _Column, int]] = [
            (key, nodes.tallies.tally(pods, size), weight) for key, pods, weight in plan.preferred
        ]
        by_key: dict[str, Scores] = {}  # by domain
        for key, counted, weight in (*found, *plan.attracted):
            sums = counted.by_domain(nodes.domains(key), size)
            if sums.any():
                by_key[key] = by_key[key] + sums * weight if key in by_key else sums * weight
        if not by_key:
            return SKIP
        total = np.zeros(size)
        for key, weights in by_key.items():
            total += nodes.domains(key).by_row(weights)
        pod.state[self.name] = total
        return None

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The sum of the weights, over the pods in the node's domains."""
        total: Scores = pod.state[self.name]
        return total

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The lowest is 0, the highest 100; all equal: nobody gets anything."""
        among = scores if np.count_nonzero(feasible) == len(scores) else scores[feasible]
        lowest = among.min(initial=np.inf)
        difference = among.max(initial=-np.inf) - lowest
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
                (term, column)
                for term, column in standing.away.items()
                if self._concerns(term, pod)
            ),
            attracted=tuple(attracted),
        )


def _all_well(near: Mask, away: Mask | None, kept_away: Mask | None) -> Mask:
    for unwelcome in (away, kept_away):
        if unwelcome is not None:
            near = near > unwelcome
    return near


def _found(domains: Domains, counted: Tally | _Column, size: int, leaving: Counts | None) -> Mask:
    """Rows in whose domain there is somebody, those aside who leave the row itself."""
    if domains.are_single:
        there = counted.dense(size)
        return (there > 0 if leaving is None else there > leaving) & domains.labelled
    sums = counted.by_domain(domains, size)
    if leaving is None:
        found: Mask = (sums > 0).take(domains.of_row)
    else:
        found = domains.by_row(sums) > leaving * domains.labelled
    return found


def _near(plan: _Plan, nodes: Columns, gone: Gone | None) -> Mask:
    mask = np.ones(nodes.size, np.bool_)
    if plan.near is None:
        return mask
    counted = nodes.tallies.tally(plan.near, nodes.size)
    leaving = gone.of(plan.near) if gone else None
    labelled = np.ones(nodes.size, np.bool_)
    anybody: Mask | bool = False  # anywhere
    for key in plan.near_keys:
        domains = nodes.domains(key)
        found = _found(domains, counted, nodes.size, leaving)
        labelled &= domains.labelled
        mask &= found
        if leaving is None:
            anybody |= bool(found.any())
        else:
            everybody = counted.by_domain(domains, nodes.size).sum()
            anybody |= everybody > leaving * domains.labelled
    # The first of a group whose pods want to be near each other has nobody to be near to.
    if plan.is_near_itself and not np.all(anybody):
        mask = np.where(anybody, mask, labelled)
    return mask


def _blocked(
    found: Iterable[tuple[str, Tally | _Column, Counts | None]], nodes: Columns
) -> Mask | None:
    """Rows in a domain where any of these counts is above zero; None: nothing is counted."""
    mask: Mask | None = None
    for key, counted, leaving in found:
        here = _found(nodes.domains(key), counted, nodes.size, leaving)
        mask = here if mask is None else mask | here
    return mask


_f: contract.Made[contract.FilterPlugin] = InterPodAffinity
_s: contract.Made[contract.ScorePlugin] = InterPodAffinity
