"""What pods and nodes use now, from the last two points of each. Pure.

A rate needs two points. A container that has just started has only one: its start is the other,
once it is old enough to mean something. A counter that went back is one that began anew.

Invariant: nothing older than two scrapes is shown, and no rate is negative.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from motley.metrics.exposition import ContainerKey, Point, Scrape

_FRESH_S = 10.0  # metrics-server's least age of a container for a rate since its start
_PUT_BACK_S = 60.0  # a point older than the last by this much is of a clock that was put back


class Use(NamedTuple):
    """An average of CPU over a window that ended at a moment, and the memory then."""

    at: float
    window_s: float
    cpu_nano: int
    memory_bytes: int


class Pair(NamedTuple):
    """The last two points."""

    before: Point | None
    last: Point


class PodUse(NamedTuple):
    """A pod, by container."""

    namespace: str
    name: str
    containers: dict[str, Use]


@dataclass
class Usage:
    """The points of everything, by node; an agent that fell silent is forgotten."""

    keep_s: float
    nodes: dict[str, Pair] = field(default_factory=dict)
    containers: dict[str, dict[ContainerKey, Pair]] = field(default_factory=dict)
    scripted: dict[str, dict[ContainerKey, Use]] = field(default_factory=dict)
    scripted_nodes: dict[str, Use] = field(default_factory=dict)

    def take(self, node: str, scrape: Scrape) -> None:
        """Take what an agent said."""
        known = self.containers.get(node, {})
        self.containers[node] = {
            key: paired(known.get(key), point) for key, point in scrape.containers.items()
        }
        if scrape.node is not None:
            self.nodes[node] = paired(self.nodes.get(node), scrape.node)

    def keep_only(self, nodes: Iterable[str]) -> None:
        """Forget nodes that are gone."""
        there = set(nodes)
        for known in (self.nodes, self.containers, self.scripted, self.scripted_nodes):
            for name in [n for n in known if n not in there]:
                del known[name]

    def node(self, name: str, now: float) -> Use | None:
        """A node's use; None while it is not known."""
        if name in self.scripted_nodes:
            return self.scripted_nodes[name]
        pair = self.nodes.get(name)
        return use(pair) if pair is not None and self._is_recent(pair, now) else None

    def pods(self, now: float) -> dict[tuple[str, str], PodUse]:
        """Every pod of which all containers are known."""
        found: dict[tuple[str, str], dict[str, Use | None]] = {}
        for pairs in self.containers.values():
            for key, pair in pairs.items():
                shown = use(pair) if self._is_recent(pair, now) else None
                found.setdefault((key.namespace, key.pod), {})[key.container] = shown
        for uses in self.scripted.values():
            for key, told in uses.items():
                found.setdefault((key.namespace, key.pod), {})[key.container] = told
        whole: dict[tuple[str, str], PodUse] = {}
        for (namespace, name), parts in found.items():
            known = {container: one for container, one in parts.items() if one is not None}
            if len(known) == len(parts):
                whole[namespace, name] = PodUse(namespace, name, known)
        return whole

    def _is_recent(self, pair: Pair, now: float) -> bool:
        return pair.last.at >= now - self.keep_s


def paired(known: Pair | None, point: Point) -> Pair:
    """The next pair: the same moment again changes nothing; a new start forgets the past, and so
    does a clock that was put back."""
    if known is None or point.cpu_s < known.last.cpu_s or point.started_at > known.last.at:
        return Pair(None, point)
    if point.at < known.last.at - _PUT_BACK_S:
        return Pair(None, point)
    if point.at <= known.last.at:
        return known
    return Pair(known.last, point)


def use(pair: Pair) -> Use | None:
    """The average between the points; None while there is but one."""
    before, last = pair
    if before is None:
        age_s = last.at - last.started_at
        if not last.started_at or not _FRESH_S <= age_s <= 6 * _FRESH_S:
            return None
        before = Point(last.started_at, 0.0, 0)
    window_s = last.at - before.at
    cpu_nano = round((last.cpu_s - before.cpu_s) / window_s * 1e9)
    return Use(last.at, window_s, max(0, cpu_nano), last.memory_bytes)
