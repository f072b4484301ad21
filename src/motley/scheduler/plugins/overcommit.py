"""Overcommit: requests count for what is really used of them.

Where requests add up to 80 % but little is used, more pods fit than requests admit. On every node

    counted = requests of Guaranteed pods + of the others
              min(requests, max(measured · (1 + margin), minimum · requests) + unseen)

and never less than what is measured, margin included. Measured is the higher of the last figure and
a percentile over a window; what pods ask for that the measurements do not show yet (`unseen`)
counts in full, so that a burst is not let in on the strength of one idle minute. Memory, which
cannot be taken back, is discounted less than CPU. Requests may not add up to more than a ratio of
what the node has, whatever is measured, and only on nodes whose labels agree to that
(`motley.api.overcommit`): a node agent refuses pods beyond its requests otherwise. Where a webhook
has raised what a stock kubelet goes by, all this is counted from what the kubelet reported, and the
raised figure bounds the ratio too: it is what that kubelet admits.

It takes the place of NodeResourcesFit. A node without recent measurements, and every resource but
CPU and memory, is counted by plain requests.

Invariant: where nothing is measured, or the node's labels allow nothing, the answer is that of
NodeResourcesFit.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from motley.api import overcommit, qos
from motley.api.views.core import Node
from motley.client.rest import Client
from motley.scheduler import contract, events
from motley.scheduler.contract import MAX_SCORE, Columns, Mask, PodInfo, Scores
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.interning import ABSENT
from motley.scheduler.plugins import load
from motley.scheduler.plugins.load import RESOURCES, Load, LoadArgs, LoadMeasured, Window
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from motley.scheduler.plugins.resource_usage import quietly
from motley.scheduler.plugins.samples import Aggregation


class OvercommitArgs(LoadArgs, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Margins and shares are percentages by resource. `maxOvercommitRatio` bounds what a node's
    labels may allow; with `requireNodeLabel: false` it stands for them."""

    safety_margin: dict[str, float] = msgspec.field(default_factory=dict)
    min_request_share: dict[str, float] = msgspec.field(default_factory=dict)
    max_overcommit_ratio: dict[str, float] = msgspec.field(default_factory=dict)
    require_node_label: bool = True
    usage_aggregation_type: Aggregation = "p95"
    usage_aggregated_duration: str = "15m"
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, amounts in (
            ("metrics", self.metrics),
            ("safetyMargin", self.safety_margin),
            ("minRequestShare", self.min_request_share),
            ("maxOvercommitRatio", self.max_overcommit_ratio),
        ):
            load.resources(name, amounts)
        load.percentages("safetyMargin", self.safety_margin, highest=1000)
        load.percentages("minRequestShare", self.min_request_share)
        for resource, ratio in self.max_overcommit_ratio.items():
            if not 1 <= ratio <= overcommit.HIGHEST:
                raise ValueError(f"maxOvercommitRatio: {resource} must be 1 to 10")
        load.window("usageAggregatedDuration", self.usage_aggregated_duration)


# Memory that is in use stays in use: it is discounted less.
_MARGIN = {"cpu": 20.0, "memory": 30.0}
_SHARE = {"cpu": 40.0, "memory": 60.0}
_RATIO = {"cpu": 2.0, "memory": 1.25}


