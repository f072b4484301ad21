"""NodeUnschedulable: cordoned nodes take no new pods."""

import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.contract import Columns, Mask, PodInfo
from motley.scheduler.facts import TaintKey
from motley.scheduler.plugins import taint_toleration

_CORDON = TaintKey("node.kubernetes.io/unschedulable", "", "NoSchedule")


class NodeUnschedulable:
    """Keep nodes that are not cordoned, unless the pod tolerates the cordon's taint."""

    name = "NodeUnschedulable"
    reason = "node(s) were unschedulable"
    wakes_on = (events.NodeAdded, events.NodeTaintsChanged)
    static = True
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the node is not cordoned."""
        if taint_toleration.tolerates(pod, _CORDON):
            return np.ones(nodes.size, np.bool_)
        return ~nodes.unschedulable


_: contract.Made[contract.FilterPlugin] = NodeUnschedulable
