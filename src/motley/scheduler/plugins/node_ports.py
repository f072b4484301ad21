"""NodePorts: two pods cannot have the same port of one node."""

import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Verdict
from motley.scheduler.events import ClusterEvent


class NodePorts:
    """Keep nodes where every `hostPort` the pod asks for is free."""

    name = "NodePorts"
    reason = "node(s) didn't have free ports for the requested pod ports"
    wakes_on = (events.NodeAdded, events.PodDeleted)
    scope = "node"
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Nothing to check for pods without host ports."""
        return None if pod.host_ports else SKIP

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where no pod holds one of the ports."""
        mask = np.ones(nodes.size, np.bool_)
        for wanted in pod.host_ports:
            for rows in nodes.port_taken(wanted):
                mask[rows] = False
        return mask

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """A pod that held none of these ports frees none of them."""
        if isinstance(event, events.PodDeleted):
            wanted = {(port.protocol, port.port) for port in pod.host_ports}
            return any((port.protocol, port.port) in wanted for port in event.pod.host_ports)
        return True


_: contract.Made[contract.FilterPlugin] = NodePorts
