"""What the pods of each priority request, node by node.

Preemption asks of thousands of nodes at once: would there be room if everything below this
priority were gone? One matrix per priority, kept along with every pod that comes and goes, answers
without looking at a single pod.

Invariant: the matrices of all priorities add up to the columns' `requested`.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.float64]  # [resource, row]

_PODS_ROW = 3  # as in the columns
_EMPTY_KEPT = 32  # priorities; a busy one is not made anew whenever its last pod goes


class Ranks:
    """Requests by priority. Changed by the columns only."""

    def __init__(self) -> None:
        self._levels: dict[int, Amounts] = {}
        self._pods: dict[int, int] = {}

    def count(
        self,
        priority: int,
        row: int,
        amounts: Iterable[tuple[int, int]],
        sign: int,
        shape: tuple[int, ...],
    ) -> None:
        """A pod came (+1) or went (-1); `shape`: that of the columns' `requested`."""
        level = self._levels.get(priority)
        if level is None or level.shape != shape:
            level = self._levels[priority] = _grown(level, shape)
        for resource, value in amounts:
            level[resource, row] += sign * value
        level[_PODS_ROW, row] += sign
        left = self._pods[priority] = self._pods.get(priority, 0) + sign
        if not left and len(self._pods) > _EMPTY_KEPT:
            del self._levels[priority], self._pods[priority]

    def below(self, priority: int) -> list[tuple[int, Amounts]]:
        """The priorities below this one that somebody has, lowest first, with their matrices."""
        return sorted(
            (
                (level, amounts)
                for level, amounts in self._levels.items()
                if level < priority and self._pods[level]
            ),
            key=lambda entry: entry[0],
        )

    def pods_below(self, priority: int, size: int) -> Amounts:
        """By row: how many pods have a lower priority."""
        total = np.zeros(size)
        for _, amounts in self.below(priority):
            width = min(size, amounts.shape[1])
            total[:width] += amounts[_PODS_ROW, :width]
        return total


def _grown(old: Amounts | None, shape: tuple[int, ...]) -> Amounts:
    new = np.zeros(shape)
    if old is not None:
        new[: old.shape[0], : old.shape[1]] = old
    return new
