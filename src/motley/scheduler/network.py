"""Distances between nodes and the calls between workloads, made ready for whole columns.

A topology speaks of the values of one label; several may be there, fine ones (nodes) and coarse
ones (zones, regions). Two nodes are looked up from the finest to the coarsest: a link between
their values, the same value, whatever is stated for all other pairs. Nodes that no topology can
tell apart are one *class*, so distances are a matrix of classes, small even where nodes are many; a
decision multiplies it by how many pods of a workload each class has.

Invariant: `Distances` depends on the topologies and on node labels only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from motley.api import quantity
from motley.api.selectors import Selector, SelectorError
from motley.api.views.base import Key
from motley.api.views.network import Bits, CallGraph, Distance, NetworkTopology
from motley.lib import journal
from motley.scheduler.columns import Columns
from motley.scheduler.interning import ABSENT
from motley.scheduler.podsets import Condition, Counts, PodGroup, PodSet

log = journal.get(__name__)

HOSTNAME = "kubernetes.io/hostname"
# From fine to coarse; any other label is taken for something between nodes and zones.
_COARSENESS = {HOSTNAME: 0, "topology.kubernetes.io/zone": 2, "topology.kubernetes.io/region": 3}

Matrix = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Budget:
    """The bandwidth one topology states, and which pairs of classes it is shared by."""

    capacity: Matrix  # [place, place]
    place: Numbers  # by class
    applies: npt.NDArray[np.bool_]  # [class, class]: this topology decides

    def fits(self, used: Matrix, out: Counts, back: Counts) -> npt.NDArray[np.bool_]:
        """By class: may a pod there have `out` to and `back` from pods of each class, besides
        what is `used` between classes?"""
        member = np.eye(len(self.capacity))[self.place]
        free = self.capacity - member.T @ np.where(self.applies, used, 0.0) @ member
        sent = np.where(self.applies, out, 0.0) @ member  # [class, place]
        received = np.where(self.applies.T, back, 0.0) @ member
        enough = (sent <= free[self.place]) | (sent == 0)
        enough &= (received <= free.T[self.place]) | (received == 0)
        fits: npt.NDArray[np.bool_] = enough.all(axis=1)
        return fits


@dataclass(frozen=True, slots=True)
class Distances:
    """The nodes in classes, and what lies between these."""

    of_row: Numbers  # by row: its class
    latency_ms: Matrix  # [class, class], between different nodes
    local_ms: float  # within one node
    budgets: tuple[Budget, ...]

    def counts(self, counts: Counts) -> Counts:
        """By class, from counts by row."""
        size = len(self.latency_ms)
        return np.asarray(np.bincount(self.of_row, counts, size), np.float64)

    def mean_ms(self, counts: Counts, *, outgoing: bool) -> Counts:
        """By row: the latency to (or from) the pods counted by row, on average."""
        matrix = self.latency_ms if outgoing else self.latency_ms.T
        reach = (matrix @ self.counts(counts))[self.of_row]
        # A pod on the same node is no class away.
        here = counts * (self.local_ms - np.diagonal(matrix)[self.of_row])
        mean: Counts = (reach + here) / counts.sum()
        return mean


def distances(topologies: Iterable[NetworkTopology], nodes: Columns) -> Distances:
    """Everything that is stated about the nodes there are."""
    ordered = sorted(
        topologies, key=lambda t: (_COARSENESS.get(t.spec.topology_key, 1), t.metadata.name)
    )
    tables = [_Table(topology, nodes) for topology in ordered]
    if not tables:
        none = np.zeros(nodes.size, np.intp)
        return Distances(none, np.zeros((1, 1)), 0.0, ())
    kinds, which = np.unique([t.place for t in tables], axis=1, return_inverse=True)
    latency = np.full((kinds.shape[1], kinds.shape[1]), np.nan)
    budgets = []
    for table, place in zip(tables, kinds, strict=True):
        stated = table.latency_ms[np.ix_(place, place)]
        decides = np.isnan(latency) & ~np.isnan(stated)
        latency = np.where(decides, stated, latency)
        if np.isfinite(table.bandwidth).any():
            budgets.append(Budget(table.bandwidth, place, decides))
    # Of two nodes nothing is known about it is not assumed that they are near.
    worst = 0.0 if np.isnan(latency).all() else float(np.nanmax(latency))
    local = next((t.within_ms for t in tables if t.is_by_node), 0.0)
    return Distances(which.reshape(-1), np.nan_to_num(latency, nan=worst), local, tuple(budgets))


class _Table:
    """One topology: a number for every place, the last one for nodes outside of all."""

    def __init__(self, topology: NetworkTopology, nodes: Columns) -> None:
        spec = topology.spec
        self.is_by_node = spec.topology_key == HOSTNAME
        self.within_ms = spec.within.latency_ms
        labels = nodes.label(spec.topology_key)
        named = {nodes.values.find(v) for link in spec.links for v in (link.from_, link.to)}
        present = set(np.unique(labels).tolist()) - {ABSENT}
        # Nodes that no link names are alike to a topology by node: one place holds them all.
        places = sorted(present & named if self.is_by_node else present)
        alike, outside = len(places), len(places) + 1
        number = np.full(int(labels.max(initial=0)) + 1, alike, np.intp)
        number[places] = range(len(places))
        number[ABSENT] = outside
        self.place: Numbers = number[labels]
        self.latency_ms, self.bandwidth = _matrices(outside + 1, spec.otherwise)
        for place in range(alike):
            self._put(place, place, spec.within)
        if not self.is_by_node:
            self._put(alike, alike, spec.within)
        at = {nodes.values.value(value): place for place, value in enumerate(places)}
        for link in reversed(spec.links):  # of one pair named twice the first counts
            if link.from_ in at and link.to in at:
                self._put(at[link.to], at[link.from_], link)
        for link in spec.links:
            if link.from_ in at and link.to in at:
                self._put(at[link.from_], at[link.to], link)
        for matrix in (self.latency_ms, self.bandwidth):
            matrix[outside, :] = matrix[:, outside] = np.nan

    def _put(self, a: int, b: int, distance: Distance) -> None:
        self.latency_ms[a, b] = distance.latency_ms
        self.bandwidth[a, b] = bits(distance.bandwidth)


def _matrices(size: int, otherwise: Distance | None) -> tuple[Matrix, Matrix]:
    if otherwise is None:
        return np.full((size, size), np.nan), np.full((size, size), np.inf)
    latency = np.full((size, size), otherwise.latency_ms)
    return latency, np.full((size, size), bits(otherwise.bandwidth))


def bits(bandwidth: Bits | None) -> float:
    """Bits per second; without a bound where none is stated, or what is stated is no quantity."""
    if bandwidth is None:
        return np.inf
    try:
        return float(quantity.parse(bandwidth))
    except ValueError:
        return np.inf


# -- calls ----------------------------------------------------------------------------------


class Flow(NamedTuple):
    """Calls between two sets of pods."""

    caller: PodSet
    callee: PodSet
    weight: int
    max_latency_ms: float | None
    bandwidth: float  # bits per second of each calling pod; 0: not stated
    names: tuple[str, str]


@dataclass
class Network:
    """The book: what the objects say. `version` moves with every change."""

    topologies: dict[str, NetworkTopology] = field(default_factory=dict)
    version: int = 0
    _flows: dict[Key, tuple[Flow, ...]] = field(default_factory=dict)

    def set_topology(self, name: str, topology: NetworkTopology | None) -> None:
        """A topology came, changed or went."""
        self.topologies.pop(name, None)
        if topology is not None:
            self.topologies[name] = topology
        self.version += 1

    def set_graph(self, key: Key, graph: CallGraph | None) -> None:
        """A call graph came, changed or went."""
        self._flows.pop(key, None)
        if graph is not None:
            self._flows[key] = _flows(graph)
        self.version += 1

    @property
    def flows(self) -> Iterable[Flow]:
        """All calls of all graphs."""
        return (flow for flows in self._flows.values() for flow in flows)

    def of(self, group: PodGroup) -> tuple[Flow, ...]:
        """The calls that pods of this group make or take."""
        return tuple(
            flow for flow in self.flows if flow.caller.holds(group) or flow.callee.holds(group)
        )


def _flows(graph: CallGraph) -> tuple[Flow, ...]:
    sets: Mapping[str, PodSet] = {}
    try:
        sets = {
            workload.name: PodSet(
                (Condition(frozenset({graph.metadata.namespace}), Selector.of(workload.selector)),),
                staying=True,
            )
            for workload in graph.spec.workloads
        }
    except SelectorError as error:
        log.warning("call graph's selector not understood", key=graph.key, error=str(error))
    return tuple(
        Flow(
            sets[call.from_],
            sets[call.to],
            call.weight,
            call.max_latency_ms,
            bits(call.min_bandwidth) if call.min_bandwidth is not None else 0.0,
            (call.from_, call.to),
        )
        for call in graph.spec.calls
        if call.from_ in sets and call.to in sets
    )
