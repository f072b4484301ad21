"""Limits on requests in flight by class of user: Kubernetes' API Priority and Fairness."""

from motley.apiserver.flowcontrol.control import (
    MAX_READS,
    MAX_WRITES,
    FlowControl,
    Refused,
    is_limited,
)
from motley.apiserver.flowcontrol.metrics import LevelMetrics

__all__ = ["MAX_READS", "MAX_WRITES", "FlowControl", "LevelMetrics", "Refused", "is_limited"]
