"""NodeResourcesFit: is there room, and which node has the best amount of it left?

Counts CPU, memory, ephemeral storage, extended resources and the number of pods. Scores by one
of three strategies: LeastAllocated (spread, the default), MostAllocated (pack), or
RequestedToCapacityRatio (any broken line over utilisation).
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.columns import EVERY_ROW, PODS_ROW
from motley.scheduler.contract import MAX_SCORE, Columns, Mask, PodInfo, Rows, Scores
from motley.scheduler.events import ClusterEvent
from motley.scheduler.plugins import shapes
from motley.scheduler.plugins.resource_usage import (
    CPU_AND_MEMORY,
    ResourceSpec,
    Usage,
    UsageReader,
    quietly,
)
from motley.scheduler.plugins.shapes import Shape


class RequestedToCapacityRatio(msgspec.Struct, forbid_unknown_fields=True):
    """The broken line, by rising utilisation."""

    shape: Shape = ()

    def __post_init__(self) -> None:
        shapes.check(self.shape)


class ScoringStrategy(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """How room is valued."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None

    def __post_init__(self) -> None:
        if self.type == "RequestedToCapacityRatio" and self.requested_to_capacity_ratio is None:
            raise ValueError("requestedToCapacityRatio is required for this strategy")


class NodeResourcesFitArgs(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """kube-scheduler's arguments of the same name."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = msgspec.field(default_factory=ScoringStrategy)


Scorer: TypeAlias = Callable[[Usage], Scores]


def _least(usage: Usage) -> Scores:
    left = usage.allocatable - (usage.requested + usage.asked.wanted)
    return np.maximum(np.floor(left * MAX_SCORE / usage.allocatable), 0.0)


def _most(usage: Usage) -> Scores:
    used = np.minimum(usage.requested + usage.asked.wanted, usage.allocatable)
    return np.floor(used * MAX_SCORE / usage.allocatable)


def _ratio(shape: Shape) -> Scorer:
    line = shapes.broken_line(shape)

    def score(usage: Usage) -> Scores:
        used = usage.requested + usage.asked.wanted
        percent = np.floor(used * 100 / usage.allocatable)
        return line(np.where(used > usage.allocatable, 100.0, percent))

    return score


def _scorer(strategy: ScoringStrategy) -> Scorer:
    if strategy.requested_to_capacity_ratio and strategy.type == "RequestedToCapacityRatio":
        return _ratio(strategy.requested_to_capacity_ratio.shape)
    return _most if strategy.type == "MostAllocated" else _least


class NodeResourcesFit:
    """Keep nodes with room for the pod, prefer by the scoring strategy."""

    name = "NodeResourcesFit"
    reason = "Insufficient resources"  # `explain` names which
    wakes_on = (
        events.NodeAdded,
        events.NodeAllocatableChanged,
        events.PodDeleted,
        events.PodUpdated,
    )
    scope = "requests"
    Args = NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs, handle: contract.Handle) -> None:
        self._nodes = handle.nodes
        self._nominations = handle.nominations
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = args.ignored_resource_groups
        self._scorer = _scorer(args.scoring_strategy)
        self._usage = UsageReader(args.scoring_strategy.resources, nonzero=True)
        self._is_ratio = args.scoring_strategy.type == "RequestedToCapacityRatio"

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where there is room for everything the pod asks for."""
        return self.filter_rows(pod, nodes, EVERY_ROW)

    def filter_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Mask:
        """Only what the pods on the node itself request matters."""
        mask: Mask = nodes.requested[PODS_ROW, rows] < nodes.allocatable[PODS_ROW, rows]
        for name, wanted in pod.requests.items():
            if not self._is_ignored(name):
                mask &= self._has_room(name, wanted, nodes, rows)
        return mask

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Every resource that lacks is a reason of its own; a node may count under several."""
        crowded = rejected & (nodes.requested[PODS_ROW] >= nodes.allocatable[PODS_ROW])
        counts = {"Too many pods": int(np.count_nonzero(crowded))}
        for name, wanted in pod.requests.items():
            if not self._is_ignored(name):
                lacking = rejected & ~self._has_room(name, wanted, nodes)
                counts[f"Insufficient {name}"] = int(np.count_nonzero(lacking))
        return {reason: count for reason, count in counts.items() if count}

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Where even the empty node is too small."""
        lost = np.zeros(nodes.size, np.bool_)
        for name, wanted in pod.requests.items():
            if not self._is_ignored(name):
                row = nodes.resource(name)
                lost |= nodes.allocatable[row] < wanted if row is not None else True
        return lost & rejected

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Room matters on the node where something changed, nowhere else."""
        match event:
            case events.NodeAdded(node) | events.NodeAllocatableChanged(node):
                name = node.metadata.name
            case events.PodDeleted(_, name) | events.PodUpdated(_, name):
                pass
            case _:
                return True
        if self._nominations.on(name):
            return True  # some of what is counted there may not count for this pod
        row = self._nodes.rows.get(name)
        return row is not None and self._fits_on(pod, row)

    def _fits_on(self, pod: PodInfo, row: int) -> bool:
        nodes = self._nodes
        if nodes.requested[PODS_ROW, row] >= nodes.allocatable[PODS_ROW, row]:
            return False
        for name, wanted in pod.requests.items():
            if not self._is_ignored(name):
                resource = nodes.resource(name)
                if (
                    resource is None
                    or nodes.requested[resource, row] + wanted > nodes.allocatable[resource, row]
                ):
                    return False
        return True

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """The weighted mean of the strategy's score per resource."""
        return self.score_rows(pod, nodes, EVERY_ROW)

    def score_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Scores:
        """Only what the pods on the node itself request matters."""
        usage = self._usage.read(pod, nodes, rows)
        if usage is None:
            return np.zeros(nodes.size)[rows]
        with quietly():
            scores = self._scorer(usage)
            if usage.usable is None and not self._is_ratio:
                # Whole numbers: their sum is the same in any order.
                whole: Scores = np.add.reduce(scores * usage.asked.weights)
                return np.floor(whole / usage.asked.weight)
            weights = usage.asked.weights
            if usage.usable is not None:
                scores = np.where(usage.usable, scores, 0.0)
                weights = weights * usage.usable
            if self._is_ratio:  # kube-scheduler leaves resources that score 0 out of the mean
                weights = weights * (scores > 0)
            mean = np.add.reduce(scores * usage.asked.weights) / np.add.reduce(weights)
            whole = np.floor(mean + 0.5 if self._is_ratio else mean)
        return np.nan_to_num(whole)

    @staticmethod
    def _has_room(name: str, wanted: int, nodes: Columns, rows: Rows = EVERY_ROW) -> Mask:
        resource = nodes.resource(name)
        if resource is None:
            return np.zeros(nodes.size, np.bool_)[rows]
        fits: Mask = nodes.requested[resource, rows] + wanted <= nodes.allocatable[resource, rows]
        return fits

    def _is_ignored(self, name: str) -> bool:
        if not self._ignored and not self._ignored_groups:
            return False
        group, slash, _ = name.partition("/")
        return bool(slash) and (name in self._ignored or group in self._ignored_groups)


_f: contract.Made[contract.FilterPlugin] = NodeResourcesFit
_s: contract.Made[contract.ScorePlugin] = NodeResourcesFit
