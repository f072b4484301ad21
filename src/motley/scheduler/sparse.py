"""A column that few or many nodes have a value in: a label key, an image, a host port.

Keeping a dense array for every label key and image ever seen would cost megabytes for values
nobody asks about. The truth is a dict row → value, changed by events; the dense array is
made (without a Python loop) when a pod first asks, and from then on changed along.

Invariant: where a dense array exists it equals the dict.
"""

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from motley.scheduler.domains import Domains, Sums

D = TypeVar("D", np.int32, np.float64)


class SparseColumn(Generic[D]):
    """Values by row, zero where there is none."""

    __slots__ = ("_dense", "_dtype", "_sums", "values")

    def __init__(self, dtype: type[D]) -> None:
        self.values: dict[int, int | float] = {}
        self._dtype: type[D] = dtype
        self._dense: npt.NDArray[D] | None = None
        self._sums: Sums | None = None

    def set(self, row: int, value: int | float) -> None:
        """Give a row a value."""
        if self._sums is not None:
            self._sums.add(row, value - self.values.get(row, 0))
        self.values[row] = value
        if self._dense is not None:
            if row < len(self._dense):
                self._dense[row] = value
            else:
                self._dense = None

    def clear(self, row: int) -> None:
        """Take a row's value away."""
        before = self.values.pop(row, None)
        if before is None:
            return
        if self._dense is not None:
            self._dense[row] = 0
        if self._sums is not None:
            self._sums.add(row, -before)

    def dense(self, size: int) -> npt.NDArray[D]:
        """All rows; not to be written to."""
        if self._dense is None or len(self._dense) != size:
            self._dense = np.zeros(size, dtype=self._dtype)
            count = len(self.values)
            if count:
                rows = np.fromiter(self.values.keys(), dtype=np.intp, count=count)
                self._dense[rows] = np.fromiter(
                    self.values.values(), dtype=self._dtype, count=count
                )
        return self._dense

    def by_domain(self, domains: Domains, size: int) -> npt.NDArray[np.float64]:
        """By domain: the sum over its rows; not to be written to."""
        if self._sums is None:
            self._sums = Sums()
        return self._sums.of(domains, self.dense(size).astype(np.float64, copy=False))

    def rows(self) -> npt.NDArray[np.intp]:
        """The rows that have a value."""
        return np.fromiter(self.values.keys(), dtype=np.intp, count=len(self.values))

    def __len__(self) -> int:
        return len(self.values)
