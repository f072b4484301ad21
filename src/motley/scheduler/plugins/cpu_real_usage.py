"""CpuRealUsage: prefer nodes by the cpu they really use, not by what was requested of them."""

from motley.scheduler import contract
from motley.scheduler.columns import CPU_ROW
from motley.scheduler.plugins.real_usage import RealUsage


class CpuRealUsage(RealUsage):
    """Scores by `node_cpu_usage_avg_5m`, or by what `metrics.k8s.io` says of cpu."""

    name = "CpuRealUsage"
    resource = "cpu"
    row = CPU_ROW
    metric = "node_cpu_usage_avg_5m"


_s: contract.Made[contract.ScorePlugin] = CpuRealUsage
_n: contract.Made[contract.NormalizePlugin] = CpuRealUsage
_b: contract.Made[contract.WorksInBackground] = CpuRealUsage
