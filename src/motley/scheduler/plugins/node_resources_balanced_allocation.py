"""NodeResourcesBalancedAllocation: prefer nodes whose use of CPU and memory the pod evens out.

A node with much CPU left and no memory is half lost. What is scored is the *change*: 75 when the
pod leaves the balance as it is, up to 100 when it evens it out, down to 50 when it spoils it.
"""

import msgspec
import numpy as np

from motley.scheduler import contract
from motley.scheduler.contract import MAX_SCORE, SKIP, Columns, Mask, PodInfo, Scores, Verdict
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


def _balance(usages: list[Usage], *, with_pod: bool) -> Scores:
    """100 less the standard deviation of the shares in use, in whole percent."""
    shares = []
    for usage in usages:
        used = usage.requested + usage.wanted if with_pod else usage.requested
        share = np.minimum(used / usage.allocatable, 1.0)
        shares.append(share if usage.usable is None else np.where(usage.usable, share, np.nan))
    if len(shares) == 2 and all(usage.usable is None for usage in usages):
        deviation: Scores = np.abs((shares[0] - shares[1]) / 2)
    else:
        deviation = np.nan_to_num(np.nanstd(np.array(shares), axis=0))
    return np.floor((1.0 - deviation) * MAX_SCORE)


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
        with quietly():
            usages = list(self._usage.read(pod, nodes))
            if not usages:
                return np.full(nodes.size, 75.0)
            after = _balance(usages, with_pod=True)
            before = _balance(usages, with_pod=False)
            return np.floor(75.0 + (after - before) / 2)


_: contract.Made[contract.ScorePlugin] = NodeResourcesBalancedAllocation
