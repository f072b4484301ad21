"""How fast nodes of a zone may be given up. Pure but for its memory of what was granted.

One lost node is a broken node; most of a zone lost at once is more likely a broken network, and
moving all its work away would make things worse. So the taint that evicts pods is given to one
node after the other, slowly or not at all where too many are lost, and taken back everywhere
when no zone has a ready node left: then it is us who are cut off.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from motley.api.views.core import Node

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


@dataclass(frozen=True)
class Rates:
    """kube-controller-manager's options of the same names, with its defaults."""

    node_eviction_rate: float = 0.1  # nodes per second
    secondary_node_eviction_rate: float = 0.01  # where too many are lost
    unhealthy_zone_threshold: float = 0.55
    large_cluster_size_threshold: int = 50  # smaller zones evict nothing where too many are lost


@dataclass
class _Zone:
    rate: float = 0.0
    free_at: float = 0.0
    granted: dict[str, float] = field(default_factory=dict)  # node -> when its turn is


class Zones:
    """The zones of a cluster, their health, and whose turn it is."""

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._zones: dict[str, _Zone] = {}
        self.is_cut_off = False
        """No node of any zone is ready: nobody is to be evicted."""

    def observe(self, nodes: Iterable[Node], now: float) -> bool:
        """Judge every zone anew; True when `is_cut_off` changed."""
        ready, lost = Counter[str](), Counter[str]()
        for node in nodes:
            (ready if node.is_ready else lost)[of(node)] += 1
        for name in {*ready, *lost}:
            zone = self._zones.setdefault(name, _Zone(free_at=now))
            rate = self._rate(ready[name], lost[name])
            if rate != zone.rate:  # turns that were given at another rate are void
                zone.rate, zone.granted = rate, {}
                zone.free_at = min(zone.free_at, now + 1 / rate) if rate else now
        before, self.is_cut_off = self.is_cut_off, bool(lost) and not ready
        return before != self.is_cut_off

    def wait_s(self, node: Node, now: float) -> float | None:
        """Seconds until it is this node's turn to be evicted; None: not in this state of things.

        The turn is the node's until `forget`, so that a write that fails does not lose it.
        """
        zone = self._zones.get(of(node))
        if self.is_cut_off or zone is None or not zone.rate:
            return None
        name = node.metadata.name
        due = zone.granted.get(name)
        if due is None:
            due = zone.granted[name] = max(now, zone.free_at)
            zone.free_at = due + 1 / zone.rate
        return max(0.0, due - now)

    def forget(self, node: Node) -> None:
        """The node is back, gone or evicted: it needs no turn."""
        zone = self._zones.get(of(node))
        if zone is not None:
            zone.granted.pop(node.metadata.name, None)

    def _rate(self, ready: int, lost: int) -> float:
        rates = self._rates
        total = ready + lost
        # More than two: in a tiny zone one or two lost nodes say nothing.
        if ready and lost > 2 and lost / total >= rates.unhealthy_zone_threshold:
            large = total > rates.large_cluster_size_threshold
            return rates.secondary_node_eviction_rate if large else 0.0
        # A zone without any ready node evicts as usual: other zones can take its work.
        return rates.node_eviction_rate


def of(node: Node) -> str:
    """The zone a node is in, with its region; empty when it says neither."""
    labels = node.metadata.labels
    parts = (labels.get(REGION, ""), labels.get(ZONE, ""))
    return "/".join(parts) if any(parts) else ""
