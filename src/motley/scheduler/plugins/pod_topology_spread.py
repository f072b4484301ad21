"""PodTopologySpread: a group of pods spread evenly over zones, racks or nodes.

A constraint counts the pods of its selector per domain (nodes with the same value of the topology
key). Hard constraints (DoNotSchedule) forbid a domain that would have more than `maxSkew` pods
above the emptiest one; soft ones (ScheduleAnyway) score emptier domains higher. Pods without
constraints get the profile's default ones, over the pods that their Services and controller select.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from motley.api.selectors import Selector
from motley.api.views.pod import TopologySpreadConstraint
from motley.scheduler import contract, events, surroundings
from motley.scheduler.contract import MAX_SCORE, SKIP, Columns, Mask, PodInfo, Scores, Verdict
from motley.scheduler.domains import Domains, Numbers
from motley.scheduler.feed import Feed
from motley.scheduler.interning import ABSENT
from motley.scheduler.lineup import Gone
from motley.scheduler.plugins import node_affinity, taint_toleration
from motley.scheduler.podsets import Condition, Counts, PodSet, with_own_labels

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"

SYSTEM_CONSTRAINTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SOFT, max_skew=5),
)

_PLANS_KEPT = 128  # some 250 kB each at 5,000 nodes
_SELECTORS_KEPT = 4096


class PodTopologySpreadArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Constraints of pods that state none: the list given here, or the system's."""

    default_constraints: list[TopologySpreadConstraint] = msgspec.field(default_factory=list)
    defaulting_type: Literal["System", "List"] = "System"

    def __post_init__(self) -> None:
        if self.default_constraints and self.defaulting_type == "System":
            raise ValueError("defaultConstraints need defaultingType List")
        seen = set()
        for constraint in self.default_constraints:
            same = (constraint.topology_key, constraint.when_unsatisfiable)
            if constraint.max_skew <= 0:
                raise ValueError("maxSkew of a default constraint must be greater than zero")
            if not constraint.topology_key:
                raise ValueError("a default constraint has no topologyKey")
            if constraint.when_unsatisfiable not in (HARD, SOFT):
                raise ValueError(f"whenUnsatisfiable is neither {HARD!r} nor {SOFT!r}")
            if constraint.label_selector is not None:
                raise ValueError("a default constraint must not define a labelSelector")
            if same in seen:
                raise ValueError(f"two default constraints for {same}")
            seen.add(same)


@dataclass(frozen=True, slots=True)
class _Spread:
    """A constraint of a pod, laid out over the nodes."""

    key: str
    max_skew: int
    pods: PodSet | None  # None: an empty selector, which counts nobody
    holds_itself: bool
    domains: Domains
    counted: Domains  # the same without nodes whose pods are not counted
    present: Numbers  # domains with nodes whose pods are counted
    is_short: bool  # of domains: then the emptiest counts as having no pod

    def here(self, nodes: Columns) -> Counts:
        """By row: how many pods are there."""
        return nodes.tallies.of(self.pods, nodes.size) if self.pods else np.zeros(nodes.size)

    def per_domain(self, nodes: Columns) -> Counts:
        """By domain: how many pods are there."""
        if self.pods is None:
            return np.zeros(self.domains.count)
        return nodes.tallies.tally(self.pods, nodes.size).by_domain(self.counted, nodes.size)

    def allowed(self, nodes: Columns, gone: Gone | None = None) -> Mask:
        """Rows whose domain can take one more; `gone`: pods thought away."""
        counts = self.per_domain(nodes)
        lowest = 0.0 if self.is_short else counts[self.present].min(initial=np.inf)
        fits: Mask
        if gone is None or self.pods is None:
            fits = counts + self.holds_itself - lowest <= self.max_skew
            fits[ABSENT] = False
            return fits.take(self.domains.of_row)
        left = self.domains.by_row(counts) - gone.of(self.pods) * self.counted.labelled
        # If that makes the domain the emptiest of all, it can take one more anyway: so `lowest`
        # may stay what it was.
        fits = left + self.holds_itself - lowest <= self.max_skew
        return fits & self.domains.labelled

    def cost(self, nodes: Columns, domains: int) -> Scores:
        """By row: the pods in its domain, weighted by how many `domains` are scored.

        Fewer domains have more pods each; the weight keeps them from outvoting the others.
        Outside of all domains there is nothing.
        """
        weight, skew = math.log(domains + 2), self.max_skew - 1
        if self.key == HOSTNAME:
            return np.where(self.domains.labelled, self.here(nodes) * weight + skew, 0.0)
        costs = self.per_domain(nodes) * weight + skew
        costs[ABSENT] = 0
        return costs.take(self.domains.of_row)

    def domains_in(self, scored: Mask) -> int:
        """How many domains these rows are in."""
        if self.key == HOSTNAME:
            return int(np.count_nonzero(scored))
        rows = np.bincount(self.domains.of_row[scored], minlength=1)
        return int(np.count_nonzero(rows))


