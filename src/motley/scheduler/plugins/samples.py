"""What was measured over a while: averages and percentiles per node.

One measurement says what a node does at a moment; whether it is a busy node only many do. The
measurements of a window are kept as rows of one matrix, a ring, so that the percentile of every
node is one sort. A window is kept in at most `SLOTS` steps: of several measurements within a step
the highest counts.

Invariant: a column belongs to one node; who takes over its row in the cluster begins with nothing.
"""

import math
from typing import Literal

import numpy as np

from motley.scheduler.contract import Columns, Scores

SLOTS = 120

Aggregation = Literal["avg", "p50", "p90", "p95", "p99"]


class Samples:
    """The measurements of one resource over one window."""

    def __init__(self, window_s: float, aggregation: Aggregation) -> None:
        self._window_s = window_s
        self._step_s = window_s / SLOTS
        self._aggregation: Aggregation = aggregation
        self._ring = np.full((SLOTS, 0), np.nan)
        self._at = np.full(SLOTS, -math.inf)  # when each row of the ring was begun
        self._next = 0
        self._names: list[str] = []
        self._seating = -1
        self._aggregate: Scores | None = None

    def take(self, nodes: Columns, values: Scores, now: float) -> None:
        """A measurement of all nodes; NaN: not of this one."""
        self._follow(nodes)
        last = self._next - 1
        if now - self._at[last] >= self._step_s:
            last = self._next
            self._at[last], self._ring[last] = now, np.nan
            self._next = (last + 1) % SLOTS
        self._ring[last] = np.fmax(self._ring[last], values)
        # What has left the window counts no more, and needs no sorting.
        self._ring[self._at <= now - self._window_s] = np.nan
        self._aggregate = None

    def aggregate(self, nodes: Columns) -> Scores:
        """By row: the average or percentile over the window; NaN where nothing was measured."""
        self._follow(nodes)
        if self._aggregate is None:
            self._aggregate = self._computed()
        return self._aggregate

    def _computed(self) -> Scores:
        # Once per measurement. NaN sorts last, so the values of a node are the first of its column.
        ordered = np.sort(self._ring[np.isfinite(self._at)], axis=0)
        if not len(ordered):
            return np.full(self._ring.shape[1], np.nan)
        counts = np.count_nonzero(~np.isnan(ordered), axis=0)
        if self._aggregation == "avg":
            sums = np.nansum(ordered, axis=0)
            mean: Scores = np.full(len(counts), np.nan)
            np.divide(sums, counts, out=mean, where=counts > 0)
            return mean
        # Nearest rank: the smallest value that at least so many percent do not exceed.
        percent = int(self._aggregation.removeprefix("p"))
        rank = np.maximum(-(-percent * counts // 100) - 1, 0)
        found: Scores = np.take_along_axis(ordered, rank[np.newaxis], axis=0)[0]
        return found

    def _follow(self, nodes: Columns) -> None:
        if self._seating == nodes.seating:
            return
        self._seating = nodes.seating
        before = self._names + [""] * (len(nodes.names) - len(self._names))
        others = np.array(before) != np.array(nodes.names)
        ring = np.full((SLOTS, len(nodes.names)), np.nan)
        ring[:, : self._ring.shape[1]] = self._ring
        ring[:, others] = np.nan
        self._ring, self._names, self._aggregate = ring, list(nodes.names), None
