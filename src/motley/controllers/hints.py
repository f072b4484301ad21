"""Topology hints: which endpoint is meant for whom. Pure.

`trafficDistribution` means every endpoint for its own zone (and node). `topology-mode: Auto` shares
the endpoints out to zones in proportion to their CPUs, so that no endpoint gets more than a fifth
above its share; where that cannot be, there are no hints at all and traffic goes everywhere.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from motley.api import quantity
from motley.api.views.core import Endpoint, EndpointHints, Hint, Node, Service

ZONE = "topology.kubernetes.io/zone"
# The older name first: what Kubernetes looks at first.
_MODES = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
_NEAR = ("PreferClose", "PreferSameZone", "PreferSameNode")
_EXCLUDED = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_OVERLOAD = 0.2


def is_auto(service: Service) -> bool:
    """Are the hints of this Service to be in proportion to the zones' CPUs?"""
    found = [service.metadata.annotations[m] for m in _MODES if m in service.metadata.annotations]
    return bool(found) and found[0] in ("Auto", "auto")


def node_facts(node: Node) -> tuple[str, bool, bool, int]:
    """What of a node the hints depend on."""
    labels = node.metadata.labels
    excluded = any(label in labels for label in _EXCLUDED)
    cpu = quantity.cpu_milli(node.status.allocatable.get("cpu", 0))
    return labels.get(ZONE, ""), excluded, node.is_ready, cpu


def zone_ratios(nodes: Iterable[Node]) -> dict[str, float]:
    """Each zone's share of the cluster's CPUs; empty when that cannot be told."""
    milli: Counter[str] = Counter()
    for node in nodes:
        zone, excluded, ready, cpu = node_facts(node)
        if excluded or not ready:
            continue
        if not zone or not cpu:
            return {}
        milli[zone] += cpu
    whole = milli.total()
    return {zone: cpu / whole for zone, cpu in milli.items()} if len(milli) > 1 else {}


def give(service: Service, endpoints: Sequence[Endpoint], ratios: Mapping[str, float]) -> None:
    """Set the hints of a Service's endpoints (those of one address family)."""
    distribution = service.spec.traffic_distribution
    ready = [e for e in endpoints if e.conditions.ready]
    if is_auto(service):
        for each, zone in zip(ready, _shared_out(ready, ratios), strict=False):
            each.hints = EndpointHints(for_zones=[Hint(name=zone)])
    elif distribution in _NEAR:
        for each in ready:
            zones = [Hint(name=each.zone)] if each.zone else []
            by_node = distribution == "PreferSameNode" and each.node_name
            nodes = [Hint(name=each.node_name)] if by_node else []
            if zones or nodes:
                each.hints = EndpointHints(for_zones=zones, for_nodes=nodes)


def _shared_out(ready: Sequence[Endpoint], ratios: Mapping[str, float]) -> list[str]:
    """The zone each ready endpoint is for; nothing when the shares would be too unequal."""
    if len(ratios) < 2 or len(ready) < len(ratios) or not all(e.zone for e in ready):
        return []
    least = {z: math.ceil(r * len(ready) / (1 + _OVERLOAD)) for z, r in ratios.items()}
    if sum(least.values()) > len(ready):
        return []
    own = Counter(e.zone for e in ready)
    wanted = {z: max(r * len(ready), float(least[z])) for z, r in ratios.items()}
    giving = {z: own[z] - wanted[z] for z in wanted if own[z] > wanted[z]}
    receiving = {z: wanted[z] - own[z] for z in wanted if own[z] < wanted[z]}
    moves: list[tuple[str, str]] = []
    while giving and receiving:
        source, target = _most(giving), _most(receiving)
        most, need = giving[source], receiving[target]
        if (most < 1 and need < 1) or most < 0.5 or need < 0.5:
            break
        moves.append((source, target))
        giving[source] -= 1
        receiving[target] -= 1
    zones = []
    for each in ready:
        move = next((m for m in moves if m[0] == each.zone), None)
        if move is not None:
            moves.remove(move)
        zones.append(move[1] if move is not None else each.zone)
    return zones


def _most(zones: Mapping[str, float]) -> str:
    return max(sorted(zones), key=lambda zone: zones[zone])
