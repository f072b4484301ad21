"""The snapshot: every node a row, every fact a NumPy column, changed in place by events.

A plugin answers for all nodes with a few vector operations, so the scheduler never loops over
nodes in Python and never reads anything remote while it decides. Columns are laid out
fact-major (one resource of all nodes lies together), amounts are float64: whole numbers below
2⁵³ are exact in it and its division is vectorised, which 64-bit integer division is not.

Rows of removed nodes are reused. A pod placed on a node that is not known (yet, or any more)
is remembered and counted as soon as the node appears.

Invariant: after any sequence of events the columns equal those built from the final nodes and
pods at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from motley.api.views.core import Node
from motley.scheduler import facts
from motley.scheduler.domains import Domains
from motley.scheduler.facts import NodeChange, NodeFacts, TaintKey
from motley.scheduler.interning import Interner, Strings
from motley.scheduler.podinfo import (
    ANY_ADDRESS,
    CPU,
    EPHEMERAL,
    MEMORY,
    PODS,
    HostPort,
    PodInfo,
)
from motley.scheduler.podsets import StandingTerms, Tallies
from motley.scheduler.ranks import Ranks
from motley.scheduler.sparse import SparseColumn

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp] | slice
EVERY_ROW = slice(None)

CPU_ROW, MEMORY_ROW, EPHEMERAL_ROW, PODS_ROW = range(4)

_FIRST_CAPACITY = 64
_TAINTS_PER_WORD = 64


@dataclass(slots=True)
class PlacedPod:
    """A pod that takes room on a node."""

    info: PodInfo
    node: str
    assumed: bool


class Follower(Protocol):
    """A book beside the columns that goes by the same rows, such as that of volumes."""

    def counted(self, info: PodInfo, row: int, sign: int) -> None:
        """A pod with volumes is counted on a row (+1), or no longer (-1)."""

    def seated(self, node: str, row: int) -> None:
        """The node has this row from now on; its pods are yet to be counted."""

    def vacated(self, node: str, row: int) -> None:
        """The row is free; its pods are counted no longer."""


class Columns:
    """The cluster as the plugins see it. Public arrays are views of `size` rows: read only."""

    live: Mask
    unschedulable: Mask
    ready: Mask
    arch: npt.NDArray[np.int32]
    os: npt.NDArray[np.int32]
    taints: npt.NDArray[np.uint64]  # [word, row], one bit per distinct taint
    allocatable: Scores  # [resource, row]
    reported: Scores  # [cpu or memory, row]: allocatable before over-commitment raised it
    requested: Scores  # [resource, row]
    nonzero: Scores  # [cpu or memory, row]: requested, with defaults for the unstated
    touched: npt.NDArray[np.int64]  # `pods_version` when a pod last came to the row or left it

    def __init__(self) -> None:
        self.size = 0
        self.rows: dict[str, int] = {}
        self.names: list[str] = []  # by row; empty for a free one
        self.facts: dict[str, NodeFacts] = {}
        self.resources = Interner[str]()
        for name in (CPU, MEMORY, EPHEMERAL, PODS):
            self.resources.intern(name)
        self.platforms = Strings()  # numbers of `arch` and `os`
        self.values = Strings()  # numbers of label values
        self.taint_kinds = Interner[TaintKey]()
        # Counts changes of anything but the pods on the nodes: what was computed from labels,
        # taints and the like stays true until this moves.
        self.generation = 0
        # Counts nodes that come and go: which node a row belongs to stays true until this moves.
        self.seating = 0
        # Counts pods that come and go: what was computed of a row's own pods stays true until
        # `touched` of that row is above the version it was computed at.
        self.pods_version = 0
        self.placed: dict[str, PlacedPod] = {}  # by pod uid
        self.ranks = Ranks()  # requested, by priority
        self.tallies = Tallies()  # how many pods of a set there are, by row
        self.standing = StandingTerms()  # what placed pods demand of others, by row
        self._followers: list[Follower] = []
        self._by_node: dict[str, dict[str, PlacedPod]] = {}
        self._labels: dict[str, SparseColumn[np.int32]] = {}
        self._domains: dict[str, Domains] = {}
        self._domains_of = -1  # generation
        self._images: dict[str, SparseColumn[np.float64]] = {}
        self._ports: dict[tuple[str, int], dict[str, SparseColumn[np.int32]]] = {}
        self._free: list[int] = []
        self._capacity = 0
        self._raw: dict[str, npt.NDArray[Any]] = {
            "live": np.zeros(0, np.bool_),
            "unschedulable": np.zeros(0, np.bool_),
            "ready": np.zeros(0, np.bool_),
            "arch": np.zeros(0, np.int32),
            "os": np.zeros(0, np.int32),
            "taints": np.zeros((1, 0), np.uint64),
            "allocatable": np.zeros((4, 0)),
            "reported": np.zeros((2, 0)),
            "requested": np.zeros((4, 0)),
            "nonzero": np.zeros((2, 0)),
            "touched": np.zeros(0, np.int64),
        }
        self._expose()

    def follow(self, follower: Follower) -> None:
        """Tell a book of everything that is here, and of every change from now on."""
        self._followers.append(follower)
        for name, row in self.rows.items():
            follower.seated(name, row)
            for placed in self.pods_on(name).values():
                if placed.info.volumes:
                    follower.counted(placed.info, row, 1)

    # -- what plugins ask -------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self.rows)

    def resource(self, name: str) -> int | None:
        """The row of a resource in `allocatable` and `requested`; None: nobody has it."""
        number = self.resources.find(name)
        return number - 1 if number > 0 else None

    def label(self, key: str) -> npt.NDArray[np.int32]:
        """By row: the number (in `values`) of this label's value, ABSENT where unset."""
        column = self._labels.get(key)
        return column.dense(self.size) if column else np.zeros(self.size, np.int32)

    def domains(self, key: str) -> Domains:
        """The nodes by this label's value."""
        if self._domains_of != self.generation:
            self._domains.clear()
            self._domains_of = self.generation
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains.of(self.label(key))
        return found

    def image_bytes(self, image: str) -> tuple[Scores, int] | None:
        """By row: the size of an image there, 0 where absent; and how many nodes have it."""
        column = self._images.get(image)
        return (column.dense(self.size), len(column)) if column else None

    def ports_free(self, wanted: HostPort, rows: Rows) -> Mask:
        """By row: does no pod there hold the port? The wildcard address meets every other."""
        free: Mask = np.ones(self.size, np.bool_)[rows]
        for address, column in self._ports.get((wanted.protocol, wanted.port), {}).items():
            if wanted.address in (ANY_ADDRESS, address) or address == ANY_ADDRESS:
                free &= column.dense(self.size)[rows] == 0
        return free

    def touched_since(self, version: int) -> npt.NDArray[np.intp]:
        """The rows whose pods have changed after this `pods_version`."""
        return (self.touched > version).nonzero()[0]

    def rows_named(self, names: Iterable[str]) -> list[int]:
        """The rows of those of these nodes that exist."""
        return [self.rows[name] for name in names if name in self.rows]

    def pods_on(self, node: str) -> Mapping[str, PlacedPod]:
        """The pods counted on a node, by uid."""
        return self._by_node.get(node, {})

    @contextmanager
    def what_if(self) -> Iterator[Scores]:
        """Inside, the yielded `requested` (of all rows, used or not) may be written to; afterwards
        it is as it was. For questions that only sums of requests decide."""
        requested = self._raw["requested"]
        kept = requested.copy()
        try:
            yield requested
        finally:
            requested[...] = kept

    # -- nodes ------------------------------------------------------------------------------

    def set_node(self, node: Node) -> NodeChange | None:
        """Add a node, or change it; None: it is new."""
        name, new = node.metadata.name, facts.of(node)
        before = self.facts.get(name)
        if before is None:
            row = self._take_row(name)
            change = None
            for follower in self._followers:
                follower.seated(name, row)
            for placed in self._by_node.get(name, {}).values():
                self._count(placed.info, row, 1)
        else:
            change = facts.difference(before, new)
            if not change.anything:
                return change
            row = self.rows[name]
        self.facts[name] = new
        self.generation += 1
        self._write(row, new, before)
        return change

    def remove_node(self, name: str) -> bool:
        """Free a node's row; the pods on it stay known. False: there was no such node."""
        row = self.rows.pop(name, None)
        if row is None:
            return False
        for placed in self._by_node.get(name, {}).values():
            self._count(placed.info, row, -1)
        for follower in self._followers:
            follower.vacated(name, row)
        before = self.facts.pop(name)
        self._write(row, facts.NOTHING, before)
        for column in ("allocatable", "reported", "requested", "nonzero"):
            self._raw[column][:, row] = 0
        self._raw["live"][row] = False
        self.names[row] = ""
        self._free.append(row)
        self.generation += 1
        self.seating += 1
        return True

    def _take_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = self.size
            self.size += 1
            self.names.append(name)
            if self.size > self._capacity:
                self._grow(max(_FIRST_CAPACITY, self._capacity * 2))
            self._expose()
        self.rows[name] = row
        self.seating += 1
        self._raw["live"][row] = True
        return row

    def _grow(self, capacity: int) -> None:
        for name, old in self._raw.items():
            new = np.zeros((*old.shape[:-1], capacity), old.dtype)
            new[..., : old.shape[-1]] = old
            self._raw[name] = new
        self._capacity = capacity

    def _deepen(self, name: str, depth: int) -> None:
        """More rows of a fact-major matrix: a new extended resource, a 65th taint."""
        old = self._raw[name]
        new = np.zeros((depth, old.shape[1]), old.dtype)
        new[: old.shape[0]] = old
        self._raw[name] = new
        self._expose()

    def _expose(self) -> None:
        for name, array in self._raw.items():
            setattr(self, name, array[..., : self.size])

    def _write(self, row: int, new: NodeFacts, before: NodeFacts | None) -> None:
        raw = self._raw
        raw["unschedulable"][row] = new.unschedulable
        raw["ready"][row] = new.ready
        raw["arch"][row] = self.platforms.intern(new.arch) if new.arch else 0
        raw["os"][row] = self.platforms.intern(new.os) if new.os else 0
        for name in {**(before.allocatable if before else {}), **new.allocatable}:
            resource = self._resource_row(name)
            self._raw["allocatable"][resource, row] = new.allocatable.get(name, 0)
        raw["reported"][:, row] = [new.reported.get(name, 0) for name in (CPU, MEMORY)]
        self._write_taints(row, new.taints)
        for key in {**(before.labels if before else {}), **new.labels}:
            value = new.labels.get(key)
            number = self.values.intern(value) if value is not None else None
            _store(self._labels, key, np.int32, row, number)
        for image in {**(before.images if before else {}), **new.images}:
            _store(self._images, image, np.float64, row, new.images.get(image))

    def _resource_row(self, name: str) -> int:
        row = self.resources.intern(name) - 1
        if row >= self._raw["allocatable"].shape[0]:
            self._deepen("allocatable", row + 1)
            self._deepen("requested", row + 1)
        return row

    def _write_taints(self, row: int, taints: tuple[TaintKey, ...]) -> None:
        numbers = [self.taint_kinds.intern(taint) - 1 for taint in taints]
        words = len(self.taint_kinds) // _TAINTS_PER_WORD + 1
        if words > self._raw["taints"].shape[0]:
            self._deepen("taints", words)
        column = self._raw["taints"]
        column[:, row] = 0
        for number in numbers:
            word, bit = divmod(number, _TAINTS_PER_WORD)
            column[word, row] |= np.uint64(1 << bit)

    # -- pods -------------------------------------------------------------------------------

    def add_pod(self, info: PodInfo, node: str, *, assumed: bool = False) -> None:
        """Count a pod on a node; a pod that is counted already is moved or confirmed."""
        known = self.placed.get(info.uid)
        if known is not None:
            if known.node == node and known.info.template == info.template:
                known.info, known.assumed = info, known.assumed and assumed
                return
            self.remove_pod(info.uid)
        placed = PlacedPod(info, node, assumed)
        self.placed[info.uid] = placed
        self._by_node.setdefault(node, {})[info.uid] = placed
        row = self.rows.get(node)
        if row is not None:
            self._count(info, row, 1)

    def remove_pod(self, uid: str) -> PlacedPod | None:
        """Count a pod no longer; None: it was not counted."""
        placed = self.placed.pop(uid, None)
        if placed is None:
            return None
        there = self._by_node[placed.node]
        del there[uid]
        if not there:
            del self._by_node[placed.node]
        row = self.rows.get(placed.node)
        if row is not None:
            self._count(placed.info, row, -1)
        return placed

    def touch(self, node: str) -> None:
        """Something about a node's pods changed that is in no column: since when they run."""
        row = self.rows.get(node)
        if row is not None:
            self._touch(row)

    def _touch(self, row: int) -> None:
        self.pods_version += 1
        self._raw["touched"][row] = self.pods_version

    def _count(self, info: PodInfo, row: int, sign: int) -> None:
        self._touch(row)
        rows = [(self._resource_row(name), value) for name, value in info.requests.items()]
        requested = self._raw["requested"]
        for resource, value in rows:
            requested[resource, row] += sign * value
        requested[PODS_ROW, row] += sign
        self.ranks.count(info.priority, row, rows, sign, requested.shape)
        nonzero = self._raw["nonzero"]
        nonzero[0, row] += sign * info.nonzero_cpu
        nonzero[1, row] += sign * info.nonzero_memory
        self.tallies.count(info.group, info.priority, row, sign)
        if info.terms:
            self.standing.count(info.terms, info.priority, row, sign)
        if info.volumes:
            for follower in self._followers:
                follower.counted(info, row, sign)
        for port in info.host_ports:
            holders = self._ports.setdefault((port.protocol, port.port), {})
            column = holders.setdefault(port.address, SparseColumn(np.int32))
            left = int(column.values.get(row, 0)) + sign
            if left > 0:
                column.set(row, left)
            else:
                column.clear(row)


def _store(
    columns: dict[str, SparseColumn[Any]],
    key: str,
    dtype: type[Any],
    row: int,
    value: int | float | None,
) -> None:
    column = columns.get(key)
    if value is None:
        if column is not None:
            column.clear(row)
            if not column:
                del columns[key]
    else:
        if column is None:
            column = columns[key] = SparseColumn(dtype)
        column.set(row, value)