@dataclass(slots=True)
class _Plan:
    """The constraints of a template, as long as no node and no default selector changes."""

    versions: tuple[int, int]
    hard: tuple[_Spread, ...]
    soft: tuple[_Spread, ...]
    scored: Mask  # rows that are in a domain of every soft constraint, where that is asked for
    _among: bytes = b""  # the rows that were scored last
    _domains: tuple[int, ...] = ()  # how many of each soft constraint they are in

    def domains_in(self, scored: Mask) -> tuple[int, ...]:
        """By soft constraint: how many domains these rows are in. Mostly the same as last time."""
        among = scored.tobytes()
        if among != self._among:
            self._among = among
            self._domains = tuple(spread.domains_in(scored) for spread in self.soft)
        return self._domains


class PodTopologySpread:
    """Keep nodes where the pod does not make the spread too uneven, prefer emptier domains."""

    name = "PodTopologySpread"
    reason = "node(s) didn't match pod topology spread constraints"
    label_reason = reason + " (missing required label)"
    wakes_on = (
        events.PodAdded,
        events.PodUpdated,
        events.PodDeleted,
        events.NodeAdded,
        events.NodeRemoved,
        events.NodeLabelsChanged,
        events.NodeTaintsChanged,
    )
    Args = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs, handle: contract.Handle) -> None:
        self._is_system = args.defaulting_type == "System"
        self._defaults = SYSTEM_CONSTRAINTS if self._is_system else tuple(args.default_constraints)
        self._directory = handle.directory
        self._plans: dict[int, _Plan] = {}  # by template, as the next
        self._siblings: dict[int, tuple[int, Selector]] = {}

    def follow(self, feed: Feed) -> None:
        """Default constraints are about the pods that Services and controllers select."""
        if self._defaults:
            surroundings.follow_siblings(feed, self._directory)

    # -- filter -----------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Skip pods without hard constraints."""
        return None if self._plan(pod, nodes).hard else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where every hard constraint holds with the pod there."""
        return self._allowed(pod, nodes, None)

    def filter_vacated(self, pod: PodInfo, nodes: Columns, gone: Gone) -> Mask:
        """The same, with pods thought away."""
        return self._allowed(pod, nodes, gone)

    def _allowed(self, pod: PodInfo, nodes: Columns, gone: Gone | None) -> Mask:
        mask = np.ones(nodes.size, np.bool_)
        for spread in self._plan(pod, nodes).hard:
            mask &= spread.allowed(nodes, gone)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """A node counts under the first constraint it fails: for its label, or for the skew."""
        return self._explained(pod, nodes, rejected, None)

    def explain_vacated(
        self, pod: PodInfo, nodes: Columns, rejected: Mask, gone: Gone
    ) -> dict[str, int]:
        """Why `filter_vacated` says no."""
        return self._explained(pod, nodes, rejected, gone)

    def _explained(
        self, pod: PodInfo, nodes: Columns, rejected: Mask, gone: Gone | None
    ) -> dict[str, int]:
        left, unlabelled = rejected.copy(), 0
        for spread in self._plan(pod, nodes).hard:
            unlabelled += int(np.count_nonzero(left > spread.domains.labelled))
            left &= spread.allowed(nodes, gone)
        counts = {
            self.reason: int(np.count_nonzero(rejected)) - unlabelled,
            self.label_reason: unlabelled,
        }
        return {reason: count for reason, count in counts.items() if count}

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Rows that are in no domain of the first constraint they fail: pods may leave in vain.

        Where another one fails before, kube-scheduler does not get to know, and looks for victims.
        """
        left, lost = rejected.copy(), np.zeros(nodes.size, np.bool_)
        for spread in self._plan(pod, nodes).hard:
            lost |= left & ~spread.domains.labelled
            left &= spread.allowed(nodes, None)
        return lost

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """Pods that no constraint counts change nothing."""
        match event:
            case events.PodAdded(pod=other) | events.PodDeleted(pod=other):
                if other.group.namespace != pod.group.namespace:
                    return False
                labels = dict(other.group.labels)
                return any(s.matches(labels) for _, s in self._constraints(pod, HARD))
            case _:
                return True

    # -- score ------------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """Skip pods without soft constraints."""
        plan = self._plan(pod, nodes)
        if not plan.soft:
            return SKIP
        scored = feasible & plan.scored
        total = np.zeros(nodes.size)
        for spread, domains in zip(plan.soft, plan.domains_in(scored), strict=True):
            total += spread.cost(nodes, domains)
        pod.state[self.name] = np.floor(total + 0.5), scored
        return None

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The pods in the node's domains, weighted; fewer is better after normalising."""
        total: Scores = pod.state[self.name][0]
        return total

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """The fewest pods are 100; a node outside of the domains is 0."""
        scored: Mask = pod.state[self.name][1]
        is_everywhere = np.count_nonzero(scored) == len(scores)
        among = scores if is_everywhere else scores[scored]
        highest, lowest = among.max(initial=0.0), among.min(initial=np.inf)
        if highest == 0:
            return np.where(scored, MAX_SCORE, 0.0)
        scaled: Scores = np.floor(MAX_SCORE * (highest + lowest - scores) / highest)
        return scaled if is_everywhere else np.where(scored, scaled, 0.0)

    # -- what the constraints come to -------------------------------------------------------

    def _plan(self, pod: PodInfo, nodes: Columns) -> _Plan:
        is_own = bool(pod.pod.spec.topology_spread_constraints)
        versions = (nodes.generation, 0 if is_own else self._directory.version)
        plan = self._plans.get(pod.template)
        if plan is None or plan.versions != versions:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            plan = self._plans[pod.template] = self._made(pod, nodes, versions)
        return plan

    def _made(self, pod: PodInfo, nodes: Columns, versions: tuple[int, int]) -> _Plan:
        hard, soft = self._constraints(pod, HARD), self._constraints(pod, SOFT)
        if not hard and not soft:
            return _Plan(versions, (), (), nodes.live)
        is_own = bool(pod.pod.spec.topology_spread_constraints)
        # The system's constraints spread over nodes also where nodes have no zone.
        scored = _labelled(soft, nodes) if is_own or not self._is_system else nodes.live.copy()
        return _Plan(
            versions,
            tuple(_laid_out(c, s, pod, nodes, _labelled(hard, nodes)) for c, s in hard),
            tuple(_laid_out(c, s, pod, nodes, scored) for c, s in soft),
            scored,
        )

    def _constraints(
        self, pod: PodInfo, action: str
    ) -> list[tuple[TopologySpreadConstraint, Selector]]:
        own = pod.pod.spec.topology_spread_constraints
        if own:
            return [(c, _selector(c, pod)) for c in own if c.when_unsatisfiable == action]
        defaults = [c for c in self._defaults if c.when_unsatisfiable == action]
        siblings = self._siblings_of(pod) if defaults else Selector.everything()
        return [] if siblings.is_everything else [(c, siblings) for c in defaults]

    def _siblings_of(self, pod: PodInfo) -> Selector:
        version, selector = self._siblings.get(pod.template, (-1, Selector.everything()))
        if version != self._directory.version:
            if len(self._siblings) >= _SELECTORS_KEPT:
                self._siblings.clear()
            version, selector = self._directory.version, self._directory.siblings(pod.pod)
            self._siblings[pod.template] = version, selector
        return selector


