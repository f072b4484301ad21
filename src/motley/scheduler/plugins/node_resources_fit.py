"""NodeResourcesFit: is there room, and which node has the best amount of it left?

Counts CPU, memory, ephemeral storage, extended resources and the number of pods. Scores by one
of three strategies: LeastAllocated (spread, the default), MostAllocated (pack), or
RequestedToCapacityRatio (any broken line over utilisation).
"""

import itertools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.columns import PODS_ROW
from motley.scheduler.contract import MAX_SCORE, Columns, Mask, PodInfo, Scores
from motley.scheduler.events import ClusterEvent
from motley.scheduler.plugins.resource_usage import (
    CPU_AND_MEMORY,
    ResourceSpec,
    Usage,
    UsageReader,
    quietly,
)


class ShapePoint(msgspec.Struct, forbid_unknown_fields=True):
    """At this utilisation (percent) a node gets this score (0 to 10)."""

    utilization: int
    score: int

    def __post_init__(self) -> None:
        if not 0 <= self.utilization <= 100:
            raise ValueError(f"utilization {self.utilization} is not between 0 and 100")
        if not 0 <= self.score <= 10:
            raise ValueError(f"score {self.score} is not between 0 and 10")


class RequestedToCapacityRatio(msgspec.Struct, forbid_unknown_fields=True):
    """The broken line, by rising utilisation."""

    shape: tuple[ShapePoint, ...] = ()

    def __post_init__(self) -> None:
        points = [point.utilization for point in self.shape]
        if not points or any(a >= b for a, b in itertools.pairwise(points)):
            raise ValueError("shape must have at least one point, sorted by utilization")


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
    left = usage.allocatable - (usage.requested + usage.wanted)
    return np.maximum(np.floor(left * MAX_SCORE / usage.allocatable), 0.0)


def _most(usage: Usage) -> Scores:
    used = np.minimum(usage.requested + usage.wanted, usage.allocatable)
    return np.floor(used * MAX_SCORE / usage.allocatable)


def _ratio(shape: tuple[ShapePoint, ...]) -> Scorer:
    at = np.array([point.utilization for point in shape], np.float64)
    scores = np.array([point.score * MAX_SCORE / 10 for point in shape], np.float64)

    def score(usage: Usage) -> Scores:
        used = usage.requested + usage.wanted
        percent = np.where(
            used > usage.allocatable, 100.0, np.floor(used * 100 / usage.allocatable)
        )
        segment = np.clip(np.searchsorted(at, percent), 1, max(len(at) - 1, 1))
        if len(at) == 1:
            return np.full_like(percent, scores[0])
        low, high = segment - 1, segment
        slope = (scores[high] - scores[low]) * (percent - at[low]) / (at[high] - at[low])
        line = scores[low] + np.trunc(slope)
        line = np.where(percent <= at[0], scores[0], line)
        return np.where(percent > at[-1], scores[-1], line)

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
        mask: Mask = nodes.requested[PODS_ROW] < nodes.allocatable[PODS_ROW]
        for name, wanted in pod.requests.items():
            if not self._is_ignored(name):
                mask &= self._has_room(name, wanted, nodes)
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
        total: Scores | None = None
        weights: Any = 0.0
        with quietly():
            for usage in self._usage.read(pod, nodes):
                score = self._scorer(usage)
                if usage.weight != 1:
                    score = score * usage.weight
                weight: Any = usage.weight
                if usage.usable is not None:
                    score = np.where(usage.usable, score, 0.0)
                    weight = usage.weight * usage.usable.astype(np.float64)
                if self._is_ratio:  # kube-scheduler leaves resources that score 0 out of the mean
                    weight = weight * (score > 0)
                total = score if total is None else total + score
                weights = weights + weight
            if total is None:
                return np.zeros(nodes.size)
            mean: Scores = total / weights
            mean = np.round(mean) if self._is_ratio else np.floor(mean)
        return np.nan_to_num(mean) if isinstance(weights, np.ndarray) else mean

    @staticmethod
    def _has_room(name: str, wanted: int, nodes: Columns) -> Mask:
        row = nodes.resource(name)
        if row is None:
            return np.zeros(nodes.size, np.bool_)
        fits: Mask = nodes.requested[row] + wanted <= nodes.allocatable[row]
        return fits

    def _is_ignored(self, name: str) -> bool:
        if not self._ignored and not self._ignored_groups:
            return False
        group, slash, _ = name.partition("/")
        return bool(slash) and (name in self._ignored or group in self._ignored_groups)


_f: contract.Made[contract.FilterPlugin] = NodeResourcesFit
_s: contract.Made[contract.ScorePlugin] = NodeResourcesFit