class Overcommit:
    """Keep nodes with room for the pod beside what is used there, prefer those with most of it."""

    name = "Overcommit"
    reason = "Insufficient resources"  # `explain` names which, and why
    wakes_on = (*NodeResourcesFit.wakes_on, events.NodeLabelsChanged, LoadMeasured)
    scope = "node"
    Args = OvercommitArgs

    def __init__(self, args: OvercommitArgs, handle: contract.Handle) -> None:
        self._nodes = handle.nodes
        self._notices = handle.notices
        self._margin = {r: 1 + {**_MARGIN, **args.safety_margin}[r] / 100 for r in RESOURCES}
        self._share = {r: {**_SHARE, **args.min_request_share}[r] / 100 for r in RESOURCES}
        self._highest = {**_RATIO, **args.max_overcommit_ratio}
        self._needs_label = args.require_node_label
        span_s = load.window("", args.usage_aggregated_duration)
        self._window: Window = (args.usage_aggregation_type, span_s)
        self.load = Load(self.name, args, handle, self._window)
        # Everything but CPU and memory is counted as ever.
        self._rest = NodeResourcesFit(
            NodeResourcesFitArgs(args.ignored_resources, args.ignored_resource_groups), handle
        )
        self._guaranteed = np.zeros((len(RESOURCES), 0))
        self._seen = -1  # the columns' `pods_version` that is in `_guaranteed`
        self._ratios: dict[str, Scores] = {}
        self._generation = -1
        self._warned: dict[str, tuple[str, ...]] = {}

    # -- filter and score -------------------------------------------------------------------

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where there is room for the pod beside what is used, and within the ratio."""
        mask = self._rest.filter(_without_compute(pod), nodes)
        for resource in RESOURCES:
            if resource in pod.requests:
                mask &= self._has_room(pod, resource, nodes) & self._within(pod, resource, nodes)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Which resource lacks, and whether its use or the ratio forbids; several may."""
        counts: dict[str, int] = dict(self._rest.explain(_without_compute(pod), nodes, rejected))
        for resource in RESOURCES:
            if resource not in pod.requests:
                continue
            allowed = self._within(pod, resource, nodes)
            discounted = self._is_discounted(resource, nodes)
            lacking = {
                f"Insufficient {resource}": ~discounted,
                f"Insufficient {resource} (overcommit ratio reached)": discounted & ~allowed,
                f"Insufficient {resource} (measured use counted)": discounted & allowed,
            }
            short = rejected & ~(allowed & self._has_room(pod, resource, nodes))
            for reason, rows in lacking.items():
                counts[reason] = int(np.count_nonzero(short & rows))
        return {reason: count for reason, count in counts.items() if count}

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Where even the empty node is too small: a pod alone never gets more than there is."""
        lost = self._rest.hopeless(pod, nodes, rejected)
        for resource, row in RESOURCES.items():
            lost = lost | (rejected & (nodes.reported[row] < pod.requests.get(resource, 0)))
        return lost

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Room is looked for everywhere: a measurement concerns all nodes."""
        return bool((self.filter(pod, self._nodes) & self._nodes.live).any())

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The share of CPU and memory that is left, by what counts, in whole percent."""
        asked = {"cpu": pod.nonzero_cpu, "memory": pod.nonzero_memory}
        total = np.zeros(nodes.size)
        for resource, row in RESOURCES.items():
            with quietly():
                left = nodes.reported[row] - self.counted(resource, nodes) - asked[resource]
                share = np.nan_to_num(left * MAX_SCORE / nodes.reported[row])
            total += np.clip(share, 0.0, MAX_SCORE)
        mean: Scores = np.floor(total / len(RESOURCES))
        return mean

    def counted(self, resource: str, nodes: Columns) -> Scores:
        """By row: what the pods there count for."""
        row = RESOURCES[resource]
        requested = nodes.requested[row]
        guaranteed = self._reserved(nodes)[row]
        latest = self.load.percent(resource, nodes)
        used = np.fmax(latest, self.load.percent(resource, nodes, self._window))
        measured = used * nodes.reported[row] / 100 * self._margin[resource]
        unseen = self.load.unseen(resource, nodes)
        others = requested - guaranteed
        known = np.maximum(others - unseen, 0.0)
        discounted = np.maximum(measured, self._share[resource] * known) + unseen
        counted = np.maximum(guaranteed + np.minimum(others, discounted), measured + unseen)
        result: Scores = np.where(self._is_discounted(resource, nodes), counted, requested)
        return result

    def _is_discounted(self, resource: str, nodes: Columns) -> Mask:
        """Where the node agrees, and something recent is known."""
        known = np.isfinite(self.load.percent(resource, nodes))
        return known & (self._ratio(resource, nodes) > 1)

    def _has_room(self, pod: PodInfo, resource: str, nodes: Columns) -> Mask:
        wanted = pod.requests[resource]
        fits: Mask = self.counted(resource, nodes) + wanted <= nodes.reported[RESOURCES[resource]]
        return fits

    def _within(self, pod: PodInfo, resource: str, nodes: Columns) -> Mask:
        row = RESOURCES[resource]
        most = nodes.reported[row] * self._ratio(resource, nodes)
        raised = nodes.allocatable[row] > nodes.reported[row]
        most = np.where(raised, np.minimum(most, nodes.allocatable[row]), most)
        within: Mask = nodes.requested[row] + pod.requests[resource] <= most
        return within

    # -- what nodes allow, and what is reserved there ---------------------------------------

    def _ratio(self, resource: str, nodes: Columns) -> Scores:
        """By row: how many times what there is may be requested; exact where a label says so."""
        if self._generation != nodes.generation:
            self._ratios = {name: self._read_ratios(name, nodes) for name in RESOURCES}
            self._generation = nodes.generation
            self._warn(nodes)
        return self._ratios[resource]

    def _read_ratios(self, resource: str, nodes: Columns) -> Scores:
        highest = self._highest[resource]
        if not self._needs_label:
            return np.full(nodes.size, highest)
        distinct, which = np.unique(
            nodes.label(overcommit.LABELS[resource]), return_inverse=True
        )  # a label has few values
        said = [
            overcommit.ratio(nodes.values.value(n)) if n != ABSENT else None
            for n in distinct.tolist()
        ]
        found = np.array([min(float(ratio or 1), highest) for ratio in said], np.float64)
        return found[which.reshape(-1)]

    def _warn(self, nodes: Columns) -> None:
        """Tell of labels that are no ratio, once each."""
        wrong: dict[str, tuple[str, ...]] = {}
        for label in overcommit.LABELS.values():
            column = nodes.label(label)
            bad = [
                n
                for n in np.unique(column).tolist()
                if n != ABSENT and overcommit.ratio(nodes.values.value(n)) is None
            ]
            for row in np.flatnonzero(np.isin(column, bad)).tolist():
                said = f'{label}="{nodes.values.value(int(column[row]))}"'
                wrong[nodes.names[row]] = (*wrong.get(nodes.names[row], ()), said)
        for name, labels in wrong.items():
            if self._warned.get(name) != labels:
                about = Node.of({"metadata": {"name": name, "uid": name}})
                message = f"{', '.join(labels)}: {overcommit.WRONG}"
                self._notices.warn(about, "InvalidOvercommit", message)
        self._warned = wrong

    def _reserved(self, nodes: Columns) -> Scores:
        """[resource, row]: what Guaranteed pods request; only rows where pods changed are read."""
        if self._guaranteed.shape[1] < nodes.size:
            grown = np.zeros((len(RESOURCES), nodes.size))
            grown[:, : self._guaranteed.shape[1]] = self._guaranteed
            self._guaranteed = grown
        if self._seen != nodes.pods_version:
            for row in nodes.touched_since(self._seen).tolist():
                pods = [p.info for p in nodes.pods_on(nodes.names[row]).values()]
                reserved = [p for p in pods if _is_guaranteed(p)]
                for resource, index in RESOURCES.items():
                    self._guaranteed[index, row] = sum(
                        p.requests.get(resource, 0) for p in reserved
                    )
            self._seen = nodes.pods_version
        return self._guaranteed[:, : nodes.size]

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


def _is_guaranteed(pod: PodInfo) -> bool:
    said = pod.pod.status.qos_class or qos.qos_class(msgspec.to_builtins(pod.pod))
    return said == "Guaranteed"


def _without_compute(pod: PodInfo) -> PodInfo:
    others = {name: value for name, value in pod.requests.items() if name not in RESOURCES}
    return replace(pod, requests=others)


_f: contract.Made[contract.FilterPlugin] = Overcommit
_s: contract.Made[contract.ScorePlugin] = Overcommit
_w: contract.Made[contract.WorksInBackground] = Overcommit
_o: contract.Made[contract.FollowsObjects] = Overcommit
_a: contract.Made[contract.KnowsAges] = Overcommit