def _selector(constraint: TopologySpreadConstraint, pod: PodInfo) -> Selector:
    selector = Selector.of(constraint.label_selector)
    if selector.is_nothing or not constraint.match_label_keys:
        return selector
    own = with_own_labels(pod.pod, "in", constraint.match_label_keys)
    return Selector((*selector.requirements, *own))


def _labelled(
    constraints: Sequence[tuple[TopologySpreadConstraint, Selector]], nodes: Columns
) -> Mask:
    """Nodes that are in some domain of every constraint."""
    mask = nodes.live.copy()
    for constraint, _ in constraints:
        mask &= nodes.domains(constraint.topology_key).labelled
    return mask


def _laid_out(
    constraint: TopologySpreadConstraint,
    selector: Selector,
    pod: PodInfo,
    nodes: Columns,
    labelled: Mask,
) -> _Spread:
    included = labelled
    if constraint.node_affinity_policy == "Honor":
        included = included & node_affinity.match_required(pod, nodes)
    if constraint.node_taints_policy == "Honor":
        included = included & taint_toleration.tolerated(pod, nodes)
    domains = nodes.domains(constraint.topology_key)
    counted = domains.only(included) if (domains.labelled > included).any() else domains
    present = np.unique(counted.of_row[counted.labelled])
    condition = Condition(frozenset({pod.group.namespace}), selector)
    return _Spread(
        constraint.topology_key,
        constraint.max_skew,
        None if selector.is_everything else PodSet((condition,), staying=True),
        selector.matches(dict(pod.group.labels)),
        domains,
        counted,
        present,
        len(present) < (1 if constraint.min_domains is None else constraint.min_domains),
    )


_f: contract.Made[contract.FilterPlugin] = PodTopologySpread
_s: contract.Made[contract.ScorePlugin] = PodTopologySpread
