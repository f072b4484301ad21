"""MemRealUsage: prefer nodes by the memory they really use, not by what was requested of them."""

from motley.scheduler import contract
from motley.scheduler.columns import MEMORY_ROW
from motley.scheduler.plugins.real_usage import RealUsage


class MemRealUsage(RealUsage):
    """Scores by `node_mem_usage_avg_5m`, or by what `metrics.k8s.io` says of memory."""

    name = "MemRealUsage"
    resource = "memory"
    row = MEMORY_ROW
    metric = "node_mem_usage_avg_5m"


_s: contract.Made[contract.ScorePlugin] = MemRealUsage
_n: contract.Made[contract.NormalizePlugin] = MemRealUsage
_b: contract.Made[contract.WorksInBackground] = MemRealUsage
