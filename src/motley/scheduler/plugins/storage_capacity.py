"""How much storage drivers can still make, node by node, as they say in CSIStorageCapacity objects.

A driver that manages the disks of the nodes writes one such object per node and class, so there may
be thousands. They become one column per class, made when a pod first asks and kept until a
capacity or a node changes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from motley.api import quantity
from motley.api.views.base import Key
from motley.api.views.pod import NodeSelectorRequirement, NodeSelectorTerm
from motley.api.views.storage import CSIStorageCapacity
from motley.scheduler.columns import Columns, Mask, Scores
from motley.scheduler.plugins.node_affinity import match_term
from motley.scheduler.volumes import Volumes


class Capacity(NamedTuple):
    """By row; negative where nothing is said."""

    largest: Scores  # volume that can be made
    total: Scores


def largest_volume(capacity: CSIStorageCapacity) -> int | None:
    """The largest volume that can be made; None: not known, so none."""
    size = capacity.maximum_volume_size
    size = capacity.capacity if size is None else size
    return None if size is None else quantity.to_int(size)


class Capacities:
    """Reads them out of the book."""

    def __init__(self, book: Volumes, nodes: Columns) -> None:
        self._book = book
        self._nodes = nodes
        self._made_at = (-1, -1)
        self._columns: dict[str, Capacity] = {}
        self._reach: dict[Key, npt.NDArray[np.intp]] = {}

    def of(self, storage_class: str) -> Capacity:
        """What can be made of a class; where two say something, the larger counts."""
        now = (self._nodes.generation, self._book.capacities_version)
        if now != self._made_at:
            self._columns.clear()
            if now[0] != self._made_at[0]:
                self._reach.clear()
            self._made_at = now
        column = self._columns.get(storage_class)
        if column is None:
            column = self._columns[storage_class] = self._read(storage_class)
        return column

    def _read(self, storage_class: str) -> Capacity:
        size = self._nodes.size
        found = Capacity(np.full(size, -1.0), np.full(size, -1.0))
        for key, capacity in self._book.capacities.items():
            largest = largest_volume(capacity)
            if capacity.storage_class_name != storage_class or largest is None:
                continue
            rows = self._rows(key, capacity)
            better = rows[found.largest[rows] < largest]
            found.largest[better] = largest
            found.total[better] = quantity.to_int(capacity.capacity or 0)
        return found

    def _rows(self, key: Key, capacity: CSIStorageCapacity) -> npt.NDArray[np.intp]:
        """The rows a capacity is within reach of; that never changes while the nodes stay."""
        rows = self._reach.get(key)
        if rows is None:
            rows = self._reach[key] = self._match(capacity)
        return rows

    def _match(self, capacity: CSIStorageCapacity) -> npt.NDArray[np.intp]:
        topology = capacity.node_topology
        if topology is None:
            return np.zeros(0, np.intp)
        expressions = [
            NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in topology.match_labels.items()
        ]
        expressions += [
            NodeSelectorRequirement(key=e.key, operator=e.operator, values=list(e.values))
            for e in topology.match_expressions
        ]
        if not expressions:
            return np.arange(self._nodes.size)
        return np.flatnonzero(
            match_term(NodeSelectorTerm(match_expressions=expressions), self._nodes)
        )


class Fill:
    """How much claims would fill, by class and row."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._classes: dict[str, tuple[Mask, Scores, Scores]] = {}  # where, wanted, there is
        self.any = np.zeros(size, np.bool_)

    def add(
        self, kind: str, where: Mask, size: float, there: Scores, *, anew: bool = False
    ) -> None:
        """A claim of a class. Volumes add up; what is made comes out of one capacity."""
        known, wanted, capacity = self._classes.setdefault(
            kind, (np.zeros(self._size, np.bool_), np.zeros(self._size), np.zeros(self._size))
        )
        known |= where
        wanted[where] += size
        capacity[where] = there[where] if anew else (capacity + there)[where]
        self.any |= where

    def mean(self, line: Callable[[Scores], Scores]) -> Scores:
        """The mean of the classes' scores, 0 where there is none."""
        total, number = np.zeros((2, self._size))
        for known, wanted, capacity in self._classes.values():
            full = (capacity == 0) | (wanted > capacity)
            percent = np.floor(wanted * 100 / np.maximum(capacity, 1))
            total += np.where(known, line(np.where(full, 100.0, percent)), 0.0)
            number += known
        return np.floor(total / np.maximum(number, 1) + 0.5)
