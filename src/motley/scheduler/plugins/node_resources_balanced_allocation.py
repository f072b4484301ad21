"""NodeResourcesBalancedAllocation: prefer nodes whose use of CPU and memory the pod evens out.

A node with much CPU left and no memory is half lost. What is scored is the *change*: 75 when the
pod leaves the balance as it is, up to 100 when it evens it out, down to 50 when it spoils it.
"""

import msgspec
import numpy as np

from motley.scheduler import contract
from motley.scheduler.columns import EVERY_ROW
from motley.scheduler.contract import (
    MAX_SCORE,
    SKIP,
    Columns,
    Mask,
    PodInfo,
    Rows,
    Scores,
    Verdict,
)
from motley.scheduler.plugins.resource_usage import (
    CPU_AND_MEMORY,
    ResourceSpec,
    Usage,
    UsageReader,
    quietly,
)


class NodeResourcesBalancedAllocationArgs(
    msgspec.Struct, forbid_unknown_fields=True, rename="camel"
):
    """kube-scheduler's arguments of the same name."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


def _balance(usage: Usage) -> Scores:
    """[without or with the pod, row]: 100 less the standard deviation of the shares in use."""
    used = np.empty((2, *usage.requested.shape))  # [without or with the pod, resource, row]
    used[0] = usage.requested
    np.add(usage.requested, usage.asked.wanted, out=used[1])
    shares = np.minimum(used / usage.allocatable, 1.0)
    if len(usage.asked.which) == 2 and usage.usable is None:
        deviation: Scores = np.abs(shares[:, 0] - shares[:, 1]) / 2
    else:
        deviation = _deviation(shares, usage)
    return np.floor((1.0 - deviation) * MAX_SCORE)


def _deviation(shares: Scores, usage: Usage) -> Scores:
    """The standard deviation over the resources that a node has, 0 where it has none.

    Resource by resource, so that a row gives the same number whatever rows are beside it.
    """
    resources = range(shares.shape[1])
    usable = np.ones(usage.requested.shape) if usage.usable is None else usage.usable * 1.0
    number: Scores = sum((usable[r] for r in resources), np.zeros(1))
    shares = np.where(usable > 0, shares, 0.0)
    mean = sum((shares[:, r] for r in resources), np.zeros(1)) / number
    squares = sum((usable[r] * (shares[:, r] - mean) ** 2 for r in resources), np.zeros(1))
    deviation: Scores = np.nan_to_num(np.sqrt(squares / number))
    return deviation


class NodeResourcesBalancedAllocation:
    """Score nodes by how the pod changes their balance."""

    name = "NodeResourcesBalancedAllocation"
    Args = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: contract.Handle) -> None:
        self._usage = UsageReader(args.resources, nonzero=False)

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """A pod that asks for nothing balances nothing."""
        return SKIP if self._usage.asks_for_nothing(pod) else None

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """50 to 100."""
        return self.score_rows(pod, nodes, EVERY_ROW)

    def score_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Scores:
        """Only what the pods on the node itself request matters."""
        usage = self._usage.read(pod, nodes, rows)
        if usage is None:
            return np.full(nodes.size, 75.0)[rows]
        with quietly():
            before, after = _balance(usage)
            scores: Scores = np.floor(75.0 + (after - before) / 2)
        return scores


_: contract.Made[contract.ScorePlugin] = NodeResourcesBalancedAllocation
