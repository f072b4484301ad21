"""LoadAware: keep pods off busy nodes, and prefer those with most to spare, by measured use.

The filter goes by thresholds: a node that uses more than `usageThresholds` of its CPU or memory
takes no further pods, whatever requests say. With `aggregated` an average or percentile over a
window is compared, so that a peak does not close a node and a lull does not open it. The score is
what is free, weighted over resources. `metrics` may name further features, such as the share of
HTTP requests, which have thresholds and weights like CPU and memory.

Both add what pods ask for that were placed since the measurement, scaled by
`estimatedScalingFactors`, because pods rarely use all they ask for. A node that nothing recent is
known about passes the filter and scores as the average of the others: without measurements
scheduling goes on as if the plugin was not there. Nobody asks for features: what new pods add of
them is guessed for the score, so that a burst spreads, but a guess closes no node.

Pods of DaemonSets and system-critical pods pass the filter: they belong on every node, above all on
one in trouble. Pods that request nothing do not: they would suffer first.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from motley.client.rest import Client
from motley.scheduler import contract, events
from motley.scheduler.contract import MAX_SCORE, SKIP, Columns, Mask, PodInfo, Scores, Verdict
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.plugins import load
from motley.scheduler.plugins.load import RESOURCES, Load, LoadArgs, LoadMeasured, Window
from motley.scheduler.plugins.resource_usage import quietly
from motley.scheduler.plugins.samples import Aggregation

SYSTEM_CRITICAL = 2_000_000_000  # the priority of system-cluster-critical


class Aggregated(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What is compared instead of the last measurement: in the filter where it has thresholds, in
    the score where it says so."""

    usage_thresholds: dict[str, float] = {}
    usage_aggregation_type: Aggregation = "p95"
    usage_aggregated_duration: str = "5m"
    score_aggregation_type: Aggregation | None = None
    score_aggregated_duration: str = "5m"

    def __post_init__(self) -> None:
        load.window("aggregated.usageAggregatedDuration", self.usage_aggregated_duration)
        load.window("aggregated.scoreAggregatedDuration", self.score_aggregated_duration)


