"""Pods thought away from their nodes, many nodes at a time: what preemption tries out.

Taking pods out of the columns and putting them back costs more than asking the filters. So the
pods that might have to go from a number of nodes are lined up in a matrix, a column per node and
the pod that comes back first on top; who is gone is a matrix of booleans beside it, and what
leaves with them are sums over both.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from motley.scheduler.columns import PODS_ROW, Columns, Mask, PlacedPod, Scores
from motley.scheduler.podinfo import PodInfo
from motley.scheduler.podsets import Counts, PodSet, Term

Ordered = Sequence[tuple[PlacedPod, bool]]  # who comes back first; does its end violate a budget?


class Gone(Protocol):
    """Pods that are thought away, from each row those of its own."""

    def of(self, pods: PodSet) -> Counts:
        """By row: how many pods of a set are gone."""

    def away(self, term: Term) -> Counts:
        """By row: how many pods with this term to be away from others are gone."""


class Lower:
    """All pods below a priority."""

    def __init__(self, nodes: Columns, priority: int) -> None:
        self._nodes = nodes
        self._priority = priority

    def of(self, pods: PodSet) -> Counts:
        """By row: how many pods of a set are gone."""
        return self._nodes.tallies.below(pods, self._priority, self._nodes.size)

    def away(self, term: Term) -> Counts:
        """By row: how many pods with this term to be away from others are gone."""
        return self._nodes.standing.away_below(term, self._priority, self._nodes.size)


class Lineup:
    """The pods of some rows; at first all of them are gone.

    `requested` is that of `Columns.what_if`, which is changed along.
    """

    def __init__(self, nodes: Columns, tried: Mapping[int, Ordered], requested: Scores) -> None:
        self._nodes = nodes
        self._tried = tried
        self._requested = requested
        self.rows = np.fromiter(tried, np.intp, len(tried))
        self._infos = [placed.info for order in tried.values() for placed, _ in order]
        lengths = np.fromiter(map(len, tried.values()), np.intp, len(tried))
        steps = np.arange(lengths.max(initial=0))
        self._there: Mask = steps[:, None] < lengths
        self._gone: Mask = self._there.copy()
        self._templates, self._template_of = _distinct([i.template for i in self._infos])
        self._counts: dict[PodSet | Term, Scores] = {}
        self._amounts = self._requests()
        requested[:, self.rows] -= self._amounts.sum(axis=0)

    def of(self, pods: PodSet) -> Counts:
        """By row: how many pods of a set are gone."""
        if not self._infos:
            return np.zeros(self._nodes.size)
        if pods not in self._counts:
            self._counts[pods] = self._matrix(lambda info: float(pods.holds(info.group)))
        return self._sum(self._counts[pods])

    def away(self, term: Term) -> Counts:
        """By row: how many pods with this term to be away from others are gone."""
        if not self._infos:
            return np.zeros(self._nodes.size)
        if term not in self._counts:
            self._counts[term] = self._matrix(lambda info: float(info.terms.away.count(term)))
        return self._sum(self._counts[term])

    def reprieve(self, fitting: Callable[[], Mask]) -> dict[int, list[PlacedPod]]:
        """Step by step one pod comes back on each row; who leaves no room again is a victim."""
        for step, returning in enumerate(self._there):
            self._move(step, returning, 1)
            self._move(step, returning & ~fitting()[self.rows], -1)
        gone = self._gone.T.tolist()
        return {
            row: [placed for (placed, _), is_gone in zip(order, column, strict=False) if is_gone]
            for (row, order), column in zip(self._tried.items(), gone, strict=True)
        }

    def _move(self, step: int, which: Mask, sign: int) -> None:
        self._requested[:, self.rows] += sign * self._amounts[step] * which
        self._gone[step][which] = sign < 0

    def _sum(self, counts: Scores) -> Counts:
        by_row = np.zeros(self._nodes.size)
        by_row[self.rows] = (counts * self._gone).sum(axis=0)
        return by_row

    def _matrix(self, value: Callable[[PodInfo], float]) -> Scores:
        """[step, column]: of each pod; asked once per template."""
        values = np.array([value(self._infos[first]) for first in self._templates])
        matrix = np.zeros(self._there.shape)
        matrix.T[self._there.T] = values[self._template_of]
        return matrix

    def _requests(self) -> Scores:
        """[step, resource, column]: what each pod requests."""
        # Not by template: Hicev2 counts pods of one template by the node they are on.
        firsts, which = _distinct([id(info.requests) for info in self._infos])
        height = self._requested.shape[0]
        amounts = np.zeros((*self._there.shape, height))
        if firsts:
            table = np.array([self._vector(self._infos[first], height) for first in firsts])
            amounts.transpose(1, 0, 2)[self._there.T] = table[which]
        return amounts.transpose(0, 2, 1)

    def _vector(self, info: PodInfo, height: int) -> npt.NDArray[np.float64]:
        amounts = np.zeros(height)
        amounts[PODS_ROW] = 1
        for name, value in info.requests.items():
            amounts[self._nodes.resources.find(name) - 1] += value
        return amounts


def _distinct(keys: list[int]) -> tuple[list[int], npt.NDArray[np.intp]]:
    """The positions of the first of each kind, and by position the number of the kind."""
    _, first, which = np.unique(np.array(keys, np.int64), return_index=True, return_inverse=True)
    return first.tolist(), which.reshape(-1)
