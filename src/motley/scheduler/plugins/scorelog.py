"""Scores per node for the log: what a plugin found, and what it made of it.

A line for thousands of nodes is put together only when the log's level wants it.
"""

from dataclasses import dataclass

import numpy as np

from motley.scheduler.contract import Columns, Mask, Scores


@dataclass(frozen=True, slots=True)
class PerNode:
    """`n-0:33→0,n-1:13→100`, made when it is written."""

    nodes: Columns
    feasible: Mask
    original: Scores
    adjusted: Scores

    def __str__(self) -> str:
        names = self.nodes.names
        return ",".join(
            f"{names[row]}:{self.original[row]:g}→{self.adjusted[row]:g}"
            for row in np.flatnonzero(self.feasible).tolist()
        )
