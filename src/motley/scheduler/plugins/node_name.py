"""NodeName: a pod that names its node runs there or nowhere."""

import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Verdict


class NodeName:
    """Keep the node that `spec.nodeName` names."""

    name = "NodeName"
    reason = "node(s) didn't match the requested node name"
    wakes_on = (events.NodeAdded,)
    removal_helps = False
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Nothing to check for the many pods that name no node."""
        return None if pod.pod.spec.node_name else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True for one row at most."""
        mask = np.zeros(nodes.size, np.bool_)
        mask[nodes.rows_named([pod.pod.spec.node_name])] = True
        return mask


_: contract.Made[contract.FilterPlugin] = NodeName
