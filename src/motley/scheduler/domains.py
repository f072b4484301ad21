"""Topology domains: the nodes that have the same value of a label.

Affinity and spreading count pods per domain. A label's values are numbered among all values of
all labels; here its own are numbered from 1, so that a count per zone is an array of as many
numbers as there are zones. Where no two nodes share a value, as with hostnames, nothing need be
added up at all; elsewhere what was added up once is kept along with every pod that comes and goes.

Invariant: sums that are given out equal those of the column as it is.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from motley.scheduler.interning import ABSENT

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.float64]  # by row, or by domain
Numbers = npt.NDArray[np.intp]  # by row: the domain's, ABSENT outside of all

_LABELS_KEPT = 4


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """The nodes by the value of one label. True as long as no node changes."""

    of_row: Numbers
    labelled: Mask  # rows that are in a domain
    count: int  # of numbers, ABSENT included
    are_single: bool  # no two nodes share a domain

    @classmethod
    def of(cls, values: npt.NDArray[np.int32]) -> "Domains":
        """By the values of the label, ABSENT where a node has none."""
        present, of_row = np.unique(values, return_inverse=True)
        of_row = of_row.reshape(-1)
        if not len(present) or present[0] != ABSENT:
            of_row = of_row + 1
            count = len(present) + 1
        else:
            count = len(present)
        labelled: Mask = of_row != ABSENT
        return cls(of_row, labelled, count, bool(np.count_nonzero(labelled) == count - 1))

    def only(self, rows: Mask) -> "Domains":
        """The same, but for the other rows being in no domain."""
        labelled = self.labelled & rows
        return Domains(np.where(rows, self.of_row, ABSENT), labelled, self.count, self.are_single)

    def sums(self, counts: Counts) -> Counts:
        """By domain: the sum over its nodes. Outside of all domains there is nothing."""
        total = np.asarray(
            np.bincount(self.of_row, weights=counts, minlength=self.count), np.float64
        )
        total[ABSENT] = 0
        return total

    def by_row(self, per_domain: Counts) -> Counts:
        """By row: what its domain has."""
        return per_domain.take(self.of_row)

    def summed(self, counts: Counts) -> Counts:
        """By row: the sum over its domain."""
        return counts * self.labelled if self.are_single else self.by_row(self.sums(counts))

    def touched(self, counts: Counts) -> Mask:
        """Rows in a domain that has anything."""
        if self.are_single:
            return (counts > 0) & self.labelled
        return (self.sums(counts) > 0).take(self.of_row)


class Sums:
    """Sums of one column over domains, for a few labels, changed along with the column.

    Domains are known by who they are: when a node changes there are new ones, and the sums of the
    old, which may be wrong by then, are never asked for again.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Domains, Counts] = {}

    def of(self, domains: Domains, counts: Counts) -> Counts:
        """By domain, `counts` being the column. Not to be written to."""
        found = self._kept.get(domains)
        if found is None:
            if len(self._kept) >= _LABELS_KEPT:
                self._kept.clear()
            found = self._kept[domains] = domains.sums(counts)
        return found

    def add(self, row: int, change: float) -> None:
        """The column has changed in a row."""
        for domains, sums in self._kept.items():
            if row < len(domains.of_row) and domains.labelled[row]:
                sums[domains.of_row[row]] += change
