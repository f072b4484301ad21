"""NodePorts: two pods cannot have the same port of one node."""

import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.columns import EVERY_ROW
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Rows, Verdict
from motley.scheduler.events import ClusterEvent
from motley.scheduler.podinfo import ANY_ADDRESS, HostPort


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
        return self.filter_rows(pod, nodes, EVERY_ROW)

    def filter_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Mask:
        """Only the pods on the node itself matter."""
        mask: Mask = np.ones(nodes.size, np.bool_)[rows]
        for wanted in pod.host_ports:
            mask &= nodes.ports_free(wanted, rows)
        return mask

    def stays_taken(self, pod: PodInfo, nodes: Columns, rows: Mask) -> Mask:
        """Of these rows, those where a port is held by a pod that the pod may not push out."""
        held = rows & ~self.filter(pod, nodes)
        for row in np.flatnonzero(held).tolist():  # few: a host port is a rare thing
            held[row] = any(
                _meet(wanted, port)
                for placed in nodes.pods_on(nodes.names[row]).values()
                if placed.info.priority >= pod.priority
                for port in placed.info.host_ports
                for wanted in pod.host_ports
            )
        return held

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """A pod that held none of these ports frees none of them."""
        if isinstance(event, events.PodDeleted):
            wanted = {(port.protocol, port.port) for port in pod.host_ports}
            return any((port.protocol, port.port) in wanted for port in event.pod.host_ports)
        return True


def _meet(a: HostPort, b: HostPort) -> bool:
    addresses = {a.address, b.address}
    return (a.protocol, a.port) == (b.protocol, b.port) and (
        len(addresses) == 1 or ANY_ADDRESS in addresses
    )


_: contract.Made[contract.FilterPlugin] = NodePorts