class LoadAwareArgs(LoadArgs, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Named as Koordinator's LoadAwareScheduling names them. Thresholds, weights and factors are
    percentages by resource or feature; a threshold of 0 switches the check off."""

    usage_thresholds: dict[str, float] = msgspec.field(
        default_factory=lambda: {"cpu": 65.0, "memory": 95.0}
    )
    aggregated: Aggregated | None = None
    resource_weights: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(RESOURCES, 1)
    )
    estimated_scaling_factors: dict[str, float] = msgspec.field(
        default_factory=lambda: {"cpu": 85.0, "memory": 70.0}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        aggregated = self.aggregated.usage_thresholds if self.aggregated is not None else {}
        for name, amounts in (
            ("usageThresholds", self.usage_thresholds),
            ("aggregated.usageThresholds", aggregated),
            ("resourceWeights", self.resource_weights),
        ):
            load.known(name, amounts, self.metrics)
            load.percentages(name, amounts)
        # Of what pods cannot request there is nothing to scale.
        load.resources("estimatedScalingFactors", self.estimated_scaling_factors)
        load.percentages("estimatedScalingFactors", self.estimated_scaling_factors)
        if not sum(self.resource_weights.values()):
            raise ValueError("resourceWeights must have a weight above 0")


class LoadAware:
    """Keep nodes below the thresholds, prefer those with most free."""

    name = "LoadAware"
    reason = "node(s) use too much"  # `explain` names the resource
    wakes_on = (LoadMeasured, events.NodeAdded, events.NodeAllocatableChanged)
    removal_helps = False  # the use of an ended pod is measured later, if at all
    Args = LoadAwareArgs

    def __init__(self, args: LoadAwareArgs, handle: contract.Handle) -> None:
        self._nodes = handle.nodes
        self._weights = {name: w for name, w in args.resource_weights.items() if w}
        self._factors = {
            name: args.estimated_scaling_factors.get(name, MAX_SCORE) / 100 for name in RESOURCES
        }
        self._filter_window: Window | None = None
        self._score_window: Window | None = None
        thresholds, aggregated = args.usage_thresholds, args.aggregated
        if aggregated is not None and aggregated.usage_thresholds:
            thresholds = aggregated.usage_thresholds
            span_s = load.window("", aggregated.usage_aggregated_duration)
            self._filter_window = (aggregated.usage_aggregation_type, span_s)
        if aggregated is not None and aggregated.score_aggregation_type is not None:
            span_s = load.window("", aggregated.score_aggregated_duration)
            self._score_window = (aggregated.score_aggregation_type, span_s)
        self._thresholds = {name: t for name, t in thresholds.items() if t}
        self.load = Load(self.name, args, handle, self._filter_window, self._score_window)

    # -- filter -----------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Some pods belong on nodes however busy these are."""
        owner = pod.pod.metadata.controller()
        is_daemon = owner is not None and owner.kind == "DaemonSet"
        return SKIP if is_daemon or pod.priority >= SYSTEM_CRITICAL else None

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where no resource is above its threshold, or nothing is known."""
        mask = np.ones(nodes.size, np.bool_)
        for resource in self._thresholds:
            mask &= ~self._is_over(resource, nodes)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Which resource is used too much; a node may count under several."""
        counts = {
            f"node(s) use more than {threshold:g}% of {resource}": int(
                np.count_nonzero(rejected & self._is_over(resource, nodes))
            )
            for resource, threshold in self._thresholds.items()
        }
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """New figures help where they let the pod in."""
        return bool((self.filter(pod, self._nodes) & self._nodes.live).any())

    def _is_over(self, resource: str, nodes: Columns) -> Mask:
        if resource in RESOURCES:
            used = self._expected(resource, nodes, self._filter_window)
        else:
            used = self.load.percent(resource, nodes, self._filter_window)
        over: Mask = used > self._thresholds[resource]  # NaN is over nothing
        return over

    # -- score ------------------------------------------------------------------------------

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """By row: the weighted mean of what is free with the pod, in percent; NaN: unknown.

        Where only some of it is known, the rest is as free as on the average node.
        """
        total, weights = np.zeros(nodes.size), 0.0
        known_at_all = np.zeros(nodes.size, np.bool_)
        for resource, weight in self._weights.items():
            free = np.clip(self._free(resource, pod, nodes), 0.0, MAX_SCORE)
            known = ~np.isnan(free)
            if not (known & nodes.live).any():
                continue
            total += np.where(known, free, free[known & nodes.live].mean()) * weight
            weights += weight
            known_at_all |= known
        scores: Scores = np.where(known_at_all, total / (weights or 1.0), np.nan)
        return scores

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """Whole numbers; a node that nothing is known about gets the average of the others."""
        known = feasible & np.isfinite(scores)
        if not known.any():
            return np.zeros(len(scores))
        filled: Scores = np.where(np.isfinite(scores), scores, scores[known].mean())
        return np.floor(filled)

    def _free(self, resource: str, pod: PodInfo, nodes: Columns) -> Scores:
        """By row: percent that is left with the pod; NaN: unknown."""
        if resource not in RESOURCES:
            # The pod adds the same wherever it goes.
            used = self.load.percent(resource, nodes, self._score_window)
            left: Scores = MAX_SCORE - used - self.load.guessed(resource, nodes)
            return left
        asked = pod.nonzero_cpu if resource == "cpu" else pod.nonzero_memory
        with quietly():
            there = nodes.reported[RESOURCES[resource]]
            own = asked * self._factors[resource] * MAX_SCORE / there
            free = MAX_SCORE - self._expected(resource, nodes, self._score_window) - own
        return np.where(np.isfinite(free), free, np.nan)

    def _expected(self, resource: str, nodes: Columns, window: Window | None) -> Scores:
        """By row: percent in use, with the pods that no measurement shows yet."""
        used = self.load.percent(resource, nodes, window)
        with quietly():
            coming = self.load.unseen(resource, nodes) * self._factors[resource]
            share = coming * MAX_SCORE / nodes.reported[RESOURCES[resource]]
        expected: Scores = used + np.nan_to_num(share, posinf=0.0)
        return expected

    # -- measuring --------------------------------------------------------------------------

    def follow(self, feed: Feed) -> None:
        """Pods are woken by new measurements."""
        self.load.follow(feed)

    async def background(self, client: Client) -> None:
        """Measure until cancelled."""
        await self.load.background(client)

    def ages(self, pod: PodInfo) -> Mapping[str, float]:
        """How old the last measurement of each resource is."""
        return self.load.ages()


_f: contract.Made[contract.FilterPlugin] = LoadAware
_p: contract.Made[contract.PreFilterPlugin] = LoadAware
_s: contract.Made[contract.ScorePlugin] = LoadAware
_n: contract.Made[contract.NormalizePlugin] = LoadAware
_w: contract.Made[contract.WorksInBackground] = LoadAware
_o: contract.Made[contract.FollowsObjects] = LoadAware
_a: contract.Made[contract.KnowsAges] = LoadAware
