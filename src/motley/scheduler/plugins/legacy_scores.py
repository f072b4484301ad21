"""The resource scorers under their names of v1beta1, when each strategy was a plugin of its own.

They score as NodeResourcesFit does with that strategy, with the arguments they had.
"""

import msgspec

from motley.scheduler import contract
from motley.scheduler.columns import Columns, Rows
from motley.scheduler.contract import PodInfo, Scores
from motley.scheduler.plugins.node_resources_fit import (
    NodeResourcesFit,
    NodeResourcesFitArgs,
    ScoringStrategy,
)
from motley.scheduler.plugins.node_resources_fit import (
    RequestedToCapacityRatio as RatioShape,
)
from motley.scheduler.plugins.resource_usage import CPU_AND_MEMORY, ResourceSpec
from motley.scheduler.plugins.shapes import Shape


class NodeResourcesLeastAllocatedArgs(msgspec.Struct, forbid_unknown_fields=True):
    """v1beta1's arguments of the same name."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class NodeResourcesMostAllocatedArgs(msgspec.Struct, forbid_unknown_fields=True):
    """v1beta1's arguments of the same name."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class RequestedToCapacityRatioArgs(msgspec.Struct, forbid_unknown_fields=True):
    """v1beta1's arguments of the same name."""

    shape: Shape
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class _Scorer:
    """NodeResourcesFit without its filter."""

    def __init__(self, strategy: ScoringStrategy, handle: contract.Handle) -> None:
        self._fit = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy), handle)

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """See `NodeResourcesFit.score`."""
        return self._fit.score(pod, nodes)

    def score_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Scores:
        """See `NodeResourcesFit.score_rows`."""
        return self._fit.score_rows(pod, nodes, rows)


class NodeResourcesLeastAllocated(_Scorer):
    """Prefer empty nodes."""

    name = "NodeResourcesLeastAllocated"
    Args = NodeResourcesLeastAllocatedArgs

    def __init__(self, args: NodeResourcesLeastAllocatedArgs, handle: contract.Handle) -> None:
        super().__init__(ScoringStrategy("LeastAllocated", args.resources), handle)


class NodeResourcesMostAllocated(_Scorer):
    """Prefer full nodes."""

    name = "NodeResourcesMostAllocated"
    Args = NodeResourcesMostAllocatedArgs

    def __init__(self, args: NodeResourcesMostAllocatedArgs, handle: contract.Handle) -> None:
        super().__init__(ScoringStrategy("MostAllocated", args.resources), handle)


class RequestedToCapacityRatio(_Scorer):
    """Prefer nodes as filled as a shape says."""

    name = "RequestedToCapacityRatio"
    Args = RequestedToCapacityRatioArgs

    def __init__(self, args: RequestedToCapacityRatioArgs, handle: contract.Handle) -> None:
        shape = RatioShape(args.shape)
        super().__init__(ScoringStrategy("RequestedToCapacityRatio", args.resources, shape), handle)


_l: contract.Made[contract.ScorePlugin] = NodeResourcesLeastAllocated
_m: contract.Made[contract.ScorePlugin] = NodeResourcesMostAllocated
_r: contract.Made[contract.ScorePlugin] = RequestedToCapacityRatio
