"""Sums over topology domains: the nodes that have the same value of a label."""

import numpy as np
import numpy.typing as npt

from motley.scheduler.columns import Columns
from motley.scheduler.contract import Mask
from motley.scheduler.interning import ABSENT
from motley.scheduler.podsets import Counts

Domains = (
    npt.NDArray[np.int32] | npt.NDArray[np.intp]
)  # by row: the number of the domain, ABSENT outside of all


def sums(domains: Domains, counts: Counts, numbers: int) -> Counts:
    """By number of the domain: the sum over its nodes. Outside of all domains there is nothing."""
    total = np.asarray(np.bincount(domains, weights=counts, minlength=numbers), np.float64)
    total[ABSENT] = 0
    return total


def spread(nodes: Columns, key: str, counts: Counts) -> Counts:
    """By row: the sum over the row's domain."""
    domains = nodes.label(key)
    return sums(domains, counts, 1).take(domains)


def touched(nodes: Columns, key: str, counts: Counts) -> Mask:
    """Rows whose domain holds anything."""
    domains = nodes.label(key)
    found: Mask = (sums(domains, counts, 1) > 0).take(domains)
    return found
