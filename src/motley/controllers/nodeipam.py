"""Node IPAM: gives every node its part of the pod network.

What is taken is read from the nodes themselves, so nothing needs to be remembered over a restart;
the range between an allocation and its event is covered by `written`.
Invariant: no two nodes have overlapping ranges (one worker allocates, and a node's range is
written only if it still has none).
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.written import Written
from motley.lib import journal

log = journal.get(__name__)

Network = IPv4Network | IPv6Network


class Ranges:
    """The subnets of one network, handed out lowest first. Pure."""

    def __init__(self, network: Network, prefix: int) -> None:
        if not network.prefixlen <= prefix <= network.max_prefixlen:
            raise ValueError(f"a node's range /{prefix} does not fit into {network}")
        self._network = network
        self._prefix = prefix
        self._step = 1 << (network.max_prefixlen - prefix)
        self.count = 1 << (prefix - network.prefixlen)

    def free(self, taken: Iterable[str]) -> str | None:
        """The lowest range that overlaps none of `taken`, or None when all are."""
        used: set[int] = set()
        for text in taken:
            used.update(self._indexes(text))
        index = next((i for i in range(self.count) if i not in used), None)
        if index is None:
            return None
        return str(type(self._network)((self._base + index * self._step, self._prefix)))

    @property
    def _base(self) -> int:
        return int(self._network.network_address)

    def _indexes(self, text: str) -> range:
        """Which of our ranges another network covers, also one of another size."""
        try:
            other = ip_network(text, strict=False)
        except ValueError:
            return range(0)
        if other.version != self._network.version or not other.overlaps(self._network):
            return range(0)
        first = max(0, (int(other.network_address) - self._base) // self._step)
        last = min(self.count - 1, (int(other.broadcast_address) - self._base) // self._step)
        return range(first, last + 1)


class NodeIPAMController:
    """See the module's docstring."""

    name = "nodeipam"
    workers = 1  # two would allocate the same range

    def __init__(
        self, context: Context, *, pod_cidr: str = "10.244.0.0/16", node_prefix: int = 24
    ) -> None:
        self._client = context.client
        self._recorder = context.recorder.source("cidrAllocator")
        self._ranges = Ranges(ip_network(pod_cidr), node_prefix)
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._nodes = context.informers.of(Node)
        self._written: Written[Node] = Written(self._nodes, context.clock)
        self._waiting: set[Key] = set()  # nodes that found the network full
        self._nodes.add_handler(self._node_changed)

    def _node_changed(self, change: Change[Node]) -> None:
        self.queue.add(change.key)
        if change.new is None:
            self._waiting.discard(change.key)
            for key in self._waiting:  # a range has become free
                self.queue.add(key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Allocate a range to a node that has none."""
        node = self._nodes.get(key)
        if node is None or node.spec.pod_cidr or node.metadata.deletion_timestamp:
            return None
        nodes = self._written.over(self._nodes.items())
        if any(n.key == key and n.spec.pod_cidr for n in nodes):
            return None
        taken = {cidr for n in nodes for cidr in (n.spec.pod_cidr, *n.spec.pod_cidrs) if cidr}
        cidr = self._ranges.free(taken)
        if cidr is None:
            message = f"Node {key.name} status is now: CIDRNotAvailable"
            self._recorder.event(node, "Warning", "CIDRNotAvailable", message)
            self._waiting.add(key)
            return None
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        }
        self._written.put(await self._client.patch(Node, key.name, "", body))
        self._waiting.discard(key)
        log.info("pod range allocated", node=key.name, cidr=cidr)
        return None
